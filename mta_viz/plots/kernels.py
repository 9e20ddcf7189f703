"""The kernels of a layer: key-query kernels of all heads, and head mixing as one matrix.

Time runs down in a kernel as in the maps: the earliest query on top, the current one at the bottom.
"""

from typing import Literal

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.kernels import WHERE, LayerKernelSet, MixPlace, Place
from mta_viz.analysis.maps import round_up
from mta_viz.plots import cells, theme
from mta_viz.plots.mosaic import LIMIT_FLOOR, Mosaic
from mta_viz.plots.parts import Parts

Scale = Literal["shared", "own"]
_NUMBER_CELL_PX = 30
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 64, 50


def kernel_grid(
    kernels: LayerKernelSet,
    where: Place,
    *,
    scale: Scale = "shared",
    layer: int,
    numbering_from: int = 0,
    width: int = 940,
    limit: float | None = None,
) -> go.Figure:
    """All heads' kernels of one place, one tile a head, axes in offsets; own taps are framed.

    The colour limit comes from the taps other than the own one, over all heads (`shared`) or for
    each head (`own`, printed over the tile), or is the `limit` given. A layer without such kernels
    gives a figure saying so.
    """
    taps, offsets = kernels.taps(where), kernels.offsets(where)
    name = f"L{layer + numbering_from}"
    if taps is None or offsets is None:
        return cells.empty_slot(f"{name} has no key-query kernel {WHERE[where]}", width)
    mosaic = Mosaic(
        taps.numpy(),
        offsets,
        own_scale=scale == "own",
        width=width,
        numbering_from=numbering_from,
        limit=limit,
    )
    size = f"{mosaic.c_q} x {mosaic.c_k}"
    return mosaic.figure(f"{name} key-query kernels {WHERE[where]} ({size})")


def head_mixing(
    kernels: LayerKernelSet,
    where: MixPlace,
    layer: int,
    *,
    numbering_from: int = 0,
    size: tuple[int, int] = (460, 460),
) -> go.Figure:
    """The mixing matrix: rows are target heads, columns source heads; groups are blocks.

    The colour limit comes from the weights on other heads; own weights (framed) may lie beyond.
    """
    mixing, name = kernels.mixing(where), f"L{layer + numbering_from}"
    if mixing is None:
        return cells.empty_slot(f"{name} has no head mixing {WHERE[where]}", size[0])
    weights, n_groups = full_matrix(mixing.numpy()), mixing.shape[0]
    parts = Parts(size, {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    cell_px = (size[0] - _LEFT - _RIGHT) / len(weights)
    parts.traces.append(_weights(weights, numbering_from, numbers=cell_px >= _NUMBER_CELL_PX))
    _add_groups(parts, weights, n_groups)
    _add_head_axes(parts, len(weights), numbering_from)
    parts.add_title(f"{name} head mixing {WHERE[where]}")
    return parts.figure()


def full_matrix(mixing: Float[np.ndarray, "group target source"]) -> Float[np.ndarray, "head head"]:
    """One matrix over all heads, 0 between groups."""
    groups, size, _ = mixing.shape
    full = np.zeros((groups * size, groups * size), np.float32)
    for group in range(groups):
        block = slice(group * size, (group + 1) * size)
        full[block, block] = mixing[group]
    return full


def _weights(weights: Float[np.ndarray, "head head"], numbering_from: int, *, numbers: bool) -> go.Heatmap:
    heads = range(len(weights))
    finite = np.where(np.isfinite(weights), weights, 0.0)
    others = np.abs(finite * (1 - np.eye(len(weights)))).max()
    limit = round_up(max(float(others), LIMIT_FLOOR * float(np.abs(finite).max())))
    above, below = bool((finite > limit).any()), bool((finite < -limit).any())
    return go.Heatmap(
        z=np.where(np.isfinite(weights), weights, np.nan),
        zmin=-limit,
        zmax=limit,
        colorscale=theme.SIGNED_SCALE,
        colorbar=theme.color_bar(limit, signed=True, above=above, below=below),
        texttemplate="%{z:+.2f}" if numbers else None,
        textfont={"size": 10},
        hovertext=[[_mix_hover(weights, t, s, numbering_from) for s in heads] for t in heads],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _mix_hover(weights: np.ndarray, target: int, source: int, numbering_from: int) -> str:
    own, weight = float(weights[target, target]), float(weights[target, source])
    t, s = target + numbering_from, source + numbering_from
    if target == source:
        return f"target head {t} keeps {own:+.4g} x itself"
    return f"target head {t} takes {weight:+.4g} x source head {s}<br>own weight {own:+.4g}"


def _add_groups(parts: Parts, weights: np.ndarray, n_groups: int) -> None:
    """Hatch what is not mixed, frame groups and own weights, cross out NaN."""
    heads, step = len(weights), len(weights) // n_groups
    starts = range(0, heads, step)
    sides = [(start, *side) for start in starts for side in ((0, start), (start + step, heads))]
    x = [v - 0.5 for _, left, right in sides if left < right for v in (left, right, right, left, np.nan)]
    y = [
        v - 0.5
        for start, left, right in sides
        if left < right
        for v in (start, start, start + step, start + step, np.nan)
    ]
    if x:
        parts.traces.append(cells.hatched(x, y))
    for start in starts:
        parts.add_box((start, start), (step, step), color=theme.FRAME, width=1)
    for head in range(heads):
        parts.add_box((head, head), (1, 1), color=theme.INK, width=2)
    rows, columns = np.nonzero(~np.isfinite(weights))
    if rows.size:
        cross = {"symbol": "x", "color": theme.BAD_COLOR, "size": 8}
        parts.traces.append(go.Scatter(x=columns, y=rows, mode="markers", marker=cross, hoverinfo="skip"))


def _add_head_axes(parts: Parts, heads: int, numbering_from: int) -> None:
    ticks = {
        "tickvals": list(range(heads)),
        "ticktext": [f"H{head + numbering_from}" for head in range(heads)],
    }
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, heads - 0.5), **ticks),
        "yaxis": theme.axis(range=(heads - 0.5, -0.5), **ticks),
    }
    parts.add_axis_titles("source head", "target head (what it receives)")
