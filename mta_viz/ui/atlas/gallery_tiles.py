"""From a model's kernels and their rows in the table to the tiles of the gallery."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mta_viz.analysis.kernels import WHERE, KernelId, LayerKernelSet, MixPlace, Place, layer_kernels
from mta_viz.analysis.shapes.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE
from mta_viz.analysis.shapes.table import KEY_QUERY, MIXING, Row
from mta_viz.config import ModelConfig
from mta_viz.plots.kernels import full_matrix
from mta_viz.plots.tile import Target, Tile
from mta_viz.ui.atlas.model_kernels import SHORT, kernel_of, short_name
from mta_viz.ui.numbering import head_label, layer_label

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
