"""What every head gives the needle (or a named span) in A and in B, and the difference of the pairs."""

from collections.abc import Callable

import numpy as np
import streamlit as st
from jaxtyping import Float

from mta_viz.analysis.comparing import NeedleShares
from mta_viz.analysis.maps import round_up
from mta_viz.analysis.score_definitions import Score
from mta_viz.exporting.compared import shares_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.compared import share_lines
from mta_viz.plots.head_tiles import value_map
from mta_viz.plots.sweep import sweep_map
from mta_viz.plots.theme import Figure
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_head, pair_of
from mta_viz.ui.compare.runs import Compared
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.widgets import caption, caption_with_save, chart

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
            (state.view().checkpoint, "compare", "needle"),
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
