"""How often a model is right at a lab's setting, beside its plain twin: as cards say, or measured here."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path

import streamlit as st

from mta_viz.analysis.labs.cards import card_score
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Progress, estimate_seconds
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import Task
from mta_viz.ui.fields import number
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell.cache import ModelKey, Stores
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.models import model_of, twin_beside
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text

OPEN_SECONDS = 3.0  # what takes no longer is there without a press of a button
NAME = "often"
MANY = Setting("often n", 20)
Scores = Mapping[str, NeedleScore]  # by the models' names
Measure = Callable[[HookedMTA, int, Progress], NeedleScore]  # of so many samples


def draw_often(
    page: Page, task: Task | BlockTask, seed: int, n_tokens: int, measure: Measure, most: int, words: str = ""
) -> None:
    """Right answers with their exact interval, the model first; `words` say what chance gives.

    `measure(model, samples, progress)` gives a model's, of `most` samples at most, from number `seed` on.
    """
    keys = _models(page)
    of_cards = {name: _of_card(key, task) for name, key in keys.items()}
    known = {name: score for name, score in of_cards.items() if score is not None}
    if len(known) == len(keys):
        _draw(known, f"{words} As the models' cards say.".strip())
        return
    n = min(MANY.value, most)
    seconds = len(keys) * n * estimate_seconds(page.model, n_tokens)
    key: Hashable = (NAME, *keys.values(), task, seed, n)
    do = partial(_measure, keys, measure, n, cache.stores())
    label, words_of_time = f"Measure {n} samples", f"How often is it right? About {time_text(seconds)} here."
    scores = measured(Measurement(NAME, key, label, do, words_of_time, by_itself=seconds < OPEN_SECONDS))
    if scores:
        _draw(scores, f"{words} Samples {seed:,} to {seed + n - 1:,}, measured here.".strip())


def pick_many(most: int) -> None:
    """How many samples are measured where no card says it: among the settings, before `draw_often`."""
    number("Samples measured", MANY, (1, most), default=min(MANY.default, most), width=150)


def _models(page: Page) -> dict[str, ModelKey]:
    own = state.selection().checkpoint or "this model"
    twin = twin_beside(page.model_key)
    return {own: page.model_key} | ({} if twin is None or twin[0] == own else dict([twin]))


def _of_card(key: ModelKey, task: Task | BlockTask) -> NeedleScore | None:
    return card_score(Path(key.path), partial(cache.digest, key), task)


def _measure(
    keys: Mapping[str, ModelKey], measure: Measure, n: int, stores: Stores, running: Work, keep: Keep
) -> Scores:
    """One model after another."""
    scores: dict[str, NeedleScore] = {}
    for name, key in keys.items():
        model = model_of(key, stores, running)
        running.begin(f"Measuring {name}")
        scores[name] = measure(model, n, running.report)
        keep(dict(scores))
    return scores


def _draw(scores: Scores, words: str) -> None:
    own, *others = scores
    lines = [f"**{plain(own)}** {plain(share_words(scores[own]))}"]
    lines += [f"**{plain(other)}** beside it {plain(share_words(scores[other]))}" for other in others]
    st.markdown(" · ".join(lines))
    caption(words)


def share_words(score: NeedleScore) -> str:
    """`200 of 200 right: 100.0%, 95 % interval 98.2% to 100.0%`."""
    low, high = score.interval
    return (
        f"{score.right:,} of {score.n:,} right: {score.accuracy:.1%}, 95 % interval {low:.1%} to {high:.1%}"
    )
