"""What the Attention page draws, in which order: pickers, strip, map, the selected cell, and the open tab.

The tabs about one head are here: predictions, differences, row and column, text, cells.
"""

from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.attention.cells import TopCell, stage_before
from mta_viz.errors import MtaVizError
from mta_viz.figures.attention.maps import RowStatistics, StepChange, changed_stages
from mta_viz.figures.attention.tokens import AttentionText, Column, Gate, Lens, NextToken, Row, Side, TopCells
from mta_viz.model.stages import Stage
from mta_viz.ui.attention.head import SCALE, SCALES, Head, draw_cell, draw_map, draw_strip, draw_why
from mta_viz.ui.attention.heads import draw_heads
from mta_viz.ui.attention.spans import draw_spans, spans_of
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import (
    Selected,
    go_to,
    on_cell,
    on_position,
    on_token,
    pick_head,
    pick_layer,
    pick_stage,
    resolve,
)
from mta_viz.ui.shell.show import begin, draw, save_line, show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, chart, head_label, layer_label, picked, plain

ORDERS = {"value": "by |value|", "change": "by |change|", "contribution": "by |value| x value norm"}
SIDES: tuple[Side, ...] = ("from the query", "to the key")
BY, SIDE = Setting("cells by", "value"), Setting[Side]("text side", SIDES[0])
LENS, GATE = Setting("lens", False), Setting("gate", False)
WIDTH = 460  # of a difference, and of each side of the predictions


def draw_cells(head: Head) -> None:
    """The cells that stand out; a row selects its query and key."""
    stage = head.selected.stage
    before = stage_before(head.page.trace, head.selected.layer, stage)
    there = {"value": True, "change": before is not None, "contribution": stage is Stage.PATTERN}
    orders = [name for name in ORDERS if there[name]]
    by = st.segmented_control(
        "Largest", orders, required=True, format_func=ORDERS.__getitem__, **BY.widget(orders)
    )
    figure = draw(head.source, TopCells(**head.stage, by=by, first_token=head.page.first_token))
    cells: tuple[TopCell, ...] = figure.result
    key = head.widget("cells", *head.stage.values(), by, head.page.first_token)
    st.dataframe(
        [_cell_row(head, cell) for cell in cells],
        hide_index=True,
        key=key,
        on_select=lambda: _select(picked(key), cells),
        selection_mode="single-row",
    )
    save_line(figure, f"{figure.caption} Choose a row to select the cell.")


def _cell_row(head: Head, cell: TopCell) -> dict[str, object]:
    pieces = head.tokens.pieces
    numbers = {"value": cell.value, "change": cell.change, "contribution": cell.contribution}
    shown = {name: float(f"{value:.5g}") for name, value in numbers.items() if value is not None}
    return {"query": f"{cell.query} {pieces[cell.query]}", "key": f"{cell.key} {pieces[cell.key]}", **shown}


def _select(row: int | None, cells: tuple[TopCell, ...]) -> None:
    if row is not None and 0 <= row < len(cells):
        go_to(query=cells[row].query, key=cells[row].key)


def draw_difference(head: Head) -> None:
    """What each convolution and head mixing changed, then the facts of every stage."""
    source = head.source
    stages = changed_stages(source, *head.place.values())
    if not stages:
        caption("This layer has neither a key-query kernel nor head mixing: no step changes its map.")
    with st.container(horizontal=True):
        for stage in stages:
            spec = StepChange(
                **head.place, **head.cell, **head.ranges, **head.looks, stage=stage.value.key, size=WIDTH
            )
            with st.container(width=WIDTH):
                show(source, spec, on_cell, widget=head.widget("difference", stage.value.key, head.part))
    caption("The softmax changes the unit from score to weight, so there is no difference across it.")
    figure = draw(source, RowStatistics(**head.place))
    st.dataframe(figure.result.summary().frame(), hide_index=True)
    save_line(figure)


def draw_rows(head: Head) -> None:
    """What the query attends to above who attends to the key."""
    row, column = (kind(**head.place, **head.cell, **head.looks) for kind in (Row, Column))
    query, key = head.cell.values()
    _draw_bars(head, row, "key", query=query)
    _draw_bars(head, column, "query", key=key)


def _draw_bars(head: Head, spec: Row | Column, field: str, **whose: int) -> None:
    figure = draw(head.source, spec)
    widget = head.widget(spec.name, *whose.values())
    chart(figure.figure, widget, on_position(field, **whose), alt="Bars over the tokens, one row a stage")
    save_line(figure, f"{figure.caption} Click a bar to select that {field}.")


