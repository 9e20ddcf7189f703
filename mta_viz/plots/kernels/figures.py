"""The paper's figures of kernels, ready to print: on white, at their true size, no text below 7 pt.

Owns how they look; what stands under them is `paper_captions.py`'s.

What stands under the paper's figures: what is drawn, on which scale, and what could not be drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.kernels.figures import (
    KernelBesideMap,
    LayerPicture,
    MixingByLayer,
    MixingMeans,
    MixingOverLayers,
)
from mta_viz.analysis.kernels.kernels import WHERE
from mta_viz.plots import cells, theme
from mta_viz.plots.kernels.card import add_crosses, add_frames, tap_cells
from mta_viz.plots.kernels.gallery import Look, Sheet, Tile, common_limit, gallery
from mta_viz.plots.kernels.mosaic import Mosaic, Room, key_title, offset_ticks, tap_limit
from mta_viz.plots.parts import Parts
from mta_viz.plots.theme import limit_text, score_text

Width = Literal["column", "page"]
Bars = Literal["diagonal", "ratio"]
WIDTH_MM: dict[Width, int] = {"column": 84, "page": 174}  # one column of two, and both
PX_PER_MM = 96 / 25.4
SANS = "Arial, Helvetica, Liberation Sans, DejaVu Sans, sans-serif"
WITH_KERNELS, WITHOUT_KERNELS = "#E69F00", "#0072B2"
_PRINT = Room(
    left=66, right=6, top=36, bottom=36, heading=16, cell=(8.0, 26.0), columns=4, bar=190, told=False
)
_TITLE_PX, _AXIS_PX, _BAR_TOP, _SHORTEST_BAR_PX = 11, 10, 46, 130
_MIX_CELL_PX, _MIX_WORDS_PX = (8.0, 24.0), 18
_MAX_SIDE_PX = 480


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
    return round(WIDTH_MM[width] * PX_PER_MM)


def layer_figure(picture: LayerPicture, *, width: Width = "page", numbering_from: int = 0) -> go.Figure:
    """The kernels of one layer, a panel a head, on one colour scale."""
    headings = [
        f"L{picture.layer + numbering_from} H{head + numbering_from}{_paper_figures_broken(taps)}"
        for head, taps in enumerate(picture.taps)
    ]
    mosaic = Mosaic(
        picture.taps,
        picture.offsets,
        own_scale=False,
        width=width_px(width),
        numbering_from=numbering_from,
        headings=headings,
        room=_PRINT,
    )
    return _for_print(mosaic.figure(""))


def kernel_map_figure(found: KernelBesideMap, *, width: Width = "page", numbering_from: int = 0) -> go.Figure:
    """The kernel, and beside it (under it in one column) its map over the chosen queries and keys."""
    wide = width_px(width)
    kernel, attention, size = _placed(found, wide, stacked=width == "column")
    parts = Parts(size, {"l": 0, "r": 0, "t": 0, "b": 0})
    _add_kernel(parts, found, kernel)
    _add_map(parts, found, attention)
    head = f"L{found.kernel.layer + numbering_from} H{found.kernel.head + numbering_from}"
    stage = found.attention.stage.value
    _add_text(parts, f"<b>{head}</b> kernel", kernel.left, kernel.top - _BAR_TOP)
    _add_text(parts, f"<b>{head}</b> {stage.long} ({stage.unit})", attention.left, attention.top - _BAR_TOP)
    return _for_print(parts.figure())


def mixing_figure(stack: MixingOverLayers, *, width: Width = "page", numbering_from: int = 0) -> go.Figure:
    """The head-mixing matrices, a panel a layer, or a row of panels where heads are mixed in groups."""
    n_groups, size = stack.matrices.shape[1], stack.matrices.shape[2]
    rows = [
        [_paper_figures_tile(f"L{layer + numbering_from}", matrix) for matrix in groups]
        for layer, groups in zip(stack.layers, stack.matrices, strict=True)
    ]
    if n_groups == 1:
        sheet = Sheet.reading([row[0] for row in rows], width=width_px(width))
    else:
        names = [_heads(group * size + numbering_from, size) for group in range(n_groups)]
        layers = [row[0].name for row in rows]
        sheet = Sheet(rows, layers, names, width=width_px(width), cell_range=_MIX_CELL_PX)
    heads = _heads(numbering_from, size) if n_groups == 1 else "of the group"
    figure = gallery(sheet, Look(hide_own=False), common_limit(sheet.tiles))
    figure.update_layout(
        height=figure.layout.height + _MIX_WORDS_PX, margin_b=figure.layout.margin.b + _MIX_WORDS_PX
    )
    figure.add_annotation(
        text=f"rows: target heads {heads}, columns: source heads", showarrow=False, font_size=_AXIS_PX,
        xref="paper", yref="paper", x=0, y=0, xanchor="left", yanchor="top", yshift=-2,
    )  # fmt: skip
    return _for_print(figure)


def bars_figure(
    found: MixingByLayer, what: Bars, *, width: Width = "page", numbering_from: int = 0
) -> go.Figure:
    """A bar a layer, a plot for each place that mixes heads; layers with key-query kernels stand out."""
    wide, stacked = width_px(width), width == "column"
    across, down = (1, len(found.places)) if stacked else (len(found.places), 1)
    plot, high = wide / across - 58, 120
    parts = Parts((wide, down * (high + 62) + 20), {"l": 0, "r": 0, "t": 0, "b": 0})
    for place, means in enumerate(found.places):
        row, column = (place, 0) if stacked else (0, place)
        box = _Box(50 + column * wide / across, 42.0 + row * (high + 62), plot, float(high))
        suffix = str(place + 1) if place else ""
        _add_bars(parts, found, means, what, suffix, numbering_from)
        _add_bar_axes(parts, box, suffix, len(found.key_query), numbering_from)
        _add_text(parts, f"<b>{WHERE[means.where]}</b>", box.left, box.top - 18)
        title = "mean |diagonal|" if what == "diagonal" else "|off-diagonal| / |diagonal|"
        _add_text(parts, title, box.left - 48, box.top + high / 2, textangle=-90, yanchor="middle")
    legend = {"orientation": "h", "x": 0, "y": 1, "xanchor": "left", "yanchor": "top"}
    parts.layout |= {"showlegend": True, "bargap": 0.25, "barmode": "overlay"}
    parts.layout["legend"] = legend | {"font": {"size": _AXIS_PX}, "bgcolor": "rgba(0,0,0,0)"}
    return _for_print(parts.figure())


def _for_print(figure: go.Figure) -> go.Figure:
    return figure.update_layout(paper_bgcolor="white", font={"family": SANS, "color": theme.INK})


def _paper_figures_broken(values: np.ndarray) -> str:
    n_bad = int((~np.isfinite(values)).sum())
    if n_bad:
        return f" NaN x {n_bad}"
    return "" if values.any() else " all 0"


def _add_text(parts: Parts, text: str, left: float, top: float, **more: object) -> None:
    """Words whose top left corner is that many pixels from the figure's."""
    corner = {"x": left / parts.size[0], "y": 1 - top / parts.size[1], "xanchor": "left", "yanchor": "top"}
    paper = {"xref": "paper", "yref": "paper", "showarrow": False, "font": {"size": _TITLE_PX}}
    parts.annotations.append({"text": text, **paper, **corner, **more})


