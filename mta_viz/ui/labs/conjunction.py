"""The conjunction lab: do two words together find a span that each alone does not?"""

from collections.abc import Callable
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.conjunction import Conjunction, at_identity, check_reads_alike, conjunction
from mta_viz.analysis.labs.four_prompts import PROMPTS, FourPrompts
from mta_viz.errors import PromptError
from mta_viz.interventions.plans import everything_to_identity
from mta_viz.model.transformer import HookedMTA
from mta_viz.tracing import KERNELS_ONLY, estimate_seconds
from mta_viz.ui import cache, state
from mta_viz.ui.cache import ModelKey, Stores
from mta_viz.ui.labs.conjunction_form import BlockForm, Form, draw_form
from mta_viz.ui.labs.conjunction_view import draw_results
from mta_viz.ui.labs.measuring import Measurement, draw_measurement
from mta_viz.ui.open_page import Page
from mta_viz.ui.other_models import twin_of
from mta_viz.ui.running import Job, model_of
from mta_viz.ui.waiting import time_text
from mta_viz.ui.widgets import caption, plain

NAME = "conjunction"
ITSELF = "the same model, kernels at identity"
ALONE = "nothing"
SHOWN_END = 80  # characters of a prompt: the end, where the prompts differ
Found = dict[str, Conjunction]  # by the names of the models


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
    name, twin = _pick_beside(page)
    runs = form.n * len(PROMPTS) * (1 if name == ALONE else 2)
    seconds = runs * estimate_seconds(page.model, n_tokens)
    key = (NAME, page.model_key, form, name)
    own = state.view().checkpoint or "this model"
    draw_measurement(
        Measurement(
            NAME,
            key,
            "Run the test",
            f"{runs:,} runs of a prompt, about {time_text(seconds)} here. Results so far are kept.",
            partial(_work, page.model, own, form, (name, twin), cache.stores()),
            partial(_draw_found, page, key),
            by_itself=bool(state.get("waits for all")),
        )
    )


def _work(
    model: HookedMTA,
    own: str,
    form: Form,
    beside: tuple[str, ModelKey | None],
    stores: Stores,
    keep: Callable[[Found], None],
    job: Job,
) -> None:
    """Test the model, then what stands beside it, on the same samples."""
    job.begin("Making the prompts")
    if model.tokenizer is None:
        raise PromptError("this checkpoint came without its tokenizer")
    samples, found = form.samples(model.tokenizer), dict[str, Conjunction]()
    name, key = beside

    def measure(one: HookedMTA, called: str) -> None:
        job.begin(f"Running {called}")
        so_far = dict(found)
        found[called] = conjunction(
            one, samples, keep=lambda part: keep({**so_far, called: part}), progress=job.report
        )

    measure(model, own)
    if key is not None:
        twin: HookedMTA = model_of(key, stores, job)
        check_reads_alike(twin, name, samples)
        measure(twin, name)
    elif name == ITSELF and (plain_one := at_identity(model)) is not None:
        measure(plain_one, ITSELF)


def _draw_found(page: Page, key: object, found: Found | None, running: bool) -> None:
    """What there is so far."""
    if found:
        draw_results(page, found, key)
    else:
        st.info(plain("The first sample is on its way." if running else "Not run yet. Press Run the test."))
