"""Kernels of many heads as ONE heat map: a tile a head, with the real offsets along the borders.

One trace and a few shapes draw ten times faster than a subplot a head. Time runs down in a kernel as in the
maps: the earliest query on top, the current one at the bottom. Beside it a score of these kernels over
training: one line a head, the chosen head thick.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.kernels.kernels import WHERE, LayerKernelSet, Offsets, Place
from mta_viz.analysis.kernels.table import KernelCurves
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts

Scale = Literal["shared", "own"]
# A kernel whose other taps are dust would show the dust at full colour without a floor.
LIMIT_FLOOR = 0.01
_GAP = 2
LATER_KEYS = "Later keys are used only if they are not after the query they are read for."
_DOTTED = {"color": theme.INK, "width": 1, "dash": "dot"}


@dataclass(frozen=True)
class Room:
    """Pixels around the tiles and for their cells; `columns`: tiles side by side at most.

    `later_words`: the line on later keys stands under them.
    """

    left: int = 78
    right: int = 12
    top: int = 64
    bottom: int = 46
    heading: int = 32
    cell: tuple[float, float] = (12.0, 34.0)
    columns: int = 8
    bar: int = 240
    later_words: bool = True


SCREEN = Room()


def tap_limit(taps: Float[np.ndarray, "head c_q c_k"], own: tuple[int, int]) -> float:
    """A round colour limit from the taps other than the own one; at least 1 % of the largest."""
    sizes = np.abs(np.where(np.isfinite(taps), taps, 0.0))
    others = sizes.copy()
    others[:, own[0], own[1]] = 0.0
    return round_up(max(float(others.max()), LIMIT_FLOOR * float(sizes.max())))


class Mosaic:
    """Where each head's tile lies, counted in cells, and what is drawn on it.

    `own_scale`: every head has its own colour limit, and colours are shares of it; else they share `limit`
    (None: from the taps). `headings` stand over the tiles in place of the heads' names. `room`: a figure for
    print has other margins and smaller cells than one for the screen.
    """

    def __init__(
        self,
        taps: Float[np.ndarray, "head c_q c_k"],
        offsets: Offsets,
        *,
        own_scale: bool,
        width: int,
        numbering_from: int,
        limit: float | None = None,
        headings: Sequence[str] = (),
        room: Room = SCREEN,
    ) -> None:
        self.taps, self.offsets, self.own_scale = taps, offsets, own_scale
        self.numbering_from, self.width, self.headings, self.room = numbering_from, width, headings, room
        self.n_heads, self.c_q, self.c_k = taps.shape
        self.limits = [limit or tap_limit(taps, offsets.own)] * self.n_heads
        if own_scale:
            self.limits = [tap_limit(kernel[None], offsets.own) for kernel in taps]
        self._place(width - room.left - room.right)

    def _place(self, room_px: int) -> None:
        """As many columns as leave cells of the smallest size, rows filled evenly."""
        tile, (smallest, largest) = self.c_k + _GAP, self.room.cell
        columns = max(1, min(self.n_heads, self.room.columns, int(room_px / (tile * smallest))))
        self.rows = math.ceil(self.n_heads / columns)
        self.columns = math.ceil(self.n_heads / self.rows)
        self.cell_px = min(room_px / (self.columns * tile), largest)
        self.heading = math.ceil(self.room.heading / self.cell_px)
        self.pitch = self.c_q + self.heading
        self.shape = (self.rows * self.pitch, self.columns * tile)
        self.spare_px = room_px - self.shape[1] * self.cell_px
        self.caption_px = 22 if self.room.later_words and offsets_reach_later(self.offsets) else 0
        borders = self.room.top + self.room.bottom + self.caption_px
        self.height = round(self.shape[0] * self.cell_px) + borders

    def origin(self, head: int) -> tuple[int, int]:
        """Coordinates (row, column) of a tile's top left cell."""
        row, column = divmod(head, self.columns)
        return row * self.pitch + self.heading, column * (self.c_k + _GAP)

    def figure(self, title: str) -> go.Figure:
        """Everything: cells, crosses, frames, headings, axes."""
        room, right = self.room, self.room.right + round(max(self.spare_px, 0))
        margin = {"l": room.left, "r": right, "t": room.top, "b": room.bottom + self.caption_px}
        parts = Parts((self.width, self.height), margin)
        parts.traces.append(self._cells())
        self._add_crosses(parts)
        for head in range(self.n_heads):
            self._frame_tile(parts, head)
        self._add_axes(parts)
        parts.add_title(title)
        return parts.figure()

    def _cells(self) -> go.Heatmap:
        z, hover = np.full(self.shape, np.nan, np.float32), np.full(self.shape, "", object)
        for head, taps in enumerate(self.taps):
            row, column = self.origin(head)
            block = np.s_[row : row + self.c_q, column : column + self.c_k]
            unit = self.limits[head] if self.own_scale else 1.0
            z[block] = np.where(np.isfinite(taps), taps, np.nan) / unit
            hover[block] = self._hovers(taps)
        limit = 1.0 if self.own_scale else self.limits[0]
        return go.Heatmap(
            z=z,
            zmin=-limit,
            zmax=limit,
            colorscale=theme.SIGNED_SCALE,
            colorbar=self._bar(limit),
            hovertext=hover,
            hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False,
        )

    def _hovers(self, taps: np.ndarray) -> list[list[str]]:
        energy = np.square(taps, dtype=np.float64)
        total = float(energy.sum()) or 1.0
        return [
            [
                f"tap {taps[a, b]:+.4g}<br>reads the query {_ago(query)} and the key {_ago(key)}"
                f"<br>{energy[a, b] / total:.0%} of this kernel's energy"
                for b, key in enumerate(self.offsets.key)
            ]
            for a, query in enumerate(self.offsets.query)
        ]

    def _bar(self, limit: float) -> dict[str, object]:
        finite = np.where(np.isfinite(self.taps), self.taps, 0.0)
        above = any(taps.max() > own for taps, own in zip(finite, self.limits, strict=True))
        below = any(taps.min() < -own for taps, own in zip(finite, self.limits, strict=True))
        bar = theme.color_bar(limit, signed=True, above=above, below=below)
        if self.own_scale:
            bar["ticktext"] = ["− own limit", "0", "+ own limit"]
        right = 1.0 + max(self.spare_px, 0.0) / max(self.shape[1] * self.cell_px, 1.0)
        return bar | {"len": self.room.bar, "lenmode": "pixels", "x": right, "xanchor": "right", "xpad": 40}

    def _add_crosses(self, parts: Parts) -> None:
        bad = np.argwhere(~np.isfinite(self.taps)).tolist()
        places = [(*self.origin(head), a, b) for head, a, b in bad]
        if places:
            parts.traces.append(
                go.Scatter(
                    x=[column + b for _, column, _, b in places],
                    y=[row + a for row, _, a, _ in places],
                    mode="markers",
                    marker={"symbol": "x", "color": theme.BAD_COLOR, "size": 8},
                    hovertemplate="this tap is NaN or infinite<extra></extra>",
                )
            )

    def _frame_tile(self, parts: Parts, head: int) -> None:
        """Outline, framed own tap, dotted border to the later keys, heading."""
        row, column = self.origin(head)
        own_row, own_column = row + self.offsets.own[0], column + self.offsets.own[1]
        parts.add_box((row, column), (self.c_q, self.c_k), color=theme.FRAME, width=1)
        parts.add_box((own_row, own_column), (1, 1), color=theme.INK, width=2)
        if offsets_reach_later(self.offsets):
            border = {"x0": own_column + 0.5, "x1": own_column + 0.5, "line": _DOTTED}
            parts.shapes.append({"type": "line", "y0": row - 0.5, "y1": row + self.c_q - 0.5, **border})
        corner = {"x": column - 0.5, "y": row - 0.5, "xanchor": "left", "yanchor": "bottom", "yshift": 1}
        words = {"align": "left", "showarrow": False, "font": {"size": 11, "color": theme.INK}}
        parts.annotations.append({"text": self._tile_heading(head), **corner, **words})

    def _tile_heading(self, head: int) -> str:
        if self.headings:
            return self.headings[head]
        taps = self.taps[head]
        name = f"<b>H{head + self.numbering_from}</b>"
        if n_bad := int((~np.isfinite(taps)).sum()):
            return f"{name} NaN in {n_bad} tap{'s' * (n_bad > 1)}"
        if not taps.any():
            return f"{name} all taps 0:<br>map erased here"
        limit = f" · ±{self.limits[head]:g}" if self.own_scale else ""
        return f"{name}{limit}<br>own tap {theme.score_text(float(taps[self.offsets.own]))}"

    def _add_axes(self, parts: Parts) -> None:
        bare = {"showline": False, "mirror": False, "ticklen": 2}
        x, y = self._ticks()
        parts.layout |= {
            "xaxis": theme.axis(range=(-0.5, self.shape[1] - 0.5), **_named(x), **bare),
            "yaxis": theme.axis(range=(self.shape[0] - 0.5, -0.5), **_named(y), **bare),
        }
        parts.add_axis_titles(key_title(self.offsets), "query offset", above_px=self.caption_px)
        if self.caption_px:
            parts.add_caption(LATER_KEYS, below_px=self.room.bottom)

    def _ticks(self) -> tuple[dict[int, str], dict[int, str]]:
        """Offsets across under every tile column, and down beside every tile row."""
        keys, queries = offset_ticks(self.offsets, self.cell_px, self.cell_px)
        first_key, first_query = self.offsets.key[0], self.offsets.query[0]
        x = {
            self.origin(column)[1] + key - first_key: name
            for column in range(self.columns)
            for key, name in keys.items()
        }
        y = {
            self.origin(row * self.columns)[0] + query - first_query: "0 (now)" if query == 0 else name
            for row in range(self.rows)
            for query, name in queries.items()
        }
        return x, y


