"""How far the kernels of paired heads are apart, and the chosen head's kernel beside its partner's."""

import numpy as np
import streamlit as st

from mta_viz.analysis.kernel_distance import NO_KERNEL, KernelPair, pair_taps
from mta_viz.analysis.kernels import WHERE, MixPlace, Place
from mta_viz.analysis.score_definitions import Score
from mta_viz.analysis.shapes.table import KEY_QUERY
from mta_viz.exporting.compared import kernel_pairs_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.compared import kernel_trio
from mta_viz.plots.head_tiles import value_map
from mta_viz.ui import state
from mta_viz.ui.atlas.model_kernels import SHORT
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_head
from mta_viz.ui.compare.runs import Compared
from mta_viz.ui.numbering import head_name
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.widgets import caption, caption_with_save, chart, picked

WORDS = (
    "Distance of each of A's kernels from its partner's in B: the square root of the summed squared "
    "differences of taps. A head without a kernel convolves with the identity, which is what its partner is "
    "compared with. Hatched: neither has one."
)
MAP_PX, TRIO_PX = 300, 900


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
            with st.container(width=MAP_PX):
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
        lambda: value_map(score, values, numbering_from=page.numbering, selected=place, width=MAP_PX),
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
        (state.view().checkpoint, "compare", "kernels", where),
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
        (state.view().checkpoint, "compare", "kernel", where),
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
        state.select(layer=ranked[at].layer, head=ranked[at].head, where=ranked[at].where)
