"""The list of heads at the left, ranked by what fits the moment: what is measured, else what they do here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import HeadScores, ranking
from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MADE_BY, SHORT, KernelId
from mta_viz.figures.attention.heads import informative, scores_key
from mta_viz.model.plans import Edit
from mta_viz.plots.theme import score_text
from mta_viz.ui.attention.head import chosen_span
from mta_viz.ui.attention.tabs import AXES
from mta_viz.ui.fields import menu
from mta_viz.ui.kernels.parts import effects_of
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.cache import stores
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_name, plain
from mta_viz.ui.workspace.panels import Desk

EDITS: dict[Edit, str] = {"own-tap": "without its shape", "identity": "at the identity"}
AT_TASK, HERE = "at its task", "on this prompt"
RANKED_BY = Setting("ranked by", AT_TASK)
MOST, HEIGHT = 40, 270  # rows, and pixels of the list


@dataclass(frozen=True)
class Ranked:
    """A row of the list: a head, of a kernel's number also its place, and the number."""

    layer: int
    head: int
    value: float
    kernel: KernelId | None = None


def draw_heads(desk: Desk) -> None:
    """Layer and head, and under them the list; a click on a row opens its head."""
    page, selected = desk.original, desk.head.selected
    with st.container(key="place"):
        pickers.pick_layer(page.model.config, selected.layer, page.numbering)
        pickers.pick_head(page.model.config, selected.head, page.numbering)
    measured = {AT_TASK: _by_effect(page), HERE: _by_score(desk)}
    rankings = {name: ranking for name, ranking in measured.items() if ranking[1]}
    if not rankings:
        caption("Heads are ranked here once they are scored.")
        return
    name = menu(
        "Ranked by", [*rankings], RANKED_BY, default=next(iter(rankings)), label_visibility="collapsed"
    )
    words, rows = rankings[name]
    caption(words)
    with st.container(height=HEIGHT, border=False, key="ranked"):
        for index, row in enumerate(rows[:MOST]):
            here = (row.layer, row.head) == (selected.layer, selected.head)
            look: dict[str, Any] = {"width": "stretch", "on_click": _open, "args": (row,)}
            look["type"] = "secondary" if here and row.kernel in (None, desk.kernel) else "tertiary"
            st.button(_words(row, page.numbering), key=f"ranked.{index}", **look)


def _words(row: Ranked, numbering: int) -> str:
    where = "" if row.kernel is None or row.kernel.where == "pre" else f" {SHORT[row.kernel.where]}"
    return plain(f"{head_name(row.layer, row.head, numbering)}{where}  {score_text(row.value)}")


def _open(row: Ranked) -> None:
    stage = {} if row.kernel is None else {"stage": MADE_BY[row.kernel.where].value.key}
    state.select(layer=row.layer, head=row.head, **stage)


def _by_effect(page: Page) -> tuple[str, Sequence[Ranked]]:
    """What the task's answer loses without a kernel's shape, where that was measured."""
    for edit, words in EDITS.items():
        effects = effects_of(page, edit)
        if not isinstance(effects, Absent):
            rows = [
                Ranked(kernel.layer, kernel.head, effect.log_probability_change.value, kernel)
                for kernel, effect in effects.of_each().items()
                if kernel.where in KEY_QUERY
            ]
            name = f"Answer’s nats {words}, n = {effects.samples:,}"
            return name, rows
    return "", ()


def _by_score(desk: Desk) -> tuple[str, Sequence[Ranked]]:
    """What heads do on this prompt, where they have been scored; of the edited run once it is."""
    span = chosen_span(desk.head) or (desk.story.asked if desk.story else None)
    source = desk.head.source
    scores: HeadScores | None = stores().drawn.get((desk.head.page.key, *scores_key(source, None, span)))
    if scores is None:
        return "", ()
    key = AXES["Score"][0].value or informative(scores)  # as the view of all heads shows them
    if key not in scores.values:
        key = informative(scores)
    words = next(score.name for score in scores.scores if score.key == key)
    ranked = [at for at in ranking(scores, key) if not math.isnan(at.value)]
    about = "" if span is None else f": {span.name}"
    return f"{words[0].upper()}{words[1:]}{about}", [Ranked(at.layer, at.head, at.value) for at in ranked]
