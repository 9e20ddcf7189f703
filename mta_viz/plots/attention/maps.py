"""One attention map with its tokens, drawn whole, cropped or pooled; for a notebook from a trace in one call.

Two pairs of axes lie on top of each other: `x`/`y` carry the cells and name every position for the
hover, `x2`/`y2` carry the visible labels, which are fewer and shorter.

A difference map: what a convolution or head mixing changed. Drawn as attention maps are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention.changes import DifferenceMap
from mta_viz.analysis.attention.maps import AttentionMap, exact_map, head_map, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts, add_spans
from mta_viz.printed import head_name
from mta_viz.run.tracing import Trace
from mta_viz.tokenizers.base import Tokens

TOP, RIGHT, AXIS_TITLE = 66, 16, 30
POINTER = 9  # room between labels and cells for the triangle that points at the selected query
Cell = tuple[int, int]
Part = tuple[slice, slice]


@dataclass(frozen=True)
class Look:
    """What a kind of map says of itself, and its colours.

    `title(map, numbering)` follows layer and head, `value_line(map, field)` is a hover's line about the value
    in a template's field. With a `scale` of its own the hover says no more than that; None: the scale goes by
    the kind of the values, and the hover has all their facts. `masked` is the template of masked cells.
    """

    title: Callable[[AttentionMap, int], str]
    value_line: Callable[[AttentionMap, str], str]
    scale: str | None = None
    masked: str = cells.MASKED


def _stage_title(attention: AttentionMap, name: str) -> str:
    return f" · {name} ({attention.stage.value.unit})"


VALUES = Look(lambda drawn, _: _stage_title(drawn, drawn.stage.value.long), cells.value_line)
SMALL = replace(VALUES, title=lambda drawn, _: _stage_title(drawn, drawn.stage.value.short))


def attention_map(
    attention: AttentionMap,
    tokens: Tokens,
    *,
    limit: float,
    numbering: int = 0,
    size: tuple[int, int] = (460, 460),
    before: AttentionMap | None = None,
    selected: Cell | None = None,
    part: Part | None = None,
    spans: Sequence[Span] = (),
    look: Look = VALUES,
) -> go.Figure:
    """A map with query down and key across, tokens on both axes.

    `limit`: end of the colour scale in the map's own unit (see `shared_limit`). `size`: width and
    height in pixels. `before`: the same cells one stage earlier, of the same unit, for the cells.
    `selected`: (query, key) drawn into the figure if the map has it; `part`: (queries, keys) outlined,
    and dragging draws a box instead of zooming; `spans`: marked along both axes. Up to 256 x 256 cells
    take clicks: the event's x and y are key and query (block middles when pooled). `look`: for maps of
    something else than a stage's values.
    """
    (rows, columns), block = attention.values.shape, attention.block
    marks = [span.start for span in spans]
    queries, keys = (
        range(start, start + count * block)
        for start, count in ((attention.query_start, rows), (attention.key_start, columns))
    )
    if selected is not None and not (selected[0] in queries and selected[1] in keys):
        selected = None
    parts, plot_px = _framed(attention, tokens, size, selected, marks)
    cell_px = min(plot_px[0] / max(columns, 1), plot_px[1] / max(rows, 1))
    clickable = max(rows, columns) <= cells.MAX_TARGET_CELLS
    by_cell = clickable and block == 1  # blocks take no clicks: half of the targets spared
    masked = {} if by_cell else {"hoveron": "fills", "hoverinfo": "text", "text": "masked: key after query"}
    where = cells.BLOCKS if block > 1 else cells.WHERE
    colored = cells.heatmap(
        attention,
        limit,
        colorbar=cells.color_bar(attention, limit),
        hovertemplate=f"{where}<br>{look.value_line(attention, 'z')}<extra></extra>",
        **({"colorscale": look.scale} if look.scale else {}),
    )
    parts.traces += [colored, *cells.future(attention, **masked), *cells.bad_cells(attention, cell_px)]
    if clickable:
        parts.traces += _targets(attention, before, look, cell_px)
    if selected is not None:
        _draw_selection(parts, selected, block)
    if part is not None:
        down, across = part
        shape = (down.stop - down.start, across.stop - across.start)
        parts.add_box((down.start, across.start), shape, color="#000000", width=2)
        parts.layout["dragmode"] = "select"
    add_spans(parts, spans, queries, keys, selected[0] if selected else None)
    parts.layout["hoverdistance"] = max(2, round(cell_px))
    pooled = f" · {block} x {block} blocks" if block > 1 else ""
    made = attention.layer < 0  # by hand: of no head
    name = "" if made else head_name(attention.layer, attention.head, numbering)
    return parts.figure(f"{name}{look.title(attention, numbering)}{pooled}")


def _framed(
    attention: AttentionMap,
    tokens: Tokens,
    size: tuple[int, int],
    selected: Cell | None,
    marks: Sequence[int],
) -> tuple[Parts, tuple[int, int]]:
    """Both pairs of axes and the margins; also width and height of the plotting area in pixels."""
    sides = {
        "y": (attention.query_start, attention.values.shape[0], size[1] - TOP),
        "x": (attention.key_start, attention.values.shape[1], size[0] - RIGHT),
    }
    parts = Parts(size, {"t": TOP, "r": RIGHT})
    own = {"y": (selected or ())[:1], "x": (selected or ())[1:]}
    for name, (start, count, px) in sides.items():
        span = cells.edges(start, count, attention.block)
        span = span[::-1] if name == "y" else span
        # Margins need the labels, labels the axis length: one guess is near enough for both.
        last = min(start + count * attention.block, len(tokens))
        ticks = theme.tick_positions(start, last, max(px - 90, 40), [*own[name], *marks])
        labels = [theme.tick_label(p, tokens.pieces[p]) for p in ticks]
        parts.margin["l" if name == "y" else "b"] = round(theme.text_px(labels)) + 12 + POINTER + AXIS_TITLE
        parts.layout[f"{name}axis"] = theme.axis(
            range=span,
            labelalias=cells.aliases(tokens, start, count, attention.block),
            hoverformat="d" if attention.block == 1 else ".1f",  # as the aliases have it
            showticklabels=False,
            ticks="",
            minallowed=min(span),
            maxallowed=max(span),
        )
        parts.layout[f"{name}axis2"] = theme.axis(
            range=span,
            overlaying=name,
            matches=name,
            side="left" if name == "y" else "bottom",
            tickvals=ticks,
            ticktext=labels,
            tickangle=0 if name == "y" else -90,
            ticklabelstandoff=POINTER,
        )
    # An axis is drawn only while a trace lies on it.
    parts.traces.append(go.Scatter(x=[None], y=[None], xaxis="x2", yaxis="y2", hoverinfo="skip"))
    parts.add_axis_titles("key", "query")
    return parts, (sides["x"][2] - parts.margin["l"], sides["y"][2] - parts.margin["b"])


def _targets(
    attention: AttentionMap, before: AttentionMap | None, look: Look, cell_px: float
) -> list[go.Scatter]:
    if look.scale is None:
        text, numbers = cells.cell_text(attention, before)
    else:
        text, numbers = cells.one_value(attention, look.value_line(attention, "customdata[0]"))
    rows, columns = attention.values.shape
    last = max(attention.query_start + rows, attention.key_start + columns) - 1
    # Coordinates are most of what a click target costs, so they are of the smallest type.
    kind = np.float32 if attention.block > 1 else np.uint8 if last < 256 else np.int32
    x = cells.centers(attention.key_start, columns, attention.block).astype(kind)
    y = cells.centers(attention.query_start, rows, attention.block).astype(kind)
    (down, across), masked = np.nonzero(~attention.masked.numpy()), attention.masked.numpy().nonzero()
    traces = [cells.targets(x[across], y[down], cell_px, text, numbers[down, across])] if down.size else []
    if masked[0].size and attention.block == 1:  # of blocks the hatching says it
        traces.append(cells.targets(x[masked[1]], y[masked[0]], cell_px, look.masked))
    return traces


def _draw_selection(parts: Parts, selected: Cell, block: int) -> None:
    query, key = selected
    line = {"color": theme.INK, "width": 1}
    parts.add_line((0, 1), (query, query), line, xref="x domain", yref="y")
    parts.add_line((key, key), (0, 1), line, xref="x", yref="y domain")
    corner = (query - (block - 1) / 2, key - (block - 1) / 2)
    for width, color in ((4, "#000000"), (1.5, "#FFFFFF")):
        parts.add_box(corner, (block, block), color=color, width=width)
    arrow = {"showarrow": False, "font": {"size": 11, "color": theme.SELECTED_COLOR}}
    left = {"text": "▶", "x": 0, "xref": "x domain", "xanchor": "right", "y": query, "yref": "y", "xshift": 3}
    top = {"text": "▼", "y": 1, "yref": "y domain", "yanchor": "bottom", "x": key, "xref": "x", "yshift": -4}
    parts.annotations += [left | arrow, top | arrow]


STEPS = {
    Stage.KQ: "the key-query conv",
    Stage.MIX: "head mixing",
    Stage.SOFTMAX_KQ: "the 2nd key-query conv",
    Stage.PATTERN: "the last mixing or subtraction",
}


def difference_map(
    difference: AttentionMap, tokens: Tokens, *, short: bool = False, **options: Any
) -> go.Figure:
    """After minus before, brown lowered and green raised; options as of `attention_map`.

    `short`: the title names the two stages alone, for small maps. `limit`: from `shared_limit` of
    differences alone, which are smaller than the values.
    """
    return attention_map(difference, tokens, look=SHORT if short else LOOK, **options)


def difference_caption(difference: AttentionMap, limit: float) -> str:
    """The sentence under the map."""
    unit = difference.stage.value.unit.capitalize()
    words = f"{unit} after minus before {_step(difference)}, same head."
    return f"{words} Brown: lowered, green: raised. Limits ±{theme.limit_text(limit)}."


def _step(drawn: AttentionMap) -> str:
    return "the edit" if _is_edit(drawn) else STEPS[drawn.stage]


def _is_edit(drawn: AttentionMap) -> bool:
    return isinstance(drawn, DifferenceMap) and drawn.before is drawn.stage


def _title(drawn: AttentionMap, numbering: int) -> str:
    edited = "edited − original"
    return _stage_title(drawn, edited if _is_edit(drawn) else f"after minus before {STEPS[drawn.stage]}")


def _short_title(drawn: AttentionMap, numbering: int) -> str:
    if _is_edit(drawn) or not isinstance(drawn, DifferenceMap):
        return _title(drawn, numbering)
    return _stage_title(drawn, f"{drawn.stage.value.short} − {drawn.before.value.short}")


def _value_line(drawn: AttentionMap, field: str) -> str:
    change = f"%{{{field}:+.4g}} ({drawn.stage.value.unit})"
    return f"largest change {change}" if drawn.block > 1 else f"change by {_step(drawn)}: {change}"


LOOK = Look(_title, _value_line, theme.DIFFERENCE_SCALE)
SHORT = replace(LOOK, title=_short_title)


WHOLE_UP_TO = 256  # tokens: a longer prompt is drawn in blocks, of each its largest value
EVERYTHING = slice(None)


def draw_map(
    trace: Trace,
    layer: int,
    stage: Stage,
    head: int,
    *,
    queries: slice = EVERYTHING,
    keys: slice = EVERYTHING,
    size: int = 560,
) -> go.Figure:
    """One head's map at one stage with its tokens, `size` pixels wide and high; a crop of it is exact.

    A whole map beyond 256 tokens is drawn in blocks. Colours end where `shared_limit` says, in the stage's
    unit; masked cells are hatched. Raises PromptError for a layer, stage or head that is not there.

    >>> figure = mta_viz.draw_map(trace, 3, mta_viz.Stage.PATTERN, head=1)
    >>> figure.layout.width
    560
    """
    whole = queries == keys == EVERYTHING and len(trace.tokens) > WHOLE_UP_TO
    if whole:
        attention = head_map(trace, layer, stage, head, WHOLE_UP_TO)
    else:
        attention = exact_map(trace, layer, stage, head, queries, keys)
    picture = attention_map(attention, trace.tokens, limit=shared_limit([attention]), size=(size, size))
    return go.Figure(picture)  # which checks what a notebook changes of it
