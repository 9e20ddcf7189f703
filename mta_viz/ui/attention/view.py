"""What the Attention page draws, in which order: pickers, strip, map, the selected cell, and the open tab.

The tabs are here: predictions, differences, row and column, cells, and all heads at a glance.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.cells import TopCell, stage_before
from mta_viz.analysis.attention.heads import HeadScores, Score, ranking
from mta_viz.figures.attention import heads as figures
from mta_viz.figures.attention.heads import HeadScatter, HeadTiles, ScoreMap
from mta_viz.figures.attention.maps import RowStatistics, StepChange, changed_stages
from mta_viz.figures.attention.tokens import Column, Gate, Lens, NextToken, Row, TopCells
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_text
from mta_viz.ui.attention import head as heads
from mta_viz.ui.attention.head import SCALE, SCALES, Head, chosen_span
from mta_viz.ui.fields import bar, menu, pick_place, row_table
from mta_viz.ui.shell import pickers, state, work
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import begin, draw, on_page, save_line, show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, chart, head_label, layer_label

ORDERS = {"value": "by |value|", "change": "by |change|", "contribution": "by |value| x value norm"}
BY = Setting("cells by", "value")
LENS, GATE = Setting("lens", False), Setting("gate", False)
WIDTH = 460  # of a difference, of each side of the predictions, and of what is drawn of all heads
ASK_FROM = 1024  # tokens: one pass over all layers takes long enough to be asked for
ALL, _ = GRIDS = ("all layers", "this layer")
AXES = {
    "Score": (Setting("score", ""), "Of the map, the table and the colour of the points."),
    "Across": (Setting("scatter x", "distance"), "The horizontal axis of the points."),
    "Up": (Setting("scatter y", ""), "The vertical axis of the points."),
}
GRID, OWN = Setting("tiles of", ALL), Setting("tiles own", True)


def _draw_cells(head: Head) -> None:
    stage = head.selected.stage
    before = stage_before(head.page.trace, head.selected.layer, stage)
    there = {"value": True, "change": before is not None, "contribution": stage is Stage.PATTERN}
    orders = [name for name in ORDERS if there[name]]
    by = bar("Largest", {name: ORDERS[name] for name in orders}, BY)
    figure = draw(head.source, TopCells(**head.stage, by=by, first_token=head.page.first_token))
    cells: tuple[TopCell, ...] = figure.result
    key = head.widget("cells", *head.stage.values(), by, head.page.first_token)
    rows = [_cell_row(head, cell) for cell in cells]
    row_table(key, rows, cells, lambda cell: pickers.go_to(query=cell.query, key=cell.key))
    save_line(figure, f"{figure.caption} Choose a row to select the cell.")


def _cell_row(head: Head, cell: TopCell) -> dict[str, object]:
    pieces = head.tokens.pieces
    numbers = {"value": cell.value, "change": cell.change, "contribution": cell.contribution}
    shown = {name: float(f"{value:.5g}") for name, value in numbers.items() if value is not None}
    return {"query": f"{cell.query} {pieces[cell.query]}", "key": f"{cell.key} {pieces[cell.key]}", **shown}


def _draw_difference(head: Head) -> None:
    source = head.source
    stages = changed_stages(source, *head.place.values())
    if not stages:
        caption("This layer has neither a key-query kernel nor head mixing: no step changes its map.")
    with st.container(horizontal=True):
        for stage in stages:
            place, widget = head.place | {"stage": stage.value.key}, head.widget
            spec = StepChange(**place, **head.cell, **head.ranges, **head.looks, size=WIDTH)
            with st.container(width=WIDTH):
                show(source, spec, pickers.on_cell, widget=widget("difference", place["stage"], head.part))
    caption("The softmax changes the unit from score to weight, so there is no difference across it.")
    figure = draw(source, RowStatistics(**head.place))
    st.dataframe(figure.result.summary().frame(), hide_index=True)
    save_line(figure)


def _draw_rows(head: Head) -> None:
    for kind, field, own in ((Row, "key", "query"), (Column, "query", "key")):
        figure, at = draw(head.source, kind(**head.place, **head.cell, **head.looks)), head.cell[own]
        widget, chosen = head.widget(kind.name, at), pickers.on_position(field, **{own: at})
        chart(figure.figure, widget, chosen, alt="Bars over the tokens, one row a stage")
        save_line(figure, f"{figure.caption} Click a bar to select that {field}.")


def _draw_next_token(head: Head) -> None:
    source, query = head.source, head.selected.query
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDTH):
            show(source, NextToken(query), widget="next")
        with st.container(width=WIDTH):
            if st.toggle("Logit lens", **LENS.widget()):
                lines = draw(source, Lens(query, "lines"))
                chart(lines.figure, "lens.lines", alt="How probable the last layer's tokens become")
                show(source, Lens(query), widget="lens")
            if not st.toggle("Gate of this layer", **GATE.widget()):
                return
            if head.page.model.config.mta.gate:
                show(source, Gate(**head.place, position=query), widget="gate")
            else:
                caption("This model has no gate: every head's output passes as it is.")


def _draw_heads(head: Head) -> None:
    if not _wanted(head):
        return
    about: dict[str, Any] = {"query": head.selected.query, "span": chosen_span(head)}
    key = figures.scores_key(head.source, **about)
    scores = _measured(head, "Scoring all heads", key, partial(figures.scores_of, **about))
    if scores is not None:
        _draw_scores(head, scores, about | {"selected": tuple(head.place.values())})
    _draw_tiles(head)


def _wanted(head: Head) -> bool:
    """Whether to work: always for short prompts, after a button for long ones, once for each pass."""
    asked = state.part(state.Wanted)
    key = (head.page.key, chosen_span(head), head.selected.query, head.selected.stage)
    if len(head.tokens) <= ASK_FROM or key in asked.keys:
        return True
    caption(f"Scoring all heads passes over every layer of {len(head.tokens):,} tokens once.")
    st.button("Score all heads", on_click=lambda: asked.keys.add(key))
    return False


def _measured(head: Head, words: str, key: tuple[Hashable, ...], make: Callable[[Source], Any]) -> Any | None:
    """What a pass over all layers gives, kept under the key its figures look under. None after Stop."""

    def do(beside: work.Work) -> Any:
        beside.begin(words)
        return make(replace(head.source, progress=beside.report))

    return work.finished(words, (head.page.key, *key), do)


def _draw_scores(head: Head, scores: HeadScores, about: dict[str, Any]) -> None:
    names = {score.key: f"{score.name} ({score.unit})" for score in scores.scores}
    usual = {"Score": next(iter(scores.values)), "Across": "distance", "Up": figures.informative(scores)}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        score, across, up = (
            menu(label, names, setting, default=usual[label], width=290, help=words)
            for label, (setting, words) in AXES.items()
        )
    axes: dict[str, Any] = {"across": across, "up": up, "colour": score}
    with st.container(horizontal=True):
        with st.container(width=WIDTH):
            words = "Click a head to open it. Hatched: no such value."
            _show(head, ScoreMap(**about, score=score), words)
        with st.container(width=WIDTH):
            _show(head, HeadScatter(**about, **axes), "{} Point at one for its numbers, click to open it.")
        with st.container(width=WIDTH):
            _draw_table(head, scores, next(each for each in scores.scores if each.key == score))
        with st.container(width=WIDTH):
            for key in dict.fromkeys(axes.values()):
                caption(figures.definition(scores, key))


def _show(head: Head, spec: ScoreMap | HeadScatter | HeadTiles, words: str) -> None:
    """A figure of all heads, of which a click opens one; {} in the words is its caption."""
    figure, widget = draw(head.source, spec), head.widget(spec.name, *spec.file_parts(), spec.selected)
    chart(figure.figure, widget, pickers.on_head, alt=figure.caption)
    save_line(figure, words.format(figure.caption))


def _draw_table(head: Head, scores: HeadScores, score: Score) -> None:
    ranked = [place for place in ranking(scores, score.key) if not math.isnan(place.value)]
    key, numbering = head.widget("ranking", score.key, scores.query, scores.span), head.page.numbering
    rows = [
        {
            "layer": layer_label(place.layer, numbering),
            "head": head_label(place.head, numbering),
            score.name: value_text(score, place.value),
        }
        for place in ranked
    ]
    row_table(key, rows, ranked, lambda at: state.select(layer=at.layer, head=at.head), height=360)


def _draw_tiles(head: Head) -> None:
    stage, layer = head.selected.stage, head.selected.layer
    with st.container(horizontal=True, vertical_alignment="center"):
        grid = bar("Maps of", GRIDS, GRID, label_visibility="collapsed")
        own = st.toggle("Own colour scale for each head", **OWN.widget())
    of = None if grid == ALL else layer
    make = partial(figures.tiles_of, stage=stage, layer=of)
    if _measured(head, "Pooling all maps", figures.tiles_key(stage, of), make) is not None:
        selected, first = (layer, head.selected.head), head.page.first_token
        _show(head, HeadTiles(stage.value.key, of, own, first, selected), "{} Click one to open it.")


TABS = {
    "Next token": _draw_next_token,
    "Difference": _draw_difference,
    "Row and column": _draw_rows,
    "Heads": _draw_heads,
    "Cells": _draw_cells,
}
TAB = Setting("tab", next(iter(TABS)))


@dataclass
class _Opened:
    at: tuple[str, int, int] | None = None
    why: str = ""  # the page opened at a head that nobody chose


@st.fragment
def draw_attention(page: Page) -> None:
    """The page's body. Its own widgets run it alone: the sidebar does not change with the selection."""
    begin()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    """Top to bottom in places made first; the map a visitor waits for is filled in, and sent, first."""
    head = _head(page)
    top = st.container()
    with st.container(key="stale" if page.stale else "fresh"):
        strip, search = st.container(), st.container()
        with search:
            heads.draw_spans(head)
        grid = st.container(key="pair" if head.has_overview else "single")
        with grid:
            words = heads.draw_map(head)
    with strip:
        heads.draw_strip(head)
    with top:
        _draw_top(page, head.selected)
    kept = on_page()
    with words:
        heads.draw_map_words(head)
    with grid:
        _draw_of_cell(page, head.view, kept)


