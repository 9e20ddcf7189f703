"""The kernels of a layer: key-query kernels of all heads, and head mixing as one matrix.

Time runs down in a kernel as in the maps: the earliest query on top, the current one at the bottom.

A score of a layer's kernels over training: one line a head, the chosen head thick.
"""

from typing import Literal

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.kernels.kernels import WHERE, LayerKernelSet, MixPlace, Place
from mta_viz.analysis.kernels.table import KernelCurves
from mta_viz.plots import cells, theme
from mta_viz.plots.kernels.mosaic import LIMIT_FLOOR, Mosaic
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


_HISTORY_LEFT, _HISTORY_RIGHT, _HISTORY_TOP, _HISTORY_BOTTOM = 66, 14, 36, 48


def training_curves(
    curves: KernelCurves,
    score: str,
    *,
    head: int,
    snapshot: int,
    title: str,
    numbering_from: int = 0,
    size: tuple[int, int] = (940, 300),
) -> go.Figure:
    """`score` of every head over the snapshots, evenly spaced; the dotted line is at `snapshot`.

    Snapshots are taken at steps spaced as their logarithm, so they stand side by side evenly and the ticks
    name their steps. The invisible targets' customdata are head and snapshot.
    """
    parts = Parts(size, {"l": _HISTORY_LEFT, "r": _HISTORY_RIGHT, "t": _HISTORY_TOP, "b": _HISTORY_BOTTOM})
    heads = [one for one in range(len(curves.values[score])) if one != head]
    parts.traces += [_line(curves, score, one, chosen=one == head) for one in (*heads, head)]
    parts.traces.append(_targets(curves, score, numbering_from))
    steps = np.linspace(0, len(curves.steps) - 1, min(12, len(curves.steps))).round().astype(int).tolist()
    names = [f"{curves.steps[step]:,}" for step in steps]
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, len(curves.steps) - 0.5), tickvals=steps, ticktext=names),
        "yaxis": theme.axis(),
    }
    dotted = {"color": theme.INK, "width": 1, "dash": "dot"}
    parts.shapes.append(
        {"type": "line", "x0": snapshot, "x1": snapshot, "y0": 0, "y1": 1, "yref": "paper", "line": dotted}
    )
    parts.add_axis_titles("training step of the snapshot (evenly spaced, not to scale)", "score")
    parts.add_title(title)
    return parts.figure()


def _line(curves: KernelCurves, score: str, head: int, *, chosen: bool) -> go.Scatter:
    values = curves.values[score][head]
    return go.Scatter(
        x=np.arange(len(values)),
        y=values,
        mode="lines",
        showlegend=False,
        line={"color": theme.SELECTED_COLOR if chosen else theme.FRAME, "width": 3 if chosen else 1},
        hoverinfo="skip",
    )


def _targets(curves: KernelCurves, score: str, numbering_from: int) -> go.Scatter:
    """One for every point of every line; streamlit tells of clicks on markers only."""
    values = curves.values[score]
    points = np.argwhere(np.isfinite(values))
    text = [
        f"H{head + numbering_from} · step {curves.steps[at]:,}<br>{values[head, at]:+.3g}<br>click to choose"
        for head, at in points.tolist()
    ]
    heights = values[points[:, 0], points[:, 1]]
    return cells.targets(points[:, 1], heights, 9.0, "%{text}", points).update(text=text, showlegend=False)
