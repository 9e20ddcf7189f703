"""Kernels of many heads as ONE heat map: a tile a head, with the real offsets along the borders.

One trace and a few shapes draw ten times faster than a subplot a head. Time runs down in a kernel as in the
maps: the earliest query on top, the current one at the bottom. Beside it a score of these kernels over
training: one line a head, the chosen head thick.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY, WHERE, LayerKernelSet, Offsets
from mta_viz.analysis.kernels.table import KernelCurves
from mta_viz.config import KernelPlace
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts

Scale = Literal["shared", "own"]
_GAP, GRID_PX = 2, 940
LATER_KEYS = "Later keys count only where they are not after their query."
DOTTED = {"color": theme.INK, "width": 1, "dash": "dot"}


def fault_words(values: np.ndarray) -> str:
    """What is wrong with a kernel's taps or a matrix: how many are not finite, or that all are 0."""
    n_bad = int((~np.isfinite(values)).sum())
    return f"NaN/inf: {n_bad}" if n_bad else "" if values.any() else "all 0"


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
    """A round colour limit from the taps other than the own one; of identities with the own one."""
    others = taps.copy()
    others[:, own[0], own[1]] = 0.0
    return scale_limit(zip(taps, others, strict=True))


def scale_limit(pictures: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """A round colour limit for pictures, each whole and without its own taps: from the largest of the others.

    Where all are near the identity the own ones count too: noise would look like structure.
    """
    sizes = [[np.abs(np.where(np.isfinite(part), part, 0.0)) for part in parts] for parts in pictures]
    faint = all(near_identity(whole, others) for whole, others in sizes)
    return round_up(max((float(parts[0 if faint else 1].max()) for parts in sizes), default=0.0))


def near_identity(whole: np.ndarray, others: np.ndarray) -> bool:
    """Whether under 5 % of the energy of finite values is in the others."""
    return bool(np.square(others).sum() < NEAR_IDENTITY * np.square(whole).sum())


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
        numbering: int,
        limit: float | None = None,
        headings: Sequence[str] = (),
        room: Room = SCREEN,
    ) -> None:
        self.taps, self.offsets, self.own_scale = taps, offsets, own_scale
        self.numbering, self.width, self.headings, self.room = numbering, width, headings, room
        self.n_heads, self.c_q, self.c_k = taps.shape
        self.limits = [limit or tap_limit(taps, offsets.own)] * self.n_heads
        if own_scale:
            self.limits = [tap_limit(kernel[None], offsets.own) for kernel in taps]
        # As many columns as leave cells of the smallest size, rows filled evenly.
        room_px, tile, (smallest, largest) = width - room.left - room.right, self.c_k + _GAP, room.cell
        columns = max(1, min(self.n_heads, room.columns, int(room_px / (tile * smallest))))
        self.rows = math.ceil(self.n_heads / columns)
        self.columns = math.ceil(self.n_heads / self.rows)
        self.cell_px = min(room_px / (self.columns * tile), largest)
        self.heading = math.ceil(room.heading / self.cell_px)
        self.pitch = self.c_q + self.heading
        self.shape = (self.rows * self.pitch, self.columns * tile)
        self.spare_px = room_px - self.shape[1] * self.cell_px

    def origin(self, head: int) -> tuple[int, int]:
        """Coordinates (row, column) of a tile's top left cell."""
        row, column = divmod(head, self.columns)
        return row * self.pitch + self.heading, column * (self.c_k + _GAP)

    def figure(self, title: str) -> go.Figure:
        """Everything: cells, crosses, frames, headings, axes."""
        room, later = self.room, offsets_reach_later(self.offsets)
        caption_px = 22 if room.later_words and later else 0
        margin = {"l": room.left, "r": room.right + round(max(self.spare_px, 0)), "t": room.top}
        margin["b"] = room.bottom + caption_px
        height = round(self.shape[0] * self.cell_px) + room.top + margin["b"]
        parts = Parts((self.width, height), margin)
        places = [(*self.origin(head), a, b) for head, a, b in np.argwhere(~np.isfinite(self.taps)).tolist()]
        x, y = [column + b for _, column, _, b in places], [row + a for row, _, a, _ in places]
        parts.traces += [self._cells(), *cells.crosses(x, y, 8.0, **cells.BAD_TAP)]
        for head in range(self.n_heads):
            self._frame_tile(parts, head)
        bare = {"showline": False, "mirror": False, "ticklen": 2}
        down, across = self._ticks()
        parts.layout |= {
            "xaxis": theme.axis(range=(-0.5, self.shape[1] - 0.5), **theme.ticks(across), **bare),
            "yaxis": theme.axis(range=(self.shape[0] - 0.5, -0.5), **theme.ticks(down), **bare),
        }
        parts.add_axis_titles(key_title(self.offsets), "query offset", above_px=caption_px)
        if caption_px:
            parts.add_caption(LATER_KEYS, below_px=room.bottom)
        return parts.figure(title)

    def _cells(self) -> go.Heatmap:
        z, hover = np.full(self.shape, np.nan, np.float32), np.full(self.shape, "", object)
        for head, taps in enumerate(self.taps):
            row, column = self.origin(head)
            block = np.s_[row : row + self.c_q, column : column + self.c_k]
            unit = self.limits[head] if self.own_scale else 1.0
            z[block] = np.where(np.isfinite(taps), taps, np.nan) / unit
            hover[block] = tap_hovers(taps, self.offsets)
        limit = 1.0 if self.own_scale else self.limits[0]
        right = 1.0 + max(self.spare_px, 0.0) / max(self.shape[1] * self.cell_px, 1.0)
        place = {"len": self.room.bar, "lenmode": "pixels", "x": right, "xanchor": "right", "xpad": 40}
        bar = theme.color_bar(limit, signed=True, values=z, **place)
        if self.own_scale:
            bar["ticktext"] = theme.OWN_LIMIT
        return cells.grid(z, limit, colorbar=bar, hoverongaps=False, **theme.hover(hover))

    def _frame_tile(self, parts: Parts, head: int) -> None:
        row, column = self.origin(head)
        own_row, own_column = row + self.offsets.own[0], column + self.offsets.own[1]
        parts.add_box((row, column), (self.c_q, self.c_k), color=theme.FRAME, width=1)
        parts.add_box((own_row, own_column), color=theme.INK, width=2)
        if offsets_reach_later(self.offsets):
            x, bottom = own_column + 0.5, row + self.c_q - 0.5
            parts.add_line((x, x), (row - 0.5, bottom), DOTTED)
        corner = {"x": column - 0.5, "y": row - 0.5, "xanchor": "left", "yanchor": "bottom", "yshift": 1}
        words = {"align": "left", "showarrow": False, "font": {"size": 11, "color": theme.INK}}
        parts.annotations.append({"text": self._tile_heading(head), **corner, **words})

    def _tile_heading(self, head: int) -> str:
        if self.headings:
            return self.headings[head]
        taps = self.taps[head]
        name = f"<b>H{head + self.numbering}</b>"
        if fault := fault_words(taps):
            return f"{name} {fault}" + ":<br>map erased here" * (not taps.any())
        limit = f" · ±{self.limits[head]:g}" if self.own_scale else ""
        return f"{name}{limit}<br>own tap {theme.score_text(float(taps[self.offsets.own]))}"

    def _ticks(self) -> tuple[dict[int, str], dict[int, str]]:
        keys, queries = offset_ticks(self.offsets, self.cell_px, self.cell_px)
        tops = [self.origin(row * self.columns)[0] - self.offsets.query[0] for row in range(self.rows)]
        lefts = [self.origin(column)[1] - self.offsets.key[0] for column in range(self.columns)]
        names = queries | {0: "0 (now)"}
        down = {top + query: names[query] for top in tops for query in queries}
        return down, {left + key: name for left in lefts for key, name in keys.items()}


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


