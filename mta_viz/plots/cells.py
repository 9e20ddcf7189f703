"""The layers an attention map is drawn from: cells, future hatching, bad cells, click targets.

Hover texts of attention maps: both tokens with positions, the value, and what it means.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.pooling import Pooled
from mta_viz.plots import theme
from mta_viz.plots.parts import Number
from mta_viz.tokenizers.base import Tokens, split_characters

MAX_SVG_MARKERS = 1000
MAX_TARGET_CELLS = 256
TARGETS = "targets"
BAD_TAP = {"hoverinfo": None, "hovertemplate": "this tap is NaN or infinite<extra></extra>"}
Box = tuple[Number, Number, Number, Number]  # row, column of the top left cell, rows, columns


def largest(values: np.ndarray) -> float:
    """The largest size of the finite values; 0 where there is none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def centers(start: int, count: int, block: int) -> Float[np.ndarray, " cell"]:
    """Axis coordinate of each row or column: the middle of the positions it stands for."""
    return (start + block * np.arange(count) + (block - 1) / 2).astype(np.float32)


def edges(start: int, count: int, block: int) -> tuple[float, float]:
    """Axis range of that many rows or columns, in positions."""
    return start - 0.5, start + count * block - 0.5


def drawn_values(attention: AttentionMap) -> Float[np.ndarray, "row column"]:
    """The cells as float32; NaN (nothing drawn) where masked, NaN or infinite."""
    values = attention.values.numpy().copy()
    values[(attention.masked | attention.bad).numpy()] = np.nan
    return values


def grid(
    values: Float[np.ndarray, "row column"], limit: float, *, signed: bool = True, **options: object
) -> go.Heatmap:
    """Values as colours from -`limit` (from 0 where not `signed`) to `limit`; blank where not finite."""
    own: dict[str, object] = {
        "z": np.where(np.isfinite(values), values, np.nan),
        "zmin": -limit if signed else 0.0,
        "zmax": limit,
        "colorscale": theme.SIGNED_SCALE if signed else theme.MASS_SCALE,
    }
    return go.Heatmap(**(own | options))


def heatmap(attention: AttentionMap, limit: float, **options: object) -> go.Heatmap:
    """The cells on the scale of their kind: symmetric about 0, or from 0 for distributions."""
    return grid(
        drawn_values(attention),
        limit,
        signed=not attention.distribution,
        x0=float(centers(attention.key_start, 1, attention.block)[0]),
        dx=attention.block,
        y0=float(centers(attention.query_start, 1, attention.block)[0]),
        dy=attention.block,
        hoverongaps=False,
        **options,
    )


def color_bar(attention: AttentionMap, limit: float, **options: object) -> dict[str, object]:
    """The colour bar of its cells."""
    return theme.color_bar(
        limit, signed=not attention.distribution, values=drawn_values(attention), **options
    )


def future(attention: AttentionMap, **options: object) -> list[go.Scatter]:
    """The masked cells as one hatched staircase; none when the map holds none."""
    rows, columns = attention.values.shape
    first = np.arange(columns)[None, :].repeat(rows, 0) >= (~attention.future.numpy()).sum(1)[:, None]
    starts = columns - first.sum(1)
    used = np.flatnonzero(starts < columns)
    if not used.size:
        return []
    left, right = edges(attention.key_start, columns, attention.block)
    top, _ = edges(attention.query_start, rows, attention.block)
    x = np.repeat(left + starts[used] * attention.block, 2)
    y = top + attention.block * np.stack([used, used + 1], 1).ravel()
    return [hatched([*x, right, right], [*y, y[-1], y[0]], **options)]


