"""What stands beside the page's run: another model, another prompt, or the same model with edits.

Owns the pickers of A and B, the modes and the swap; running B is `runs.py`'s.

Run B and the numbers of the comparison, worked out beside the page with progress and Stop.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from mta_viz.analysis.attention.spans import QUESTION, Span, needle_spans
from mta_viz.analysis.cause.answers import rerun
from mta_viz.analysis.compare.comparing import Comparison, Spans, compare_runs, identity_plan, spans_beside
from mta_viz.analysis.compare.pairs import Rule
from mta_viz.checkpoint.reading import Found
from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.model.plans import Plan, plan_as_data
from mta_viz.run.tracing import Trace, capture
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.ui.shell import cache, state, work
from mta_viz.ui.shell import models as registry
from mta_viz.ui.shell import plan as plan_state
from mta_viz.ui.shell.cache import ModelKey, RunKey, stores
from mta_viz.ui.shell.loading import model_of
from mta_viz.ui.shell.models import beside, can_run
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Part
from mta_viz.ui.shell.sidebar import use_prompt
from mta_viz.ui.shell.state import MAX_CHARACTERS
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work

TWO_MODELS, TWO_PROMPTS, EDITS = MODES = ("two models", "two prompts", "with / without edits")
ASKED = " (asked)"  # at the end of a needle span's name
IDENTITY = "same model, kernels at identity"
MODE, MODEL_B, STEP_B, PROMPT_B = "mode", "b", "b step", "b prompt"  # names of settings, in the address too
NOTHING_EDITED = (
    "Nothing is edited. Make a plan on the Surgery page, or compare with the kernels at identity: "
    f"“{TWO_MODELS}”, B “{IDENTITY}”."
)


@dataclass(frozen=True)
class Side:
    """Run B: a `run` of its own, or the page's run under a `plan`. `name_a`, `name_b` are for headings."""

    name_a: str
    name_b: str
    run: RunKey | None = None
    plan: Plan = ()


def pick_side(page: Page) -> Side | None:
    """Draw the header's row and say what B is; None: it was said what to do first."""
    mode = st.segmented_control("What differs", MODES, required=True, **state.kept(MODE, TWO_MODELS, MODES))
    if mode == TWO_PROMPTS:
        return _two_prompts(page)
    return _edits(page) if mode == EDITS else _two_models(page)


def _two_models(page: Page) -> Side | None:
    models = _models()
    here = _here(page, models)
    others = [name for name in models if name != here or len(_steps(models[name])) > 1]
    options, twin = [IDENTITY, *others], registry.twin_of(here, others)
    if state.get("b of", here) != here:  # another A: its own twin stands beside it
        state.put(MODEL_B, None)
    state.put("b of", here)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _pick_a(here, models)
        default = twin or IDENTITY
        name = st.selectbox(
            "B",
            options,
            width=300,
            help="The model beside it, on the same prompt.",
            **state.kept(MODEL_B, default, options),
        )
        step = _pick_step(models[name]) if name in models else None
        _draw_swap(name in models and name != here, lambda: _swap_models(here, name))
    a = _with_step(here, page.model_key)
    if name == IDENTITY:
        return Side(a, "kernels at identity", plan=identity_plan(page.model))
    key = _model_key(page, models[name], step)
    return Side(a, _with_step(name, key), RunKey(key, _prompt(page.trace.tokens)))


def _pick_a(here: str, models: Mapping[str, Found]) -> None:
    """The page's own model: the same choice as in the sidebar."""
    names = list(models) if here in models else [here, *models]
    st.session_state["compare.a"] = here
    st.selectbox("A", names, width=300, key="compare.a", on_change=_take_a, help="The sidebar's checkpoint.")


def _take_a() -> None:
    _choose(st.session_state["compare.a"])


def _choose(name: str) -> None:
    """Another model for the page. The chosen head stays: pairs say what stands beside it."""
    state.select(checkpoint=name, query=None, key=None, place=None)
    state.part(Part).crop = None


def _swap_models(a: str, b: str) -> None:
    state.put(MODEL_B, a)
    state.put("b of", b)
    _choose(b)


def _draw_swap(possible: bool, swap: Callable[[], None]) -> None:
    st.button(
        "Swap",
        key="compare.swap",
        icon=":material/swap_horiz:",
        disabled=not possible,
        on_click=swap,
        help="A becomes B and B becomes A.",
    )


def _two_prompts(page: Page) -> Side | None:
    tokens: Tokens = page.trace.tokens
    own = tokens.text
    if own is None:
        st.info("Two prompts need the model's tokenizer; token ids can be compared on two models.")
        return None
    minimal = other_question(tokens, page.model.tokenizer)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_area(
            "Prompt B",
            height=80,
            placeholder="Prompt A with one thing changed",
            **state.kept(PROMPT_B, minimal),
        )
        _draw_swap(bool(text) and text != own, lambda: _swap_prompts(own, text))
    if not text:
        st.info("Type a second prompt: the first, in the sidebar, with one thing changed shows most.")
        return None
    if len(text) > MAX_CHARACTERS and text != minimal:
        caption(
            f"Prompt B has more than {MAX_CHARACTERS} characters: this machine keeps it for its own links; a "
            "session (Everything) carries it."
        )
    if text == own:
        caption("Both prompts are the same: change one of them.")
    if page.model_key is None:
        raise MtaVizError("this page was opened without its model's key")
    return Side("prompt A", "prompt B", RunKey(page.model_key, text))


