"""The answer board: how probable the answer and the likeliest tokens are, originally and edited."""

import math
from typing import Any

import streamlit as st

from mta_viz.analysis.answers import Answer, AnswerMeter, answer_after
from mta_viz.analysis.operations import Board, answer_board, unchanged_without_a_plan
from mta_viz.interventions.plans import Plan
from mta_viz.plots.theme import probability_text, score_text
from mta_viz.ui import state
from mta_viz.ui.cache import remember, remember_with_run
from mta_viz.ui.open_page import Page
from mta_viz.ui.surgery.strip import edited_run
from mta_viz.ui.widgets import caption

SOURCES = {
    "needle": "the number the prompt asks for",
    "likeliest": "the original model's most probable next token",
    "given": "as typed",
}


def meter_of(page: Page) -> AnswerMeter:
    """The answer that is looked at: typed in, or the one the prompt suggests."""
    text = state.get("answer") or None
    return remember_with_run(
        lambda: AnswerMeter(page.trace, answer_after(page.trace, text)), "meter", page.key, text
    )


def draw_board(page: Page, plan: Plan) -> None:
    """The answer's field, three numbers, the top tokens; without a plan that nothing is changed."""
    st.text_input(
        "Answer",
        placeholder="empty: the number asked for, or the likeliest token",
        help="What should follow the prompt. Type a space first where a word would have one.",
        **state.kept("answer", ""),
    )
    meter = meter_of(page)
    run = edited_run(page, plan) if plan else page.trace
    board: Board = remember(lambda: answer_board(meter, run, plan), "board", page.key, meter.answer, plan)
    caption(_answer_words(meter.answer))
    _draw_numbers(board)
    st.dataframe(_rows(board), hide_index=True, column_config=_columns(), height=38 + 35 * len(_rows(board)))
    if not plan:
        _draw_badge(page)


def _answer_words(answer: Answer) -> str:
    count = len(answer.ids)
    n_tokens = "1 token" if count == 1 else f"{count} tokens"
    return f"Answer “{answer.text}”: {SOURCES[answer.source]}; {n_tokens}."


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


def _columns() -> dict[str, Any]:
    shown = {
        name: st.column_config.ProgressColumn(name, format="%.3f", min_value=0.0, max_value=1.0)
        for name in ("original", "edited")
    }
    return shown | {"change": st.column_config.NumberColumn("change", format="%+.3f")}


def _draw_badge(page: Page) -> None:
    with st.spinner("Running the prompt once more ..."):
        same = remember(lambda: (unchanged_without_a_plan(page.trace),), "empty plan", page.key)[0]
    if same:
        st.success("Empty plan: output identical to the original ✓")
    else:
        st.error("Empty plan: the output differs from the original run; do not trust what this page shows.")
