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

TOP, RIGHT, AXIS_TITLE = 62, 16, 18
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
    layout = _Layout(attention, tokens, numbering_from, size, selected, marks)
    below, above = cells.beyond(attention, limit)
    bar = theme.color_bar(
        limit, signed=not attention.distribution, above=above, below=below, length_px=layout.plot_px[0]
    )
    figure = theme.style(go.Figure(), *size)
    figure.add_trace(
        cells.heatmap(attention, limit, colorbar=bar, hovertemplate=layout.coarse_hover(attention))
    )
    _add_masked(figure, attention, clickable=layout.clickable)
    if (bad := cells.bad_cells(attention, layout.cell_px)) is not None:
        figure.add_trace(bad)
    if layout.clickable:
        _add_targets(figure, attention, before, layout.cell_px, numbering_from)
    layout.apply(figure, attention, tokens, numbering_from)
    if selected is not None:
        _draw_selection(figure, selected, attention.block)
    return figure


class _Layout:
    """Margins, ticks and axes that depend on the labels and on the pixels there are."""

    def __init__(
        self,
        attention: AttentionMap,
        tokens: Tokens,
        numbering_from: int,
        size: tuple[int, int],
        selected: Cell | None,
        marks: Sequence[int],
    ) -> None:
        rows, columns = attention.values.shape
        self.clickable = max(rows, columns) <= cells.MAX_TARGET_CELLS
        extents = [
            (start, min(start + count * attention.block, len(tokens)))
            for start, count in ((attention.query_start, rows), (attention.key_start, columns))
        ]
        self.ranges = (
            cells.edges(attention.query_start, rows, attention.block),
            cells.edges(attention.key_start, columns, attention.block),
        )
        always = [[*marks, *([chosen] if selected else [])] for chosen in selected or (0, 0)]
        # Margins need the labels, labels the axis length: one guess is near enough for both.
        guess = [max(size[1] - TOP - 90, 40), max(size[0] - RIGHT - 90, 40)]
        self.ticks = [
            theme.tick_positions(*extent, px, keep)
            for extent, px, keep in zip(extents, guess, always, strict=True)
        ]
        self.labels = [
            [theme.tick_label(p, tokens.pieces[p], numbering_from) for p in ticks] for ticks in self.ticks
        ]
        left, bottom = (round(theme.text_px(labels)) + 14 + AXIS_TITLE for labels in self.labels)
        self.margin = {"l": left, "b": bottom, "t": TOP, "r": RIGHT, "pad": 0, "autoexpand": False}
        self.plot_px = (max(size[0] - left - RIGHT, 1), max(size[1] - TOP - bottom, 1))
        self.cell_px = min(self.plot_px[0] / max(columns, 1), self.plot_px[1] / max(rows, 1))

    def coarse_hover(self, attention: AttentionMap) -> str:
        """Hover of the cells themselves, used where there are too many for click targets."""
        where = hover.BLOCKS if attention.block > 1 else hover.WHERE
        return f"{where}<br>{hover.value_line(attention)}<extra></extra>"

    def apply(self, figure: go.Figure, attention: AttentionMap, tokens: Tokens, numbering_from: int) -> None:
        """Axes, margins, title."""
        rows, columns = attention.values.shape
        block = attention.block
        starts = {"y": (attention.query_start, rows), "x": (attention.key_start, columns)}
        spans = {"y": self.ranges[0][::-1], "x": self.ranges[1]}
        for index, name in enumerate(("y", "x")):
            names = hover.aliases(tokens, *starts[name], block, numbering_from)
            data = theme.axis(
                range=spans[name],
                labelalias=names,
                hoverformat=hover.number_format(block),
                showticklabels=False,
                ticks="",
                minallowed=self.ranges[index][0],
                maxallowed=self.ranges[index][1],
            )
            shown = theme.axis(
                range=spans[name],
                overlaying=name,
                matches=name,
                tickvals=self.ticks[index],
                ticktext=self.labels[index],
                tickangle=0 if name == "y" else -90,
                title={"text": "query" if name == "y" else "key", "standoff": 4, "font": {"size": 12}},
                side="left" if name == "y" else "bottom",
            )
            figure.update_layout({f"{name}axis": data, f"{name}axis2": shown})
        # The visible axes exist only while something is drawn on them.
        figure.add_trace(go.Scatter(x=[None], y=[None], xaxis="x2", yaxis="y2", hoverinfo="skip"))
        figure.update_layout(
            margin=self.margin,
            hoverdistance=max(2, round(self.cell_px)),
            title=_title(map_title(attention, numbering_from)),
        )


def map_title(attention: AttentionMap, numbering_from: int = 0) -> str:
    """Which map this is, with its unit, e.g. `L2 H1 · after key-query conv (score)`."""
    info = attention.stage.value
    where = f"L{attention.layer + numbering_from} H{attention.head + numbering_from}"
    pooled = f" · {attention.block} x {attention.block} blocks" if attention.block > 1 else ""
    return f"{where} · {info.long} ({info.unit}){pooled}"


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 13}, "x": 0.01, "xanchor": "left", "y": 0.99, "yanchor": "top"}


def _add_masked(figure: go.Figure, attention: AttentionMap, *, clickable: bool) -> None:
    told = {} if clickable else {"hoveron": "fills", "hoverinfo": "text", "text": "masked: key after query"}
    if (polygon := cells.future(attention, **told)) is not None:
        figure.add_trace(polygon)


def _add_targets(
    figure: go.Figure,
    attention: AttentionMap,
    before: AttentionMap | None,
    cell_px: float,
    numbering_from: int,
) -> None:
    text, numbers = hover.cell_text(attention, before, numbering_from)
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
