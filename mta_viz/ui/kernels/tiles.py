"""From a model's kernels and their rows in the table to the tiles of the gallery.

The gallery's mosaics: which tiles in which layout, how drawn, and the frame on the selected one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.kernels.kernels import WHERE, KernelId, LayerKernelSet, MixPlace, Place, layer_kernels
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE
from mta_viz.analysis.kernels.table import KEY_QUERY, MIXING, Row
from mta_viz.config import ModelConfig
from mta_viz.exporting.data import number, table
from mta_viz.plots.kernels.gallery import (
    NUMBERS_FROM_PX,
    Look,
    Sheet,
    Target,
    Tile,
    common_limit,
    gallery,
    numbers_fit,
    with_frame,
)
from mta_viz.plots.kernels.kernels import full_matrix
from mta_viz.ui.kernels.model_kernels import SHORT, kernel_of, short_name, weights_key
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_kernel
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, layer_label

MARKS = {
    **{"diagonal": "D", "negative diagonal": "D", "induction": "I", "negative induction": "I"},
    **{"anti-diagonal": "A", "negative anti-diagonal": "A", "priming": "P", "inhibition of return": "P"},
    **{"smoothing": "B", "sharpening": "B", "edge-first": "F", "edge-last": "L", "both edges": "FL"},
    **{"KV shift": "S", "key shift": "S", "single tap": "T", "contrast": "C", "averaging": "M"},
    **{"swap": "X", "permutation": "X", IDENTITY: "=", NONE: "·", ALL_ZERO: "0", NOT_FINITE: "!"},
}


@dataclass(frozen=True)
class Kernels:
    """All kernels of a model: rows of the table, and the numbers behind them, by layer."""

    rows: tuple[Row, ...]
    layers: tuple[LayerKernelSet, ...]
    numbering: int

    def label(self, kernel: KernelId) -> str:
        """`L2 H1 pre`, as the visitor counts."""
        return short_name(kernel, self.numbering)


def read_layers(weights: Mapping[str, Any], config: ModelConfig) -> tuple[LayerKernelSet, ...]:
    """Every layer's kernels."""
    return tuple(layer_kernels(weights, config, layer) for layer in range(config.n_layers))


def target_id(kernel: KernelId) -> str:
    """What a click on the kernel's tile brings back."""
    return f"{kernel.where} {kernel.layer} {kernel.head}"


def own_tiles(kernels: Kernels, rows: Sequence[Row]) -> tuple[Tile, ...]:
    """A tile for each row of the table, in its order: key-query kernels, or single rows of matrices."""
    return tuple(
        _key_query_tile(kernels, row, row["where"])
        if row["where"] in KEY_QUERY
        else _mixing_row_tile(kernels, row)
        for row in rows
    )


def matrix_tiles(kernels: Kernels, places: Sequence[str]) -> tuple[Tile, ...]:
    """A tile for each mixing matrix, [target, source]; each of its rows is a target of its own."""
    return tuple(_matrix_tiles(kernels, [place for place in MIXING if place in places]))


def _key_query_tile(kernels: Kernels, row: Row, where: Place) -> Tile:
    layer, kernel = kernels.layers[row["layer"]], kernel_of(row)
    taps, offsets = layer.taps(where), layer.offsets(where)
    if taps is None or offsets is None:
        raise RuntimeError(f"layer {row['layer']} has no {where} kernel, but the table has")
    values = taps[row["head"]].numpy()
    target = Target(target_id(kernel), _hover(kernels, row), 0, len(values) - 1)
    return Tile(kernels.label(kernel), values, (offsets.own,), _mark(row), _note(values), (target,))


def _mixing_row_tile(kernels: Kernels, row: Row) -> Tile:
    kernel = kernel_of(row)
    values = _matrix(kernels.layers[row["layer"]], row["where"])[row["head"]][None]
    target = Target(target_id(kernel), _hover(kernels, row), 0, 0)
    own = ((0, row["head"]),)
    return Tile(kernels.label(kernel), values, own, _mark(row), _note(values), (target,))


def _matrix_tiles(kernels: Kernels, places: Sequence[MixPlace]) -> Iterator[Tile]:
    rows = {kernel_of(row): row for row in kernels.rows}
    for layer, found in enumerate(kernels.layers):
        for place in places:
            if found.mixing(place) is None:
                continue
            values = _matrix(found, place)
            ids = [KernelId(layer, head, place) for head in range(len(values))]
            targets = tuple(
                Target(target_id(one), _hover(kernels, rows[one]), one.head, one.head) for one in ids
            )
            own = tuple((head, head) for head in range(len(values)))
            name = f"{layer_label(layer, kernels.numbering)} {SHORT[place]}"
            yield Tile(name, values, own, "", _note(values), targets)


def _matrix(layer: LayerKernelSet, place: MixPlace) -> np.ndarray:
    mixing = layer.mixing(place)
    if mixing is None:
        raise RuntimeError(f"the table has {place} mixing where the layer has none")
    return full_matrix(mixing.numpy())


def _mark(row: Row) -> str:
    """One letter for the shape, small where the shape is faint."""
    mark = MARKS.get(row["shape"], "?")
    return mark.lower() if row["faint"] else mark


def _note(values: np.ndarray) -> str:
    bad = int((~np.isfinite(values)).sum())
    if bad:
        return f"NaN/inf: {bad}"
    return "" if values.any() else "all taps 0"


def _hover(kernels: Kernels, row: Row) -> str:
    kernel = kernel_of(row)
    layer, head = layer_label(kernel.layer, kernels.numbering), head_label(kernel.head, kernels.numbering)
    off = row["energy_off_identity"]
    energy = "" if off is None else f"<br>{off:.0%} of its energy off the own tap"
    kind = "head mixing " if kernel.where in MIXING else ""
    return f"{layer} {head}, {kind}{WHERE[kernel.where]}<br>{row['verdict']}{energy}"


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
    name = (state.selection().checkpoint, "kernels", place)
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