def other_question(tokens: Tokens, tokenizer: Tokenizer | None) -> str:
    """A needle prompt that asks for another of its needles: a minimal pair; "" for other prompts.

    For the needle of equally many tokens if there is one, so that every position can be compared.
    """
    spans = needle_spans(tokens)
    asked = next((span for span in spans if span.name.endswith(ASKED)), None)
    others = [span.name for span in spans if span.letter != QUESTION and span is not asked]
    if asked is None or not others or tokens.text is None:
        return ""
    before, after = tokens.text.rsplit(asked.name.removesuffix(ASKED), 1)
    texts = [before + name + after for name in others]
    alike = (text for text in texts if tokenizer and len(tokenizer.encode(text)) == len(tokens))
    return next(alike, texts[-1])


def _swap_prompts(a: str, b: str) -> None:
    state.put(PROMPT_B, a)
    use_prompt(b)


def _edits(page: Page) -> Side | None:
    plan = plan_state.current_plan(page.model.config)
    if not plan:
        st.info(plain(NOTHING_EDITED))
        st.page_link("pages/surgery.py", label="Open Surgery", icon=":material/healing:")
        return None
    state.put("plan as data", plan_as_data(plan))
    caption("B is edited: " + ", ".join(one.text(page.numbering) for one in plan) + ".")
    return Side("original", "edited", plan=plan)


def _models() -> dict[str, Found]:
    """Those that can run, by the names the sidebar gives them."""
    found = cache.discovery(tuple(map(str, registry.roots()))).found
    names = [one.name for one in found]
    return {registry.identity(one, names): one for one in found if can_run(one)}


def _here(page: Page, models: Mapping[str, Found]) -> str:
    own = page.model_key
    return next((name for name, one in models.items() if own and str(one.path) == own.path), "this model")


def _steps(found: Found) -> tuple[int, ...]:
    return found.summary.steps if found.summary else ()


def _pick_step(found: Found) -> int | None:
    steps = _steps(found)
    if len(steps) < 2:
        return None
    return st.selectbox("B's step", steps, width=120, **state.kept(STEP_B, steps[0], steps))


def _model_key(page: Page, found: Found, step: int | None) -> ModelKey:
    """B on the same device, in the same precision."""
    if page.model_key is None:
        raise MtaVizError("this page was opened without its model's key")
    return beside(page.model_key, str(found.path), step)


def _with_step(name: str, key: ModelKey | None) -> str:
    return name if key is None or key.step is None else f"{name}, step {key.step:,}"


def _prompt(tokens: Tokens) -> str | tuple[int, ...]:
    return tokens.ids if tokens.text is None else tokens.text


RUN, NUMBERS = "compare run", "compare numbers"


@dataclass(frozen=True)
class Compared:
    """Both runs with their names, the numbers, and a key equal only for equal comparisons."""

    a: Trace
    b: Trace
    side: Side
    found: Comparison
    key: Hashable


def compared(page: Page, side: Side, span: Span | None, rule: Rule | None) -> Compared | None:
    """Run B and measure; None after Stop, with a button to go on. Raises what either raised."""
    b = work.finished(RUN, _run_key(page, side), lambda work: _run(page, side, work), stores().traces)
    if b is None:
        _draw_again()
        return None
    answer = state.get("answer") or None
    spans: Spans | Literal["asked"] | None = "asked" if span is None else spans_beside(page.trace, b, span)
    key = ("compare", page.key, _run_key(page, side), answer, spans, rule)

    def measure(work: Work) -> Comparison:
        work.begin("Comparing heads, kernels and answers")
        return compare_runs(
            page.trace, b, answer=answer, plan=side.plan, spans=spans, pair_by=rule, progress=work.report
        )

    found = work.finished(NUMBERS, key, measure)
    if found is None:
        _draw_again()
        return None
    return Compared(page.trace, b, side, found, key)


def _draw_again() -> None:
    st.button("Compare", key="compare.again", icon=":material/play_arrow:", on_click=_again)


def _again() -> None:
    for name in (RUN, NUMBERS):
        work.forget(name)


def _run_key(page: Page, side: Side) -> Hashable:
    """As other pages keep the same runs, so that each is there once."""
    return side.run if side.run is not None else ("edited", page.key, side.plan)


def _run(page: Page, side: Side, work: Work) -> Trace:
    if side.run is None:
        work.begin("Running the edited model")
        return rerun(page.trace, side.plan, work.report)
    model: Any = page.model
    if side.run.model != page.model_key:
        model = model_of(side.run.model, stores(), work)
    work.begin("Running B")
    try:
        return capture(model, side.run.prompt, progress=work.report)
    except (PromptError, TokenizerError) as error:
        raise PromptError(
            f"B ({side.name_b}) cannot run this prompt, so nothing is compared. {error}"
        ) from error
