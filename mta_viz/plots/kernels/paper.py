"""The paper's figures of kernels, ready to print: on white, at their true size, no text below 7 pt.

Beside them the mixing matrix of one layer as the screen shows it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.kernel_map import KernelBesideMap
from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.kernels.kernels import WHERE, LayerKernelSet, LayerPicture
from mta_viz.analysis.kernels.mixing import MixingByLayer, MixingMeans, MixingOverLayers
from mta_viz.config import MixingPlace
from mta_viz.plots import cells, theme
from mta_viz.plots.kernels.card import add_taps
from mta_viz.plots.kernels.gallery import Look, Sheet, Tile, common_limit, gallery
from mta_viz.plots.kernels.mosaic import Mosaic, Room, fault_words, key_title, offset_ticks, scale_limit
from mta_viz.plots.parts import Parts
from mta_viz.printed import head_name

Width = Literal["column", "page"]
Bars = Literal["diagonal", "ratio"]
WIDTH_MM: dict[Width, int] = {"column": 84, "page": 174}  # one column of two, and both
SANS = "Arial, Helvetica, Liberation Sans, DejaVu Sans, sans-serif"
WITH_KERNELS, WITHOUT_KERNELS = "#E69F00", "#0072B2"
_PRINT = Room(
    left=66, right=6, top=36, bottom=36, heading=16, cell=(8.0, 26.0), columns=4, bar=190, later_words=False
)
_TITLE_PX, _AXIS_PX, _BAR_TOP, _SHORTEST_BAR_PX = 11, 10, 46, 130
_MIX_CELL_PX, _MIX_WORDS_PX = (8.0, 24.0), 18
_MAX_SIDE_PX = 480
MATRIX_SIZE = (412, 412)
_NUMBER_PX = 30  # of a cell that has room for its number
_MATRIX_LEFT, _MATRIX_RIGHT, _MATRIX_TOP, _MATRIX_BOTTOM = 64, 14, 64, 50


@dataclass(frozen=True)
class _Box:
    """Where a plot lies on a figure without margins, in pixels from the top left."""

    left: float
    top: float
    width: float
    height: float

    def add_to(self, parts: Parts, suffix: str, x: dict[str, object], y: dict[str, object]) -> None:
        """Lay the axes `x{suffix}` and `y{suffix}` there."""
        wide, high = parts.size
        across = (self.left / wide, (self.left + self.width) / wide)
        down = (1 - (self.top + self.height) / high, 1 - self.top / high)
        parts.layout |= {
            f"xaxis{suffix}": theme.axis(domain=across, anchor=f"y{suffix}", fixedrange=True) | x,
            f"yaxis{suffix}": theme.axis(domain=down, anchor=f"x{suffix}", fixedrange=True) | y,
        }

    def bar(self, size: tuple[int, int]) -> dict[str, object]:
        """A colour bar's place over it."""
        corner = {"x": self.left / size[0], "xanchor": "left", "xpad": 16, "y": 1 - self.top / size[1]}
        length = max(round(0.8 * self.width), _SHORTEST_BAR_PX)
        return corner | {"len": length, "lenmode": "pixels", "ypad": 4}


def width_px(width: Width) -> int:
    """The figure's width in CSS pixels, 96 to the inch."""
    return round(WIDTH_MM[width] * theme.PX_PER_MM)


def layer_figure(picture: LayerPicture, *, width: Width = "page", numbering: int = 0) -> go.Figure:
    """The kernels of one layer, a panel a head, on one colour scale."""
    headings = [
        f"{head_name(picture.layer, head, numbering)} {fault_words(taps)}".rstrip()
        for head, taps in enumerate(picture.taps)
    ]
    look: dict[str, Any] = {"numbering": numbering, "headings": headings, "room": _PRINT}
    mosaic = Mosaic(picture.taps, picture.offsets, own_scale=False, width=width_px(width), **look)
    return _for_print(mosaic.figure(""))


