"""The conjunction lab: do two words together find a span that each alone does not?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.conjunction import Conjunction, at_identity, check_reads_alike, conjunction
from mta_viz.analysis.labs.four_prompts import PROMPTS, FourPrompts
from mta_viz.errors import PromptError
from mta_viz.interventions.plans import everything_to_identity
from mta_viz.model.transformer import HookedMTA
from mta_viz.tracing import KERNELS_ONLY, estimate_seconds
from mta_viz.ui import cache, jobs, state
from mta_viz.ui.cache import ModelKey, Stores
from mta_viz.ui.labs.conjunction_form import BlockForm, Form, draw_form
from mta_viz.ui.labs.conjunction_view import draw_results
from mta_viz.ui.open_page import Page
from mta_viz.ui.other_models import twin_of
from mta_viz.ui.running import Job, model_of
from mta_viz.ui.waiting import time_text
from mta_viz.ui.widgets import caption, plain

NAME = "conjunction"
ITSELF = "the same model, kernels at identity"
ALONE = "nothing"
SHOWN_END = 80  # characters of a prompt: the end, where the prompts differ
LONGEST = 600.0  # seconds: of a test without anybody before the page


@dataclass
class Kept:
    """What there is so far, by the names of the models; the job writes, the page reads."""

    found: dict[str, Conjunction] = field(default_factory=dict)


def draw_conjunction(page: Page) -> None:
    """The form, the four prompts of the first sample, and what every head makes of them."""
    if page.model.kernels_only:
        raise PromptError(KERNELS_ONLY)
    if page.model.tokenizer is None:
        raise PromptError("this checkpoint came without its tokenizer; give the file at the left")
    caption(
        "The paper says that a convolution finds the sentence with both “Alice” and “rabbit”. Four "
        "prompts test it: both words asked for, each alone, neither. I = f(both) − f(A only) − f(B only) + "
        "f(neither), f what the last token gives the span."
    )
    form = draw_form(page)
    first = BlockForm(form.task, 1, form.seed) if isinstance(form, BlockForm) else form
    samples = first.samples(page.model.tokenizer)
    _draw_prompts(samples[0], isinstance(form, BlockForm))
    _draw_run(page, form, len(samples[0].prompts[0]))


def _draw_prompts(sample: FourPrompts, blocks: bool) -> None:
    texts = [prompt.text or "" for prompt in sample.prompts]
    ends = [text if len(text) <= SHOWN_END else f"… {text[-SHOWN_END:]}" for text in texts]
    st.dataframe(
        [{"prompt": name, "of the first sample": end} for name, end in zip(PROMPTS, ends, strict=True)],
        hide_index=True,
        column_config={"prompt": st.column_config.TextColumn(width="small")},
    )
    words = f"{len(sample.prompts[0])} tokens each; the span is “{sample.span.name}”."
    if blocks:
        words += (
            " Only the two letters at the end differ. A letter is replaced by one that the target block "
            "lacks, such that no block holds both letters of any of the other three prompts; sequences "
            "without such letters are passed over."
        )
    caption(words)


def _pick_beside(page: Page) -> tuple[str, ModelKey | None]:
    """What runs on the same samples: the twin, this model at identity, or nothing."""
    twin = twin_of(page.model_key) if page.model_key is not None else None
    names = [twin[0]] if twin else []
    if everything_to_identity(page.model.config):
        names.append(ITSELF)
    names.append(ALONE)
    name = st.selectbox("Beside", names, width=330, **state.kept("conjunction beside", names[0], names))
    return name, twin[1] if twin and name == twin[0] else None


def _draw_run(page: Page, form: Form, n_tokens: int) -> None:
    kept: dict[object, Kept] = state.get("conjunctions", {})
    state.put("conjunctions", kept)  # the job writes into these
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name, twin = _pick_beside(page)
        key = (NAME, page.model_key, form, name)
        start = partial(_start, page, form, name, twin, kept, key)
        job = _job(kept, key, start)
        if job is not None:
            st.button("Stop", key="conjunction.stop", icon=":material/stop:", on_click=job.cancel)
            caption("Results so far are kept.")
        else:
            st.button("Run the test", type="primary", key="conjunction.run", on_click=start)
            runs = form.n * len(PROMPTS) * (1 if name == ALONE else 2)
            seconds = runs * estimate_seconds(page.model, n_tokens)
            caption(f"{runs:,} runs of a prompt, about {time_text(seconds)} here.")
    jobs.say_failure(jobs.current(NAME, key))
    # Alone only while it grows: a click on a map is to change the tables too.
    live = st.fragment(_draw_live, run_every=1.0) if job else _draw_live
    live(page, kept.get(key), key, job)


def _job(kept: dict[object, Kept], key: object, start: Callable[[], None]) -> Job | None:
    """The job while it runs. Where nobody is there to press the button, it is started and awaited."""
    if not state.get("waits for all"):
        return jobs.running(NAME, key)
    if key not in kept:
        start()
    job = jobs.running(NAME, key)
    return None if job is None or job.wait(LONGEST) else job


def _start(
    page: Page, form: Form, name: str, twin: ModelKey | None, kept: dict[object, Kept], key: object
) -> None:
    kept[key] = Kept()
    own = state.view().checkpoint or "this model"
    jobs.start(NAME, key, partial(_work, page.model, own, form, (name, twin), kept[key], cache.stores()))


def _work(
    model: HookedMTA,
    own: str,
    form: Form,
    beside: tuple[str, ModelKey | None],
    kept: Kept,
    stores: Stores,
    job: Job,
) -> None:
    job.begin("Making the prompts")
    if model.tokenizer is None:
        raise PromptError("this checkpoint came without its tokenizer")
    samples = form.samples(model.tokenizer)
    name, key = beside
    _measure(model, own, samples, kept, job)
    if key is not None:
        twin: HookedMTA = model_of(key, stores, job)
        check_reads_alike(twin, name, samples)
        _measure(twin, name, samples, kept, job)
    elif name == ITSELF and (plain_one := at_identity(model)) is not None:
        _measure(plain_one, ITSELF, samples, kept, job)


def _measure(model: HookedMTA, name: str, samples: tuple[FourPrompts, ...], kept: Kept, job: Job) -> None:
    def keep(found: Conjunction) -> None:
        kept.found = {**kept.found, name: found}

    job.begin(f"Running {name}")
    conjunction(model, samples, keep=keep, progress=job.report)


def _draw_live(page: Page, kept: Kept | None, key: object, job: Job | None) -> None:
    """The bar and what there is so far."""
    if job is not None:
        jobs.watch(job)
    if kept is not None and kept.found:
        draw_results(page, kept.found, key)
    else:
        st.info(
            plain("Not run yet. Press Run the test." if job is None else "The first sample is on its way.")
        )
