"""The gate of a layer: what part of each head's output passes at each position."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.plots import theme
from mta_viz.plots.parts import Parts
from mta_viz.tokenizers.base import Tokens

_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW_PX = 48, 16, 66, 84, 16


def gate_map(
    gate: Float[np.ndarray, "head position"],
    tokens: Tokens,
    *,
    layer: int,
    selected: tuple[int, int] | None = None,
    numbering_from: int = 0,
    width: int = 460,
) -> go.Figure:
    """Heads down, positions across, colour the gate from 0 to 1.

    `selected`: (head, position) framed. A NaN is left blank and crossed.
    """
    n_heads, n_tokens = gate.shape
    margin = {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM}
    parts = Parts((width, _ROW_PX * n_heads + _TOP + _BOTTOM), margin)
    parts.traces.append(_cells(gate, tokens, numbering_from))
    rows, columns = np.nonzero(~np.isfinite(gate))
    if rows.size:
        cross = {"symbol": "x", "color": theme.BAD_COLOR, "size": 6}
        parts.traces.append(go.Scatter(x=columns, y=rows, mode="markers", marker=cross, hoverinfo="skip"))
    ticks = theme.tick_positions(0, n_tokens, width - _LEFT - _RIGHT)
    labels = [theme.tick_label(p, tokens.pieces[p]) for p in ticks]
    heads = [f"H{head + numbering_from}" for head in range(n_heads)]
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, n_tokens - 0.5), tickvals=ticks, ticktext=labels, tickangle=-90),
        "yaxis": theme.axis(range=(n_heads - 0.5, -0.5), tickvals=list(range(n_heads)), ticktext=heads),
    }
    if selected is not None:
        parts.add_box(selected, (1, 1), color=theme.INK, width=2)
    parts.add_axis_titles("position", "head")
    parts.add_title(f"L{layer + numbering_from} · gate (share that passes)")
    return parts.figure()


def _cells(values: Float[np.ndarray, "head position"], tokens: Tokens, first: int) -> go.Heatmap:
    names = [theme.hover_label(position, piece) for position, piece in enumerate(tokens.pieces)]
    hover = [[f"H{head + first}<br>position {name}" for name in names] for head in range(len(values))]
    return go.Heatmap(
        z=np.where(np.isfinite(values), values, np.nan).astype(np.float32),
        zmin=0.0,
        zmax=1.0,
        colorscale=theme.MASS_SCALE,
        colorbar=theme.color_bar(1.0, signed=False),
        hovertext=hover,
        hovertemplate="%{hovertext}<br>gate %{z:.3f}<extra></extra>",
        hoverongaps=False,
    )
