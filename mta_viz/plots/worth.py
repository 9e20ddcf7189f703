"""What kernels are worth to a task, and along which edges: bars, a scatter, a graph of paths.

Blue and vermilion are told apart by hatching too, gains from losses by the dashes of their lines.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.cause.kernel_effect import Edge, KernelPaths
from mta_viz.analysis.cause.shapley import KernelValue
from mta_viz.analysis.kernels.kernels import MIXING, WHERE
from mta_viz.config import Where
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Number, Parts

NECESSARY, SUFFICIENT = theme.SELECTED_COLOR, theme.INCOMING_COLOR
HATCHED = {"shape": "/", "bgcolor": SUFFICIENT, "fgcolor": "white", "size": 5}
ERRORS = 2.0  # standard errors: about 95 %
SYMBOLS: dict[Where, str] = {
    "pre": "circle",
    "post": "square",
    "head_pre": "triangle-up",
    "head_post": "diamond",
}
LABELLED, BARS_PX, SCATTER_PX, GRAPH_PX = 6, 490, 420, 600
_ROW_PX, _TOP, _BOTTOM, _LEFT = 34, 66, 46, 104


def worth_bars(values: Sequence[KernelValue], *, numbering: int = 0) -> go.Figure:
    """Each kernel's two bars and its Shapley value as a diamond between whiskers, nats.

    Clicks: the event's customdata is (layer, head).
    """
    height = _ROW_PX * max(len(values), 3) + _TOP + _BOTTOM
    parts = Parts((BARS_PX, height), {"l": _LEFT, "r": 16, "t": _TOP, "b": _BOTTOM})
    names = [value.kernel.name(numbering) for value in values]
    shared = _shared(values, names)
    parts.traces += [
        _bars(values, "necessary", {"color": NECESSARY}, -0.27, shared),
        _bars(values, "sufficient", {"color": SUFFICIENT, "pattern": HATCHED}, 0.0, shared),
        _diamonds(values, shared),
    ]
    zero = {"zeroline": True, "zerolinecolor": theme.INK, "zerolinewidth": 1}
    parts.layout |= {
        "xaxis": theme.axis(**zero, rangemode="tozero"),
        "yaxis": theme.listed(names, down=True),
        **{"showlegend": True, "legend": theme.LEGEND, "barmode": "overlay", "dragmode": False},
    }
    title = "Each kernel alone, and its share of the whole effect"
    return parts.figure(title, "log-probability of the right answer (nats)")


def _shared(values: Sequence[KernelValue], names: Sequence[str]) -> dict[str, Any]:
    """Hover and what a click brings back."""
    places = np.array([(value.kernel.layer, value.kernel.head) for value in values], np.int16)
    hover = [_worth_lines(value, name) for value, name in zip(values, names, strict=True)]
    return {"customdata": places.reshape(-1, 2), **theme.hover(hover)}


def _bars(
    values: Sequence[KernelValue], name: str, marker: dict[str, object], shift: float, shared: dict[str, Any]
) -> go.Bar:
    lengths = np.array([getattr(value, name) for value in values], float)
    rows = np.arange(len(values)) + shift
    look = {"width": 0.25, "orientation": "h", "name": name, "marker": marker}
    return go.Bar(x=lengths, y=rows, **look, **shared)


def _diamonds(values: Sequence[KernelValue], shared: dict[str, Any]) -> go.Scatter:
    errors = [ERRORS * value.standard_error for value in values]
    whiskers = {"array": errors, "color": theme.INK, "thickness": 1.2, "width": 3}
    look = {"mode": "markers", "name": "Shapley value"}
    outline = {"color": theme.FRAME, "width": 1}  # seen in the legend on a dark page
    marker = {"symbol": "diamond", "size": 9, "color": theme.INK, "line": outline}
    x, y = [value.shapley for value in values], np.arange(len(values)) + 0.27
    return go.Scatter(x=x, y=y, error_x=whiskers, marker=marker, **look, **shared)


def _worth_lines(value: KernelValue, name: str) -> str:
    def median(side: str) -> str:
        middle, low, high = (getattr(value, f"{side}_median{end}") for end in ("", "_low", "_high"))
        return "" if middle is None else f" (median {middle:+.3g}, {low:+.3g} to {high:+.3g})"

    return (
        f"{name}<br>necessary: {value.necessary:+.3g}{median('necessary')} nats are lost without it alone<br>"
        f"sufficient: {value.sufficient:+.3g}{median('sufficient')} nats are gained with it alone<br>"
        f"Shapley value {value.shapley:+.3g}, standard error {value.standard_error:.2g}"
    )


def worth_scatter(values: Sequence[KernelValue], *, numbering: int = 0) -> go.Figure:
    """Sufficient across, necessary up, a point a kernel; the line is where both are equal.

    The largest of both are named. Clicks: the event's customdata is (layer, head).
    """
    parts = Parts((SCATTER_PX, 420), {"l": 62, "r": 16, "t": 92, "b": _BOTTOM})
    parts.traces += [
        _points([value for value in values if value.kernel.where == where], where, numbering)
        for where in SYMBOLS
        if any(value.kernel.where == where for value in values)
    ]
    across, up = (_range([getattr(value, name) for value in values]) for name in ("sufficient", "necessary"))
    ends = max(across[0], up[0]), min(across[1], up[1])
    if ends[0] < ends[1]:
        parts.add_line(ends, ends, {"color": theme.FRAME, "width": 1, "dash": "dot"}, layer="below")
    by_size = _by_size(values)
    names = [value.kernel.name(numbering) for value, far in by_size[:LABELLED] if far > 0.1]
    points = [(value.sufficient, value.necessary) for value, _ in by_size]
    parts.add_names(names, points, (across, up))
    zero = {"zeroline": True, "zerolinecolor": theme.MASKED_LINE, "zerolinewidth": 1}
    parts.layout |= {
        **{"xaxis": theme.axis(range=across, **zero), "yaxis": theme.axis(range=up, **zero)},
        **{"showlegend": True, "legend": theme.LEGEND, "dragmode": False},
    }
    x = "sufficient: gained with it alone (nats)"
    return parts.figure("Necessary and sufficient", x, "necessary: lost without it alone (nats)")


def _points(values: Sequence[KernelValue], where: Where, numbering: int) -> go.Scatter:
    """Those of one place."""
    marker = {"symbol": SYMBOLS[where], "size": 9, "color": theme.LINE_COLORS[list(SYMBOLS).index(where)]}
    marker |= {"line": {"color": theme.INK, "width": 0.5}}
    names = [value.kernel.name(numbering) for value in values]
    x, y = [value.sufficient for value in values], [value.necessary for value in values]
    name = f"{'mixing' if where in MIXING else 'kernel'} {WHERE[where]}"
    look = {"mode": "markers", "marker": marker, "name": name}
    return go.Scatter(x=x, y=y, **look, **_shared(values, names))


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(0.0, *values), max(0.0, *values)
    spare = 0.08 * (high - low or 1.0)
    return low - spare, high + spare


def _by_size(values: Sequence[KernelValue]) -> list[tuple[KernelValue, float]]:
    """Each with how far it is from 0, the farthest first; each side is measured by its largest."""
    sides = np.array([(value.sufficient, value.necessary) for value in values], float).reshape(-1, 2)
    largest = np.abs(sides).max(0, initial=0.0)
    far = np.hypot(*(sides / np.where(largest > 0, largest, 1.0)).T).tolist()
    return sorted(zip(values, far, strict=True), key=lambda pair: -pair[1])


PARTS = {"queries": "Q", "keys": "K", "values": "V", "scores": "S", "mlp": "MLP", "logits": ""}
PART_WORDS = {
    **{"queries": "its queries", "keys": "its keys", "values": "its values", "scores": "its raw scores"},
    **{"mlp": "the layer's MLP", "logits": "the logits"},
}
_NODE_PX, _LEAST_PX, _WIDEST = 26, 190, 8.0


def paths_graph(
    paths: KernelPaths, edges: Sequence[Edge], *, layout: tuple[int, int, int], numbering: int = 0
) -> go.Figure:
    """Edges from a kernel's head to what reads it: layers across, heads down, MLPs in the lowest row.

    `layout`: layers, heads, and query heads that share a key-value head. The width of a line is the size of
    its effect; a lost answer is brown and solid, a gained one green and dashed. Clicks: the event's
    customdata is (layer, head).
    """
    n_layers, n_heads, _ = layout
    height = max(_NODE_PX * (n_heads + 1), _LEAST_PX) + 66 + _BOTTOM
    parts = Parts((GRAPH_PX, height), {"l": 52, "r": 62, "t": 66, "b": _BOTTOM})
    start, name = (paths.kernel.layer, paths.kernel.head), paths.kernel.name(numbering)
    largest = max((abs(edge.effect) for edge in edges), default=1.0)
    parts.traces += [
        _nodes(range(start[0], n_layers), n_heads),
        *(_line(start, _end(edge, layout), edge.effect, largest) for edge in reversed(edges)),
        _ends(edges, layout, numbering),
        _start(start, name),
    ]
    across, down = (start[0] - 0.4, n_layers + 0.4), (n_heads + 0.5, -0.5)
    labels = [f"{PARTS[edge.part]} {theme.score_text(edge.effect)}".strip() for edge in edges[:LABELLED]]
    parts.add_names(labels, [_end(edge, layout) for edge in edges], (across, down))
    names = [*(f"L{at + numbering}" for at in range(start[0], n_layers)), "logits"]
    rows = [*(f"H{head + numbering}" for head in range(n_heads)), "MLP"]
    parts.layout |= {
        "xaxis": theme.axis(range=across, **theme.ticks(dict(enumerate(names, start[0])))),
        "yaxis": theme.listed(rows, down=True),
        "dragmode": False,
    }
    title = f"Who reads what {name} writes: change of the answer (nats)"
    return parts.figure(title, "layer of the reader", "head of the reader")


def _start(place: tuple[int, int], name: str) -> go.Scatter:
    marker = {"symbol": "square", "size": 15, "color": theme.INK}
    x, y = place
    return go.Scatter(x=[x], y=[y], mode="markers", marker=marker, **theme.hover([name]))


def _end(edge: Edge, layout: tuple[int, int, int]) -> tuple[float, float]:
    """Where an edge ends: in its head's row queries, keys and values a little apart."""
    n_layers, n_heads, shared = layout
    if edge.part == "logits":
        return float(n_layers), (n_heads - 1) / 2
    if edge.head is None:
        return float(edge.layer), float(n_heads)
    head = edge.head * shared + (shared - 1) / 2 if edge.part in ("keys", "values") else edge.head
    return float(edge.layer), head + {"queries": -0.28, "values": 0.28}.get(edge.part, 0.0)


