"""The gallery's mosaics: which tiles in which layout, how drawn, and the frame on the selected one."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from mta_viz.analysis.kernels import KernelId
from mta_viz.analysis.shapes.table import KEY_QUERY, MIXING, Row
from mta_viz.exporting.data import number, table
from mta_viz.plots.gallery import (
    NUMBERS_FROM_PX,
    Look,
    Sheet,
    gallery,
    numbers_fit,
    with_frame,
)
from mta_viz.plots.tile import Tile, common_limit
from mta_viz.ui import state
from mta_viz.ui.atlas.gallery_tiles import Kernels, matrix_tiles, own_tiles, target_id
from mta_viz.ui.atlas.model_kernels import SHORT, weights_key
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_kernel
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.widgets import caption, caption_with_save, chart

KEY_QUERY_CAPTION = (
    "Key-query kernels: in a tile, earlier queries above, the current one at the bottom; earlier keys left."
)
MIXING_CAPTION = (
    "Head mixing: rows of a tile are target heads and what each receives, columns its source heads. "
    "Click a row to open it."
)


def draw_mosaics(
    page: Page, kernels: Kernels, rows: Sequence[Row], reordered: bool, selected: KernelId | None
) -> None:
    """Key-query kernels and head mixing, each kind as one figure; `reordered`: in the order of the rows."""
    look = _draw_look()
    for words, places in ((KEY_QUERY_CAPTION, KEY_QUERY), (MIXING_CAPTION, MIXING)):
        some = [row for row in rows if row["where"] in places]
        if some:
            drawn = (tuple((row["layer"], row["head"], row["where"]) for row in some), reordered)
            sheet = remember(
                partial(_sheet, kernels, some, reordered),
                "gallery sheet", *weights_key(page), page.numbering, drawn,
            )  # fmt: skip
            _draw_mosaic(page, sheet, look, (places[0], drawn), selected, words)


def _draw_look() -> Look:
    with st.container(horizontal=True, vertical_alignment="center"):
        hide = st.toggle(
            "Hide own tap",
            help="The own tap or own weight is near 1 almost everywhere: without it small structure shows.",
            **state.kept("hide_own", True),
        )
        own = st.segmented_control(
            "Scale",
            ("shared", "own"),
            required=True,
            label_visibility="collapsed",
            help="shared: one colour scale for all tiles; own: each tile its own.",
            **state.kept("kernel_scale", "shared", ("shared", "own")),
        )
        numbers = st.toggle("Numbers", **state.kept("kernel_numbers", False))
    return Look(hide_own=hide, own_scale=own == "own", numbers=numbers)


def _sheet(kernels: Kernels, rows: Sequence[Row], reordered: bool) -> Sheet:
    if reordered:
        return Sheet.reading(own_tiles(kernels, rows))
    if rows[0]["where"] in MIXING:
        return Sheet.reading(matrix_tiles(kernels, [row["where"] for row in rows]))
    by_row: dict[str, list[Tile]] = {}
    for row, tile in zip(rows, own_tiles(kernels, rows), strict=True):
        name = f"{layer_label(row['layer'], kernels.numbering)} {SHORT[row['where']]}"
        by_row.setdefault(name, []).append(tile)
    heads = [head_label(head, kernels.numbering) for head in range(max(map(len, by_row.values())))]
    return Sheet(list(by_row.values()), list(by_row), heads)


def _draw_mosaic(
    page: Page,
    sheet: Sheet,
    look: Look,
    drawn: tuple[str, tuple[object, ...]],
    selected: KernelId | None,
    words: str,
) -> None:
    limit = remember(lambda: common_limit(sheet.tiles), "gallery limit", *weights_key(page), drawn)
    figure = remember(
        lambda: gallery(sheet, look, limit),
        "gallery", *weights_key(page), page.numbering, drawn, look,
    )  # fmt: skip
    box = sheet.box(target_id(selected)) if selected is not None else None
    place = drawn[0]
    framed = with_frame(figure, box)
    chart(framed, f"gallery.{place}.{page.key}.{hash((drawn, box))}", on_kernel, alt=words)
    if look.numbers and not numbers_fit(sheet):
        caption(
            f"Numbers need cells of {NUMBERS_FROM_PX} px, here they have {sheet.cell_px:.0f}: "
            "filter to a few kernels."
        )
    scale = "each tile on its own scale" if look.own_scale else f"one scale to ±{limit:g}"
    hidden = " Hatched: own taps and own weights, hidden." if look.hide_own else ""
    name = (state.view().checkpoint, "kernels", place)
    caption_with_save(f"{words} Colour: {scale}.{hidden}", name, framed, _csv(sheet), f"gallery.{place}")


def _csv(sheet: Sheet) -> Callable[[], str]:
    def lines() -> str:
        return table(
            ("kernel", "row", "column", "value"),
            [
                (tile.name, r, c, number(float(value)))
                for tile in sheet.tiles
                for r, line in enumerate(tile.values)
                for c, value in enumerate(line)
            ],
        )

    return lines
