"""Many kernels as ONE heat map: a tile a kernel, with its words, its broken taps and a click target.

Owns how tiles are laid out and drawn, whatever they hold, and the colour limit of several; which there
are is the figure's business. Tiles of different sizes share one grid: the smaller ones are padded.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.plots import cells, theme
from mta_viz.plots.kernels.mosaic import near_identity, scale_limit
from mta_viz.plots.parts import Parts


@dataclass(frozen=True)
class Target:
    """Rows `first`..`last` of a tile as something to point at: `id` comes back with a click."""

    id: str
    hover: str
    first: int
    last: int


@dataclass(frozen=True)
class Tile:
    """One picture: `values` are taps or weights, `own` the cells of the own tap or weight.

    `mark` are the words under it, `note` what is said on it when nothing can be drawn. `size` 0..1: how much
    of the tile's width the bar under it takes; None: no bar.
    """

    name: str
    values: Float[np.ndarray, "row column"]
    own: tuple[tuple[int, int], ...]
    mark: str
    note: str
    targets: tuple[Target, ...]
    size: float | None = None

    def others(self) -> Float[np.ndarray, "row column"]:
        """The values without the own ones, which are NaN."""
        rest = np.array(self.values, np.float32)
        rest[tuple(np.array(self.own, int).T)] = np.nan
        return rest

    @cached_property
    def faint(self) -> bool:
        """Whether it is near the identity, so that on its own scale the own tap belongs to the picture."""
        return near_identity(np.nan_to_num(self.values), np.nan_to_num(self.others()))


def common_limit(tiles: Iterable[Tile]) -> float:
    """One round colour limit for all tiles, from what is not an own tap; of identities with the own taps."""
    return scale_limit((tile.values, tile.others()) for tile in tiles)


NUMBERS_FROM_PX = 26  # of a cell that has room for its number
_FRAMES_FROM_PX = 4
_MAX_CELL_PX, _MIN_CELL_PX, _MAX_PLOT_PX, _READING_PX = 32.0, 2.5, 520, 5.0
_RIGHT, _TOP, _BOTTOM, _MARK_PX, _NAME_PX, _BAR_PX, _HEADING_PX = 12, 52, 8, 14, 13, 8, 22
_CHAR_PX = 6.05
_SMALL_PX, _SMALL_CHAR_PX = 9, 5.4  # letters under tiles

Box = tuple[int, int, int, int]  # row, column of the top left cell, rows, columns


@dataclass(frozen=True)
class Look:
    """How tiles are drawn: `own_scale` colours each on its own limit; `title` says what their bars show."""

    hide_own: bool = True
    own_scale: bool = False
    numbers: bool = False
    title: str = ""

    def hides(self, tile: Tile) -> bool:
        """Whether own taps are left out of a tile: an identity on its own scale is nothing without them."""
        return self.hide_own and not (self.own_scale and tile.faint)


class Sheet:
    """Where each tile lies, in cells: rows of tiles with names at the left, or in reading order.

    `rows` may hold None where a row has no tile; `row_names` and `column_names` stand at the borders. Without
    `row_names` every tile bears its own name. `headings`: words over rows, by their numbers.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[Tile | None]],
        row_names: Sequence[str] = (),
        column_names: Sequence[str] = (),
        *,
        width: int = 900,
        cell_range: tuple[float, float] = (_MIN_CELL_PX, _MAX_CELL_PX),
        headings: Mapping[int, str] | None = None,
    ) -> None:
        self.rows, self.row_names, self.column_names, self.width = rows, row_names, column_names, width
        self.tiles = [tile for row in rows for tile in row if tile is not None]
        self.shape, self.headings = _largest_shape(self.tiles), headings or {}
        self.columns = max(len(row) for row in rows)
        self.left = _RIGHT + round(max(map(len, row_names), default=0) * _CHAR_PX)
        across, words = (
            (width - self.left - _RIGHT) / (self.columns * (self.shape[1] + 1)),
            _words_px(row_names),
        )
        down = max(_MAX_PLOT_PX - words * len(rows), 0) / (len(rows) * self.shape[0])
        self.cell_px = min(across, max(down, cell_range[0]), cell_range[1])
        self.above = 0 if row_names else math.ceil(_NAME_PX / self.cell_px)
        self.bar_px = _BAR_PX * any(tile.size is not None for tile in self.tiles)
        below = math.ceil((_MARK_PX + self.bar_px) / self.cell_px)
        self.pitch = (self.above + self.shape[0] + below, self.shape[1] + 1)
        heading = math.ceil(_HEADING_PX / self.cell_px)
        passed = [sum(at <= row for at in self.headings) for row in range(len(rows))]
        self.tops = [row * self.pitch[0] + heading * above for row, above in enumerate(passed)]
        self.size = (self.tops[-1] + self.pitch[0], self.columns * self.pitch[1])

    @classmethod
    def reading(cls, groups: Mapping[str, Sequence[Tile]], *, width: int = 900) -> "Sheet":
        """The tiles in order, with as many columns as leave the largest cells; a heading over each group."""
        tiles = [tile for group in groups.values() for tile in group]
        shape = _largest_shape(tiles)
        name_px = max(len(tile.name) + 1 for tile in tiles) * _CHAR_PX
        room, best = width - 2 * _RIGHT, (0.0, 1)
        most = max(1, int(room / max((shape[1] + 1) * _READING_PX, name_px)))
        for columns in range(1, min(most, len(tiles)) + 1):
            rows = sum(math.ceil(len(group) / columns) for group in groups.values())
            down = max(_MAX_PLOT_PX - _words_px(()) * rows, 0) / (rows * shape[0])
            cell = min(room / (columns * (shape[1] + 1)), max(down, _READING_PX), _MAX_CELL_PX)
            best = max(best, (cell, columns))
        columns, wide = best[1], max(best[0], name_px / (shape[1] + 1))
        chunks, headings = list[Sequence[Tile]](), dict[int, str]()
        for words, group in groups.items():
            headings |= {len(chunks): words} if words else {}
            chunks += [group[start : start + columns] for start in range(0, len(group), columns)]
        return cls(chunks, width=width, cell_range=(wide, wide), headings=headings)

    def placed(self) -> Iterable[tuple[Tile, int, int]]:
        """Every tile with the row and column of its top left cell; last rows (query 0) are level."""
        for r, row in enumerate(self.rows):
            for c, tile in enumerate(row):
                if tile is not None:
                    height, wide = tile.values.shape
                    top = self.tops[r] + self.above + self.shape[0] - height
                    yield tile, top, c * self.pitch[1] + (self.shape[1] - wide) // 2

    def box(self, target_id: str) -> Box | None:
        """(row, column, rows, columns) of a target; None when it is not on the sheet."""
        for tile, row, column in self.placed():
            for target in tile.targets:
                if target.id == target_id:
                    return row + target.first, column, target.last - target.first + 1, tile.values.shape[1]
        return None


