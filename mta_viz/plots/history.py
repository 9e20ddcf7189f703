"""A score of a layer's kernels over training: one line a head, the chosen head thick."""

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.history import KernelCurves
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts

_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 36, 48


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
    parts = Parts(size, {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
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