def draw_text(head: Head) -> None:
    """One picture of the whole prompt; a click makes a token the query, or the key."""
    side = st.segmented_control(
        "Attention", SIDES, required=True, label_visibility="collapsed", **SIDE.widget(SIDES)
    )
    field = "query" if side == SIDES[0] else "key"
    position = head.cell[field]
    figure = draw(head.source, AttentionText(**head.stage, **head.looks, position=position, side=side))
    widget = head.widget("text", side, head.stage["stage"], position)
    chart(figure.figure, widget, on_token(field), alt="The prompt coloured by attention")
    unit = head.selected.stage.value.unit
    save_line(
        figure,
        f"{figure.caption} Point at a token to read its {unit}; click it to make it the {field}: the colours "
        "of all tokens take a new row from the model: they change at a click, not while the pointer moves.",
    )


def draw_next_token(head: Head) -> None:
    """Predictions at the left; at the right, when asked for, the logit lens and the gate."""
    source, query = head.source, head.selected.query
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDTH):
            show(source, NextToken(query), widget="next")
        with st.container(width=WIDTH):
            if st.toggle("Logit lens", **LENS.widget()):
                lines = draw(source, Lens(query, "lines"))
                chart(lines.figure, "lens.lines", alt="How probable the last layer's tokens become")
                show(source, Lens(query), widget="lens")
            if st.toggle("Gate of this layer", **GATE.widget()):
                _draw_gate(head)


def _draw_gate(head: Head) -> None:
    if not head.page.model.config.mta.gate:
        caption("This model has no gate: every head's output passes as it is.")
        return
    show(head.source, Gate(**head.place, position=head.selected.query), widget="gate")


TABS = {
    "Next token": draw_next_token,
    "Difference": draw_difference,
    "Row and column": draw_rows,
    "Text": draw_text,
    "Heads": draw_heads,
    "Cells": draw_cells,
}
TAB = Setting("tab", next(iter(TABS)))


@dataclass
class _Opened:
    """Why the page opened at a head that nobody chose."""

    at: tuple[str, int, int] | None = None
    why: str = ""


def draw_tabs(head: Head) -> None:
    """The bar, and the chosen tab under it; only that one is computed."""
    names = list(TABS)
    chosen = st.segmented_control(
        "Look at", names, required=True, label_visibility="collapsed", **TAB.widget(names)
    )
    try:
        TABS[chosen](head)
    except MtaVizError as error:  # here, so that the maps of a broken model are still drawn
        st.error(plain(str(error)))


@st.fragment
def draw_attention(page: Page) -> None:
    """The page's body. Its own widgets run it alone: the sidebar does not change with the selection."""
    begin()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    """Top to bottom in places made first; the map a visitor waits for is filled in, and sent, first."""
    selected = resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    head = Head(page, selected, spans_of(page))
    top = st.container()
    with st.container(key="stale" if page.stale else "fresh"):
        strip, search = st.container(), st.container()
        with st.container(key="single" if head.part is None else "pair"):
            draw_map(head)
            cell, why = st.container(), st.container()
        below = st.container()
    with top:
        _draw_top(page, selected)
    with cell:
        draw_cell(head)
    with strip:
        draw_strip(head)
    with search:
        draw_spans(head)
    with why:
        draw_why(head)
    with below:
        draw_tabs(head)


def _draw_top(page: Page, selected: Selected) -> None:
    draw_address(_place(page, selected))
    _draw_pickers(page, selected)
    if page.stale:
        st.warning("Prompt changed. These maps are of the previous run.")
    if len(page.trace.tokens) == 1:
        st.info("A one-token prompt attends only to itself: nothing to see. Add text.")


def _place(page: Page, selected: Selected) -> str:
    pieces, (query, key) = page.trace.tokens.pieces, (selected.query, selected.key)
    head = (layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering))
    cell = (f'query {query} "{pieces[query]}"', f'key {key} "{pieces[key]}"')
    return " · ".join([str(state.selection().checkpoint), *head, selected.stage.value.long, *cell])


def _draw_pickers(page: Page, selected: Selected) -> None:
    """Layer, head, stage, scale."""
    config = page.trace.model.config
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, selected.layer, page.numbering)
        pick_head(config, selected.head, page.numbering)
        pick_stage(config, selected.layer, selected.stage)
        st.selectbox(
            "Scale",
            SCALES,
            width=110,
            help="Colour limits of the large map: its own, or those all stages of the strip share.",
            **SCALE.widget(SCALES),
        )
    opened, here = state.part(_Opened), (page.key, selected.layer, selected.head)
    if selected.why:
        opened.at, opened.why = here, selected.why
    if opened.at == here:
        caption(f"Opened at this head: {opened.why}.")
