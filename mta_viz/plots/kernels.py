"""The kernels of a layer: key-query kernels as a mosaic of heads, head mixing as one matrix.

Time runs down in a kernel as in the maps: the earliest query on top, the current one at the bottom.
"""

import math
from typing import Literal

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.kernels import LayerKernelSet, MixPlace, Offsets, Place
from mta_viz.analysis.maps import round_up
from mta_viz.plots import cells, theme

Scale = Literal["shared", "own"]
PLACES = {
    "pre": "before the softmax",
    "post": "after the softmax",
    "head_pre": "head mixing before the softmax",
    "head_post": "head mixing after the softmax",
}
MAX_TILE_COLUMNS = 8
# A kernel whose other taps are dust would show the dust at full colour without a floor.
LIMIT_FLOOR = 0.01
_NUMBER_PX = 30
_GAP = 2.0
_WHERE_FUTURE = "Later keys are used only if they are not after the query they are read for."


def kernel_grid(
    kernels: LayerKernelSet,
    where: Place,
    *,
    scale: Scale = "shared",
    layer: int,
    numbering_from: int = 0,
    width: int = 940,
) -> go.Figure:
    """All heads' kernels of one place, one tile a head, axes in offsets; own taps are framed.

    The colour limit comes from the taps other than the own one, over all heads (`shared`) or for
    each head (`own`, printed over the tile). A layer without such kernels gives a figure saying so.
    """
    taps, offsets = kernels.taps(where), kernels.offsets(where)
    if taps is None or offsets is None:
        return _empty(f"L{layer + numbering_from} has no key-query kernel {PLACES[where]}", width)
    grid = _Grid(taps.numpy(), offsets, scale, width)
    figure = theme.style(go.Figure(), width, grid.height)
    figure.add_trace(grid.heatmap())
    grid.mark_bad(figure)
    for head in range(grid.n_heads):
        grid.decorate(figure, head, numbering_from)
    grid.axes(figure)
    figure.update_layout(title=_title(f"L{layer + numbering_from} key-query kernels {PLACES[where]}"))
    return figure


def tap_limit(taps: np.ndarray, own: tuple[int, int]) -> float:
    """A round colour limit for kernels [head, c_q, c_k] from the taps other than the own ones."""
    sizes = np.abs(np.where(np.isfinite(taps), taps, 0.0))
    others = sizes.copy()
    others[:, own[0], own[1]] = 0.0
    largest = float(others.max(initial=0.0))
    return round_up(max(largest, LIMIT_FLOOR * float(sizes.max(initial=0.0))))


