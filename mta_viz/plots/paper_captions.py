"""What stands under the paper's figures: what is drawn, on which scale, and what could not be drawn."""

from collections.abc import Sequence

import numpy as np

from mta_viz.analysis.kernels import WHERE
from mta_viz.analysis.maps import shared_limit
from mta_viz.analysis.paper_figures import (
    LayerPicture,
    MixingByLayer,
    MixingMeans,
    MixingOverLayers,
)
from mta_viz.analysis.paper_map import KernelBesideMap
from mta_viz.plots.mosaic import tap_limit
from mta_viz.plots.paper_figures import Bars, bar_values
from mta_viz.plots.theme import limit_text, score_text
from mta_viz.plots.tile import Tile, common_limit

OWN_BEYOND = "from what is not framed; beyond them the end colours"


def layer_caption(picture: LayerPicture, model: str, numbering_from: int = 0) -> str:
    """Of `layer_figure`."""
    n_heads, c_q, c_k = picture.taps.shape
    own = picture.taps[:, picture.offsets.own[0], picture.offsets.own[1]]
    told = (
        f"Key-query kernels {WHERE[picture.where]} of {model}, layer {picture.layer + numbering_from}: "
        f"{_count(n_heads, 'head')}, {c_q} queries x {c_k} keys. Rows: query offset, 0 (now) at the bottom; "
        "columns: key offset. Framed: the own tap"
    )
    if np.isfinite(own).any():
        told += (
            f", {score_text(float(np.nanmin(_finite(own))))} to {score_text(float(np.nanmax(_finite(own))))}"
        )
    limit = limit_text(tap_limit(picture.taps, picture.offsets.own))
    heads = [f"head {head + numbering_from}" for head in range(n_heads)]
    bad = _broken(picture.taps, heads)
    return f"{told}. Colour limits ±{limit}, {OWN_BEYOND}.{bad}{_counting(numbering_from)}"


def kernel_map_caption(found: KernelBesideMap, model: str, numbering_from: int = 0) -> str:
    """Of `kernel_map_figure`."""
    where, stage = WHERE[found.kernel.where], found.attention.stage.value
    layer, head = found.kernel.layer + numbering_from, found.kernel.head + numbering_from
    limits = (
        f"±{limit_text(tap_limit(found.taps[None], found.offsets.own))} for the taps ({OWN_BEYOND}), "
        f"±{limit_text(shared_limit([found.attention]))} for the map"
    )
    bad = _broken(found.taps[None], [f"head {head}"])
    if found.attention.n_bad:
        bad += f" Crosses: {_count(found.attention.n_bad, 'cell')} of the map not a number."
    return (
        f"Kernel of layer {layer}, head {head} of {model}, {where}, and the map it makes: {stage.long} "
        f"({stage.unit}), rows: “{_text(found, found.rows.positions)}”, "
        f"columns: “{_text(found, found.keys.positions)}”, in a prompt of {len(found.tokens)} tokens. "
        f"Colour limits {limits}.{bad}{_counting(numbering_from)}"
    )


def mixing_caption(stack: MixingOverLayers, model: str, numbering_from: int = 0) -> str:
    """Of `mixing_figure`."""
    _, n_groups, size, _ = stack.matrices.shape
    panels = "a layer" if n_groups == 1 else f"a layer (down) and group of {size} heads (across)"
    limit = limit_text(common_limit(_tile(matrix) for groups in stack.matrices for matrix in groups))
    layers = [f"layer {layer + numbering_from}" for layer in stack.layers]
    return (
        f"Head-mixing kernels {WHERE[stack.where]} of {model}: one panel {panels}. Rows: target heads, "
        "columns: the source heads they take from; framed: a head's weight on itself. "
        f"Colour limits ±{limit}, {OWN_BEYOND}."
        f"{_broken(stack.matrices, layers)}{_counting(numbering_from)}"
    )


def bars_caption(found: MixingByLayer, what: Bars, model: str, numbering_from: int = 0) -> str:
    """Of `bars_figure`."""
    if what == "diagonal":
        told = "Mean size |w| of the diagonal of the head-mixing kernels"
    else:
        told = (
            "Mean size |w| of the off-diagonal over the mean size of the diagonal of the head-mixing kernels"
        )
    n_with = sum(found.key_query)
    marked = "" if n_with == 0 else " Orange: layers with key-query kernels."
    places = " and ".join(WHERE[means.where] for means in found.places)
    bad = "".join(_missing(means, what, numbering_from) for means in found.places)
    return f"{told} of {model} by layer, {places}.{marked}{bad}{_counting(numbering_from)}"


def _missing(means: MixingMeans, what: Bars, numbering_from: int) -> str:
    values = bar_values(means, what)
    bad = [layer for layer in range(len(values)) if not np.isfinite(values[layer])]
    if not bad:
        return ""
    reasons = [
        f"layer {layer + numbering_from} "
        + (f"(NaN in {_count(means.n_bad[layer], 'weight')})" if means.n_bad[layer] else "(diagonal is 0)")
        for layer in bad
    ]
    return f" Without a number {WHERE[means.where]}: {', '.join(reasons)}."


def _broken(stack: np.ndarray, names: Sequence[str]) -> str:
    """Which parts of a stack, along its first axis, hold NaN, or nothing but 0."""
    counts = (~np.isfinite(stack)).reshape(len(stack), -1).sum(1)
    told = [f"{name} ({_count(int(n), 'value')})" for name, n in zip(names, counts, strict=True) if n]
    zero = [name for name, part in zip(names, stack, strict=True) if not part.any()]
    return (f" Crosses: NaN or infinite in {', '.join(told)}." if told else "") + (
        f" All 0: {', '.join(zero)}." if zero else ""
    )


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


def _text(found: KernelBesideMap, positions: range) -> str:
    tokens = found.tokens
    if tokens.text is None:
        return " ".join(tokens.pieces[at] for at in positions)
    return tokens.text[tokens.spans[positions.start][0] : tokens.spans[positions.stop - 1][1]].strip()


def _tile(matrix: np.ndarray) -> Tile:
    return Tile("", matrix, tuple((head, head) for head in range(len(matrix))), "", "", ())


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _counting(numbering_from: int) -> str:
    return f" Layers and heads count from {numbering_from}."
