"""Cells: the cells of this head's map that stand out, as a table."""

import streamlit as st

from mta_viz.analysis.top_cells import TopCell, stage_before, top_cells
from mta_viz.exporting.tables import cells_csv
from mta_viz.model.stages import Stage
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.drawn import Drawn, file_parts
from mta_viz.ui.selection import go_to
from mta_viz.ui.widgets import caption, picked, save_table

COUNT = 50
ORDERS = {"value": "by |value|", "change": "by |change|", "contribution": "by |value| x value norm"}
DEFINITION = (
    "Value norm: length ||v|| of the key's value vector in this head. Contribution: |weight| x ||v||, the "
    "size of what the key adds to the head's output at the query, in units of v."
)


def draw(drawn: Drawn) -> None:
    """The table; a row selects its query and key."""
    selected = drawn.selected
    before = stage_before(drawn.page.trace, selected.layer, selected.stage)
    there = {"value": True, "change": before is not None, "contribution": selected.stage is Stage.PATTERN}
    orders = [name for name in ORDERS if there[name]]
    by = st.segmented_control(
        "Largest",
        orders,
        required=True,
        format_func=ORDERS.__getitem__,
        **state.kept("cells by", "value", orders),
    )
    first = drawn.page.first_token
    found: tuple[TopCell, ...] = remember(
        lambda: top_cells(
            drawn.page.trace, selected.layer, selected.head, selected.stage, COUNT, by=by, first_token=first
        ),
        "top", *drawn.head_key, selected.stage, by, first,
    )  # fmt: skip
    key = f"cells.{drawn.page.key}.{selected.layer}.{selected.head}.{selected.stage.value.key}.{by}.{first}"
    st.dataframe(
        [_row(one, drawn) for one in found],
        hide_index=True,
        key=key,
        on_select=lambda: _select(picked(key), found),
        selection_mode="single-row",
    )
    words = f" Change: less {before.value.long}." if before else ""
    words += f" {DEFINITION}" if by == "contribution" else ""
    info = selected.stage.value
    largest = by if by == "contribution" else f"|{by}|"
    caption(
        f"The {len(found)} cells of largest {largest} at {info.long} ({info.unit})"
        f"{'' if first else ', query 0 and key 0 left out'}.{words} Choose a row to select the cell."
    )
    save_table(
        (*file_parts(drawn), selected.stage.value.key, "cells"),
        lambda: cells_csv(found, drawn.tokens),
        "cells",
    )


def _row(one: TopCell, drawn: Drawn) -> dict[str, object]:
    pieces = drawn.tokens.pieces
    row: dict[str, object] = {
        "query": f"{one.query} {pieces[one.query]}",
        "key": f"{one.key} {pieces[one.key]}",
        "value": float(f"{one.value:.5g}"),
    }
    if one.change is not None:
        row["change"] = float(f"{one.change:.5g}")
    if one.contribution is not None:
        row["contribution"] = float(f"{one.contribution:.5g}")
    return row


def _select(row: int | None, cells: tuple[TopCell, ...]) -> None:
    if row is not None and 0 <= row < len(cells):
        go_to(query=cells[row].query, key=cells[row].key)
