"""Difference: what each convolution and head mixing changed in this head."""

import streamlit as st

from mta_viz.analysis.differences import DifferenceMap, differences, exact_difference
from mta_viz.analysis.maps import shared_limit
from mta_viz.analysis.stage_statistics import (
    Change,
    HeadStatistics,
    StageStatistics,
    head_statistics,
)
from mta_viz.exporting.data import map_csv
from mta_viz.exporting.tables import statistics_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.difference import difference_caption, difference_map
from mta_viz.ui import crops
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_cell
from mta_viz.ui.drawn import Drawn, file_parts
from mta_viz.ui.widgets import caption, caption_with_save, chart, save_table

WIDTH = 460


def draw(drawn: Drawn) -> None:
    """One map a step, two beside each other, then the facts of every stage."""
    trace, head = drawn.page.trace, drawn.head_key[1:]
    found = remember(
        lambda: differences(trace, *head, crops.WHOLE_UP_TO),
        "differences",
        *drawn.head_key,
    )
    if not found:
        caption("This layer has neither a key-query kernel nor head mixing: no step changes its map.")
    facts: HeadStatistics = remember(lambda: head_statistics(trace, *head), "statistics", *drawn.head_key)
    changes = {change.after: change for change in facts.changes}
    with st.container(horizontal=True):
        for stage, difference in found.items():
            with st.container(width=WIDTH):
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
            shown, drawn.tokens, limit=limit, numbering_from=drawn.page.numbering, size=(WIDTH, WIDTH),
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
