"""What adds to an answer and what changes it: values of tokens, of cells, of heads, of a set of kernels.

Green is for the answer, brown against it: another hue family than attention has.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import AttentionMap, round_up
from mta_viz.analysis.attention.spans import Span
from mta_viz.config import Head
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.attention import maps
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.attention.stages import add_token_axes, bars, beyond_and_bad
from mta_viz.plots.attention.text import Coloring, colored_text
from mta_viz.plots.parts import BAR_PX, Parts, add_spans_across
from mta_viz.tokenizers.base import Tokens

WIDTH, SET_PX, _PLOT_PX, _TOP, _LEFT, _RIGHT = 900, 560, 150, 44, 64, 14
_COLORS = (theme.RAISED_COLOR, theme.LOWERED_COLOR)
READABLE = 0.25  # of the scale, up to which cells are light enough for pale numbers
NOT_TRIED = "token %{text} was not replaced"


def value_limit(values: Float[np.ndarray, " token"]) -> float:
    """A round limit that holds every finite value."""
    return round_up(cells.largest(values))


def attribution_bars(
    values: Float[np.ndarray, " token"],
    tokens: Tokens,
    *,
    title: str,
    limit: float,
    spans: Sequence[Span] = (),
) -> go.Figure:
    """A bar a token in nats; none where the value is NaN. The largest six are always labelled.

    Clicks: the event's x is the token's position.
    """
    parts = Parts((WIDTH, 0), {"l": _LEFT, "r": _RIGHT, "t": _TOP})
    largest = np.argsort(-np.abs(np.nan_to_num(values)), kind="stable")[:6].tolist()
    ticks = theme.tick_positions(0, len(tokens), WIDTH - _LEFT - _RIGHT, largest)
    labels = [theme.tick_label(place, tokens.pieces[place]) for place in ticks]
    parts.margin["b"] = round(theme.text_px(labels)) + 14 + BAR_PX
    parts.size = (WIDTH, _PLOT_PX + _TOP + parts.margin["b"])
    x = np.flatnonzero(~np.isnan(values)).astype(np.int32)
    known = values[x].astype(np.float32)
    hover_text = "token %{x}<br>%{customdata:+.4g} nats"
    parts.traces += [
        *(bars(x, known, limit, _COLORS) if x.size else ()),
        *beyond_and_bad(x, known, limit),
        cells.targets(x, np.zeros(len(x), np.int8), 9.0, hover_text, known),
        go.Scatter(x=[None], y=[None], xaxis="x2", yaxis="y", hoverinfo="skip"),
    ]
    add_token_axes(parts, tokens, (0, len(tokens)), "y", (ticks, labels))
    parts.layout["yaxis"] = theme.axis(
        range=(-1.08 * limit, 1.08 * limit),
        **theme.ticks({-limit: f"−{theme.limit_text(limit)}", 0: "0", limit: f"+{theme.limit_text(limit)}"}),
        **theme.ZERO,
        fixedrange=True,
        mirror=False,
        anchor="x",
    )
    add_spans_across(parts, spans, range(len(tokens)))
    return parts.figure(title)


def attribution_text(
    values: Float[np.ndarray, " token"], tokens: Tokens, *, limit: float, **options: Any
) -> go.Figure:
    """The prompt in lines, each token on the colour of its value in nats; hatched where it is NaN.

    Title and spans as of `colored_text`.
    """
    coloring = Coloring(theme.DIFFERENCE_SCALE, limit)
    hovers = ("token %{text}<br>%{customdata[1]:+.4g} nats", NOT_TRIED)
    values = values.astype(np.float32)
    return colored_text(tokens, values, ~np.isnan(values), coloring, hovers=hovers, **options)


def _look(name: str, unit: str) -> maps.Look:
    """Maps of contributions in `unit`; `name` may hold the stage as {stage}."""

    def value_line(drawn: AttentionMap, field: str) -> str:
        largest = "largest " if drawn.block > 1 else ""
        return f"{largest}contribution %{{{field}:+.4g}} ({unit})"

    def title(drawn: AttentionMap, numbering: int) -> str:
        return f" · {name.format(stage=drawn.stage.value.short)} ({unit})"

    return maps.Look(title, value_line, theme.DIFFERENCE_SCALE)


ATTRIBUTED = _look("attribution of {stage}", "nats")
DIRECT = _look("direct effect of softmax cells", "logit")


def sweep_map(
    title: str,
    values: Float[np.ndarray, "layer head"],
    *,
    unit: str = "nats",
    hover: Mapping[Head, str] | None = None,
    unsure: Sequence[Head] = (),
    **options: Any,
) -> go.Figure:
    """A change for each head: brown where the answer loses, green where it gains.

    `hover`: more lines for a head's hover. `unsure`: heads whose interval covers 0, drawn with a dot and a
    pale number.
    Heads that are NaN are hatched. The rest, and clicks, as in `value_map`.
    """
    score = Score("sweep", title, unit, "", Stage.PATTERN)
    figure = value_map(score, values, scale=theme.DIFFERENCE_SCALE, **options)
    if hover:
        places = np.argwhere(np.ones_like(values, bool)).tolist()
        figure.data[-1].text = [
            f"{text}<br>{hover[place]}" if (place := (layer, head)) in hover else text
            for (layer, head), text in zip(places, figure.data[-1].text, strict=True)
        ]
    for place in unsure:
        if abs(values[place]) < READABLE * figure.data[0].zmax:
            row, head = figure.data[0].text[place[0]], place[1]
            row[head] = theme.pale(row[head])
    if unsure:  # in the corner of a cell, where no number stands
        marker = {"size": 5, "color": theme.INK}
        x, y = [head + 0.36 for _, head in unsure], [layer - 0.3 for layer, _ in unsure]
        figure.add_trace(go.Scatter(x=x, y=y, mode="markers", marker=marker, hoverinfo="skip"))
    return figure


def set_beside_random(change: float, random: Sequence[float]) -> go.Figure:
    """The change by the chosen set as a diamond, by random sets of its size as rings, on one line."""
    finite = [value for value in (change, *random) if np.isfinite(value)]
    limit = round_up(max(map(abs, finite), default=1.0))
    parts = Parts((SET_PX, 130), {"l": 12, "r": 12, "t": 30, "b": 56})
    lanes = [0.25 * (at % 5) - 0.5 for at in range(len(random))]  # equal values side by side
    ring = {"symbol": "circle-open", "size": 9, "color": theme.INK}
    diamond = {"symbol": "diamond", "size": 14, "color": theme.NEGATIVE_COLOR}
    parts.traces += [
        go.Scatter(
            x=x, y=y, mode="markers", marker=marker, hovertemplate=f"{name}: %{{x:+.3g}} nats<extra></extra>"
        )
        for x, y, marker, name in (
            (list(random), lanes, ring, "random set"),
            ([change], [0], diamond, "the chosen set"),
        )
    ]
    right = 0.35 * limit if max(finite, default=0) <= 0.1 * limit else 1.05 * limit
    parts.layout |= {
        "xaxis": theme.axis(range=(-1.05 * limit, right)),
        "yaxis": theme.axis(range=(-1, 1), showticklabels=False, ticks=""),
    }
    parts.add_line((0, 0), (0, 1), {"color": theme.INK, "width": 1, "dash": "dot"}, yref="y domain")
    return parts.figure(
        "The chosen set (diamond) and random sets of its size (rings)",
        "change of the answer's log-probability (nats)",
    )
