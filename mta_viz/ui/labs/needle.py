"""The needle lab: one sample with its answer and the heads that found it, then a sweep."""

from functools import partial

import streamlit as st

from mta_viz.analysis.labs.finder import needle_region, prompt_spans
from mta_viz.analysis.labs.needle import NeedleRun, check_vocabulary, run_needle
from mta_viz.errors import TokenizerError
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.needles import NeedleTask, make_needle_sample
from mta_viz.ui.labs.finder import Asked, Prompt, draw_crop, draw_finder
from mta_viz.ui.labs.gains import draw_gains
from mta_viz.ui.labs.needle_form import Form, draw_form, draw_prompt
from mta_viz.ui.labs.parts import draw_sample_run
from mta_viz.ui.labs.sweep import draw_opened, draw_sweep
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.widgets import plain
from mta_viz.ui.shell.work import Work

RUNS = 3.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer twice


def draw_needle(page: Page) -> None:
    """The form, one sample, the sweep; a results file whatever the model."""
    with errors_as_messages():
        _draw_lab(page)
    st.subheader("Results from a file")
    draw_opened()


def _draw_lab(page: Page) -> None:
    if not can_write(page):
        return
    form = draw_form(page.model.config.n_ctx)
    st.subheader("One sample")
    _draw_sample(page, form)
    st.subheader("Sweep")
    draw_sweep(page, form)


def can_write(page: Page, what: str = "Needles") -> bool:
    """Whether this model's tokenizer can write such sentences; says why not, and what to do."""
    tokenizer = check_vocabulary(page.model, page.model.tokenizer)
    try:
        make_needle_sample(tokenizer, NeedleTask(1, 1000, haystack="A word. " * 900), 0)
    except TokenizerError:
        words = (
            f"{what} are sentences of English, and this model's tokenizer ({tokenizer.kind}) cannot write "
            "them. Choose a language model at the left, needle-mta for example, or the tab Blocks."
        )
        st.info(plain(words))
        return False
    return True


def _draw_sample(page: Page, form: Form) -> None:
    key = ("needle", page.model_key, form.task, form.seed)
    seconds = RUNS * estimate_seconds(page.model, form.task.length)
    work = partial(_work, page.model, form.task, form.seed)
    run: NeedleRun | None = draw_sample_run("needle", key, form.seed, seconds, work)
    if run is not None:
        _draw_run(page, run, key)
        draw_gains(page, form, state.get("finder score"))


def _work(model: HookedMTA, task: NeedleTask, seed: int, work: Work) -> NeedleRun:
    return run_needle(model, task, seed, begin=work.begin, progress=work.report)


def _draw_run(page: Page, run: NeedleRun, key: tuple[object, ...]) -> None:
    verdict = answer_words(run)
    (st.success if run.right else st.warning)(plain(verdict))
    draw_prompt(run)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = Prompt(text, lambda: prompt_spans(run.sample, tokenizer.encode(text)))
    draw_finder(page, run.finder, key, "Needle", prompt)
    words = "question x asked needle"
    draw_crop(page, Asked(run.sample.tokens, needle_region(run.sample), words, key))


def answer_words(run: NeedleRun) -> str:
    """The answer beside the gold one, and which failure it is."""
    sample = run.sample
    said = run.number or f"no number but “{run.said.strip()}”"
    mark = "✓" if run.right else "✗"
    head = (
        f"Asked: {sample.city}. Model: {said}. Gold: {sample.answer} {mark}  "
        f"p(gold) {probability_text(run.probability)}."
    )
    if run.right:
        return head
    if run.named is not None:
        letter = "ABCDEFGH"[sample.needles.index(run.named)]
        return f"{head} The model answered {run.number}, the number of {run.named.city} (needle {letter})."
    return f"{head} No needle has this answer."
