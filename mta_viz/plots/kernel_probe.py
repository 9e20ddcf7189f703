"""A kernel at work beside others: a probe's map before and after, nearest kernels, a head-mixing row."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.maps import round_up
from mta_viz.analysis.shapes.probes import ProbeResult
from mta_viz.plots import theme
from mta_viz.plots.mosaic import Mosaic
from mta_viz.plots.parts import Parts

_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP, _BAR_PX = 46, 8, 36, 40, 30, 22


def probe_picture(result: ProbeResult, *, width: int = 900) -> go.Figure:
    """Synthetic scores, and what the kernel makes of them; the cells the number is read off are framed."""
    shown = _shown_keys(result)
    rows, columns = len(result.before), shown.stop - shown.start
    plot_px = width - _LEFT - _RIGHT
    cell = (plot_px - _GAP) / 2 / columns
    height = round(max(rows * cell, 90)) + _TOP + _BOTTOM
    parts = Parts((width, height), {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    half = (plot_px - _GAP) / 2 / plot_px
    for suffix, values, name, left in (
        ("", result.before, "<b>before</b>: the probe's scores", 0.0),
        ("2", result.after, "<b>after</b> the kernel's convolution", 1 - half),
    ):
        limit = round_up(float(np.abs(values).max()) or 1.0)
        parts.traces.append(_scores(values[:, shown], limit, suffix))
        bare = {"showticklabels": False, "ticks": "", "fixedrange": True}
        parts.layout |= {
            f"xaxis{suffix}": theme.axis(
                domain=(left, left + half), anchor=f"y{suffix}", range=(-0.5, columns - 0.5), **bare
            ),
            f"yaxis{suffix}": theme.axis(anchor=f"x{suffix}", range=(rows - 0.5, -0.5), **bare),
        }
        corner = {"x": left, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        font = {"font": {"size": 11}, "showarrow": False, "text": f"{name}, ±{limit:g}"}
        parts.annotations.append(corner | font)
        for row, column in result.read_at:
            left_edge = column - shown.start - 0.5
            ends = {"x0": left_edge, "x1": left_edge + 1, "y0": row - 0.5, "y1": row + 0.5}
            refs = {"xref": f"x{suffix}", "yref": f"y{suffix}", "line": {"color": theme.INK, "width": 2}}
            parts.shapes.append({"type": "rect", **ends, **refs})
    parts.add_axis_titles("key →", "query ↓")
    return parts.figure()


def _shown_keys(result: ProbeResult) -> slice:
    """The keys at which something is to be seen, and one more at either side."""
    keys = np.flatnonzero((result.before != 0).any(0) | (result.after != 0).any(0))
    return slice(max(int(keys[0]) - 1, 0), int(keys[-1]) + 2)


def _scores(values: Float[np.ndarray, "query key"], limit: float, suffix: str) -> go.Heatmap:
    return go.Heatmap(
        z=values,
        zmin=-limit,
        zmax=limit,
        colorscale=theme.SIGNED_SCALE,
        showscale=False,
        xaxis=f"x{suffix}",
        yaxis=f"y{suffix}",
        hovertemplate="row %{y}, column %{x}<br>score %{z:+.3g}<extra></extra>",
    )


def neighbour_tiles(
    taps: Float[np.ndarray, "kernel c_q c_k"], offsets: Offsets, headings: Sequence[str], *, width: int = 900
) -> go.Figure:
    """A few kernels side by side, each on its own scale."""
    mosaic = Mosaic(taps, offsets, own_scale=True, width=width, numbering_from=0, headings=headings)
    return mosaic.figure("Nearest kernels by cosine, own taps left out")


def mixing_row(
    weights: Float[np.ndarray, " source"],
    labels: Sequence[str],
    own: int,
    *,
    unit: str = "weight",
    width: int = 440,
) -> go.Figure:
    """What a target head takes from each source head of its group; the own head's bar is framed."""
    size = (width, _BAR_PX * len(weights) + 74)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 20, "r": 10, "t": 30, "b": 44})
    finite = np.where(np.isfinite(weights), weights, 0.0)
    fractions = [
        "" if place == own or value * finite[own] >= 0 else f" ({-value / finite[own]:.2f} subtracted)"
        for place, value in enumerate(finite)
    ]
    parts.traces.append(
        go.Bar(
            x=finite,
            y=list(range(len(weights))),
            orientation="h",
            marker={
                "color": [theme.NEGATIVE_COLOR if value < 0 else theme.POSITIVE_COLOR for value in finite],
                "line": {"color": theme.INK, "width": [2 * (place == own) for place in range(len(finite))]},
            },
            text=[
                f"{value:+.2f}{told}".replace("-", "−") if np.isfinite(value) else "NaN"
                for value, told in zip(weights, fractions, strict=True)
            ],
            textposition="outside",
            cliponaxis=False,
            textfont={"color": theme.INK, "size": 10},
            hoverinfo="skip",
        )
    )
    low, high = min(finite.min(), 0.0), max(finite.max(), 0.0)
    room = 0.45 * ((high - low) or 1.0)
    parts.layout |= {
        "xaxis": theme.axis(
            range=(low - 1.6 * room * (low < 0), high + room), zeroline=True, zerolinecolor=theme.FRAME
        ),
        "yaxis": theme.axis(
            range=(len(weights) - 0.5, -0.5), tickvals=list(range(len(weights))), ticktext=list(labels)
        ),
    }
    parts.add_title("What this head takes from each head")
    parts.add_axis_titles(unit)
    return parts.figure()