def tap_hovers(taps: Float[np.ndarray, "c_q c_k"], offsets: Offsets) -> list[list[str]]:
    """Of every tap its value, what it reads, and its share of the energy of those that are finite."""
    energy = np.square(np.where(np.isfinite(taps), taps, 0.0), dtype=np.float64)
    total = float(energy.sum()) or 1.0
    return [
        [
            f"tap {taps[a, b]:+.4g}<br>reads the query {_ago(query)} and the key {_ago(key)}"
            f"<br>{energy[a, b] / total:.0%} of the energy drawn"
            for b, key in enumerate(offsets.key)
        ]
        for a, query in enumerate(offsets.query)
    ]


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
    where: KernelPlace,
    *,
    scale: Scale = "shared",
    layer: int,
    numbering: int = 0,
    limit: float | None = None,
) -> go.Figure:
    """All heads' kernels of one place, one tile a head, axes in offsets; own taps are framed.

    The colour limit comes from the taps other than the own one, over all heads (`shared`) or for
    each head (`own`, printed over the tile), or is the `limit` given.
    """
    taps, offsets = kernels.taps(where)
    look: dict[str, Any] = {"width": GRID_PX, "numbering": numbering, "limit": limit}
    mosaic = Mosaic(taps.numpy(), offsets, own_scale=scale == "own", **look)
    size = f"{mosaic.c_q} x {mosaic.c_k}"
    return mosaic.figure(f"L{layer + numbering} key-query kernels {WHERE[where]} ({size})")


def training_curves(
    curves: KernelCurves, score: str, *, head: int, snapshot: int, title: str, numbering: int = 0
) -> go.Figure:
    """`score` of every head over the snapshots, evenly spaced; the dotted line is at `snapshot`.

    Snapshots are taken at steps spaced as their logarithm, so they stand side by side evenly and the ticks
    name their steps. The invisible targets' customdata are head and snapshot.
    """
    parts, values = Parts((940, 300), {"l": 66, "r": 14, "t": 36, "b": 48}), curves.values[score]
    for line in (*(other for other in range(len(values)) if other != head), head):
        color, width = (theme.SELECTED_COLOR, 3) if line == head else (theme.FRAME, 1)
        x, y, look = np.arange(len(values[line])), values[line], {"color": color, "width": width}
        parts.traces.append(go.Scatter(x=x, y=y, mode="lines", line=look, showlegend=False, hoverinfo="skip"))
    # A target for every point of every line: streamlit tells of clicks on markers only.
    points = np.argwhere(np.isfinite(values))
    text = [
        f"H{line + numbering} · step {curves.steps[at]:,}<br>{values[line, at]:+.3g}<br>click to choose"
        for line, at in points.tolist()
    ]
    targets = cells.targets(points[:, 1], values[tuple(points.T)], 9.0, "%{text}", points)
    parts.traces.append(targets.update(text=text, showlegend=False))
    steps = np.linspace(0, len(curves.steps) - 1, min(12, len(curves.steps))).round().astype(int).tolist()
    names = theme.ticks({step: f"{curves.steps[step]:,}" for step in steps})
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, len(curves.steps) - 0.5), **names),
        "yaxis": theme.axis(),
    }
    parts.add_line((snapshot, snapshot), (0, 1), DOTTED, yref="paper")
    return parts.figure(title, "training step of the snapshot (evenly spaced, not to scale)", "score")
