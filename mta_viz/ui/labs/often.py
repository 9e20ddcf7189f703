"""How often a model is right at a lab's setting, beside its plain twin: as cards say, or measured here."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from mta_viz.analysis.labs.cards import card_score
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import multiply_adds
from mta_viz.run.tracing import Progress, estimate_seconds
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import Task
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.models import model_of, twin_beside
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text

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


def share_words(score: NeedleScore) -> str:
    """`200 of 200 right, 100.0% [98.2, 100.0]`."""
    low, high = (100 * end for end in score.interval)
    return f"{score.right:,} of {score.n:,} right, {score.accuracy:.1%} [{low:.1f}, {high:.1f}]"
