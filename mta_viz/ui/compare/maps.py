"""The chosen head's map in A, its partner's in B, and A minus B where the tokens agree.

How far the kernels of paired heads are apart, and the chosen head's kernel beside its partner's.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import AttentionMap, head_maps, round_up, shared_limit
from mta_viz.analysis.compare.kernels import NO_KERNEL, KernelPair, pair_taps
from mta_viz.analysis.compare.maps import ComparedMap, compared_map, stage_beside
from mta_viz.analysis.kernels.kernels import SHORT, WHERE, MixPlace, Place
from mta_viz.analysis.kernels.table import KEY_QUERY
from mta_viz.exporting.data import map_csv
from mta_viz.exporting.results import kernel_pairs_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.attention.maps import SMALL, attention_map
from mta_viz.plots.compare import compared_caption, compared_figure, kernel_trio
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.run.tracing import Trace
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.attention.spans import spans_of
from mta_viz.ui.compare.sides import Compared
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import WHOLE_UP_TO, Selected, on_cell, on_head
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_name, picked, side_by_side

MAP_PX = 300
ROUNDING = 1e-3  # of the maps' own limit
MapPlace = tuple[int, int]


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


def pairing_words(page: Page, found: Compared, place: MapPlace) -> str:
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
    partner: MapPlace

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

    def _map(self, name: str, run: Trace, place: MapPlace, stage: Any) -> AttentionMap:
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
            (state.selection().checkpoint, "compare", *where, name),
            figure,
            lambda: map_csv(one, tokens),
            f"compare.{name}",
        )


WORDS = (
    "Distance of each of A's kernels from its partner's in B: the square root of the summed squared "
    "differences of taps. A head without a kernel convolves with the identity, which is what its partner is "
    "compared with. Hatched: neither has one."
)
KERNEL_PX, TRIO_PX = 300, 900


def draw_kernels(page: Page, selected: Selected, compared: Compared) -> None:
    """Distances as maps, one for each place, then the chosen pair's kernels, then all as a table."""
    rows = compared.found.kernels
    if not rows:
        st.info(_why_none(compared))
        return
    if not any(row.distance > 0 for row in rows):
        st.info("All kernels are equal in A and B.")
        return
    caption(WORDS)
    with st.container(horizontal=True, gap="xsmall"):
        for where in dict.fromkeys(row.where for row in rows if row.distance > 0):
            with st.container(width=KERNEL_PX):
                _draw_distances(page, selected, compared, where)
    for where in KEY_QUERY:
        _draw_pair(page, selected, compared, where)
    _draw_table(page, compared)


def _why_none(compared: Compared) -> str:
    if compared.a.model is compared.b.model:
        return "A and B are one model here: their kernels are equal."
    if compared.found.pairs.rule == "none":
        return "Heads are not paired here, so no kernels are compared."
    return "Neither has kernels."


def _draw_distances(page: Page, selected: Selected, compared: Compared, where: Place | MixPlace) -> None:
    place, config = (selected.layer, selected.head), compared.a.model.config
    values = np.full((config.n_layers, config.n_heads), np.nan)
    for row in compared.found.kernels:
        if row.where == where:
            values[row.layer, row.head] = row.distance
    score = Score("distance", f"{SHORT[where]}: distance", "taps", "", Stage.PATTERN, signed=False)
    figure = remember(
        lambda: value_map(score, values, numbering_from=page.numbering, selected=place, width=KERNEL_PX),
        "compared kernels", where, compared.key, place, page.numbering,
    )  # fmt: skip
    chart(
        figure,
        f"compare.kernels.{where}.{hash((compared.key, place, page.numbering))}",
        on_head,
        alt=f"Distance of kernels {WHERE[where]}",
    )
    caption_with_save(
        f"{WHERE[where].capitalize()}.",
        (state.selection().checkpoint, "compare", "kernels", where),
        figure,
        lambda: kernel_pairs_csv(compared.found),
        f"compare.kernels.{where}",
    )


def _draw_pair(page: Page, selected: Selected, compared: Compared, where: Place) -> None:
    """Both kernels and their difference, where one of the two heads has one."""
    place = (selected.layer, selected.head)
    row = next((r for r in compared.found.kernels if (r.layer, r.head, r.where) == (*place, where)), None)
    if row is None:
        return
    if row.distance == 0:
        caption(f"This head's kernel {WHERE[where]} is the same in A and B: {row.shape_a}.")
        return
    a, b, offsets = pair_taps(compared.a.model, compared.b.model, place, (row.layer_b, row.head_b), where)
    headings = (
        f"A {head_name(*place, page.numbering)}: {row.shape_a}",
        f"B {head_name(row.layer_b, row.head_b, page.numbering)}: {row.shape_b}",
        "A − B",
    )
    title = f"Kernels {WHERE[where]}"
    figure = remember(
        lambda: kernel_trio(a, b, offsets, headings, title, width=TRIO_PX),
        "compared trio", where, compared.key, place, page.numbering,
    )  # fmt: skip
    chart(figure, f"compare.trio.{where}.{hash((compared.key, place, page.numbering))}", alt=title)
    caption_with_save(
        f"Distance {row.distance:.3g}; from the identity A {row.off_a:.3g}, B {row.off_b:.3g}. One scale for "
        "all three, set by the taps other than the own one.",
        (state.selection().checkpoint, "compare", "kernel", where),
        figure,
        lambda: kernel_pairs_csv(compared.found),
        f"compare.trio.{where}",
    )


def _draw_table(page: Page, compared: Compared) -> None:
    """All pairs, those farthest apart first; a row chooses its head."""
    ranked = sorted(compared.found.kernels, key=lambda row: -row.distance)
    with st.expander(f"All {len(ranked)} pairs of kernels as a table"):
        name = f"compare.table.{hash((compared.key, page.numbering))}"
        st.dataframe(
            [_line(page, row) for row in ranked],
            hide_index=True,
            height=300,
            key=name,
            on_select=lambda: _take(picked(name), ranked),
            selection_mode="single-row",
        )
        if NO_KERNEL in {shape for row in ranked for shape in (row.shape_a, row.shape_b)}:
            caption("Where one side has no kernel, its convolution leaves scores or weights as they are.")


def _line(page: Page, row: KernelPair) -> dict[str, object]:
    return {
        "A": head_name(row.layer, row.head, page.numbering),
        "B": head_name(row.layer_b, row.head_b, page.numbering),
        "where": SHORT[row.where],
        "distance": round(row.distance, 3),
        "shape in A": row.shape_a,
        "shape in B": row.shape_b,
    }


def _take(at: int | None, ranked: list[KernelPair]) -> None:
    if at is not None and at < len(ranked):
        state.select(layer=ranked[at].layer, head=ranked[at].head, place=ranked[at].where)