def corners(boxes: Iterable[Box], *, close: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """x and y through the corners of the boxes, gaps between them; `close`: back to the first corner."""
    row, column, rows, columns = np.array([*boxes], np.float32).reshape(-1, 4).T
    left, right, top, bottom = column - 0.5, column + columns - 0.5, row - 0.5, row + rows - 0.5
    gap = np.full_like(row, np.nan)
    x = np.stack([left, right, right, left, *([left] * close), gap], 1)
    y = np.stack([top, top, bottom, bottom, *([top] * close), gap], 1)
    return x.ravel(), y.ravel()


def hatched_boxes(boxes: Iterable[Box], **options: object) -> list[go.Scatter]:
    """Boxes of cells hatched as one trace; none without boxes."""
    x, y = corners(boxes)
    return [hatched(x, y, **options)] if x.size else []


def frames(boxes: Iterable[Box], color: str) -> go.Scatter:
    """Thin frames around boxes of cells as one trace: hundreds of shapes are slow."""
    x, y = corners(boxes, close=True)
    return go.Scatter(x=x, y=y, mode="lines", line={"color": color, "width": 1}, hoverinfo="skip")


def hatched(
    x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, **options: object
) -> go.Scatter:
    """A closed hatched shape without a border: nothing to read here, on purpose."""
    return go.Scatter(
        x=np.asarray(x, np.float32),
        y=np.asarray(y, np.float32),
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillpattern={
            "shape": "/",
            "size": 6,
            "solidity": 0.2,
            "fgcolor": theme.MASKED_LINE,
            "bgcolor": theme.MASKED_FILL,
        },
        **({"hoverinfo": "skip"} | options),
    )


def bad_cells(attention: AttentionMap, cell_px: float) -> list[go.Scatter | go.Scattergl]:
    """NaN and infinite cells as magenta crosses."""
    rows, columns = np.nonzero(attention.bad.numpy())
    x = centers(attention.key_start, attention.values.shape[1], attention.block)[columns]
    y = centers(attention.query_start, attention.values.shape[0], attention.block)[rows]
    return crosses(x, y, float(np.clip(0.6 * cell_px, 4, 10)))


def crosses(
    x: Sequence[Number] | np.ndarray, y: Sequence[Number] | np.ndarray, size: Number, **options: object
) -> list[go.Scatter | go.Scattergl]:
    """Magenta crosses on values that are NaN or infinite, as one trace; none without places."""
    # Thousands of vector markers freeze a browser; a few draw sharper than the raster layer.
    trace = go.Scatter if len(x) <= MAX_SVG_MARKERS else go.Scattergl
    marker = {"symbol": "x", "color": theme.BAD_COLOR, "size": size, "line": {"width": 0}}
    look = {"hoverinfo": "skip"} | options
    return [trace(x=x, y=y, mode="markers", marker=marker, **look)] if len(x) else []


def targets(
    x: np.ndarray, y: np.ndarray, cell_px: float, hovertemplate: str, customdata: np.ndarray | None = None
) -> go.Scatter:
    """Invisible points that take hover and click (a heat map's own clicks reach no page).

    One marker is drawn for all of them: hover and click look for the nearest point, drawn or not,
    and thousands of markers freeze a browser. A chosen point stays invisible: the selection is
    drawn as a frame, and a marker would hide the cell's colour.
    """
    return go.Scatter(
        x=x,
        y=y,
        mode="markers",
        customdata=customdata,
        hovertemplate=hovertemplate + "<extra></extra>",
        marker={"maxdisplayed": 1, "size": max(cell_px, 9), "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        meta=TARGETS,
    )


WHERE = "query %{y}<br>key %{x}"
BLOCKS = "queries %{y}<br>keys %{x}"
MASKED = "masked: key %{x} is after query %{y}"


def aliases(tokens: Tokens, start: int, count: int, block: int) -> dict[str, str]:
    """Axis number -> words for every row or column; blocks are named by their ends."""
    if block == 1:
        parts = split_characters(tokens.pieces)
        words = {p: f" ({parts[p]})" if p in parts else "" for p in range(start, start + count)}
        return {str(p): theme.hover_label(p, tokens.pieces[p]) + theme.escape(words[p]) for p in words}
    names = {}
    for index, center in enumerate(centers(start, count, block)):
        first = start + index * block
        last = min(first + block, len(tokens)) - 1
        ends = f"{theme.escape(tokens.pieces[first])} … {theme.escape(tokens.pieces[last])}"
        names[f"{center:.1f}"] = f"{first}-{last} {ends}"
    return names


def value_line(attention: AttentionMap, source: str = "z") -> str:
    """What the value is, and its four digits; `source` is the template's field."""
    info, sign = attention.stage.value, "" if attention.distribution else "+"
    value = f"%{{{source}:{sign}.4g}}"
    if attention.block > 1:
        return f"largest |x| {value}"
    return f"{info.long}: {value} (score)" if info.unit == "score" else f"{info.long}: weight {value}"


def cell_text(
    attention: AttentionMap, before: AttentionMap | None
) -> tuple[str, Float[np.ndarray, "row column field"]]:
    """Template and numbers of every cell for the hover of an exact or a pooled map."""
    if attention.pooled is not None:
        return pooled_text(attention, attention.pooled, value_line(attention, "customdata[0]"))
    lines = [BLOCKS if attention.block > 1 else WHERE, value_line(attention, "customdata[0]")]
    fields = [attention.values.numpy()]
    if before is not None:
        lines.append(
            f"before: %{{customdata[{len(fields)}]:+.4g}} · change %{{customdata[{len(fields) + 1}]:+.4g}}"
        )
        fields += [before.values.numpy(), (attention.values - before.values).numpy()]
    if attention.row_sums is not None and attention.block == 1:
        _add_row_facts(attention, lines, fields)
    return "<br>".join(lines), np.stack(fields, -1).astype(np.float32)


def pooled_text(
    attention: AttentionMap, pooled: Pooled, line: str, *, boxes: bool = True
) -> tuple[str, Float[np.ndarray, "row column field"]]:
    """Template and numbers of every block; `line` says what its value, field 0, is.

    `boxes`: a box drawn on the map leads to exact cells.
    """
    peak = "at (%{customdata[1]:d}, %{customdata[2]:d}) · mean %{customdata[3]:+.4g}"
    template = f"{BLOCKS}<br>{line} {peak}" + "<br>draw a box to see exact cells" * boxes
    fields = [
        pooled.values,
        pooled.peak_query + attention.query_start,
        pooled.peak_key + attention.key_start,
        pooled.means,
    ]
    return template, np.stack([field.numpy() for field in fields], -1).astype(np.float32)


def one_value(attention: AttentionMap, line: str) -> tuple[str, Float[np.ndarray, "row column field"]]:
    """Template and numbers of a map whose hover says its value alone; `line` says what field 0 is."""
    if attention.pooled is not None:
        return pooled_text(attention, attention.pooled, line, boxes=False)
    return f"{WHERE}<br>{line}", attention.values.numpy()[..., None].astype(np.float32)


def _add_row_facts(attention: AttentionMap, lines: list[str], fields: list[np.ndarray]) -> None:
    """Share of the row and its sum for weights; rank in the row where values compare as they are."""
    values, masked = attention.values.numpy(), attention.masked.numpy()
    if attention.stage.value.unit == "weight":
        weights, place = np.where(masked, 0.0, values), len(fields)
        total = np.abs(weights).sum(1, keepdims=True)
        with np.errstate(invalid="ignore"):  # a row with an infinite weight has no shares
            share = np.divide(np.abs(weights), total, out=np.zeros_like(weights), where=total > 0)
        fields.append(share)
        if not attention.distribution:
            sums = f"row sums to %{{customdata[{place + 1}]:.3f}}"
            lines.append(f"%{{customdata[{place}]:.1%}} of |row|, {sums}")
            fields.append(weights.sum(1, keepdims=True) * np.ones_like(weights))
            return
        lines.append(f"%{{customdata[{place}]:.1%}} of this row")
    values = np.where(masked, -np.inf, values)
    ranks = (-values).argsort(1, kind="stable").argsort(1, kind="stable") + 1
    lines.append(f"row rank %{{customdata[{len(fields)}]:d}} of %{{customdata[{len(fields) + 1}]:d}}")
    fields += [ranks, (attention.queries.numpy()[:, None] + 1) * np.ones_like(ranks)]
