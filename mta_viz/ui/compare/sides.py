"""What stands beside the page's run: another model, another prompt, or the same model with edits.

Owns the pickers of A and B, the modes and the swap; run B and the numbers of the comparison are worked out
beside the page with progress and Stop.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.cause.answers import rerun
from mta_viz.analysis.compare.comparing import Comparison, Paired, identity_plan, other_question
from mta_viz.checkpoint.reading import Found
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.figures.base import Source
from mta_viz.figures.compare import ComparedAnswers, side_names
from mta_viz.model.plans import Plan
from mta_viz.run.tracing import Trace, capture
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import models as registry
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import show, sidebar, state, work
from mta_viz.ui.shell.cache import RunKey, stores
from mta_viz.ui.shell.models import model_of
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Part
from mta_viz.ui.shell.state import MAX_CHARACTERS, Setting
from mta_viz.ui.shell.widgets import bar, caption, menu, plain
from mta_viz.ui.shell.work import Work

TWO_MODELS, TWO_PROMPTS, EDITS = MODES = ("two models", "two prompts", "with / without edits")
MODE, PROMPT_B = Setting("mode", TWO_MODELS), Setting("b prompt", "")
MODEL_B, STEP_B = Setting[str | None]("b", None), Setting[int | None]("b step", None)
IDENTITY = "same model, kernels at identity"  # a B
RUN, PAIRS, NUMBERS = "compare run", "compare heads", "compare numbers"  # names of work


@dataclass(frozen=True)
class Side:
    """Run B: a `run` of its own, or the page's run under a `plan`."""

    run: RunKey | None = None
    plan: Plan = ()

    def key(self, page: Page) -> Hashable:
        """As other pages keep the same runs, so that each is there once."""
        return self.run if self.run is not None else ("edited", page.key, self.plan)


def pick_side(page: Page, row: Any) -> Side | None:
    """Say in the row what differs and what B is; None: it was said what to do first."""
    with row:
        mode = bar("What differs", MODES, MODE)
    if mode == TWO_PROMPTS:
        return _two_prompts(page, row)
    return _edits(page) if mode == EDITS else _two_models(page, row)


def _two_models(page: Page, row: Any) -> Side:
    models, own = _models(), page.model_key
    here = next((name for name, model in models.items() if str(model.path) == own.path), "this model")
    others = [name for name in models if name != here or len(_steps(models[name])) > 1]
    base = next((name for name, model in models.items() if str(model.path) == own.base), None)
    options, default = [IDENTITY, *others], base or registry.twin_of(here, others) or IDENTITY
    if state.is_another("compared model", here):  # which has a twin of its own
        MODEL_B.put(None)
    with row:
        words = "The model beside it, on the same prompt."
        name = menu("B", options, MODEL_B, default=default, width=300, help=words)
        steps = _steps(models[name]) if name in models else ()
        if name == here:  # another step than the page's own
            steps = tuple(step for step in steps if step != (steps[-1] if own.step is None else own.step))
        several = len(steps) > 1 or name == here
        step = menu("B's step", steps, STEP_B, default=steps[0], width=120) if several else None
        _draw_swap(name in models and name != here, lambda: _swap_models(here, name))
    if name == IDENTITY:
        return Side(plan=identity_plan(page.model))
    tokens = page.trace.tokens
    key = registry.beside(own, str(models[name].path), step)
    return Side(RunKey(key, tokens.ids if tokens.text is None else tokens.text))


def _swap_models(a: str, b: str) -> None:
    """The chosen head stays: pairs say what stands beside it."""
    MODEL_B.put(a)
    state.is_another("compared model", b)  # so that B stays
    state.select(checkpoint=b, query=None, key=None, place=None)
    state.part(Part).crop = None


def _draw_swap(possible: bool, swap: Callable[[], None]) -> None:
    look: Any = {"icon": ":material/swap_horiz:", "help": "A becomes B and B becomes A."}
    st.button("Swap", key="compare.swap", disabled=not possible, on_click=swap, **look)


def _two_prompts(page: Page, row: Any) -> Side | None:
    tokens: Tokens = page.trace.tokens
    own = tokens.text
    if own is None:
        st.info("Two prompts need the model's tokenizer; token ids can be compared on two models.")
        return None
    minimal = other_question(tokens, page.model.tokenizer)
    with row:
        words = "Prompt A with one thing changed"
        text = st.text_area("Prompt B", height=80, placeholder=words, **PROMPT_B.widget(default=minimal))

        def swap() -> None:
            PROMPT_B.put(own)
            sidebar.use_prompt(text)

        _draw_swap(bool(text) and text != own, swap)
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
    return Side(RunKey(page.model_key, text))


def _edits(page: Page) -> Side | None:
    plan = plans.current_plan(page.model.config)
    if not plan:
        how = f"or compare with the kernels at identity: “{TWO_MODELS}”, B “{IDENTITY}”."
        st.info(plain(f"Nothing is edited. Edit, in the inspector, {how}"))
        return None
    caption("B is edited: " + ", ".join(part.text(page.numbering) for part in plan) + ".")
    return Side(plan=plan)


def _models() -> dict[str, Found]:
    return {name: model for name, model in registry.named().items() if registry.can_run(model)}


def _steps(model: Found) -> tuple[int, ...]:
    return model.summary.steps if model.summary else ()


@dataclass(frozen=True)
class Compared:
    """Both runs as what figures are drawn from, their names, and which heads are compared.

    `question`: parameters of the figures; `key` is equal only for equal runs and questions.
    """

    source: Source
    names: tuple[str, str]
    paired: Paired
    question: dict[str, Any]
    key: str


def compared(page: Page, side: Side, question: dict[str, Any]) -> Compared | None:
    """Run B and pair the heads; None after Stop, with a button to go on. Raises what either raised."""
    run_key = side.key(page)
    b = _finished(RUN, run_key, lambda work: _run(page, side, work), stores().traces)
    if b is None:
        return None
    spec, key = ComparedAnswers(**question), plans.key_of(page.key, run_key)
    source = show.source_of(replace(page, key=key), beside=Source(b.model, b, numbering=page.numbering))

    def pair(work: Work) -> Paired:
        work.begin("Pairing heads")
        return spec.paired(replace(source, progress=work.report))

    paired = _finished(PAIRS, (key, spec.span, spec.pair_by), pair)
    if paired is None:
        return None
    return Compared(source, side_names(source), paired, question, plans.key_of(key, spec))


def numbers(both: Compared) -> Comparison | None:
    """What the runs do otherwise; None after Stop, with a button to go on. Raises what it raised."""
    spec = ComparedAnswers(**both.question)

    def measure(work: Work) -> Comparison:
        work.begin("Comparing heads, kernels and answers")
        return spec.result(replace(both.source, progress=work.report))

    return _finished(NUMBERS, both.key, measure)


def _finished(name: str, *how: Any) -> Any | None:
    result = work.finished(name, *how)
    if result is None:
        look: Any = {"icon": ":material/play_arrow:", "on_click": work.forget, "args": (name,)}
        st.button("Compare", key="compare.again", **look)
    return result


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
        name = "prompt B" if model is page.model else Source(model).name
        raise PromptError(f"B ({name}) cannot run this prompt, so nothing is compared. {error}") from error