def _largest_shape(tiles: Sequence[Tile]) -> tuple[int, int]:
    shapes = [tile.values.shape for tile in tiles]
    return max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)


def _words_px(row_names: Sequence[str]) -> int:
    return _MARK_PX if row_names else _MARK_PX + _NAME_PX


def gallery(sheet: Sheet, look: Look, limit: float) -> go.Figure:
    """All tiles on a scale to +-`limit` (each on its own limit with `look.own_scale`).

    One point a target takes hover and click: the event's customdata is the target's id.
    """
    spare = sheet.width - sheet.left - _RIGHT - sheet.size[1] * sheet.cell_px
    top = _TOP + 16 * bool(sheet.column_names)
    height = round(sheet.size[0] * sheet.cell_px) + top + _BOTTOM
    right = _RIGHT + round(max(spare, 0))
    parts = Parts((sheet.width, height), {"l": sheet.left, "r": right, "t": top, "b": _BOTTOM})
    placed = list(sheet.placed())
    own = [
        (look.hides(tile), (row + a, column + b, 1, 1)) for tile, row, column in placed for a, b in tile.own
    ]
    bad = [
        (row + a, column + b)
        for tile, row, column in placed
        for a, b in np.argwhere(~np.isfinite(tile.values)).tolist()
    ]
    cross_px = max(6, min(10, round(sheet.cell_px)))
    parts.traces += [
        _cells(sheet, look, limit, spare),
        *cells.hatched_boxes(box for hidden, box in own if hidden),
        *([cells.frames([box for _, box in own], theme.INK)] if sheet.cell_px >= _FRAMES_FROM_PX else ()),
        cells.frames([(row, column, *tile.values.shape) for tile, row, column in placed], theme.FRAME),
        *cells.crosses([column for _, column in bad], [row for row, _ in bad], cross_px),
        *_bars(sheet),
        *_words(sheet),
        _targets(sheet),
    ]
    _add_axes(parts, sheet)
    return parts.figure(look.title)


def with_frame(figure: go.Figure, box: Box | None) -> go.Figure:
    """A copy of a gallery with one target framed; the gallery itself stays as it was drawn."""
    framed = go.Figure(figure)
    if box is not None:
        parts = Parts((1, 1), {})
        for width, color in ((5, "#FFFFFF"), (3, "#000000")):
            parts.add_box(box[:2], box[2:], color=color, width=width)
        framed.update_layout(shapes=parts.shapes)
    return framed