def kernel_map_figure(result: KernelBesideMap, *, width: Width = "page", numbering: int = 0) -> go.Figure:
    """The kernel, and beside it (under it in one column) its map over the chosen queries and keys."""
    wide = width_px(width)
    kernel, attention, size = _placed(result, wide, stacked=width == "column")
    parts = Parts(size, {"l": 0, "r": 0, "t": 0, "b": 0})
    _add_kernel(parts, result, kernel)
    _add_map(parts, result, attention)
    head = head_name(result.kernel.layer, result.kernel.head, numbering)
    stage = result.attention.stage.value
    _add_text(parts, f"<b>{head}</b> kernel", kernel.left, kernel.top - _BAR_TOP)
    _add_text(parts, f"<b>{head}</b> {stage.long} ({stage.unit})", attention.left, attention.top - _BAR_TOP)
    return _for_print(parts.figure())


def mixing_figure(stack: MixingOverLayers, *, width: Width = "page", numbering: int = 0) -> go.Figure:
    """The head-mixing matrices, a panel a layer, or a row of panels where heads are mixed in groups."""
    n_groups, size = stack.matrices.shape[1], stack.matrices.shape[2]
    rows = [
        [matrix_tile(f"L{layer + numbering}", matrix) for matrix in groups]
        for layer, groups in zip(stack.layers, stack.matrices, strict=True)
    ]
    if n_groups == 1:
        sheet = Sheet.reading({"": [row[0] for row in rows]}, width=width_px(width))
    else:
        names = [_heads(group * size + numbering, size) for group in range(n_groups)]
        layers = [row[0].name for row in rows]
        sheet = Sheet(rows, layers, names, width=width_px(width), cell_range=_MIX_CELL_PX)
    heads = _heads(numbering, size) if n_groups == 1 else "of the group"
    figure = gallery(sheet, Look(hide_own=False), common_limit(sheet.tiles))
    figure.update_layout(
        height=figure.layout.height + _MIX_WORDS_PX, margin_b=figure.layout.margin.b + _MIX_WORDS_PX
    )
    figure.add_annotation(
        text=f"rows: target heads {heads}, columns: source heads", showarrow=False, font_size=_AXIS_PX,
        xref="paper", yref="paper", x=0, y=0, xanchor="left", yanchor="top", yshift=-2,
    )  # fmt: skip
    return _for_print(figure)


def bars_figure(result: MixingByLayer, what: Bars, *, width: Width = "page", numbering: int = 0) -> go.Figure:
    """A bar a layer, a plot for each place that mixes heads; layers with key-query kernels stand out."""
    wide, stacked = width_px(width), width == "column"
    across, down = (1, len(result.places)) if stacked else (len(result.places), 1)
    plot, high = wide / across - 58, 120
    parts = Parts((wide, down * (high + 62) + 20), {"l": 0, "r": 0, "t": 0, "b": 0})
    for place, means in enumerate(result.places):
        row, column = (place, 0) if stacked else (0, place)
        box = _Box(50 + column * wide / across, 42.0 + row * (high + 62), plot, float(high))
        suffix = str(place + 1) if place else ""
        _add_bars(parts, result, means, what, suffix, numbering)
        n_layers = len(result.key_query)
        shown = theme.tick_positions(0, n_layers, round(plot / 2))
        names = theme.ticks({layer: f"L{layer + numbering}" for layer in shown})
        box.add_to(
            parts, suffix, {"range": (-0.6, n_layers - 0.4)} | names, {"rangemode": "tozero", "nticks": 6}
        )
        _add_text(parts, f"<b>{WHERE[means.where]}</b>", box.left, box.top - 18)
        title = "mean |diagonal|" if what == "diagonal" else "|off-diagonal| / |diagonal|"
        _add_text(parts, title, box.left - 48, box.top + high / 2, textangle=-90, yanchor="middle")
    legend = {"orientation": "h", "x": 0, "y": 1, "xanchor": "left", "yanchor": "top"}
    parts.layout |= {"showlegend": True, "bargap": 0.25, "barmode": "overlay"}
    parts.layout["legend"] = legend | {"font": {"size": _AXIS_PX}, "bgcolor": "rgba(0,0,0,0)"}
    return _for_print(parts.figure())


def _for_print(figure: go.Figure) -> go.Figure:
    return figure.update_layout(paper_bgcolor="white", font={"family": SANS, "color": theme.INK})


