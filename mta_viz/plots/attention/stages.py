"""All stages of one head side by side: its maps as a strip, and a row's or a column's bars above one another.

In the strip each stage's limit is printed; a stage the layer does not compute keeps a narrow hatched slot
that says so.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from mta_viz.analysis.attention.cells import CrossSection
from mta_viz.analysis.attention.maps import AttentionMap, round_up, shrink
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import BAR_PX, Parts, add_spans_across
from mta_viz.printed import head_name
from mta_viz.tokenizers.base import Tokens

THUMBNAIL_CELLS = 128
ABSENT = {
    Stage.KQ: "no key-query conv<br>in this layer",
    Stage.MIX: "no head mixing<br>before the softmax",
    Stage.SOFTMAX_KQ: "no 2nd conv<br>in this layer",
}
STRIP_SIZE = (905, 170)
_STRIP_TOP, _GAP, _ABSENT_WIDTH = 36, 0.012, 0.4


def stage_strip(
    maps: Mapping[Stage, AttentionMap], limits: Mapping[Stage, float], selected: Stage
) -> go.Figure:
    """Small multiples of a head's stages; `limits` has the end of the colours of each.

    Every thumbnail is one click target: the event's customdata is the stage's key (`kq`, ...).
    Thumbnails are pooled to at most 128 cells a side.
    """
    parts, slots = Parts(STRIP_SIZE, {"l": 4, "r": 4, "t": _STRIP_TOP, "b": 4}), _slots(maps)
    for index, (stage, domain) in enumerate(slots.items(), start=1):
        suffix, heading = "" if index == 1 else str(index), f"<b>{theme.escape(stage.value.short)}</b>"
        on = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        if stage in maps:
            attention, limit = maps[stage], limits[stage]
            x, y = _add_thumbnail(parts, attention, limit, on)
            ends = f"0..{limit:g}" if attention.distribution else f"±{limit:g}"
            heading += f"<br>{ends} · {_number(attention)}"
        else:
            x = y = (0.0, 1.0)
            parts.traces.append(cells.hatched([0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0], **on))
            look = {"font": {"size": 11, "color": theme.INK}, "bgcolor": theme.MASKED_FILL, "textangle": -90}
            parts.add_words(ABSENT[stage], 11, x=sum(domain) / 2, y=0.5, **look)
        bare = {"showticklabels": False, "ticks": "", "fixedrange": True}
        parts.layout |= {
            f"xaxis{suffix}": theme.axis(domain=domain, range=x, anchor=f"y{suffix}", **bare),
            f"yaxis{suffix}": theme.axis(domain=(0, 1), range=y[::-1], anchor=f"x{suffix}", **bare),
        }
        above = {"x": domain[0], "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": 1}
        parts.add_words(heading, 11, align="left", **above)
    left, right = slots[selected]
    corners = {"x0": left, "x1": right, "y0": 0, "y1": 1, "xref": "paper", "yref": "paper"}
    parts.shapes.append({"type": "rect", **corners, "line": {"color": theme.SELECTED_COLOR, "width": 3}})
    parts.layout["dragmode"] = False
    return parts.figure()


def _slots(maps: Mapping[Stage, AttentionMap]) -> dict[Stage, tuple[float, float]]:
    shown = [stage for stage in Stage if stage in maps or stage in ABSENT]
    widths = {stage: 1.0 if stage in maps else _ABSENT_WIDTH for stage in shown}
    unit = (1 - _GAP * (len(widths) - 1)) / sum(widths.values())
    slots, left = {}, 0.0
    for stage, width in widths.items():
        slots[stage] = (left, min(left + width * unit, 1.0))
        left += width * unit + _GAP
    return slots


def _add_thumbnail(
    parts: Parts, attention: AttentionMap, limit: float, on: dict[str, str]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The map, and an invisible point in its middle that takes the clicks on all of it; its axes' ranges."""
    small, stage = shrink(attention, THUMBNAIL_CELLS), attention.stage.value
    rows, columns = small.values.shape
    x = cells.edges(small.key_start, columns, small.block)
    y = cells.edges(small.query_start, rows, small.block)
    middle = np.array([sum(x) / 2]), np.array([sum(y) / 2])
    layers = [
        cells.heatmap(small, limit, showscale=False, hoverinfo="skip"),
        *cells.future(small),
        *cells.bad_cells(small, 120 / max(rows, 1)),
        cells.targets(*middle, 140.0, f"{stage.long}<br>click to show", np.array([stage.key])),
    ]
    parts.traces += [layer.update(on) for layer in layers]
    return x, y


