"""Cells: the cells of this head's map that stand out, as a table.

Difference: what each convolution and head mixing changed in this head.
Row and column: what the query attends to and who attends to the key, all stages as bars.
Text: the prompt itself, coloured by attention from the query or to the key.
Next token: the likeliest tokens after the selected query, the logit lens, the gate.
"""

from functools import partial

import streamlit as st

from mta_viz.analysis.attention.cells import (
    CrossSection,
    TopCell,
    key_column,
    query_row,
    stage_before,
    top_cells,
)
from mta_viz.analysis.attention.changes import (
    Change,
    DifferenceMap,
    HeadStatistics,
    StageStatistics,
    differences,
    exact_difference,
    head_statistics,
)
from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.predictions import LogitLens, lens_over_layers
from mta_viz.exporting.data import cells_csv, lens_csv, map_csv, predictions_csv, section_csv, statistics_csv
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.plots.attention.maps import difference_caption, difference_map
from mta_viz.plots.attention.predictions import gate_map, lens_lines, lens_tokens
from mta_viz.plots.attention.rows import section_bars, section_limits
from mta_viz.plots.attention.text import token_text
from mta_viz.ui.attention.maps import Drawn, file_parts, predictions, predictions_figure
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.pickers import go_to, on_cell, on_position, on_token
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, picked, save_table

COUNT = 50
ORDERS = {"value": "by |value|", "change": "by |change|", "contribution": "by |value| x value norm"}
DEFINITION = (
    "Value norm: length ||v|| of the key's value vector in this head. Contribution: |weight| x ||v||, the "
    "size of what the key adds to the head's output at the query, in units of v."
)


def draw_cells(drawn: Drawn) -> None:
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


DIFFERENCE_WIDTH = 460


def draw_difference(drawn: Drawn) -> None:
    """One map a step, two beside each other, then the facts of every stage."""
    trace, head = drawn.page.trace, drawn.head_key[1:]
    found = remember(
        lambda: differences(trace, *head, pickers.WHOLE_UP_TO),
        "differences",
        *drawn.head_key,
    )
    if not found:
        caption("This layer has neither a key-query kernel nor head mixing: no step changes its map.")
    facts: HeadStatistics = remember(lambda: head_statistics(trace, *head), "statistics", *drawn.head_key)
    changes = {change.after: change for change in facts.changes}
    with st.container(horizontal=True):
        for stage, difference in found.items():
            with st.container(width=DIFFERENCE_WIDTH):
                _draw_step(drawn, stage, difference, changes[stage])
    caption("The softmax changes the unit from score to weight, so there is no difference across it.")
    _draw_facts(drawn, facts)


def _draw_step(drawn: Drawn, stage: Stage, whole: DifferenceMap, change: Change) -> None:
    first = drawn.page.first_token
    limit = remember(lambda: shared_limit([whole], first), "difference limit", *drawn.head_key, stage, first)
    part = drawn.part
    shown = whole
    if part is not None:
        shown = remember(
            lambda: exact_difference(
                drawn.page.trace, drawn.selected.layer, stage, drawn.selected.head, part.queries, part.keys
            ),
            "difference crop", *drawn.head_key, stage, part,
        )  # fmt: skip
    cell = (drawn.selected.query, drawn.selected.key)
    figure = remember(
        lambda: difference_map(
            shown, drawn.tokens, limit=limit, numbering_from=drawn.page.numbering,
            size=(DIFFERENCE_WIDTH, DIFFERENCE_WIDTH),
            selected=cell, spans=drawn.spans,
        ),
        "difference map", *drawn.head_key, stage, limit, part, cell, drawn.spans, drawn.page.numbering,
    )  # fmt: skip
    chart(figure, f"difference.{drawn.page.key}.{stage.value.key}.{part}", on_cell)
    caption_with_save(
        f"{difference_caption(shown, limit)} {_change_words(change)}",
        (*file_parts(drawn), "difference", stage.value.key),
        figure,
        lambda: map_csv(shown, drawn.tokens),
        f"difference.{stage.value.key}",
    )


