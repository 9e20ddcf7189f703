"""Answers side by side: how probable the right answer is in A and in B, and the likeliest tokens.

What every head gives the needle (or a named span) in A and in B, and the difference of the pairs.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import streamlit as st
from jaxtyping import Float

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.compare.comparing import AnswerPair, NeedleShares
from mta_viz.exporting.results import answers_csv, shares_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.cause import sweep_map
from mta_viz.plots.compare import share_lines
from mta_viz.plots.theme import Figure, probability_text, score_text
from mta_viz.ui.compare.sides import Compared
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head, pair_of
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, plain, save_table

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
                (state.selection().checkpoint, "compare", "answers"),
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


NO_SPAN = (
    "No needle and no named span: nothing to measure shares of. Choose the example “Four needles”, or name a "
    "part of the prompt on the Attention page (Find text, then Name it)."
)
NOT_IN_B = "B's prompt has no such part, so there is no share to compare."
MAP_PX, LINES_PX = 300, 600


def draw_needle(page: Page, selected: Selected, compared: Compared) -> None:
    """Maps of A, of B and of the paired difference; under them each layer's best head as two lines."""
    needle = compared.found.needle
    if needle is None:
        st.info(NO_SPAN if not state.get("compared span") else NOT_IN_B)
        return
    _Shares(page, selected, compared, needle).draw()


class _Shares:
    def __init__(self, page: Page, selected: Selected, compared: Compared, needle: NeedleShares) -> None:
        self.page, self.compared, self.needle = page, compared, needle
        self.place = (selected.layer, selected.head)
        self.partner = compared.found.pairs.of(*self.place)

    def draw(self) -> None:
        caption(self._words())
        limit = round_up(float(np.nanmax([np.nanmax(self.needle.a), np.nanmax(self.needle.b)])))
        with st.container(horizontal=True, gap="xsmall"):
            self._draw_map("A", self._shares("in A", self.needle.a, limit, self.place), on_head)
            self._draw_map("B", self._shares("in B", self.needle.b, limit, self.partner), self._on_b)
            self._draw_map("A-B", self._difference(), on_head)
        figure = share_lines(
            self.needle.a,
            self.needle.b,
            (self.compared.side.name_a, self.compared.side.name_b),
            numbering_from=self.page.numbering,
            width=LINES_PX,
        )
        chart(figure, f"compare.lines.{hash((self.compared.key, self.page.numbering))}", alt="Share by layer")
        caption_with_save(
            f"Each layer's head that gives it most: A ({self.compared.side.name_a}) solid, B "
            f"({self.compared.side.name_b}) dashed. The CSV has every head, its partner, and both shares.",
            (state.selection().checkpoint, "compare", "needle"),
            figure,
            lambda: shares_csv(self.needle, self.compared.found),
            "compare.needle",
        )

    def _words(self) -> str:
        names = [f"“{span.name}”" for span in self.needle.spans]
        what = names[0] if names[0] == names[1] else f"{names[0]} in A, {names[1]} in B"
        return (
            f"Share of {what} in the final weights of the prompt's last token: sum of |weight| on it over "
            "that of the row, 0 to 1. The third map is each of A's heads less its partner in B. "
            "Click a head to choose it."
        )

    def _shares(
        self, words: str, values: Float[np.ndarray, "layer head"], limit: float, place: tuple[int, int] | None
    ) -> Figure:
        score = Score("share", f"share {words}", "share", "", Stage.PATTERN, signed=False)
        return remember(
            lambda: value_map(
                score, values, limit=limit, numbering_from=self.page.numbering, selected=place, width=MAP_PX
            ),
            "compared shares", words, self.compared.key, place, self.page.numbering,
        )  # fmt: skip

    def _difference(self) -> Figure:
        return remember(
            lambda: sweep_map(
                "A − B, paired heads",
                self.needle.difference,
                unit="share",
                numbering_from=self.page.numbering,
                selected=self.place,
                width=MAP_PX,
            ),
            "compared shares", "difference", self.compared.key, self.place, self.page.numbering,
        )  # fmt: skip

    def _draw_map(self, name: str, figure: Figure, then: Callable[[str], None]) -> None:
        key = hash((self.compared.key, self.place, self.partner, self.page.numbering))
        with st.container(width=MAP_PX):
            chart(figure, f"compare.share.{name}.{key}", then, alt=f"Share of every head, {name}")

    def _on_b(self, widget: str) -> None:
        """A click on B's head chooses the head of A it stands beside."""
        place = pair_of(widget)
        if place is None:
            return
        found = np.argwhere((self.compared.found.pairs.partner == place).all(-1))
        if len(found):
            state.select(layer=int(found[0][0]), head=int(found[0][1]))
