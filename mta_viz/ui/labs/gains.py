"""The finder repeated over samples: heads ranked by the lower end of a score's interval."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import SCORES, Score
from mta_viz.analysis.labs.needle import FinderMeans, MeanScore, finder_means
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.attention.heads import value_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.needles import NeedleTask
from mta_viz.ui.labs.needle_form import Form
from mta_viz.ui.labs.parts import Measurement, draw_button, draw_live
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, head_label, layer_label, picked
from mta_viz.ui.shell.work import Work, time_text

NAME = "gains"


def draw_gains(page: Page, form: Form, score: str) -> None:
    """How many samples, the button, and the heads so far; `score` is the finder's."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kept = state.kept("gains n", 20, within=(2, 10_000))
        n = int(st.number_input("Repeat on samples", 2, 10_000, width=170, **kept))
        key = (NAME, page.model_key, form, n)
        label = f"Repeat, about {time_text(n * estimate_seconds(page.model, form.task.length))}"
        work = partial(_work, page.model, form.task, form.seed, n)
        one = Measurement(NAME, key, label, "", work, partial(_draw_means, page, key, score))
        draw_button(one)
    draw_live(one)


def _work(
    model: HookedMTA, task: NeedleTask, seed: int, n: int, keep: Callable[[FinderMeans], None], work: Work
) -> None:
    work.begin("Repeating the finder")
    finder_means(model, task, seed, n, keep=keep, progress=work.report)


def _draw_means(page: Page, key: object, name: str, found: FinderMeans | None, running: bool) -> None:
    """The heads so far."""
    if found is None or name not in found.scores:
        caption("One prompt proves little. Repeated, heads are ranked by what is sure of them.")
        return
    score = next(one for one in SCORES if one.key == name)
    places = ranked(found.scores[name])
    widget = f"gains.table.{hash((key, name))}"
    st.dataframe(
        [_row(page, score, found.scores[name], place) for place in places],
        hide_index=True,
        height=220,
        key=widget,
        on_select=lambda: _take(picked(widget), places),
        selection_mode="single-row",
    )
    caption(
        f"{score.name} ({score.unit}) of the asked needle, mean over {found.n:,} samples with the 95 % "
        "bootstrap interval; heads ranked by its lower end. Click one to choose it."
    )


def ranked(score: MeanScore) -> list[tuple[int, int]]:
    """(layer, head), the largest lower end first; heads without the stage left out."""
    low = {
        (layer, head): value
        for layer, row in enumerate(score.low.tolist())
        for head, value in enumerate(row)
        if not math.isnan(value)
    }
    return sorted(low, key=lambda place: -low[place])


def _row(page: Page, score: Score, found: MeanScore, place: tuple[int, int]) -> dict[str, Any]:
    told = [value_text(score, float(part[place])) for part in (found.mean, found.low, found.high)]
    name = f"{layer_label(place[0], page.numbering)} {head_label(place[1], page.numbering)}"
    return {"head": name, **dict(zip(("mean", "low", "high"), told, strict=True))}


def _take(row: int | None, places: list[tuple[int, int]]) -> None:
    if row is not None and 0 <= row < len(places):
        state.select(layer=places[row][0], head=places[row][1])
