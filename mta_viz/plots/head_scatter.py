"""All heads as points: two scores as axes, a third as colour; a point opens its head."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.head_scores import HeadScores
from mta_viz.analysis.maps import round_up
from mta_viz.analysis.score_definitions import Score
from mta_viz.plots import theme
from mta_viz.plots.head_tiles import said
from mta_viz.plots.parts import Parts

_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 14, 66, 48
_POINT_PX, _SELECTED_PX = 10, 15


def head_scatter(
    scores: HeadScores,
    axes: tuple[str, str, str],
    *,
    numbering_from: int = 0,
    selected: tuple[int, int] | None = None,
    size: tuple[int, int] = (460, 360),
) -> go.Figure:
    """A point for each head at the scores `axes` = keys of (x, y, colour); hovers tell all three.

    Heads without a value of x or y are not drawn, those without one of the colour are grey. The
    `selected` (layer, head) is larger, with a dark rim and its name. The event's customdata is
    (layer, head).
    """
    found = {score.key: score for score in scores.scores}
    x, y, color = (found[key] for key in axes)
    values = np.stack([scores.values[one.key].numpy() for one in (x, y, color)])
    places = np.argwhere(np.isfinite(values[:2]).all(0))
    points = values[:, places[:, 0], places[:, 1]]
    parts = Parts(size, {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    names = [f"L{layer + numbering_from} H{head + numbering_from}" for layer, head in places.tolist()]
    chosen = (places == np.array(selected or (-1, -1))).all(1)
    parts.traces += _points(points, (x, y, color), places, names, chosen)
    parts.layout |= {"xaxis": _axis(points[0], x), "yaxis": _axis(points[1], y), "dragmode": False}
    parts.add_axis_titles(_title(x), _title(y))
    parts.add_title(f"Heads · colour: {_title(color)}")
    return parts.figure()


def n_without(scores: HeadScores, axes: tuple[str, str, str]) -> int:
    """How many heads the scatter cannot draw: they lack a value of x or y."""
    x, y = (scores.values[key].numpy() for key in axes[:2])
    return int((~(np.isfinite(x) & np.isfinite(y))).sum())


def _title(score: Score) -> str:
    return f"{theme.escape(score.name)} ({score.unit})"


def _points(
    values: Float[np.ndarray, "axis point"],
    about: tuple[Score, Score, Score],
    places: np.ndarray,
    names: list[str],
    chosen: np.ndarray,
) -> list[go.Scatter]:
    """Heads without a colour first, so that they lie under the others."""
    texts = [
        "<br>".join(
            [name, *(f"{theme.escape(one.name)}: {said(one, v)}" for one, v in zip(about, at, strict=True))]
        )
        for name, at in zip(names, values.T.tolist(), strict=True)
    ]
    finite, traces = np.isfinite(values[2]), []
    for here in (~finite, finite):
        if not here.any():
            continue
        index = np.flatnonzero(here)
        colored = {"color": theme.MASKED_LINE} if here is not finite else _colors(values[2][here], about[2])
        traces.append(
            go.Scatter(
                x=values[0][here],
                y=values[1][here],
                mode="markers+text",
                text=[names[i] if chosen[i] else "" for i in index],
                textposition="top center",
                textfont={"color": theme.INK, "size": 11},
                marker=colored
                | {
                    "size": np.where(chosen[here], _SELECTED_PX, _POINT_PX),
                    "opacity": 1,
                    "line": {"color": theme.INK, "width": np.where(chosen[here], 2.5, 0.5)},
                },
                selected={"marker": {"opacity": 1}},
                unselected={"marker": {"opacity": 1}, "textfont": {"color": theme.INK}},
                customdata=places[here].astype(np.int16),
                hovertext=[texts[i] for i in index],
                hovertemplate="%{hovertext}<br>click to open<extra></extra>",
            )
        )
    return traces


def _colors(values: Float[np.ndarray, " point"], score: Score) -> dict[str, object]:
    limit = round_up(float(np.abs(values).max()))
    bar = theme.color_bar(limit, signed=score.signed) | {"len": 240, "lenmode": "pixels"}
    scale = theme.SIGNED_SCALE if score.signed else theme.MASS_SCALE
    low = -limit if score.signed else 0.0
    return {"color": values, "cmin": low, "cmax": limit, "colorscale": scale, "colorbar": bar}


def _axis(values: Float[np.ndarray, " point"], score: Score) -> dict[str, object]:
    """All points with room around them; a line at 0 where a score may go below it."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    room = 0.12 * (high - low) or 0.5 * abs(high) or 0.5
    zero = {"zeroline": score.signed, "zerolinecolor": theme.MASKED_LINE}
    return theme.axis(range=(low - room, high + room), nticks=6, fixedrange=True, **zero)