def offsets_reach_later(offsets: Offsets) -> bool:
    """Whether the kernel reads keys after the own one."""
    return offsets.key[-1] > 0


def offset_ticks(offsets: Offsets, key_px: float, query_px: float) -> tuple[dict[int, str], dict[int, str]]:
    """Offset -> label of the (keys, queries) there is room for; the first, the own and the last at least."""
    keys, queries = offsets.key, offsets.query
    if key_px < 2.2 * theme.TICK_SPACING:
        keys = tuple(key for key in keys if key in (keys[0], 0, keys[-1]))
    if query_px < theme.TICK_SPACING:
        queries = (queries[0], 0)
    return {key: f"{key:+d}" if key else "0" for key in keys}, {query: str(query) for query in queries}


def _named(ticks: dict[int, str]) -> dict[str, object]:
    return {"tickvals": list(ticks), "ticktext": list(ticks.values())}


def _ago(offset: int) -> str:
    if offset == 0:
        return "itself"
    return f"{-offset} before" if offset < 0 else f"{offset} after"


def key_title(offsets: Offsets) -> str:
    """What the axis of key offsets says: which side is the future, where there is one."""
    sides = ["− earlier key"] * (offsets.key[0] < 0) + ["later key +"] * offsets_reach_later(offsets)
    return f"key offset ({' | '.join(sides)})" if sides else "key offset"


