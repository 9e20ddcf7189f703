"""What attribution is asked about: the token after which an answer stands, and the answer."""

from collections.abc import Hashable
from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.answers import Answer
from mta_viz.analysis.attributed_prompt import ask
from mta_viz.plots.theme import cut
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.open_page import Page
from mta_viz.ui.surgery.board import SOURCES, meter_of
from mta_viz.ui.widgets import caption


@dataclass(frozen=True)
class Asked:
    """`text`: the answer as typed, None for the one the prompt suggests. `answer`: its tokens."""

    position: int
    text: str | None
    answer: Answer

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What results depend on besides the run."""
        return self.position, self.answer.ids


def pick_question(page: Page) -> Asked:
    """The token and the answer after it; at the prompt's end the answer of the board above.

    Raises MtaVizError for an answer that is none.
    """
    last = len(page.trace.tokens) - 1
    _forget_another_prompts(page)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        position = st.number_input(
            "After token",
            min_value=0,
            max_value=last,
            step=1,
            width=170,
            help="The answer is looked for after this token; the prompt's last one at first.",
            **state.kept("asked position", last, within=(0, last)),
        )
        text = state.get("answer") or None
        if position != last:
            text = _own_answer(page)
    asked = Asked(int(position), text, _answer(page, int(position), last, text))
    caption(_words(page, asked))
    return asked


def _forget_another_prompts(page: Page) -> None:
    """A position and an answer of another run mean nothing in this one."""
    if state.get("asked of", page.key) != page.key:
        state.put("asked position", len(page.trace.tokens) - 1)
        state.put("asked answer", "")
    state.put("asked of", page.key)


def _own_answer(page: Page) -> str | None:
    typed = st.text_input(
        "Token or answer there",
        placeholder="empty: the likeliest token",
        width=280,
        help="Type a space first where a word would have one.",
        **state.kept("asked answer", ""),
    )
    return typed or None


def _answer(page: Page, position: int, last: int, text: str | None) -> Answer:
    if position == last:
        return meter_of(page).answer
    return remember(
        lambda: ask(page.model, page.trace.tokens, text, position).answer, "asked", page.key, position, text
    )


def _words(page: Page, asked: Asked) -> str:
    piece = cut(page.trace.tokens.pieces[asked.position], 24)
    return (
        f"After token {asked.position} “{piece}”: the answer “{asked.answer.text}” "
        f"({SOURCES[asked.answer.source]}). The original model: the plan above plays no part here."
    )
