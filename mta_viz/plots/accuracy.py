"""Accuracies of a sweep as the paper draws them: depth x length as a map, needles as lines with bands."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from mta_viz.analysis.labs.answers import NeedleScore
from mta_viz.plots import cells, theme
from mta_viz.plots.lens import COLORS
from mta_viz.plots.parts import Parts

DASHES = ("solid", "dash", "dot", "dashdot")
_ROW_PX, _LEFT, _RIGHT, _TOP, _BOTTOM = 44, 66, 12, 66, 44
_LEAST_PX, _LINES_HEIGHT = 130, 320


def accuracy_map(
    scores: Mapping[tuple[float | int, int], NeedleScore],
    depths: Sequence[float | int],
    lengths: Sequence[int],
    title: str,
    *,
    width: int = 460,
) -> go.Figure:
    """Depths down, lengths across, 0 to 1; each cell has its share, 95 % interval and number of samples.

    `scores` by (depth in per cent, length in tokens); combinations without samples are hatched.
    """
    height = max(_ROW_PX * len(depths), _LEAST_PX) + _TOP + _BOTTOM
    parts = Parts((width, height), {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    found = [[scores.get((depth, length)) for length in lengths] for depth in depths]
    parts.traces.append(_map_cells(found))
    empty = [(y, x) for y, row in enumerate(found) for x, one in enumerate(row) if one is None]
    if empty:
        parts.traces.append(_hatched(empty))
    columns, rows = [float(at) for at in range(len(lengths))], [float(at) for at in range(len(depths))]
    parts.layout |= {
        "xaxis": theme.axis(
            range=(-0.5, len(lengths) - 0.5), tickvals=columns, ticktext=[f"{n:,}" for n in lengths]
        ),
        "yaxis": theme.axis(
            range=(len(depths) - 0.5, -0.5), tickvals=rows, ticktext=[f"{depth:g} %" for depth in depths]
        ),
        "dragmode": False,
    }
    parts.add_axis_titles("length in tokens", "depth of the asked needle")
    parts.add_title(theme.escape(title))
    return parts.figure()


def score_words(one: NeedleScore) -> str:
    """`0.94 [0.88, 0.97] n=120`."""
    low, high = one.interval
    return f"{one.accuracy:.2f} [{low:.2f}, {high:.2f}] n={one.n}"


def _map_cells(found: Sequence[Sequence[NeedleScore | None]]) -> go.Heatmap:
    words = [["" if one is None else score_words(one).replace(" [", "<br>[") for one in row] for row in found]
    return go.Heatmap(
        z=[[None if one is None else one.accuracy for one in row] for row in found],
        zmin=0.0,
        zmax=1.0,
        colorscale=theme.MASS_SCALE,
        colorbar=theme.color_bar(1.0, signed=False),
        text=words,
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        xgap=1,
        ygap=1,
    )


def _hatched(empty: Sequence[tuple[int, int]]) -> go.Scatter:
    corners = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
    x, y = [], []
    for row, column in empty:
        x += [*(column + dx for dx, _ in corners), float("nan")]
        y += [*(row + dy for _, dy in corners), float("nan")]
    return cells.hatched(x, y)


def accuracy_lines(
    models: Mapping[str, Mapping[int, NeedleScore]],
    ticks: Sequence[int],
    title: str,
    *,
    axis: str = "needles in the prompt",
    width: int = 460,
) -> go.Figure:
    """A line a model over the numbers `ticks`, bands and bars for its 95 % intervals; at most four models."""
    parts = Parts((width, _LINES_HEIGHT), {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    for (name, scores), color, dash in zip(models.items(), COLORS, DASHES, strict=False):
        parts.traces += [_band(scores, color), _line(name, scores, color, dash)]
    parts.layout |= {
        "xaxis": theme.axis(
            range=(min(ticks) - 0.5, max(ticks) + 0.5),
            tickvals=ticks,
            ticktext=[f"{tick}" for tick in ticks],
        ),
        "yaxis": theme.axis(range=(-0.02, 1.02), tickvals=[0, 0.25, 0.5, 0.75, 1]),
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": 11}},
        "dragmode": False,
    }
    parts.add_axis_titles(axis, "share of right answers")
    parts.add_title(theme.escape(title))
    return parts.figure()


def _line(name: str, scores: Mapping[int, NeedleScore], color: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=list(scores),
        y=[one.accuracy for one in scores.values()],
        name=theme.escape(name),
        mode="lines+markers",
        line={"color": color, "width": 2, "dash": dash},
        marker={"size": 7},
        error_y={
            "array": [one.interval[1] - one.accuracy for one in scores.values()],
            "arrayminus": [one.accuracy - one.interval[0] for one in scores.values()],
            "thickness": 1,
            "width": 4,
        },
        text=[f"{theme.escape(name)}<br>{score_words(one)}" for one in scores.values()],
        hovertemplate="%{text}<extra></extra>",
    )


def _band(scores: Mapping[int, NeedleScore], color: str) -> go.Scatter:
    ends = [one.interval for one in scores.values()]
    return go.Scatter(
        x=[*scores, *reversed(list(scores))],
        y=[*(low for low, _ in ends), *(high for _, high in reversed(ends))],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=color,
        opacity=0.18,
        showlegend=False,
        hoverinfo="skip",
    )
