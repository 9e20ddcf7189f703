"""Which lab fits a model, with words and buttons where one does not; and how often it is right there.

That stands beside its plain twin's, as cards say or measured here.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from mta_viz.analysis.labs.cards import card_score, note_of, trained_for
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import time_text
from mta_viz.run.devices import multiply_adds
from mta_viz.run.tracing import Progress, estimate_seconds
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockTask
from mta_viz.tasks.facts import Task
from mta_viz.ui.shell import cache, models, state
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.models import model_of, twin_beside
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Selection, Setting
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work

LAB = Setting("lab", "Needle")
LABS = {"needle": "Needle", "pairs": "Two words", "blocks": "Blocks", "questions": "Questions"}  # by task


def first_lab(page: Page) -> str:
    """Of the task the model was trained on, as its card says; else of what its vocabulary can write."""
    if page.model.config.vocab_size == VOCAB_SIZE:
        return "Blocks"
    return LABS.get(trained_for(page.model.path) or "", "Needle")


def draw_unfit(page: Page, task: str, words: str) -> None:
    """A lab that this model cannot do: why, the lab that it can do, and a model that can do this one."""
    st.info(plain(words))
    with st.container(horizontal=True):
        _offer(first_lab(page), task)


def draw_untrained(page: Page, task: str) -> bool:
    """A lab of another task than the model's card names, and whether it is; nothing where it names none."""
    trained = trained_for(page.model.path) or ""
    if trained == task or trained not in LABS:
        return False
    with st.container(horizontal=True, vertical_alignment="center"):
        caption(
            f"This model was trained for the lab {LABS[trained]}: it was never taught what is asked here."
        )
        if not _offer(LABS[trained], task) and task == "pairs":
            st.page_link("pages/train.py", label="Train kernels for it", icon=":material/model_training:")
    return True


def draw_length(n_tokens: int, n_ctx: int, length: Setting[int]) -> None:
    """Where a prompt is longer than what the model was trained on: that it is, and the way back."""
    if n_tokens > n_ctx:
        with st.container(horizontal=True, vertical_alignment="center"):
            caption(f"{n_tokens:,} tokens: this model was trained on up to {n_ctx:,}, and may fail beyond.")
            st.button(f"Shorten to {n_ctx:,}", key="fit.length", on_click=length.put, args=(n_ctx,))


def _offer(lab: str, task: str) -> bool:
    """Buttons to the lab and to a model trained on the task, one with kernels first; whether there is one."""
    st.button(f"Open the lab {lab}", key="fit.lab", on_click=LAB.put, args=(lab,))
    able = (
        (name, model)
        for name, model in models.named().items()
        if trained_for(model.path) == task and models.can_run(model)
    )
    name, fitting = max(able, key=lambda named: models.has_kernels(named[1]), default=("", None))
    if fitting is None:
        return False

    def choose() -> None:
        state.session().selection = Selection(checkpoint=name)

    st.button(f"Open {fitting.name} here", key="fit.model", on_click=choose)
    return True


OPEN_SECONDS = 3.0  # what takes no longer is there without a press of a button
SLOW = 1e10  # multiply-adds a slow computer does in a second
SAMPLES = 20
Scores = dict[str, NeedleScore]  # by the models' names
Measure = Callable[[HookedMTA, int, Progress], NeedleScore]  # of so many samples


def seconds_here(model: HookedMTA, n_tokens: int, runs: int | float) -> float:
    """What so many runs take: counted for a slow computer where that is little, else as measured here."""
    counted = runs * multiply_adds(model.config, n_tokens) / SLOW
    return counted if opens(counted) else runs * estimate_seconds(model, n_tokens)


def opens(seconds: float) -> bool:
    """Whether what takes so long is done as the page opens."""
    return seconds < OPEN_SECONDS


def draw_often(
    page: Page, task: Task | BlockTask, seed: int, n_tokens: int, measure: Measure, words: str, most: int
) -> None:
    """Right answers with their exact interval, the model first; `words` say of what, and what chance gives.

    `measure` takes a model, how many samples from number `seed` on (of `most` there are), and progress.
    """
    twin, n = twin_beside(page.model_key), min(SAMPLES, most)
    keys = {state.selection().checkpoint or "this model": page.model_key, **dict([twin] if twin else [])}
    scores = {
        name: card_score(Path(key.path), partial(cache.digest, key), task) for name, key in keys.items()
    }
    where = "from cards"
    if None in scores.values():
        stores, where = cache.stores(), f"samples {seed:,} to {seed + n - 1:,} measured here"

        def do(running: Work, keep: Keep) -> Scores:
            return {
                name: measure(model_of(key, stores, running), n, running.report) for name, key in keys.items()
            }

        seconds = seconds_here(page.model, n_tokens, len(keys) * n)
        label, about = f"Measure {n} samples", f"How often is it right? About {time_text(seconds)} here."
        key = ("often", *keys.values(), task, seed, n)
        scores = measured(Measurement("often", key, label, do, about, by_itself=opens(seconds))) or {}
    if scores:
        lines = [f"{plain(name)} {plain(share_words(score))}" for name, score in scores.items() if score]
        st.markdown(f":small[{' · '.join(lines)}]")
        caption(f"{words} Exact 95 % intervals, {where}.".strip())
        for note in filter(None, (note_of(Path(key.path)) for key in keys.values())):
            caption(note)


def share_words(score: NeedleScore) -> str:
    """`200 of 200 right, 100.0% [98.2, 100.0]`."""
    low, high = (100 * end for end in score.interval)
    return f"{score.right:,} of {score.n:,} right, {score.accuracy:.1%} [{low:.1f}, {high:.1f}]"
