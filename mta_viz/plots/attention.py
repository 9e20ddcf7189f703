"""One attention map with its tokens, drawn whole, cropped or pooled.

Two pairs of axes lie on top of each other: `x`/`y` carry the cells and name every position for the
hover, `x2`/`y2` carry the visible labels, which are fewer and shorter.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.maps import AttentionMap
from mta_viz.plots import cells, hover, theme
from mta_viz.plots.strip import stage_strip
from mta_viz.tokenizers.base import Tokens

__all__ = ["attention_map", "map_title", "stage_strip"]

TOP, RIGHT, AXIS_TITLE = 66, 16, 30
POINTER = 9  # room between labels and cells for the triangle that points at the selected query
Cell = tuple[int, int]


def attention_map(
    attention: AttentionMap,
    tokens: Tokens,
    *,
    limit: float,
    numbering_from: int = 0,
    size: tuple[int, int] = (460, 460),
    before: AttentionMap | None = None,
    selected: Cell | None = None,
    marks: Sequence[int] = (),
) -> go.Figure:
    """A map with query down and key across, tokens on both axes.

    `limit`: end of the colour scale in the map's own unit (see `shared_limit`). `size`: width and
    height in pixels. `before`: the same cells one stage earlier, of the same unit, for the hover.
    `selected`: (query, key) drawn into the figure; `marks`: positions always labelled. Up to 256 x
    256 cells take clicks: the event's x and y are key and query (block middles when pooled).
    """
    rows, columns = attention.values.shape
    clickable = max(rows, columns) <= cells.MAX_TARGET_CELLS
    figure = theme.style(go.Figure(), *size)
    plot_px = _add_axes(figure, attention, tokens, selected, marks)
    cell_px = min(plot_px[0] / max(columns, 1), plot_px[1] / max(rows, 1))
    figure.add_trace(_colored_cells(attention, limit))
    told = {} if clickable else {"hoveron": "fills", "hoverinfo": "text", "text": "masked: key after query"}
    for layer in (cells.future(attention, **told), cells.bad_cells(attention, cell_px)):
        if layer is not None:
            figure.add_trace(layer)
    if clickable:
        _add_targets(figure, attention, before, cell_px)
    if selected is not None:
        _draw_selection(figure, selected, attention.block)
    figure.update_layout(hoverdistance=max(2, round(cell_px)))
    return theme.add_title(figure, map_title(attention, numbering_from))


def _colored_cells(attention: AttentionMap, limit: float) -> go.Heatmap:
    below, above = cells.beyond(attention, limit)
    where = hover.BLOCKS if attention.block > 1 else hover.WHERE
    return cells.heatmap(
        attention,
        limit,
        colorbar=theme.color_bar(limit, signed=not attention.distribution, above=above, below=below),
        hovertemplate=f"{where}<br>{hover.value_line(attention)}<extra></extra>",
    )


def _add_axes(
    figure: go.Figure, attention: AttentionMap, tokens: Tokens, selected: Cell | None, marks: Sequence[int]
) -> tuple[int, int]:
    """Both pairs of axes and the margins; returns width and height of the plotting area in pixels."""
    sides = {
        "y": (attention.query_start, attention.values.shape[0], figure.layout.height - TOP),
        "x": (attention.key_start, attention.values.shape[1], figure.layout.width - RIGHT),
    }
    margin = {"t": TOP, "r": RIGHT, "autoexpand": False}
    axes: dict[str, object] = {}
    own = {"y": (selected or ())[:1], "x": (selected or ())[1:]}
    for name, (start, count, px) in sides.items():
        span = cells.edges(start, count, attention.block)
        span = span[::-1] if name == "y" else span
        # Margins need the labels, labels the axis length: one guess is near enough for both.
        last = min(start + count * attention.block, len(tokens))
        ticks = theme.tick_positions(start, last, max(px - 90, 40), [*own[name], *marks])
        labels = [theme.tick_label(p, tokens.pieces[p]) for p in ticks]
        margin["l" if name == "y" else "b"] = round(theme.text_px(labels)) + 12 + POINTER + AXIS_TITLE
        names = hover.aliases(tokens, start, count, attention.block)
        axes[f"{name}axis"] = _cell_axis(span, names, attention.block)
        axes[f"{name}axis2"] = _label_axis(name, span, ticks, labels)
    # An axis is drawn only while a trace lies on it.
    figure.add_trace(go.Scatter(x=[None], y=[None], xaxis="x2", yaxis="y2", hoverinfo="skip"))
    figure.update_layout(axes, margin=margin)
    theme.add_key_title(figure, "key")
    return sides["x"][2] - margin["l"], sides["y"][2] - margin["b"]


def _cell_axis(span: tuple[float, float], names: dict[str, str], block: int) -> dict[str, object]:
    return theme.axis(
        range=span,
        labelalias=names,
        hoverformat=hover.number_format(block),
        showticklabels=False,
        ticks="",
        minallowed=min(span),
        maxallowed=max(span),
    )


def _label_axis(
    name: str, span: tuple[float, float], ticks: list[int], labels: list[str]
) -> dict[str, object]:
    return theme.axis(
        range=span,
        overlaying=name,
        matches=name,
        side="left" if name == "y" else "bottom",
        tickvals=ticks,
        ticktext=labels,
        tickangle=0 if name == "y" else -90,
        ticklabelstandoff=POINTER,
        title={"text": "query" if name == "y" else "", "standoff": 4, "font": {"size": 12}},
    )


def map_title(attention: AttentionMap, numbering_from: int = 0) -> str:
    """Which map this is, with its unit, e.g. `L2 H1 · after key-query conv (score)`."""
    info = attention.stage.value
    where = f"L{attention.layer + numbering_from} H{attention.head + numbering_from}"
    pooled = f" · {attention.block} x {attention.block} blocks" if attention.block > 1 else ""
    return f"{where} · {info.long} ({info.unit}){pooled}"


def _add_targets(
    figure: go.Figure, attention: AttentionMap, before: AttentionMap | None, cell_px: float
) -> None:
    text, numbers = hover.cell_text(attention, before)
    kind = np.int16 if attention.block == 1 else np.float32
    x = cells.centers(attention.key_start, attention.values.shape[1], attention.block).astype(kind)
    y = cells.centers(attention.query_start, attention.values.shape[0], attention.block).astype(kind)
    masked = attention.masked.numpy()
    for where, template, data in ((~masked, text, numbers), (masked, hover.MASKED, None)):
        rows, columns = np.nonzero(where)
        if rows.size:
            own = None if data is None else data[rows, columns]
            figure.add_trace(cells.targets(x[columns], y[rows], cell_px, template, own))


def _draw_selection(figure: go.Figure, selected: Cell, block: int) -> None:
    """Lines along the row and the column, triangles on the axes, a black and white box."""
    query, key = selected
    line = {"color": theme.INK, "width": 1}
    figure.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=query, y1=query, yref="y", line=line)
    figure.add_shape(type="line", y0=0, y1=1, yref="y domain", x0=key, x1=key, xref="x", line=line)
    half = block / 2
    for width, color in ((4, "#000000"), (1.5, "#FFFFFF")):
        figure.add_shape(
            type="rect",
            x0=key - half,
            x1=key + half,
            y0=query - half,
            y1=query + half,
            line={"color": color, "width": width},
        )
    arrow = {"showarrow": False, "font": {"size": 11, "color": theme.SELECTED_COLOR}}
    figure.add_annotation(
        text="▶", x=0, xref="x domain", xanchor="right", y=query, yref="y", xshift=3, **arrow
    )
    figure.add_annotation(
        text="▼", y=1, yref="y domain", yanchor="bottom", x=key, xref="x", yshift=-4, **arrow
    )