def _change_words(change: Change) -> str:
    where = f"({change.query}, {change.key})"
    return f"Changed: {change.size:.2f} of the norm; largest {change.largest:+.3g} at {where}."


def _draw_facts(drawn: Drawn, facts: HeadStatistics) -> None:
    """A row a stage: what its rows are like."""
    st.dataframe([_fact_row(one) for one in facts.stages.values()], hide_index=True)
    caption(
        "Row sum: sum of a query's row. Negative: sum of max(-x, 0) over sum of |x|, all cells; in rows: how "
        "many rows hold any. Cancelled: 1 - |sum| / sum of |x|. Effective keys: (sum |x|)² / sum x² of a "
        "row, over the number of keys it sees. At score stages as if the softmax came there. Entropy only at "
        "the softmax, where rows are probabilities, over log of the number of keys. The last two are medians "
        "over rows."
    )
    save_table((*file_parts(drawn), "rows"), lambda: statistics_csv(facts, drawn.tokens), "facts")


def _fact_row(one: StageStatistics) -> dict[str, object]:
    low, middle, high = one.row_sum_range
    return {
        "stage": one.stage.value.long,
        "unit": one.stage.value.unit,
        "row sum, smallest": round(low, 4),
        "median": round(middle, 4),
        "largest": round(high, 4),
        "negative": round(one.negative_share, 4),
        "in rows": one.n_negative_rows,
        "cancelled": round(one.cancelled_share, 4),
        "effective keys / keys": round(one.median_effective_share, 4),
        "entropy / log keys": None if one.entropy is None else round(one.median_entropy_share, 4),
    }


ROWS_WIDTH = 900


def draw_rows(drawn: Drawn) -> None:
    """The query's row above the key's column."""
    _draw_section(drawn, row_of(drawn), "key", drawn.selected.key)
    _draw_section(drawn, column_of(drawn), "query", drawn.selected.query)


def row_of(drawn: Drawn) -> CrossSection:
    """The selected query over the keys it sees."""
    query = drawn.selected.query
    return remember(
        lambda: query_row(drawn.page.trace, *drawn.head_key[1:], query), "row", *drawn.head_key, query
    )


def column_of(drawn: Drawn) -> CrossSection:
    """The selected key over the queries that see it."""
    key = drawn.selected.key
    return remember(
        lambda: key_column(drawn.page.trace, *drawn.head_key[1:], key), "column", *drawn.head_key, key
    )


def _draw_section(drawn: Drawn, section: CrossSection, field: str, selected: int) -> None:
    first, numbering = drawn.page.first_token, drawn.page.numbering
    figure = remember(
        lambda: section_bars(
            section, drawn.tokens, limits=section_limits(section, first_token=first),
            numbering_from=numbering, selected=selected, spans=drawn.spans, width=ROWS_WIDTH,
        ),
        "bars", section.along, *drawn.head_key, section.position, selected, first, numbering, drawn.spans,
    )  # fmt: skip
    name = f"bars.{drawn.page.key}.{section.along}.{section.position}"
    other = {"query" if field == "key" else "key": section.position}
    chart(figure, name, on_position(field, **other), alt="Bars over the tokens, one row a stage")
    caption_with_save(
        "Red above 0, blue below. Score stages share one limit, weight stages another. Click a bar to "
        f"select that {field}.{' Outlined: the named spans.' if drawn.spans else ''}",
        (*file_parts(drawn), section.along, section.position),
        figure,
        lambda: section_csv(section, drawn.tokens),
        f"bars.{section.along}",
    )


TEXT_WIDTH = 900
FROM, TO = SIDES = ("from the query", "to the key")