def _placed(found: KernelBesideMap, wide: int, *, stacked: bool) -> tuple[_Box, _Box, tuple[int, int]]:
    """The boxes of kernel and map, and the figure's size."""
    (c_q, c_k), (rows, columns) = found.taps.shape, found.attention.values.shape
    kernel_room = wide - 56 if stacked else 0.36 * wide - 50
    tap = min(kernel_room / c_k, _MAX_SIDE_PX / c_q, 22.0)
    kernel = _Box(46.0, _BAR_TOP + 4.0, c_k * tap, c_q * tap)
    labels = 12.0 + max(theme.text_px(_labels(found, span).values()) for span in (found.rows, found.keys))
    left = labels if stacked else 0.36 * wide + labels
    top = kernel.top + kernel.height + 46 + _BAR_TOP if stacked else kernel.top
    cell = min((wide - left - 8) / columns, _MAX_SIDE_PX / rows, 22.0)
    attention = _Box(left, top, columns * cell, rows * cell)
    bottom = 4 + max(kernel.top + kernel.height + 46, attention.top + attention.height + labels)
    return kernel, attention, (wide, round(bottom))


def _add_kernel(parts: Parts, found: KernelBesideMap, box: _Box) -> None:
    offsets, (c_q, c_k) = found.offsets, found.taps.shape
    trace = tap_cells(found.taps, offsets, numbers=False)
    parts.traces.append(trace.update(colorbar=box.bar(parts.size), textfont=None))
    add_crosses(parts, found.taps, offsets)
    add_frames(parts, offsets)
    keys, queries = offset_ticks(offsets, box.width / c_k, box.height / c_q)
    names = {query: "0" if query == 0 else name for query, name in queries.items()}
    x = {"range": (offsets.key[0] - 0.5, offsets.key[-1] + 0.5)}
    y = {"range": (0.5, offsets.query[0] - 0.5)}
    box.add_to(parts, "", x | _ticks(keys), y | _ticks(names))
    below = {"font": {"size": _AXIS_PX}}
    _add_text(parts, key_title(offsets), box.left, box.top + box.height + 20, **below)
    middle = box.top + box.height / 2
    _add_text(parts, "query offset", 2.0, middle, textangle=-90, yanchor="middle", **below)