def _head(page: Page) -> Head:
    """What is selected now, of which everything exists."""
    selected = pickers.resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    return Head(page, selected, heads.spans_of(page))


@st.fragment
def _draw_of_cell(page: Page, view: Hashable, kept: tuple[NamedFigure[Any], ...]) -> None:
    """What hangs on the chosen cell: a choice of another one runs this alone.

    `view`: what the map shows; where another head, stage or part is chosen here, the page is drawn anew.
    `kept`: the figures that stand outside.
    """
    with errors_as_messages():
        head = _head(page)
        if head.view != view:
            st.rerun()
        begin(kept)
        heads.keep_figures(head)
        cell, why, below = (st.container(key=name) for name in ("of-cell", "of-why", "of-tab"))
        with cell:
            heads.point_view(head)
            heads.draw_cell(head)
        with why:
            heads.draw_why(head)
        with below:
            state.retire(TAB.name, "Text")
            chosen = bar("Look at", [*TABS], TAB, label_visibility="collapsed")
            with errors_as_messages():  # here, so that the maps of a broken model are still drawn
                TABS[chosen](head)  # only this tab is computed
    state.mirror()


def _draw_top(page: Page, selected: Selected) -> None:
    place = (layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering))
    draw_address(" · ".join([str(state.selection().checkpoint), *place, selected.stage.value.long]))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_place(page, selected)
        words = "Colour limits of the large map: its own, or those all stages of the strip share."
        menu("Scale", SCALES, SCALE, width=110, help=words)
    opened, here = state.part(_Opened), (page.key, selected.layer, selected.head)
    if selected.why:
        opened.at, opened.why = here, selected.why
    if opened.at == here:
        caption(f"Opened at this head: {opened.why}.")
    if page.stale:
        st.warning("Prompt changed. These maps are of the previous run.")
    if len(page.trace.tokens) == 1:
        st.info("A one-token prompt attends only to itself: nothing to see. Add text.")