def kernel_grid(
    kernels: LayerKernelSet,
    where: Place,
    *,
    scale: Scale = "shared",
    layer: int,
    numbering_from: int = 0,
    width: int = 940,
    limit: float | None = None,
) -> go.Figure:
    """All heads' kernels of one place, one tile a head, axes in offsets; own taps are framed.

    The colour limit comes from the taps other than the own one, over all heads (`shared`) or for
    each head (`own`, printed over the tile), or is the `limit` given. A layer without such kernels
    gives a figure saying so.
    """
    taps, offsets = kernels.taps(where), kernels.offsets(where)
    name = f"L{layer + numbering_from}"
    if taps is None or offsets is None:
        return cells.empty_slot(f"{name} has no key-query kernel {WHERE[where]}", width)
    mosaic = Mosaic(
        taps.numpy(),
        offsets,
        own_scale=scale == "own",
        width=width,
        numbering_from=numbering_from,
        limit=limit,
    )
    size = f"{mosaic.c_q} x {mosaic.c_k}"
    return mosaic.figure(f"{name} key-query kernels {WHERE[where]} ({size})")


_CURVES_LEFT, _CURVES_RIGHT, _CURVES_TOP, _CURVES_BOTTOM = 66, 14, 36, 48


def training_curves(
    curves: KernelCurves,
    score: str,
    *,
    head: int,
    snapshot: int,
    title: str,
    numbering_from: int = 0,
    size: tuple[int, int] = (940, 300),
) -> go.Figure:
    """`score` of every head over the snapshots, evenly spaced; the dotted line is at `snapshot`.

    Snapshots are taken at steps spaced as their logarithm, so they stand side by side evenly and the ticks
    name their steps. The invisible targets' customdata are head and snapshot.
    """
    parts = Parts(size, {"l": _CURVES_LEFT, "r": _CURVES_RIGHT, "t": _CURVES_TOP, "b": _CURVES_BOTTOM})
    others = [other for other in range(len(curves.values[score])) if other != head]
    parts.traces += [_line(curves, score, line, chosen=line == head) for line in (*others, head)]
    parts.traces.append(_targets(curves, score, numbering_from))
    steps = np.linspace(0, len(curves.steps) - 1, min(12, len(curves.steps))).round().astype(int).tolist()
    names = [f"{curves.steps[step]:,}" for step in steps]
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, len(curves.steps) - 0.5), tickvals=steps, ticktext=names),
        "yaxis": theme.axis(),
    }
    dotted = {"color": theme.INK, "width": 1, "dash": "dot"}
    parts.shapes.append(
        {"type": "line", "x0": snapshot, "x1": snapshot, "y0": 0, "y1": 1, "yref": "paper", "line": dotted}
    )
    parts.add_axis_titles("training step of the snapshot (evenly spaced, not to scale)", "score")
    parts.add_title(title)
    return parts.figure()


def _line(curves: KernelCurves, score: str, head: int, *, chosen: bool) -> go.Scatter:
    values = curves.values[score][head]
    return go.Scatter(
        x=np.arange(len(values)),
        y=values,
        mode="lines",
        showlegend=False,
        line={"color": theme.SELECTED_COLOR if chosen else theme.FRAME, "width": 3 if chosen else 1},
        hoverinfo="skip",
    )


def _targets(curves: KernelCurves, score: str, numbering_from: int) -> go.Scatter:
    """One for every point of every line; streamlit tells of clicks on markers only."""
    values = curves.values[score]
    points = np.argwhere(np.isfinite(values))
    text = [
        f"H{head + numbering_from} · step {curves.steps[at]:,}<br>{values[head, at]:+.3g}<br>click to choose"
        for head, at in points.tolist()
    ]
    heights = values[points[:, 0], points[:, 1]]
    return cells.targets(points[:, 1], heights, 9.0, "%{text}", points).update(text=text, showlegend=False)
