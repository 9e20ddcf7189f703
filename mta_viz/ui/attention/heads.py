"""Heads: all heads at a glance, ranked and scattered by what they do on this prompt."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import HeadScores, Ranked, Score, ranking
from mta_viz.figures.attention.heads import (
    HeadScatter,
    HeadTiles,
    ScoreMap,
    definition,
    informative,
    scores_key,
    scores_of,
    tiles_key,
    tiles_of,
)
from mta_viz.figures.base import Source
from mta_viz.plots.attention.heads import value_text
from mta_viz.ui.attention.head import Head
from mta_viz.ui.attention.spans import chosen_span
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.show import draw, save_line
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, chart, head_label, layer_label, picked

ASK_FROM = 1024  # tokens: one pass over all layers takes long enough to be asked for
COLUMN_PX = 460
ALL, _ = GRIDS = ("all layers", "this layer")
PICKERS = {
    "Score": "Of the map, the table and the colour of the points.",
    "Across": "The horizontal axis of the points.",
    "Up": "The vertical axis of the points.",
}
SCORE, ACROSS, UP = Setting("score", ""), Setting("scatter x", "distance"), Setting("scatter y", "")
GRID, OWN = Setting("tiles of", ALL), Setting("tiles own", True)


@dataclass
class _Asked:
    """Which pass over all layers was asked for."""

    key: Hashable = None


def draw_heads(head: Head) -> None:
    """A score of all heads as map, scatter and table, then every head's map as a thumbnail."""
    if not _wanted(head):
        return
    about: dict[str, Any] = {"query": head.selected.query, "span": chosen_span(head)}
    scores = _measured(
        head, "Scoring all heads", scores_key(head.source, **about), lambda source: scores_of(source, **about)
    )
    if scores is not None:
        _draw_scores(head, scores, about | {"selected": tuple(head.place.values())})
    _draw_tiles(head)


def _wanted(head: Head) -> bool:
    """Whether to work: always for short prompts, after a button for long ones, once for each pass."""
    asked, key = (
        state.part(_Asked),
        (head.page.key, chosen_span(head), head.selected.query, head.selected.stage),
    )
    if len(head.tokens) <= ASK_FROM or asked.key == key:
        return True
    caption(f"Scoring all heads passes over every layer of {len(head.tokens):,} tokens once.")
    st.button("Score all heads", on_click=lambda: setattr(asked, "key", key))
    return False


def _measured(head: Head, words: str, key: tuple[Hashable, ...], make: Callable[[Source], Any]) -> Any | None:
    """What a pass over all layers gives, kept under the key its figures look under. None after Stop."""

    def do(beside: work.Work) -> Any:
        beside.begin(words)
        return make(replace(head.source, progress=beside.report))

    return work.finished(words, (head.page.key, *key), do)


def _draw_scores(head: Head, scores: HeadScores, about: dict[str, Any]) -> None:
    """One score as map and table, three as points."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        score = _pick(scores, "Score", SCORE, next(iter(scores.values)))
        across = _pick(scores, "Across", ACROSS, "distance")
        up = _pick(scores, "Up", UP, informative(scores))
    axes: dict[str, Any] = {"across": across.key, "up": up.key, "colour": score.key}
    with st.container(horizontal=True):
        with st.container(width=COLUMN_PX):
            _show(
                head, ScoreMap(**about, score=score.key), "Click a head to open it. Hatched: no such value."
            )
        with st.container(width=COLUMN_PX):
            _show(head, HeadScatter(**about, **axes), "{} Point at one for its numbers, click to open it.")
        with st.container(width=COLUMN_PX):
            _draw_table(head, scores, score)
        with st.container(width=COLUMN_PX):
            for key in dict.fromkeys(axes.values()):
                caption(definition(scores, key))


def _show(head: Head, spec: ScoreMap | HeadScatter | HeadTiles, words: str) -> None:
    """A figure of all heads, of which a click opens one; {} in the words is its caption."""
    figure = draw(head.source, spec)
    chart(
        figure.figure, head.widget(spec.name, *spec.file_parts(), spec.selected), on_head, alt=figure.caption
    )
    save_line(figure, words.format(figure.caption))


def _pick(scores: HeadScores, label: str, setting: Setting[str], default: str) -> Score:
    there = {score.key: score for score in scores.scores}
    key = st.selectbox(
        label,
        list(there),
        format_func=lambda key: f"{there[key].name} ({there[key].unit})",
        width=290,
        help=PICKERS[label],
        **setting.widget(list(there), default=default),
    )
    return there[key]


def _draw_table(head: Head, scores: HeadScores, score: Score) -> None:
    """The heads by this score; a row opens its head."""
    ranked = [place for place in ranking(scores, score.key) if not math.isnan(place.value)]
    key, numbering = head.widget("ranking", score.key, scores.query, scores.span), head.page.numbering
    st.dataframe(
        [
            {
                "layer": layer_label(place.layer, numbering),
                "head": head_label(place.head, numbering),
                score.name: value_text(score, place.value),
            }
            for place in ranked
        ],
        hide_index=True,
        height=360,
        key=key,
        on_select=lambda: _open(picked(key), ranked),
        selection_mode="single-row",
    )


def _open(row: int | None, ranked: list[Ranked]) -> None:
    if row is not None and 0 <= row < len(ranked):
        state.select(layer=ranked[row].layer, head=ranked[row].head)


def _draw_tiles(head: Head) -> None:
    """Every head's map in small."""
    stage, layer = head.selected.stage, head.selected.layer
    with st.container(horizontal=True, vertical_alignment="center"):
        grid = st.segmented_control(
            "Maps of", GRIDS, required=True, label_visibility="collapsed", **GRID.widget(GRIDS)
        )
        own = st.toggle("Own colour scale for each head", **OWN.widget())
    of = None if grid == ALL else layer
    made = _measured(
        head, "Pooling all maps", tiles_key(stage, of), lambda source: tiles_of(source, stage, of)
    )
    if made is not None:
        selected, first = (layer, head.selected.head), head.page.first_token
        _show(head, HeadTiles(stage.value.key, of, own, first, selected), "{} Click one to open it.")
