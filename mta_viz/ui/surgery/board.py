"""The answer board: how probable the answer and the likeliest tokens are, originally and edited.

Also what attribution is asked about (the token after which an answer stands, and the answer), and how the
page measures a figure beside itself.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.cause.answers import Answer, Board, answer_board, unchanged_without_a_plan
from mta_viz.analysis.cause.attributed_prompt import ask
from mta_viz.figures.base import Measured, Source
from mta_viz.figures.cause import meter_of
from mta_viz.model.plans import Plan
from mta_viz.plots.theme import cut, probability_text, score_text
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.plan import ANSWER, draw_answer, edited_page
from mta_viz.ui.shell.show import source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption
from mta_viz.ui.shell.work import Work

POSITION, OWN_ANSWER = Setting("asked position", 0), Setting("asked answer", "")
SOURCES = {
    "needle": "the number the prompt asks for",
    "likeliest": "the original model's most probable next token",
    "given": "as typed",
}


def draw_board(page: Page, plan: Plan) -> None:
    """The answer's field, three numbers, the top tokens; without a plan that nothing is changed."""
    draw_answer()
    meter, run = meter_of(source_of(page), ANSWER.value or None), edited_page(page, plan).trace
    board: Board = remember(lambda: answer_board(meter, run, plan), "board", page.key, meter.answer, plan)
    count = len(board.answer.ids)
    n_tokens = "1 token" if count == 1 else f"{count} tokens"
    caption(f"Answer “{board.answer.text}”: {SOURCES[board.answer.source]}; {n_tokens}.")
    _draw_numbers(board)
    draw_probabilities(
        [(token.piece, token.before, token.after, token.after - token.before) for token in board.top],
        ("original", "edited", "change"),
    )
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


def draw_probabilities(rows: Sequence[tuple[object, ...]], names: tuple[str, str, str]) -> None:
    """Tokens with their probabilities in two runs as bars, and the difference."""
    bars: dict[str, Any] = {
        name: st.column_config.ProgressColumn(name, format="%.3f", min_value=0.0, max_value=1.0)
        for name in names[:2]
    }
    st.dataframe(
        [dict(zip(("token", *names), row, strict=True)) for row in rows],
        hide_index=True,
        column_config=bars | {names[2]: st.column_config.NumberColumn(names[2], format="%+.3f")},
        height=38 + 35 * len(rows),
    )


def _draw_badge(page: Page) -> None:
    with st.spinner("Running the prompt once more ..."):
        same = remember(lambda: (unchanged_without_a_plan(page.trace),), "empty plan", page.key)[0]
    if same:
        st.success("Empty plan: output identical to the original ✓")
    else:
        st.error("Empty plan: the output differs from the original run; do not trust what this page shows.")


def measured_beside(
    page: Page,
    name: str,
    spec: Measured[Any],
    label: str,
    measure: Callable[[Source, Keep], Any] | None = None,
    *more: Hashable,
) -> Any | None:
    """The figure's result; before it is there its button, or how far it is.

    `measure(source, keep)` stands for the figure's own, which keeps nothing by the way; `more` of the key.
    """
    source = source_of(page)

    def do(work: Work, keep: Keep) -> Any:
        own = replace(source, progress=work.report)
        return spec.measure(own) if measure is None else measure(own, keep)

    return measured(Measurement(name, (page.key, *spec.key, *more), label, do))


@dataclass
class AskedOf:
    """The run whose position and answer stand in the fields: of another one they mean nothing."""

    run: str = ""


@dataclass(frozen=True)
class Asked:
    """`text`: the answer as typed, None for the one the prompt suggests. `answer`: its tokens."""

    position: int
    text: str | None
    answer: Answer

    def question(self) -> dict[str, Any]:
        """As parameters of figures."""
        return {"answer": self.text, "position": self.position}


def pick_question(page: Page) -> Asked:
    """The token and the answer after it; at the prompt's end the answer of the board above.

    Raises MtaVizError for an answer that is none.
    """
    last, of = len(page.trace.tokens) - 1, state.part(AskedOf)
    if of.run not in ("", page.key):
        POSITION.put(last)
        OWN_ANSWER.put("")
    of.run = page.key
    with st.container(horizontal=True, vertical_alignment="bottom"):
        position = st.number_input(
            "After token",
            min_value=0,
            max_value=last,
            step=1,
            width=170,
            help="The answer is looked for after this token; the prompt's last one at first.",
            **POSITION.widget(default=last, within=(0, last)),
        )
        text = (ANSWER.value if position == last else _own_answer()) or None
    asked = Asked(int(position), text, _answer(page, int(position), text))
    piece = cut(page.trace.tokens.pieces[asked.position], 24)
    caption(
        f"After token {asked.position} “{piece}”: the answer “{asked.answer.text}” "
        f"({SOURCES[asked.answer.source]}). The original model: the plan above plays no part here."
    )
    return asked


def _own_answer() -> str:
    return st.text_input(
        "Token or answer there",
        placeholder="empty: the likeliest token",
        width=280,
        help="Type a space first where a word would have one.",
        **OWN_ANSWER.widget(),
    )


def _answer(page: Page, position: int, text: str | None) -> Answer:
    tokens = page.trace.tokens
    if position == len(tokens) - 1:
        return meter_of(source_of(page), text).answer
    return remember(lambda: ask(page.model, tokens, text, position).answer, "asked", page.key, position, text)