def _add_text(
    parts: Parts, text: str, left: float, top: float, *, size: int = _TITLE_PX, **more: object
) -> None:
    """Words whose top left corner is that many pixels from the figure's."""
    corner = {"x": left / parts.size[0], "y": 1 - top / parts.size[1], "xanchor": "left", "yanchor": "top"}
    parts.add_words(text, size, **(corner | more))


def _placed(result: KernelBesideMap, wide: int, *, stacked: bool) -> tuple[_Box, _Box, tuple[int, int]]:
    (c_q, c_k), (rows, columns) = result.taps.shape, result.attention.values.shape
    kernel_room = wide - 56 if stacked else 0.36 * wide - 50
    tap = min(kernel_room / c_k, _MAX_SIDE_PX / c_q, 22.0)
    kernel = _Box(46.0, _BAR_TOP + 4.0, c_k * tap, c_q * tap)
    labels = 12.0 + max(theme.text_px(_labels(result, span).values()) for span in (result.rows, result.keys))
    left = labels if stacked else 0.36 * wide + labels
    top = kernel.top + kernel.height + 46 + _BAR_TOP if stacked else kernel.top
    cell = min((wide - left - 8) / columns, _MAX_SIDE_PX / rows, 22.0)
    attention = _Box(left, top, columns * cell, rows * cell)
    bottom = 4 + max(kernel.top + kernel.height + 46, attention.top + attention.height + labels)
    return kernel, attention, (wide, round(bottom))


def _add_kernel(parts: Parts, result: KernelBesideMap, box: _Box) -> None:
    offsets, (c_q, c_k) = result.offsets, result.taps.shape
    add_taps(parts, result.taps, result.taps, offsets, numbers=False, **box.bar(parts.size))
    keys, queries = offset_ticks(offsets, box.width / c_k, box.height / c_q)
    x = {"range": (offsets.key[0] - 0.5, offsets.key[-1] + 0.5)}
    y = {"range": (0.5, offsets.query[0] - 0.5)}
    box.add_to(parts, "", x | theme.ticks(keys), y | theme.ticks(queries))
    _add_text(parts, key_title(offsets), box.left, box.top + box.height + 20, size=_AXIS_PX)
    beside: dict[str, Any] = {"size": _AXIS_PX, "textangle": -90, "yanchor": "middle"}
    _add_text(parts, "query offset", 2.0, box.top + box.height / 2, **beside)


def _add_map(parts: Parts, result: KernelBesideMap, box: _Box) -> None:
    attention = result.attention
    limit = shared_limit([attention])
    axes, rows = {"xaxis": "x2", "yaxis": "y2"}, attention.values.shape[0]
    colored = cells.heatmap(
        attention,
        limit,
        colorbar=cells.color_bar(attention, limit) | box.bar(parts.size),
        hovertemplate="query %{y}, key %{x}<br>%{z:+.4g}<extra></extra>",
    )
    marks = [*cells.future(attention), *cells.bad_cells(attention, box.height / rows)]
    parts.traces += [trace.update(**axes) for trace in (colored, *marks)]
    sides = []
    for span, px in ((result.keys, box.width), (result.rows, box.height)):
        shown = theme.tick_positions(span.start, span.stop, round(px))
        named = _labels(result, span)
        sides.append(
            {"range": (span.start - 0.5, span.stop - 0.5)} | theme.ticks({at: named[at] for at in shown})
        )
    sides[0]["tickangle"] = -90
    sides[1]["range"] = (result.rows.stop - 0.5, result.rows.start - 0.5)
    box.add_to(parts, "2", *sides)


def _labels(result: KernelBesideMap, span: Span) -> dict[int, str]:
    return {at: theme.tick_label(at, result.tokens.pieces[at]) for at in span.positions}


def matrix_tile(name: str, matrix: np.ndarray) -> Tile:
    """A mixing matrix [target, source] as a panel, own weights framed, with what is broken in it."""
    own = tuple((head, head) for head in range(len(matrix)))
    return Tile(f"{name} {fault_words(matrix)}".rstrip(), matrix, own, "", "", ())


def _heads(first: int, size: int) -> str:
    return f"H{first}" if size == 1 else f"H{first}–{first + size - 1}"


def bar_values(means: MixingMeans, what: Bars) -> np.ndarray:
    """What the bars show: sizes, whatever the signs."""
    return means.diagonal_size if what == "diagonal" else means.ratio