def _cells(sheet: Sheet, look: Look, limit: float, spare: float) -> go.Heatmap:
    z = np.full(sheet.size, np.nan, np.float32)
    text = np.full(sheet.size, "", object) if look.numbers and sheet.cell_px >= NUMBERS_FROM_PX else None
    for tile, row, column in sheet.placed():
        block = np.s_[row : row + tile.values.shape[0], column : column + tile.values.shape[1]]
        shown = tile.others() if look.hides(tile) else np.array(tile.values, np.float32)
        z[block] = shown / (common_limit([tile]) if look.own_scale else 1)
        if text is not None:
            text[block] = [[theme.short_text(value) for value in line] for line in tile.values.tolist()]
    end = 1.0 if look.own_scale else limit
    right = 1 + max(spare, 0) / max(sheet.size[1] * sheet.cell_px, 1)
    place = {"x": right, "xanchor": "right", "xpad": 40, "ypad": 8 + 16 * bool(sheet.column_names)}
    long = theme.PIXELS | ({"len": 140} if look.title else {})
    bar = theme.color_bar(end, signed=True, values=z, **long, **place)
    if look.own_scale:
        bar["ticktext"] = theme.OWN_LIMIT
    numbers: dict[str, Any] = {"text": text, "texttemplate": "%{text}", "textfont": {"size": 9}}
    return cells.grid(z, end, colorbar=bar, hoverinfo="skip", **({} if text is None else numbers))


def _bars(sheet: Sheet) -> Iterable[go.Scatter]:
    """A line under each tile as long as the tile, and on it the bar."""
    sized = [(tile, row + tile.values.shape[0], column) for tile, row, column in sheet.placed()]
    sized = [at for at in sized if at[0].size is not None]
    y = [row - 0.5 + 4 / sheet.cell_px for _, row, _ in sized for _ in range(3)]
    for color, most in ((theme.MASKED_LINE, False), (theme.INK, True)) if sized else ():
        shares = [tile.size or 0.0 if most else 1.0 for tile, _, _ in sized]
        wide = [tile.values.shape[1] * share for (tile, _, _), share in zip(sized, shares, strict=True)]
        starts = [column - 0.5 for _, _, column in sized]
        x = [at for start, length in zip(starts, wide, strict=True) for at in (start, start + length, None)]
        line = {"color": color, "width": 5}
        yield go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", cliponaxis=False)


def _words(sheet: Sheet) -> Iterable[go.Scatter]:
    placed = [(tile, row, column, *tile.values.shape) for tile, row, column in sheet.placed()]
    room = int(sheet.pitch[1] * sheet.cell_px / _SMALL_CHAR_PX)  # letters that fit under a tile
    drop = sheet.bar_px / sheet.cell_px
    kinds: dict[tuple[str, int, str], list[tuple[float, float, str]]] = {
        ("bottom right", _SMALL_PX, theme.INK): [
            (column - 0.5, row + height - 0.2 + drop, theme.cut(tile.mark, room))
            for tile, row, column, height, _ in placed
            if tile.mark
        ],
        ("middle center", 9, theme.BAD_COLOR): [
            (column + (wide - 1) / 2, row + (height - 1) / 2, tile.note)
            for tile, row, column, height, wide in placed
            if tile.note
        ],
        ("top right", 10, theme.INK): [
            (column - 0.5, row - 0.5, tile.name) for tile, row, column, *_ in placed if not sheet.row_names
        ],
        ("top right", 12, theme.INK): [
            (-0.5, sheet.tops[row] - 0.5, words) for row, words in sheet.headings.items()
        ],
    }
    for (where, size, color), words in kinds.items():
        if words:
            x, y, texts = zip(*words, strict=True)
            font = {"size": size, "color": color} | ({} if size == 12 else {"family": theme.MONO})
            look = {"textposition": where, "textfont": font, "hoverinfo": "skip", "cliponaxis": False}
            yield go.Scatter(x=x, y=y, text=texts, mode="text", **look)


def _targets(sheet: Sheet) -> go.Scatter:
    targets = [(tile, row, column, target) for tile, row, column in sheet.placed() for target in tile.targets]
    x = np.array([column + (tile.values.shape[1] - 1) / 2 for tile, _, column, _ in targets], np.float32)
    y = np.array([row + (target.first + target.last) / 2 for _, row, _, target in targets], np.float32)
    ids, hovers = np.array([[target.id] for *_, target in targets]), [target.hover for *_, target in targets]
    return cells.targets(x, y, 9.0, "%{text}<br>click to open", ids).update(text=hovers)


def _add_axes(parts: Parts, sheet: Sheet) -> None:
    bare = {"showline": False, "mirror": False, "ticks": "", "fixedrange": True}
    middle = (sheet.shape[1] - 1) / 2
    columns = {at * sheet.pitch[1] + middle: name for at, name in enumerate(sheet.column_names)}
    rows = {sheet.tops[at] + (sheet.shape[0] - 1) / 2: name for at, name in enumerate(sheet.row_names)}
    tile_px = max(sheet.pitch) * sheet.cell_px
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, sheet.size[1] - 0.5), side="top", **theme.ticks(columns), **bare),
        "yaxis": theme.axis(range=(sheet.size[0] - 0.5, -0.5), **theme.ticks(rows), **bare),
        "hoverdistance": round(0.6 * tile_px),
        "dragmode": False,
    }