def _number(attention: AttentionMap) -> str:
    """The one number that says most: bad cells, the row sums, or how much is negative."""
    if attention.n_bad:
        return f"{attention.n_bad} NaN or inf"
    if attention.stage.value.unit == "score" or attention.row_sums is None:
        return f"{attention.negative_share:.0%} negative"
    low, high = attention.row_sums
    return f"rows sum to {low:.2f}" if high - low < 0.005 else f"row sums {low:.2f}..{high:.2f}"


MAX_BARS = 512  # more are drawn as one outline: thousands of bars freeze a browser
WIDE_PX, _ROW_PX, _GAP_PX, _TOP, _RIGHT, _LEFT = 900, 62, 22, 44, 14, 64


Ends = tuple[float, float]  # of an axis


def section_ends(
    section: CrossSection, *, first_token: bool = True, shared: bool = False
) -> dict[Stage, Ends]:
    """Round ends for each stage that hold all its bars, from 0 where none is negative.

    Without `first_token` they hold all later bars; `shared`: stages of a unit have the same ends.
    """
    ends = {}
    for stage in section.values:
        alike = [other for other in section.values if other.value.unit == stage.value.unit and shared]
        limit = round_up(max(section.largest(other, first_token) for other in (stage, *alike)))
        signed = any(bool((section.values[other] < 0).any()) for other in (stage, *alike))
        ends[stage] = (-limit if signed else 0.0, limit)
    return ends


def section_bars(
    section: CrossSection,
    tokens: Tokens,
    *,
    ends: Mapping[Stage, Ends],
    numbering: int = 0,
    selected: int | None = None,
    spans: Sequence[Span] = (),
) -> go.Figure:
    """A row of bars for each stage over one shared token axis, red above 0 and blue below.

    `ends`: of the bars of each stage; what goes beyond has a triangle. `selected`: the token a
    line is drawn at; `spans` have bars and letters along the token axis. Only tokens with a value are
    there. Clicks: the event's x is the token position.
    """
    stages = list(section.values)
    start, stop = section.start, section.stop
    parts = Parts((WIDE_PX, 0), {"l": _LEFT, "r": _RIGHT, "t": _TOP})
    always = [section.position, *([] if selected is None else [selected])]
    ticks = theme.tick_positions(start, stop, WIDE_PX - _LEFT - _RIGHT, always)
    labels = [theme.tick_label(p, tokens.pieces[p]) for p in ticks]
    parts.margin["b"] = round(theme.text_px(labels)) + 34 + BAR_PX
    plot_px = len(stages) * (_ROW_PX + _GAP_PX)
    parts.size = (WIDE_PX, plot_px + _TOP + parts.margin["b"])
    for index, stage in enumerate(stages):
        _add_stage(parts, section, stage, ends[stage], index)
    last = f"y{len(stages)}" if len(stages) > 1 else "y"
    parts.traces.append(go.Scatter(x=[None], y=[None], xaxis="x2", yaxis=last, hoverinfo="skip"))
    add_token_axes(parts, tokens, (start, stop), last, (ticks, labels))
    if selected is not None:
        dotted = {"color": theme.INK, "width": 1, "dash": "dot"}
        parts.add_line((selected, selected), (0, 1), dotted, yref="paper")
    add_spans_across(parts, spans, range(start, stop))
    side, other, over = (
        ("key", "query", "keys it sees")
        if section.along == "keys"
        else ("query", "key", "queries that see it")
    )
    parts.add_axis_titles(side)
    where = head_name(section.layer, section.head, numbering)
    name = theme.tick_label(section.position, tokens.pieces[section.position])
    which = "all stages" if len(stages) > 2 else "before and after one step"
    return parts.figure(f"{where} · {other} {name} over the {over}, {which}")