class _Grid:
    """Where each head's tile lies, in cells, and what is drawn on it."""

    def __init__(self, taps: np.ndarray, offsets: Offsets, scale: Scale, width: int) -> None:
        self.taps, self.offsets, self.scale = taps, offsets, scale
        self.n_heads, self.c_q, self.c_k = taps.shape
        self.columns = min(self.n_heads, MAX_TILE_COLUMNS)
        self.rows = math.ceil(self.n_heads / self.columns)
        self.limits = [tap_limit(taps[head : head + 1], offsets.own) for head in range(self.n_heads)]
        if scale == "shared":
            self.limits = [tap_limit(taps, offsets.own)] * self.n_heads
        # Room for the tile's heading, in cells of this height.
        self.cell_px = min((width - 90) / (self.columns * (self.c_k + _GAP)), 34.0)
        self.heading = math.ceil(30 / self.cell_px) + 1
        self.span = (self.rows * (self.c_q + self.heading), self.columns * (self.c_k + _GAP))
        self.height = round(self.span[0] * self.cell_px + 62 + 84)
        self.width = width

    def origin(self, head: int) -> tuple[float, float]:
        """Coordinates (row, column) of a tile's top left cell."""
        row, column = divmod(head, self.columns)
        return row * (self.c_q + self.heading) + self.heading, column * (self.c_k + _GAP)

    def heatmap(self) -> go.Heatmap:
        """All tiles as one heat map: one trace is fast where a subplot a head is not."""
        shape = (int(self.span[0]), int(self.span[1]))
        z, text = np.full(shape, np.nan, np.float32), np.full(shape, "", object)
        for head in range(self.n_heads):
            row, column = map(int, self.origin(head))
            block = np.s_[row : row + self.c_q, column : column + self.c_k]
            taps = self.taps[head]
            z[block] = np.where(np.isfinite(taps), taps, np.nan) / self._unit(head)
            text[block] = [[self._hover(head, a, b) for b in range(self.c_k)] for a in range(self.c_q)]
        limit = self.limits[0] if self.scale == "shared" else 1.0
        return go.Heatmap(
            z=z,
            zmin=-limit,
            zmax=limit,
            colorscale=theme.SIGNED_SCALE,
            colorbar=self._bar(limit),
            hovertext=text,
            hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False,
        )

    def _unit(self, head: int) -> float:
        return 1.0 if self.scale == "shared" else self.limits[head]

    def _bar(self, limit: float) -> dict[str, object]:
        finite = np.where(np.isfinite(self.taps), self.taps, 0.0)
        above = any(finite[h].max() > self.limits[h] for h in range(self.n_heads))
        below = any(finite[h].min() < -self.limits[h] for h in range(self.n_heads))
        bar = theme.color_bar(limit, signed=True, above=above, below=below)
        if self.scale == "own":
            bar["ticktext"] = ["− own limit", "0", "+ own limit"]
        return bar | {"len": 300, "lenmode": "pixels", "x": 1.0, "xanchor": "right", "ypad": 14}

    def _hover(self, head: int, a: int, b: int) -> str:
        query, key, tap = self.offsets.query[a], self.offsets.key[b], float(self.taps[head, a, b])
        energy = np.square(self.taps[head], dtype=np.float64)
        share = energy[a, b] / energy.sum() if energy.sum() > 0 else 0.0
        reads = f"reads the query {_ago(query)} and the key {_ago(key)}"
        return f"tap {tap:+.4g}<br>{reads}<br>{share:.0%} of this kernel's energy"

    def mark_bad(self, figure: go.Figure) -> None:
        """Taps that are NaN or infinite, as crosses."""
        at = [(h, a, b) for h, a, b in np.argwhere(~np.isfinite(self.taps))]
        if not at:
            return
        origins = [self.origin(int(h)) for h, _, _ in at]
        figure.add_trace(
            go.Scatter(
                x=[column + b for (_, column), (_, _, b) in zip(origins, at, strict=True)],
                y=[row + a for (row, _), (_, a, _) in zip(origins, at, strict=True)],
                mode="markers",
                marker={"symbol": "x", "color": theme.BAD_COLOR, "size": 8},
                hovertemplate="NaN or infinite tap<extra></extra>",
            )
        )

    def decorate(self, figure: go.Figure, head: int, numbering_from: int) -> None:
        """Heading, outline, framed own tap, and the line between earlier and later keys."""
        row, column = self.origin(head)
        own_row, own_column = row + self.offsets.own[0], column + self.offsets.own[1]
        outline = {"type": "rect", "line": {"color": theme.FRAME, "width": 1}}
        figure.add_shape(
            x0=column - 0.5, x1=column + self.c_k - 0.5, y0=row - 0.5, y1=row + self.c_q - 0.5, **outline
        )
        figure.add_shape(
            type="rect",
            x0=own_column - 0.5,
            x1=own_column + 0.5,
            y0=own_row - 0.5,
            y1=own_row + 0.5,
            line={"color": theme.INK, "width": 2},
        )
        if self.offsets.key[0] < 0 < self.offsets.key[-1]:
            figure.add_shape(
                type="line",
                x0=own_column + 0.5,
                x1=own_column + 0.5,
                y0=row - 0.5,
                y1=row + self.c_q - 0.5,
                line={"color": theme.INK, "width": 1, "dash": "dot"},
            )
        figure.add_annotation(
            text=self._heading(head, numbering_from),
            x=column - 0.5,
            y=row - 0.5,
            xanchor="left",
            yanchor="bottom",
            align="left",
            showarrow=False,
            font={"size": 11},
            yshift=1,
        )

    def _heading(self, head: int, numbering_from: int) -> str:
        taps = self.taps[head]
        name = f"<b>H{head + numbering_from}</b>"
        if n_bad := int((~np.isfinite(taps)).sum()):
            return f"{name} NaN in {n_bad} taps"
        if not taps.any():
            return f"{name} all taps 0:<br>map erased here"
        limit = f" · ±{self.limits[head]:g}" if self.scale == "own" else ""
        return f"{name}{limit}<br>own tap {theme.score_text(float(taps[self.offsets.own]))}"

    def axes(self, figure: go.Figure) -> None:
        """Offsets under every tile column and beside every tile row."""
        hidden = {"showline": False, "mirror": False, "ticklen": 2}
        x = [
            (column * (self.c_k + _GAP) + b, f"{offset:+d}" if offset else "0")
            for column in range(self.columns)
            for b, offset in enumerate(self.offsets.key)
            if offset in _key_ticks(self.offsets.key, self.cell_px)
        ]
        y = [
            (self.origin(row * self.columns)[0] + a, "0 (now)" if offset == 0 else str(offset))
            for row in range(self.rows)
            for a, offset in enumerate(self.offsets.query)
            if self.cell_px >= 11 or offset in (0, self.offsets.query[0])
        ]
        figure.update_layout(
            xaxis=theme.axis(
                range=(-0.5, self.span[1] - 0.5),
                tickvals=[v for v, _ in x],
                ticktext=[t for _, t in x],
                title={"text": _key_title(self.offsets.key), "standoff": 6, "font": {"size": 12}},
                **hidden,
            ),
            yaxis=theme.axis(
                range=(self.span[0] - 0.5, -0.5),
                tickvals=[v for v, _ in y],
                ticktext=[t for _, t in y],
                title={"text": "query offset", "standoff": 4, "font": {"size": 12}},
                **hidden,
            ),
            margin={"l": 78, "r": 12, "t": 62, "b": 84, "autoexpand": False},
        )
        _crop_width(figure, self.span[1] * self.cell_px + 90)
        if self.offsets.key[-1] > 0:
            figure.add_annotation(
                text=_WHERE_FUTURE,
                x=0,
                y=0,
                xref="paper",
                yref="paper",
                xanchor="left",
                yanchor="top",
                yshift=-58,
                showarrow=False,
                font={"size": 11},
            )


