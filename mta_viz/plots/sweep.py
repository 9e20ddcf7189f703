"""What interventions do to an answer: a layer x head map of changes, and one set beside random ones."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.maps import round_up
from mta_viz.analysis.score_definitions import Score
from mta_viz.model.stages import Stage
from mta_viz.plots import theme
from mta_viz.plots.head_tiles import value_map
from mta_viz.plots.parts import Parts

Place = tuple[int, int]


def sweep_map(
    title: str,
    values: Float[np.ndarray, "layer head"],
    *,
    unit: str = "nats",
    limit: float | None = None,
    told: Mapping[Place, str] | None = None,
    unsure: Sequence[Place] = (),
    numbering_from: int = 0,
    selected: Place | None = None,
    width: int = 460,
) -> go.Figure:
    """A change for each head: brown where the answer loses, green where it gains.

    `limit` None: the largest size. `told`: more lines for a head's hover. `unsure`: heads whose
    interval covers 0, drawn with a dot. Heads that are NaN are hatched. Clicks as in `value_map`.
    """
    score = Score("sweep", title, unit, "", Stage.PATTERN)
    figure = value_map(
        score, values, limit=limit, numbering_from=numbering_from, selected=selected, width=width
    )
    figure.data[0].colorscale = theme.DIFFERENCE_SCALE
    if told:
        places = np.argwhere(np.ones_like(values, bool)).tolist()
        figure.data[-1].text = [
            f"{text}<br>{told[place]}" if (place := (layer, head)) in told else text
            for (layer, head), text in zip(places, figure.data[-1].text, strict=True)
        ]
    if unsure:
        figure.add_trace(_dots(unsure))
    return figure


def _dots(places: Sequence[Place]) -> go.Scatter:
    """In the corner of a cell, where no number stands."""
    marker = {"size": 5, "color": theme.INK}
    x, y = [head + 0.36 for _, head in places], [layer - 0.3 for layer, _ in places]
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, hoverinfo="skip")


def set_beside_random(change: float, random: Sequence[float], *, width: int = 460) -> go.Figure:
    """The change by the chosen set as a diamond, by random sets of its size as rings, on one line."""
    finite = [value for value in (change, *random) if np.isfinite(value)]
    limit = round_up(max(map(abs, finite), default=1.0))
    parts = Parts((width, 130), {"l": 12, "r": 12, "t": 30, "b": 56})
    hover = "%{x:+.3g} nats<extra></extra>"
    lanes = [0.25 * (at % 5) - 0.5 for at in range(len(random))]  # equal values side by side
    ring = {"symbol": "circle-open", "size": 9, "color": theme.INK}
    parts.traces += [
        go.Scatter(
            x=list(random), y=lanes, mode="markers", marker=ring, hovertemplate=f"random set: {hover}"
        ),
        go.Scatter(
            x=[change],
            y=[0],
            mode="markers",
            marker={"symbol": "diamond", "size": 14, "color": theme.NEGATIVE_COLOR},
            hovertemplate=f"the chosen set: {hover}",
        ),
    ]
    parts.layout |= {
        "xaxis": theme.axis(
            range=(-1.05 * limit, 0.35 * limit if max(finite, default=0) <= 0.1 * limit else 1.05 * limit)
        ),
        "yaxis": theme.axis(range=(-1, 1), showticklabels=False, ticks=""),
    }
    zero = {"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "y domain"}
    parts.shapes.append(zero | {"line": {"color": theme.INK, "width": 1, "dash": "dot"}})
    parts.add_axis_titles("change of the answer's log-probability (nats)")
    parts.add_title("The chosen set (diamond) and random sets of its size (rings)")
    return parts.figure()