def _add_stage(parts: Parts, section: CrossSection, stage: Stage, ends: Ends, index: int) -> None:
    suffix = "" if index == 0 else str(index + 1)
    on = {"xaxis": "x", "yaxis": f"y{suffix}"}
    values, x = section.values[stage].numpy(), np.arange(section.start, section.stop)
    low, limit = ends
    name, sign = "key" if section.along == "keys" else "query", "+" if low else ""
    hover = f"{name} %{{x}}<br>{stage.value.long}: %{{customdata:{sign}.4g}} ({stage.value.unit})"
    # A target on the zero line for each token takes hover and click in its whole column.
    targets = cells.targets(x.astype(np.int32), np.zeros(len(x), np.int8), 9.0, hover, values)
    traces = [*bars(x, values, limit), *beyond_and_bad(x, values, limit), targets]
    parts.traces += [trace.update(on) for trace in traces]
    height = 1 / len(section.values)
    top = 1 - index * height - height * _GAP_PX / (_ROW_PX + _GAP_PX)
    parts.layout[f"yaxis{suffix}"] = theme.axis(
        domain=(max(1 - (index + 1) * height, 0.0), top),
        range=(1.08 * low, 1.08 * limit),
        tickvals=[low, 0, limit] if low else [0, limit],
        ticktext=[f"−{theme.limit_text(limit)}", "0", theme.limit_text(limit)][-(3 if low else 2) :],
        **theme.ZERO,
        fixedrange=True,
        mirror=False,
        anchor="x",
    )
    text = f"<b>{theme.escape(stage.value.short)}</b> {stage.value.long} ({stage.value.unit})"
    parts.add_words(text, 11, x=0, xanchor="left", y=top, yanchor="bottom")


def bars(
    x: Int[np.ndarray, " token"],
    values: Float[np.ndarray, " token"],
    limit: float,
    colors: tuple[str, str] = (theme.POSITIVE_COLOR, theme.NEGATIVE_COLOR),
) -> list[go.Bar] | list[go.Scatter]:
    """A bar a token, or one outline of many; `colors` above and below 0."""
    finite = np.clip(np.nan_to_num(values), -1.2 * limit, 1.2 * limit)  # far ends would slow the drawing
    if len(x) <= MAX_BARS:
        own = np.where(finite < 0, colors[1], colors[0]).tolist()
        marker = {"color": own, "line": {"width": 0}}
        return [go.Bar(x=x, y=finite, width=0.8, marker=marker, hoverinfo="skip")]
    ends = np.concatenate([[x[0] - 0.5], x, [x[-1] + 0.5]]).astype(np.float32)
    held = np.concatenate([finite[:1], finite, finite[-1:]])
    return [
        go.Scatter(
            x=ends,
            y=part.astype(np.float32),
            mode="lines",
            line={"width": 0.5, "shape": "hvh", "color": color},
            fill="tozeroy",
            fillcolor=color,
            hoverinfo="skip",
        )
        for part, color in zip((held.clip(min=0), held.clip(max=0)), colors, strict=True)
    ]


def beyond_and_bad(x: np.ndarray, values: np.ndarray, limit: float) -> list[go.Scatter]:
    """Triangles at the border for bars that go on, crosses for NaN and infinite values."""
    finite = np.isfinite(values)
    kinds = (
        (finite & (values > limit), limit, "triangle-up", theme.INK),
        (finite & (values < -limit), -limit, "triangle-down", theme.INK),
        (~finite, 0.0, "x", theme.BAD_COLOR),
    )
    return [
        go.Scatter(
            x=x[here],
            y=np.full(int(here.sum()), at),
            mode="markers",
            marker={"symbol": symbol, "color": color, "size": 7},
            hoverinfo="skip",
        )
        for here, at, symbol, color in kinds
        if here.any()
    ]


def add_token_axes(
    parts: Parts, tokens: Tokens, ends: tuple[int, int], last: str, ticks: tuple[list[int], list[str]]
) -> None:
    """`x` names every token for the hover, `x2` on top of it shows the labels there is room for."""
    start, stop = ends
    span = cells.edges(start, stop - start, 1)
    parts.layout |= {
        "xaxis": theme.axis(
            range=span,
            labelalias=cells.aliases(tokens, start, stop - start, 1),
            hoverformat="d",
            showticklabels=False,
            ticks="",
            mirror=False,
            anchor=last,
            minallowed=span[0],
            maxallowed=span[1],
        ),
        "xaxis2": theme.axis(
            range=span, overlaying="x", matches="x", anchor=last, side="bottom", mirror=False,
            tickvals=ticks[0], ticktext=ticks[1], tickangle=-90, ticklabelstandoff=BAR_PX,
        ),
        "hoverdistance": _ROW_PX,
    }  # fmt: skip