def _crop_width(figure: go.Figure, wanted: float) -> None:
    """Keep cells square when few heads do not fill the width."""
    spare = figure.layout.width - wanted
    if spare > 0:
        figure.update_layout(margin_r=figure.layout.margin.r + spare)


def _ago(offset: int) -> str:
    if offset == 0:
        return "itself"
    return f"{-offset} before" if offset < 0 else f"{offset} after"


def _key_ticks(offsets: tuple[int, ...], cell_px: float) -> tuple[int, ...]:
    """The ends and the own key always, all where labels have room."""
    return offsets if cell_px >= 22 else tuple({offsets[0], 0, offsets[-1]})


def _key_title(offsets: tuple[int, ...]) -> str:
    sides = (["− earlier key"] if offsets[0] < 0 else []) + (["later key +"] if offsets[-1] > 0 else [])
    return f"key offset ({' | '.join(sides)})" if sides else "key offset"


def head_mixing(
    kernels: LayerKernelSet,
    where: MixPlace,
    layer: int,
    *,
    numbering_from: int = 0,
    size: tuple[int, int] = (460, 460),
) -> go.Figure:
    """The mixing matrix: rows are target heads, columns source heads; groups are blocks.

    The colour limit comes from the weights on other heads; own weights (framed) may lie beyond.
    """
    mixing = kernels.mixing(where)
    if mixing is None:
        return _empty(f"L{layer + numbering_from} has no {PLACES[where]}", size[0])
    weights = _full_matrix(mixing.numpy())
    figure = theme.style(go.Figure(), *size)
    _add_weights(figure, weights, mixing.shape[0], size, numbering_from)
    heads = len(weights)
    names = [f"H{head + numbering_from}" for head in range(heads)]
    ticks = {"tickvals": list(range(heads)), "ticktext": names}
    figure.update_layout(
        title=_title(f"L{layer + numbering_from} {PLACES[where]}"),
        xaxis=theme.axis(range=(-0.5, heads - 0.5), title={"text": "source head", "standoff": 4}, **ticks),
        yaxis=theme.axis(
            range=(heads - 0.5, -0.5), title={"text": "target head (receives)", "standoff": 4}, **ticks
        ),
        margin={"l": 62, "r": 12, "t": 62, "b": 50, "autoexpand": False},
    )
    return figure


