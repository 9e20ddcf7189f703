"""The stage strip: all stages of one head as small maps, in the order they are computed.

Score stages share one limit and weight stages another, both printed. A stage the layer does not
compute keeps a narrow hatched slot that says so.
"""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention.maps import AttentionMap, shrink
from mta_viz.model.stages import Stage, Unit
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts
from mta_viz.tokenizers.base import Tokens

THUMBNAIL_CELLS = 128
ABSENT = {
    Stage.KQ: "no key-query conv<br>in this layer",
    Stage.MIX: "no head mixing<br>before the softmax",
    Stage.SOFTMAX_KQ: "no 2nd conv<br>in this layer",
}
_TOP, _GAP, _ABSENT_WIDTH = 36, 0.012, 0.4


def stage_strip(
    maps: Mapping[Stage, AttentionMap],
    tokens: Tokens,
    limits: Mapping[Unit, float],
    selected: Stage,
    *,
    size: tuple[int, int] = (940, 170),
) -> go.Figure:
    """Small multiples of a head's stages; `limits` has one colour limit for each unit present.

    Every thumbnail is one click target: the event's customdata is the stage's key (`kq`, ...).
    Thumbnails are pooled to at most 128 cells a side.
    """
    parts, slots = Parts(size, {"l": 4, "r": 4, "t": _TOP, "b": 4}), _slots(maps)
    for index, (stage, domain) in enumerate(slots.items(), start=1):
        suffix = "" if index == 1 else str(index)
        if stage in maps:
            _add_thumbnail(parts, maps[stage], limits[stage.value.unit], domain, suffix)
        else:
            _add_absent(parts, stage, domain, suffix)
        above = {"x": domain[0], "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": 1}
        parts.add_words(_heading(stage, maps.get(stage), limits), 11, align="left", **above)
    parts.shapes.append(_selected_frame(slots[selected]))
    parts.layout["dragmode"] = False
    return parts.figure()


def _slots(maps: Mapping[Stage, AttentionMap]) -> dict[Stage, tuple[float, float]]:
    """Horizontal domain of every stage; absent ones are narrow."""
    widths = {stage: 1.0 if stage in maps else _ABSENT_WIDTH for stage in Stage}
    unit = (1 - _GAP * (len(widths) - 1)) / sum(widths.values())
    slots, left = {}, 0.0
    for stage, width in widths.items():
        slots[stage] = (left, min(left + width * unit, 1.0))
        left += width * unit + _GAP
    return slots


def _axes(
    suffix: str, domain: tuple[float, float], x: tuple[float, float], y: tuple[float, float]
) -> dict[str, object]:
    bare = {"showticklabels": False, "ticks": "", "fixedrange": True}
    return {
        f"xaxis{suffix}": theme.axis(domain=domain, range=x, anchor=f"y{suffix}", **bare),
        f"yaxis{suffix}": theme.axis(domain=(0, 1), range=y[::-1], anchor=f"x{suffix}", **bare),
    }


def _add_thumbnail(
    parts: Parts, attention: AttentionMap, limit: float, domain: tuple[float, float], suffix: str
) -> None:
    small = shrink(attention, THUMBNAIL_CELLS)
    on = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    rows, columns = small.values.shape
    x = cells.edges(small.key_start, columns, small.block)
    y = cells.edges(small.query_start, rows, small.block)
    parts.traces.append(cells.heatmap(small, limit, showscale=False, hoverinfo="skip", **on))
    for layer in (cells.future(small, **on), cells.bad_cells(small, 120 / max(rows, 1))):
        if layer is not None:
            parts.traces.append(layer.update(on))
    parts.traces.append(_target(attention.stage, sum(x) / 2, sum(y) / 2, on))
    parts.layout |= _axes(suffix, domain, x, y)


def _target(stage: Stage, x: float, y: float, on: dict[str, str]) -> go.Scatter:
    """An invisible point in a thumbnail's middle that takes the clicks on all of it."""
    text, key = f"{stage.value.long}<br>click to show", np.array([stage.value.key])
    return cells.targets(np.array([x]), np.array([y]), 140.0, text, key).update(on)


def _add_absent(parts: Parts, stage: Stage, domain: tuple[float, float], suffix: str) -> None:
    on = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    parts.traces.append(cells.hatched([0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0], **on))
    look = {"font": {"size": 11, "color": theme.INK}, "bgcolor": theme.MASKED_FILL, "textangle": -90}
    parts.add_words(ABSENT[stage], 11, x=sum(domain) / 2, y=0.5, **look)
    parts.layout |= _axes(suffix, domain, (0.0, 1.0), (0.0, 1.0))


def _heading(stage: Stage, attention: AttentionMap | None, limits: Mapping[Unit, float]) -> str:
    name = f"<b>{theme.escape(stage.value.short)}</b>"
    if attention is None:
        return name
    return f"{name}<br>{_limits(attention, limits[stage.value.unit])} · {_number(attention)}"


def _limits(attention: AttentionMap, limit: float) -> str:
    return f"0..{limit:g}" if attention.distribution else f"±{limit:g}"


def _number(attention: AttentionMap) -> str:
    """The one number that says most: bad cells, the row sums, or how much is negative."""
    if attention.n_bad:
        return f"{attention.n_bad} NaN or inf"
    if attention.stage.value.unit == "score" or attention.row_sums is None:
        return f"{attention.negative_share:.0%} negative"
    low, high = attention.row_sums
    return f"rows sum to {low:.2f}" if high - low < 0.005 else f"row sums {low:.2f}..{high:.2f}"


def _selected_frame(domain: tuple[float, float]) -> dict[str, object]:
    corners = {"x0": domain[0], "x1": domain[1], "y0": 0, "y1": 1, "xref": "paper", "yref": "paper"}
    return {"type": "rect", **corners, "line": {"color": theme.SELECTED_COLOR, "width": 3}}