def _add_map(parts: Parts, found: KernelBesideMap, box: _Box) -> None:
    attention = found.attention
    limit = shared_limit([attention])
    below, above = cells.beyond(attention, limit)
    bar = theme.color_bar(limit, signed=not attention.distribution, above=above, below=below)
    axes, rows = {"xaxis": "x2", "yaxis": "y2"}, attention.values.shape[0]
    where = "query %{y}, key %{x}<br>%{z:+.4g}<extra></extra>"
    parts.traces.append(
        cells.heatmap(attention, limit, colorbar=bar | box.bar(parts.size), hovertemplate=where, **axes)
    )
    marks = (cells.future(attention, **axes), cells.bad_cells(attention, box.height / rows))
    parts.traces += [mark.update(**axes) for mark in marks if mark is not None]
    sides = []
    for span, px in ((found.keys, box.width), (found.rows, box.height)):
        shown = theme.tick_positions(span.start, span.stop, round(px))
        named = _labels(found, span)
        sides.append({"range": (span.start - 0.5, span.stop - 0.5)} | _ticks({at: named[at] for at in shown}))
    sides[0]["tickangle"] = -90
    sides[1]["range"] = (found.rows.stop - 0.5, found.rows.start - 0.5)
    box.add_to(parts, "2", *sides)


def _labels(found: KernelBesideMap, span: Span) -> dict[int, str]:
    return {at: theme.tick_label(at, found.tokens.pieces[at]) for at in span.positions}


def _ticks(names: dict[int, str]) -> dict[str, object]:
    return {"tickvals": list(names), "ticktext": list(names.values())}


def _paper_figures_tile(name: str, matrix: np.ndarray) -> Tile:
    own = tuple((head, head) for head in range(len(matrix)))
    return Tile(name + _paper_figures_broken(matrix), matrix, own, "", "", ())


def _heads(first: int, size: int) -> str:
    return f"H{first}" if size == 1 else f"H{first}–{first + size - 1}"


def bar_values(means: MixingMeans, what: Bars) -> np.ndarray:
    """What the bars show: sizes, whatever the signs."""
    return means.diagonal_size if what == "diagonal" else means.ratio


