"""The chosen head's map in A, its partner's in B, and A minus B where the tokens agree."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.compared_maps import ComparedMap, compared_map, stage_beside
from mta_viz.analysis.maps import AttentionMap, head_maps, round_up, shared_limit
from mta_viz.exporting.data import map_csv
from mta_viz.plots.attention import SMALL, attention_map
from mta_viz.plots.compared import compared_caption, compared_figure
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.tokenizers.base import Tokens
from mta_viz.tracing import Trace
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_cell
from mta_viz.ui.compare.runs import Compared
from mta_viz.ui.crops import WHOLE_UP_TO
from mta_viz.ui.numbering import head_name
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.spans_view import spans_of
from mta_viz.ui.widgets import caption, caption_with_save, chart, side_by_side

MAP_PX = 300
ROUNDING = 1e-3  # of the maps' own limit
Place = tuple[int, int]


def draw_maps(page: Page, selected: Selected, found: Compared) -> None:
    """The pairing in a sentence, then three maps; the first two share a scale."""
    place = (selected.layer, selected.head)
    partner = found.found.pairs.of(*place)
    caption(pairing_words(page, found, place))
    if found.found.shared.why:
        caption(found.found.shared.why)
    if partner is None:
        st.info("Nothing in B stands beside this head, so there are no maps to compare.")
        return
    _Maps(page, selected, found, partner).draw()


def pairing_words(page: Page, found: Compared, place: Place) -> str:
    """How heads are paired, which head stands beside the chosen one, and how sure that is."""
    pairs = found.found.pairs
    partner = pairs.of(*place)
    if pairs.rule == "index" or partner is None:
        return pairs.why
    names = [head_name(*at, page.numbering) for at in (place, partner)]
    return f"{pairs.why} Beside A's {names[0]} stands B's {names[1]} ({pairs.sure(*place)})."


@dataclass(frozen=True)
class _Maps:
    """Two heads' maps at a stage; where B's layer lacks it, B's stage before it. Pooled beyond 256 tokens."""

    page: Page
    selected: Selected
    found: Compared
    partner: Place

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What maps depend on."""
        return self.found.key, self.selected.layer, self.selected.head, self.selected.stage, self.partner

    @property
    def look_key(self) -> tuple[Hashable, ...]:
        """What figures depend on besides."""
        cell = (self.selected.query, self.selected.key)
        return self.page.numbering, self.page.first_token, spans_of(self.page), cell

    def draw(self) -> None:
        stage = self.selected.stage
        beside = stage_beside(self.found.b.model.config, self.partner[0], stage)
        a = self._map("a", self.found.a, (self.selected.layer, self.selected.head), stage)
        b = self._map("b", self.found.b, self.partner, beside)
        limit = shared_limit([a, b], self.page.first_token)
        if beside is not stage:
            caption(
                f"B's layer has no “{stage.value.long}”: what would enter it, “{beside.value.long}”, leaves "
                "it as it is."
            )
        with side_by_side("compared"):
            for name, run, one in (("A", self.found.a, a), ("B", self.found.b, b)):
                with st.container():
                    self._draw_one(name, run, one, limit)
            with st.container():
                self._draw_difference(limit)

    def _map(self, name: str, run: Trace, place: Place, stage: Any) -> AttentionMap:
        return remember(
            lambda: head_maps(run, *place, WHOLE_UP_TO)[stage], "compared map", name, stage, *self.key
        )

    def _draw_one(self, name: str, run: Trace, one: AttentionMap, limit: float) -> None:
        figure = remember(
            lambda: attention_map(one, limit=limit, look=SMALL, **self._drawing(run.tokens)),
            "compared figure", name, limit, *self.key, *self.look_key,
        )  # fmt: skip
        words = self.found.side.name_a if name == "A" else self.found.side.name_b
        st.text(f"{name}: {words}")
        self._show(name, run.tokens, one, figure, f"One scale for A and B, to {limit_text(limit)}.")

    def _draw_difference(self, limit_ab: float) -> None:
        st.text("A − B")
        shared = self.found.found.shared
        if shared.n == 0:
            st.info("No difference: from the first token on the prompts differ.")
            return
        first = (self.selected.layer, self.selected.head)
        found: ComparedMap = remember(
            lambda: compared_map(
                self.found.a, self.found.b, first, self.partner, self.selected.stage, shared, WHOLE_UP_TO
            ),
            "compared difference", *self.key,
        )  # fmt: skip
        floor = round_up(ROUNDING * limit_ab)  # noise of the last bits is not drawn as a difference
        limit = max(shared_limit([found], self.page.first_token), floor)
        tokens = self.found.a.tokens
        figure = remember(
            lambda: compared_figure(found, limit=limit, **self._drawing(tokens, shared.n)),
            "compared difference figure", limit, *self.key, *self.look_key,
        )  # fmt: skip
        told = compared_caption(found, limit) if limit > floor else self._equal_words()
        self._show("A-B", tokens, found, figure, told)

    def _equal_words(self) -> str:
        """Why there is no difference to see; of one model on two beginnings there can be none."""
        words = "The maps are equal in every cell compared, up to rounding."
        shared = self.found.found.shared
        if self.found.a.model is not self.found.b.model or shared.whole or shared.unlike:
            return words
        return (
            f"{words} Both prompts begin alike, and no token sees what comes after it. Prompts of equally "
            "many tokens are compared at every position."
        )

    def _drawing(self, tokens: Tokens, n: int | None = None) -> dict[str, Any]:
        """Arguments all three figures share; cells and spans beyond the first `n` tokens are left out."""
        n, cell = n or len(tokens), (self.selected.query, self.selected.key)
        own = tokens is self.found.a.tokens or tokens.pieces == self.found.a.tokens.pieces
        return {
            "tokens": tokens,
            "numbering_from": self.page.numbering,
            "size": (MAP_PX, MAP_PX),
            "selected": cell if max(cell) < n else None,
            "spans": tuple(span for span in spans_of(self.page) if span.stop <= n) if own else (),
        }

    def _show(self, name: str, tokens: Tokens, one: AttentionMap, figure: Figure, told: str) -> None:
        chart(
            figure,
            f"compare.{name}.{hash(self.key)}.{hash(self.look_key)}",
            on_cell if one.block == 1 and max(one.values.shape) <= len(self.found.a.tokens) else None,
            alt=f"The head's map, {name}",
            square=True,
        )
        where = (f"L{one.layer}", f"H{one.head}", one.stage.value.key)
        caption_with_save(
            told,
            (state.view().checkpoint, "compare", *where, name),
            figure,
            lambda: map_csv(one, tokens),
            f"compare.{name}",
        )