def _nodes(layers: range, n_heads: int) -> go.Scatter:
    places = [(layer, float(row)) for layer in layers for row in range(n_heads + 1)]
    places.append((layers.stop, (n_heads - 1) / 2))
    x, y = zip(*places, strict=True)
    marker = {"symbol": "circle-open", "size": 9, "color": theme.MASKED_LINE}
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, hoverinfo="skip")


def _line(
    start: tuple[Number, Number], end: tuple[Number, Number], effect: float, largest: float
) -> go.Scatter:
    """A bowed line, so that lines to one row do not lie on each other."""
    along = np.linspace(0, 1, 24)
    x, y = (first + (last - first) * along for first, last in zip(start, end, strict=True))
    bow = 0.22 * (end[0] - start[0]) * (-1 if end[1] <= start[1] else 1)
    lost = effect < 0
    line = {
        "width": 0.8 + _WIDEST * abs(effect) / (largest or 1.0),
        "color": theme.LOWERED_COLOR if lost else theme.RAISED_COLOR,
        "dash": "solid" if lost else "dash",
    }
    return go.Scatter(
        x=x, y=y + bow * along * (1 - along) * 2, mode="lines", line=line, opacity=0.75, hoverinfo="skip"
    )


def _ends(edges: Sequence[Edge], layout: tuple[int, int, int], numbering: int) -> go.Scatter:
    """What takes hover and clicks at the readers."""
    places = np.array([_end(edge, layout) for edge in edges], float).reshape(-1, 2)
    texts = []
    for edge in edges:
        head = "" if edge.head is None else f" H{edge.head + numbering}"
        reader = "the logits" if edge.part == "logits" else f"L{edge.layer + numbering}{head}"
        texts.append(f"{reader}: {PART_WORDS[edge.part]}<br>{edge.effect:+.4g} nats along this edge alone")
    data = np.array(
        [(edge.layer, -1 if edge.head is None else edge.head) for edge in edges], np.int16
    ).reshape(-1, 2)
    marker = {"size": 7, "color": theme.INK}
    x, y = places.T
    look = {"mode": "markers", "marker": marker, "meta": cells.TARGETS}
    return go.Scatter(x=x, y=y, customdata=data, **look, **theme.hover(texts))