def _add_bars(
    parts: Parts, found: MixingByLayer, means: MixingMeans, what: Bars, suffix: str, numbering_from: int
) -> None:
    values, on = bar_values(means, what), {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    kinds = ((True, WITH_KERNELS, "layer with key-query kernels"), (False, WITHOUT_KERNELS, "without"))
    for has, color, name in kinds:
        layers = [layer for layer, there in enumerate(found.key_query) if there is has]
        if layers:
            marker = {"color": color, "line": {"color": theme.INK, "width": 0.75}}
            hover = [f"L{layer + numbering_from}: {values[layer]:.4g}" for layer in layers]
            parts.traces.append(
                go.Bar(
                    x=layers, y=values[layers], name=name, showlegend=not suffix, marker=marker,
                    hovertext=hover, hovertemplate="%{hovertext}<extra></extra>", **on,
                )
            )  # fmt: skip
    bad = np.flatnonzero(~np.isfinite(values)).tolist()
    if bad:
        cross = {"symbol": "x", "color": theme.BAD_COLOR, "size": 8}
        shown = {"name": "not a number", "showlegend": not suffix, "hoverinfo": "skip", "cliponaxis": False}
        parts.traces.append(go.Scatter(x=bad, y=[0] * len(bad), mode="markers", marker=cross, **shown, **on))


def _add_bar_axes(parts: Parts, box: _Box, suffix: str, n_layers: int, numbering_from: int) -> None:
    shown = theme.tick_positions(0, n_layers, round(box.width / 2))
    names = {layer: f"L{layer + numbering_from}" for layer in shown}
    x = {"range": (-0.6, n_layers - 0.4)} | _ticks(names)
    box.add_to(parts, suffix, x, {"rangemode": "tozero", "nticks": 6})


OWN_BEYOND = "from what is not framed; beyond them the end colours"


def layer_caption(picture: LayerPicture, model: str, numbering_from: int = 0) -> str:
    """Of `layer_figure`."""
    n_heads, c_q, c_k = picture.taps.shape
    own = picture.taps[:, picture.offsets.own[0], picture.offsets.own[1]]
    told = (
        f"Key-query kernels {WHERE[picture.where]} of {model}, layer {picture.layer + numbering_from}: "
        f"{_count(n_heads, 'head')}, {c_q} queries x {c_k} keys. Rows: query offset, 0 (now) at the bottom; "
        "columns: key offset. Framed: the own tap"
    )
    if np.isfinite(own).any():
        told += (
            f", {score_text(float(np.nanmin(_finite(own))))} to {score_text(float(np.nanmax(_finite(own))))}"
        )
    limit = limit_text(tap_limit(picture.taps, picture.offsets.own))
    heads = [f"head {head + numbering_from}" for head in range(n_heads)]
    bad = _broken(picture.taps, heads)
    return f"{told}. Colour limits ±{limit}, {OWN_BEYOND}.{bad}{_counting(numbering_from)}"


def kernel_map_caption(found: KernelBesideMap, model: str, numbering_from: int = 0) -> str:
    """Of `kernel_map_figure`."""
    where, stage = WHERE[found.kernel.where], found.attention.stage.value
    layer, head = found.kernel.layer + numbering_from, found.kernel.head + numbering_from
    limits = (
        f"±{limit_text(tap_limit(found.taps[None], found.offsets.own))} for the taps ({OWN_BEYOND}), "
        f"±{limit_text(shared_limit([found.attention]))} for the map"
    )
    bad = _broken(found.taps[None], [f"head {head}"])
    if found.attention.n_bad:
        bad += f" Crosses: {_count(found.attention.n_bad, 'cell')} of the map not a number."
    return (
        f"Kernel of layer {layer}, head {head} of {model}, {where}, and the map it makes: {stage.long} "
        f"({stage.unit}), rows: “{_text(found, found.rows.positions)}”, "
        f"columns: “{_text(found, found.keys.positions)}”, in a prompt of {len(found.tokens)} tokens. "
        f"Colour limits {limits}.{bad}{_counting(numbering_from)}"
    )


def mixing_caption(stack: MixingOverLayers, model: str, numbering_from: int = 0) -> str:
    """Of `mixing_figure`."""
    _, n_groups, size, _ = stack.matrices.shape
    panels = "a layer" if n_groups == 1 else f"a layer (down) and group of {size} heads (across)"
    limit = limit_text(common_limit(_tile(matrix) for groups in stack.matrices for matrix in groups))
    layers = [f"layer {layer + numbering_from}" for layer in stack.layers]
    return (
        f"Head-mixing kernels {WHERE[stack.where]} of {model}: one panel {panels}. Rows: target heads, "
        "columns: the source heads they take from; framed: a head's weight on itself. "
        f"Colour limits ±{limit}, {OWN_BEYOND}."
        f"{_broken(stack.matrices, layers)}{_counting(numbering_from)}"
    )


def bars_caption(found: MixingByLayer, what: Bars, model: str, numbering_from: int = 0) -> str:
    """Of `bars_figure`."""
    if what == "diagonal":
        told = "Mean size |w| of the diagonal of the head-mixing kernels"
    else:
        told = (
            "Mean size |w| of the off-diagonal over the mean size of the diagonal of the head-mixing kernels"
        )
    n_with = sum(found.key_query)
    marked = "" if n_with == 0 else " Orange: layers with key-query kernels."
    places = " and ".join(WHERE[means.where] for means in found.places)
    bad = "".join(_missing(means, what, numbering_from) for means in found.places)
    return f"{told} of {model} by layer, {places}.{marked}{bad}{_counting(numbering_from)}"


def _missing(means: MixingMeans, what: Bars, numbering_from: int) -> str:
    values = bar_values(means, what)
    bad = [layer for layer in range(len(values)) if not np.isfinite(values[layer])]
    if not bad:
        return ""
    reasons = [
        f"layer {layer + numbering_from} "
        + (f"(NaN in {_count(means.n_bad[layer], 'weight')})" if means.n_bad[layer] else "(diagonal is 0)")
        for layer in bad
    ]
    return f" Without a number {WHERE[means.where]}: {', '.join(reasons)}."


def _broken(stack: np.ndarray, names: Sequence[str]) -> str:
    """Which parts of a stack, along its first axis, hold NaN, or nothing but 0."""
    counts = (~np.isfinite(stack)).reshape(len(stack), -1).sum(1)
    told = [f"{name} ({_count(int(n), 'value')})" for name, n in zip(names, counts, strict=True) if n]
    zero = [name for name, part in zip(names, stack, strict=True) if not part.any()]
    return (f" Crosses: NaN or infinite in {', '.join(told)}." if told else "") + (
        f" All 0: {', '.join(zero)}." if zero else ""
    )


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


def _text(found: KernelBesideMap, positions: range) -> str:
    tokens = found.tokens
    if tokens.text is None:
        return " ".join(tokens.pieces[at] for at in positions)
    return tokens.text[tokens.spans[positions.start][0] : tokens.spans[positions.stop - 1][1]].strip()


def _tile(matrix: np.ndarray) -> Tile:
    return Tile("", matrix, tuple((head, head) for head in range(len(matrix))), "", "", ())


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _counting(numbering_from: int) -> str:
    return f" Layers and heads count from {numbering_from}."
