"""The answer board and the maps: the original run beside the edited one."""

import math

import streamlit as st

from mta_viz.analysis.answers import AnswerMeter, answer_after
from mta_viz.analysis.differences import changed_map
from mta_viz.analysis.maps import exact_map, pooled_map, shared_limit
from mta_viz.analysis.operations import Board, answer_board, unchanged_without_a_plan
from mta_viz.exporting.data import map_csv
from mta_viz.interventions.plans import Plan
from mta_viz.plots.attention import attention_map
from mta_viz.plots.difference import difference_caption, difference_map
from mta_viz.plots.theme import limit_text, probability_text, score_text
from mta_viz.tracing import Trace
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_cell
from mta_viz.ui.crops import WHOLE_UP_TO
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.spans_view import spans_of
from mta_viz.ui.surgery.strip import edited_run
from mta_viz.ui.widgets import caption, caption_with_save, chart

MAP_PX = 300
SOURCES = {
    "needle": "the number the prompt asks for",
    "likeliest": "the original model's most probable next token",
    "given": "as typed",
}


def meter_of(page: Page) -> AnswerMeter:
    """The answer that is looked at: typed in, or the one the prompt suggests."""
    text = state.get("answer") or None
    return remember(lambda: AnswerMeter(page.trace, answer_after(page.trace, text)), "meter", page.key, text)


def draw_board(page: Page, plan: Plan) -> None:
    """The answer's field, three numbers, the top tokens; without a plan that nothing is changed."""
    st.text_input(
        "Answer after the prompt",
        placeholder="empty: the number asked for, or the likeliest token",
        help="Type a space first where a word would have one.",
        **state.kept("answer", ""),
    )
    meter = meter_of(page)
    run = edited_run(page, plan) if plan else page.trace
    board: Board = remember(lambda: answer_board(meter, run, plan), "board", page.key, meter.answer, plan)
    caption(f"Answer “{meter.answer.text}”: {SOURCES[meter.answer.source]}; {len(meter.answer.ids)} tokens.")
    _draw_numbers(board)
    st.dataframe(_rows(board), hide_index=True, column_config=_columns(), height=38 + 35 * len(_rows(board)))
    if not plan:
        _draw_badge(page)


def _draw_numbers(board: Board) -> None:
    original, edited, change = st.columns(3)
    original.metric("Original: p(answer)", probability_text(math.exp(board.before)))
    edited.metric("Edited: p(answer)", probability_text(math.exp(board.after)))
    odds = board.log_odds_change
    change.metric(
        "Change of log-odds",
        f"{score_text(odds)} nats" if math.isfinite(odds) else "beyond float32",
        help=f"Log-odds: log(p / (1 - p)). Log-probability: {score_text(board.change)} nats.",
    )


def _rows(board: Board) -> list[dict[str, object]]:
    return [
        {"token": one.piece, "original": one.before, "edited": one.after, "change": one.after - one.before}
        for one in board.top
    ]


def _columns() -> dict[str, object]:
    bars = {"format": "%.3f", "min_value": 0.0, "max_value": 1.0}
    shown = {name: st.column_config.ProgressColumn(name, **bars) for name in ("original", "edited")}
    return shown | {"change": st.column_config.NumberColumn("change", format="%+.3f")}


def _draw_badge(page: Page) -> None:
    with st.spinner("Running the prompt once more ..."):
        same = remember(lambda: (unchanged_without_a_plan(page.trace),), "empty plan", page.key)[0]
    if same:
        st.success("Empty plan: output identical to the original ✓")
    else:
        st.error("Empty plan: the output differs from the original run; do not trust what this page shows.")


def draw_maps(page: Page, selected: Selected, plan: Plan) -> None:
    """The chosen head's map: original, edited, difference; the first two on one scale."""
    head = (selected.layer, selected.stage, selected.head)
    runs = {"original": page.trace, "edited": edited_run(page, plan) if plan else page.trace}
    maps = {
        name: remember(lambda run=run: _map(run, *head), "edit map", page.key, *head, name, plan)
        for name, run in runs.items()
    }
    limit = shared_limit(maps.values(), page.first_token)
    spans, key = spans_of(page), (page.key, *head, plan, page.numbering, page.first_token)
    size, cell = (MAP_PX, MAP_PX), (selected.query, selected.key)
    with st.container(horizontal=True, gap="xsmall"):
        for name, one in maps.items():
            figure = remember(
                lambda one=one: attention_map(
                    one,
                    page.trace.tokens,
                    limit=limit,
                    size=size,
                    spans=spans,
                    numbering_from=page.numbering,
                    selected=cell,
                ),
                "edit figure",
                *key,
                name,
                spans,
                cell,
            )
            with st.container(width=MAP_PX):
                st.markdown(f"**{name.capitalize()}**")
                chart(
                    figure,
                    f"edit.{name}.{page.key}.{hash(key)}",
                    on_cell if one.block == 1 else None,
                    alt=f"The head's map in the {name} model",
                )
                caption_with_save(
                    f"Scale ±{limit_text(limit)}, shared by both.",
                    ("surgery", name),
                    figure,
                    lambda one=one: map_csv(one, page.trace.tokens),
                    f"edit.{name}",
                )
        with st.container(width=MAP_PX):
            _draw_difference(page, head, runs["edited"], key, plan)


def _draw_difference(page: Page, head: tuple, run: Trace, key: tuple, plan: Plan) -> None:
    found = remember(
        lambda: changed_map(page.trace, run, *head, WHOLE_UP_TO), "edit change", page.key, *head, plan
    )
    limit = shared_limit([found], page.first_token)
    figure = remember(
        lambda: difference_map(
            found,
            page.trace.tokens,
            limit=limit,
            numbering_from=page.numbering,
            size=(MAP_PX, MAP_PX),
            spans=spans_of(page),
        ),
        "edit change figure",
        *key,
        spans_of(page),
    )
    st.markdown("**Edited minus original**")
    chart(figure, f"edit.difference.{page.key}.{hash(key)}", alt="What the plan changed in this map")
    told = "No cell of this map changed." if not found.values.any() else difference_caption(found, limit)
    caption_with_save(
        told, ("surgery", "difference"), figure, lambda: map_csv(found, page.trace.tokens), "edit.difference"
    )


def _map(run: Trace, layer: int, stage: object, head: int):
    if len(run.tokens) <= WHOLE_UP_TO:
        return exact_map(run, layer, stage, head)
    return pooled_map(run, layer, stage, head, WHOLE_UP_TO)