def _full_matrix(mixing: np.ndarray) -> np.ndarray:
    """[group, target, source] -> [head, head], NaN between groups."""
    groups, size, _ = mixing.shape
    full = np.full((groups * size, groups * size), np.nan, np.float32)
    for group in range(groups):
        block = slice(group * size, (group + 1) * size)
        full[block, block] = mixing[group]
    return full


def _add_weights(
    figure: go.Figure, weights: np.ndarray, groups: int, size: tuple[int, int], numbering_from: int
) -> None:
    heads = len(weights)
    others = np.where(np.isfinite(weights), weights, 0.0) * (1 - np.eye(heads))
    limit = round_up(
        max(float(np.abs(others).max()), LIMIT_FLOOR * float(np.nanmax(np.abs(weights), initial=0)))
    )
    figure.add_trace(
        cells.hatched([-0.5, heads - 0.5, heads - 0.5, -0.5], [-0.5, -0.5, heads - 0.5, heads - 0.5])
    )
    numbers = (size[0] - 74) / heads >= _NUMBER_PX
    text = [[f"{w:+.2f}" if np.isfinite(w) else "" for w in row] for row in weights]
    hovers = [[_mix_hover(weights, t, s, numbering_from) for s in range(heads)] for t in range(heads)]
    figure.add_trace(
        go.Heatmap(
            z=weights,
            zmin=-limit,
            zmax=limit,
            colorscale=theme.SIGNED_SCALE,
            text=text,
            texttemplate="%{text}" if numbers else None,
            textfont={"size": 10},
            hovertext=hovers,
            hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False,
            colorbar=theme.color_bar(
                limit,
                signed=True,
                above=bool(np.nanmax(weights) > limit),
                below=bool(np.nanmin(weights) < -limit),
            ),
        )
    )
    for head in range(heads):
        figure.add_shape(
            type="rect",
            x0=head - 0.5,
            x1=head + 0.5,
            y0=head - 0.5,
            y1=head + 0.5,
            line={"color": theme.INK, "width": 1.5},
        )
    step = heads // groups
    for start in range(0, heads, step):
        figure.add_shape(
            type="rect",
            x0=start - 0.5,
            x1=start + step - 0.5,
            y0=start - 0.5,
            y1=start + step - 0.5,
            line={"color": theme.FRAME, "width": 1},
        )


def _mix_hover(weights: np.ndarray, target: int, source: int, numbering_from: int) -> str:
    own = float(weights[target, target])
    if target == source:
        return f"head {target + numbering_from} keeps {own:+.4g} x itself"
    weight = float(weights[target, source])
    names = target + numbering_from, source + numbering_from
    return f"target head {names[0]} takes {weight:+.4g} x source head {names[1]}<br>own weight {own:+.4g}"


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 13}, "x": 0.01, "xanchor": "left", "y": 0.99, "yanchor": "top"}


def _empty(text: str, width: int) -> go.Figure:
    """A thin hatched bar saying what is not there."""
    figure = theme.style(go.Figure(), width, 60)
    figure.add_trace(cells.hatched([0, 1, 1, 0], [0, 0, 1, 1]))
    figure.add_annotation(
        text=text,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        font={"size": 13, "color": theme.INK},
        bgcolor=theme.MASKED_FILL,
    )
    bare = {"showticklabels": False, "ticks": "", "fixedrange": True}
    figure.update_layout(
        xaxis=theme.axis(range=(0, 1), **bare),
        yaxis=theme.axis(range=(0, 1), **bare),
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
    )
    return figure