def draw_text(drawn: Drawn) -> None:
    """One picture of the whole prompt; a click makes a token the query, or the key."""
    side = st.segmented_control(
        "Attention",
        SIDES,
        required=True,
        label_visibility="collapsed",
        **state.kept("text side", FROM, SIDES),
    )
    section, field = (row_of(drawn), "query") if side == FROM else (column_of(drawn), "key")
    stage, first, numbering = drawn.selected.stage, drawn.page.first_token, drawn.page.numbering
    limit = section_limits(section, first_token=first)[stage.value.unit]
    mass = is_distribution(stage, drawn.page.trace.model.config.kernels(drawn.selected.layer))
    figure = remember(
        lambda: token_text(
            drawn.tokens, section, stage, limit=limit, distribution=mass, numbering_from=numbering,
            spans=drawn.spans, width=TEXT_WIDTH,
        ),
        "text", side, *drawn.head_key, stage, section.position, first, numbering, drawn.spans,
    )  # fmt: skip
    name = f"text.{drawn.page.key}.{side}.{stage.value.key}.{section.position}"
    chart(figure, name, on_token(field), alt="The prompt coloured by attention")
    caption_with_save(
        f"Each token has the colour of its {stage.value.unit} at this stage, {side}; limits of this row "
        f"alone: {'0 to ' if mass else '±'}{limit:g}. Hatched: masked. Dotted underneath: negative. "
        f"{'Outlined: the named spans. ' if drawn.spans else ''}Point at a token to read its "
        f"{stage.value.unit}; click it to make it the {field}: the colours of all tokens take a new row "
        "from the model, so they change at a click and not while the pointer moves.",
        (*file_parts(drawn), "text", section.along, section.position),
        figure,
        lambda: section_csv(section, drawn.tokens),
        "text",
    )


NEXT_WIDTH = 460


def draw_next_token(drawn: Drawn) -> None:
    """Predictions at the left; at the right, when asked for, how they come up over the layers."""
    query = drawn.selected.query
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=NEXT_WIDTH):
            _draw_predictions(drawn, query)
        with st.container(width=NEXT_WIDTH):
            if st.toggle("Logit lens", **state.kept("lens", False)):
                _draw_lens(drawn, query)
            if st.toggle("Gate of this layer", **state.kept("gate", False)):
                _draw_gate(drawn)


def _draw_predictions(drawn: Drawn, query: int) -> None:
    figure = predictions_figure(drawn.page, query)
    chart(figure, "next", alt="The ten likeliest next tokens with their probabilities")
    caption_with_save(
        f'Next token after {query} "{drawn.tokens.pieces[query]}".',
        (state.selection().checkpoint, "next", query),
        figure,
        lambda: predictions_csv(predictions(drawn.page, query)),
        "next",
    )


def _draw_lens(drawn: Drawn, query: int) -> None:
    found: LogitLens = remember(
        lambda: lens_over_layers(drawn.page.trace, query), "lens", drawn.page.key, query
    )
    first = drawn.page.numbering
    for name, make in (("lens", lens_lines), ("lens.tokens", lens_tokens)):
        figure = remember(
            partial(make, found, numbering_from=first, width=NEXT_WIDTH),
            name,
            drawn.page.key,
            query,
            first,
        )
        chart(figure, name, alt="What the residual stream would predict after each layer")
    caption_with_save(
        "Logit lens: the residual stream after each layer, read off by the final norm and the unembedding. "
        "The last layer is the model's own output.",
        (state.selection().checkpoint, "lens", query),
        figure,
        lambda: lens_csv(found),
        "lens",
    )


def _draw_gate(drawn: Drawn) -> None:
    layer = drawn.selected.layer
    gate = remember(lambda: drawn.page.trace.gate(layer), "gate", drawn.page.key, layer)
    if gate is None:
        caption("This model has no gate: every head's output passes as it is.")
        return
    figure = remember(
        lambda: gate_map(
            gate.float().mean(-1).T.cpu().numpy(), drawn.tokens, layer=layer,
            selected=(drawn.selected.head, drawn.selected.query),
            numbering_from=drawn.page.numbering, width=NEXT_WIDTH,
        ),
        "gate map", *drawn.head_key, drawn.selected.query, drawn.page.numbering,
    )  # fmt: skip
    chart(figure, "gate", alt="The gate of each head at each position")
    several = " (mean over the head's dimensions)" if gate.shape[-1] > 1 else ""
    caption(
        f"Gate{several}: what part of a head's normed output passes, 0 to 1. Rows: heads, columns: tokens."
    )
