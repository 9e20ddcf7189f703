"""Answers side by side: how probable the right answer is in A and in B, and the likeliest tokens."""

import math
from typing import Any

import streamlit as st

from mta_viz.analysis.compared_answers import AnswerPair
from mta_viz.exporting.compared import answers_csv
from mta_viz.plots.theme import probability_text, score_text
from mta_viz.ui import state
from mta_viz.ui.compare.runs import Compared
from mta_viz.ui.open_page import Page
from mta_viz.ui.widgets import caption, plain, save_table

AS_SURE = 0.05  # nats of difference below which neither is called surer


def draw_answers(page: Page, compared: Compared) -> None:
    """One sentence, then numbers beside the tokens."""
    first = compared.found.answers[0]
    st.markdown(f"**{plain(verdict(first, compared.side.name_a, compared.side.name_b))}**")
    left, right = st.columns([2, 3], gap="medium")
    with left:
        st.dataframe([_answer_row(one) for one in compared.found.answers], hide_index=True)
        for one in compared.found.answers:
            caption(_answer_words(one))
    with right:
        rows = _rows(compared)
        st.dataframe(rows, hide_index=True, column_config=_columns(), height=38 + 35 * len(rows))
        with st.container(horizontal=True, wrap=False, vertical_alignment="top"):
            with st.container():
                caption(_tokens_words(compared))
            save_table(
                (state.view().checkpoint, "compare", "answers"),
                lambda: answers_csv(compared.found),
                "compare.answers",
            )


def verdict(one: AnswerPair, name_a: str, name_b: str) -> str:
    """Who is surer of the answer to A's prompt, as a sentence."""
    p_a, p_b = _p(one.a), _p(one.b)
    told = f"Answer “{one.text}”: A ({name_a}) gives it p = {p_a}, B ({name_b}) p = {p_b}"
    if not math.isfinite(one.difference):
        return f"{told}."
    if abs(one.difference) < AS_SURE:
        return f"{told}: they are about equally sure of it."
    surer, times = ("A", one.difference) if one.difference > 0 else ("B", -one.difference)
    return f"{told}: {surer} finds it {_factor(times)} times as probable."


def _p(log_probability: float) -> str:
    return "NaN" if math.isnan(log_probability) else probability_text(math.exp(log_probability))


def _factor(nats: float) -> str:
    """`4.7`, `276`, `over a million`."""
    if nats > math.log(1e6):
        return "over a million"
    times = math.exp(nats)
    return f"{times:,.0f}" if times >= 10 else f"{times:.1f}"


def _answer_row(one: AnswerPair) -> dict[str, str]:
    return {
        "answer": one.text,
        "p in A": _p(one.a),
        "p in B": _p(one.b),
        "A − B, log p": f"{score_text(one.difference)} nats",
    }


def _answer_words(one: AnswerPair) -> str:
    """Which answer it is, and why this one."""
    if one.source == "given":
        return f"Answer “{one.text}”, as typed."
    if one.source == "needle":
        return f"Answer “{one.text}”: the number {one.of}'s prompt asks for."
    return f"Answer “{one.text}”: {one.of}'s most probable next token."


def _rows(compared: Compared) -> list[dict[str, object]]:
    return [
        {"token": one.piece, "A": one.a, "B": one.b, "A − B": one.difference} for one in compared.found.top
    ]


def _columns() -> dict[str, Any]:
    shown = {
        name: st.column_config.ProgressColumn(name, format="%.3f", min_value=0.0, max_value=1.0)
        for name in ("A", "B")
    }
    return shown | {"A − B": st.column_config.NumberColumn("A − B", format="%+.3f")}


def _tokens_words(compared: Compared) -> str:
    words = "The likeliest next tokens: A's five, then those of B's five that are not among them."
    if compared.found.same_ids:
        return words
    return "The likeliest next tokens: A's five, then B's five. The models write with other tokenizers."