def _add_bars(
    parts: Parts, result: MixingByLayer, means: MixingMeans, what: Bars, suffix: str, numbering: int
) -> None:
    values, on = bar_values(means, what), {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    kinds = ((True, WITH_KERNELS, "layer with key-query kernels"), (False, WITHOUT_KERNELS, "without"))
    for has, color, name in kinds:
        layers = [layer for layer, there in enumerate(result.key_query) if there is has]
        if layers:
            marker = {"color": color, "line": {"color": theme.INK, "width": 0.75}}
            hover = [f"L{layer + numbering}: {values[layer]:.4g}" for layer in layers]
            look = {"name": name, "showlegend": not suffix, "marker": marker, **theme.hover(hover)}
            parts.traces.append(go.Bar(x=layers, y=values[layers], **look, **on))
    bad = np.flatnonzero(~np.isfinite(values)).tolist()
    shown = {"name": "not a number", "showlegend": not suffix, "cliponaxis": False}
    parts.traces += cells.crosses(bad, [0] * len(bad), 8, **shown, **on)


def head_mixing(kernels: LayerKernelSet, where: MixingPlace, layer: int, *, numbering: int = 0) -> go.Figure:
    """The mixing matrix: rows are target heads, columns source heads; groups are blocks.

    The colour limit comes from the weights on other heads; own weights (framed) may lie beyond.
    """
    mixing = kernels.mixing(where)
    weights, n_groups = full_matrix(mixing.numpy()), mixing.shape[0]
    parts = Parts(MATRIX_SIZE, {"l": _MATRIX_LEFT, "r": _MATRIX_RIGHT, "t": _MATRIX_TOP, "b": _MATRIX_BOTTOM})
    cell_px = (MATRIX_SIZE[0] - _MATRIX_LEFT - _MATRIX_RIGHT) / len(weights)
    parts.traces.append(_weights(weights, numbering, numbers=cell_px >= _NUMBER_PX))
    _add_groups(parts, weights, n_groups)
    names = [f"H{head + numbering}" for head in range(len(weights))]
    parts.layout |= {"xaxis": theme.listed(names), "yaxis": theme.listed(names, down=True)}
    title = f"L{layer + numbering} head mixing {WHERE[where]}"
    return parts.figure(title, "source head", "target head (what it receives)")


def full_matrix(mixing: Float[np.ndarray, "group target source"]) -> Float[np.ndarray, "head head"]:
    """One matrix over all heads, 0 between groups."""
    from scipy.linalg import block_diag  # slow to import, and few figures need it

    return block_diag(*mixing).astype(np.float32)


def _weights(weights: Float[np.ndarray, "head head"], numbering: int, *, numbers: bool) -> go.Heatmap:
    finite = np.where(np.isfinite(weights), weights, 0.0)
    limit = scale_limit([(finite, finite * (1 - np.eye(len(weights))))])
    hovers = [
        [
            f"target head {target} keeps {own:+.4g} x itself"
            if target == source
            else f"target head {target} takes {weight:+.4g} x source head {source}<br>own weight {own:+.4g}"
            for source, weight in enumerate(row.tolist(), numbering)
        ]
        for target, (row, own) in enumerate(zip(weights, weights.diagonal(), strict=True), numbering)
    ]
    return cells.grid(
        weights,
        limit,
        colorbar=theme.color_bar(limit, signed=True, values=finite),
        texttemplate="%{z:+.2f}" if numbers else None,
        textfont={"size": 10},
        **theme.hover(hovers),
    )


def _add_groups(parts: Parts, weights: np.ndarray, n_groups: int) -> None:
    heads, step = len(weights), len(weights) // n_groups
    starts = range(0, heads, step)
    sides = [(start, *side) for start in starts for side in ((0, start), (start + step, heads))]
    unmixed = [(start, left, step, right - left) for start, left, right in sides if left < right]
    rows, columns = np.nonzero(~np.isfinite(weights))
    parts.traces += [*cells.hatched_boxes(unmixed), *cells.crosses(columns, rows, 8)]
    for start in starts:
        parts.add_box((start, start), (step, step), color=theme.FRAME, width=1)
    for head in range(heads):
        parts.add_box((head, head), color=theme.INK, width=2)
