"""All heads at a glance, layers down and heads across: thumbnails of their maps, or one number each.

All heads as points: two scores as axes, a third as colour; a point opens its head.
"""

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.heads import HeadScores, Score
from mta_viz.analysis.attention.maps import AttentionMap, round_up, shared_limit
from mta_viz.analysis.attention.patterns import Thumbnails
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts
from mta_viz.printed import head_name

_GAP = 2
_MAX_TILE_PX, _LEFT, _RIGHT, _TOP, _BOTTOM = 64, 50, 12, 66, 40
_ROW_PX, _NUMBER_PX, _MAX_COLUMN_PX = 28, 38, 64
TILES_PX, SCATTER_SIZE = 900, (460, 380)
_LEAST_ROW_PX, _ROWS_PX = 12, 400  # rows of deep models are lower, as far as their names have room
_CHARS, NOTHING = 7, 0.005  # of a cell's number; the share of the scale under which it has no colour


def head_tiles(
    thumbnails: Thumbnails,
    *,
    limit: float,
    own_scale: bool = False,
    numbering: int = 0,
    selected: tuple[int, int] | None = None,
) -> go.Figure:
    """A tile for each head: its map at one stage, pooled; layers without the stage are hatched.

    `limit`: end of the colour scale (see `shared_limit`); with `own_scale` every tile is coloured
    on its own limit instead. `selected` (layer, head) is framed. A tile is one click target: the
    event's customdata is (layer, head).
    """
    tiles, drawn = _Tiles(thumbnails, TILES_PX), thumbnails.maps()
    parts = Parts((TILES_PX, tiles.height), tiles.margin)
    limits = [shared_limit([tile]) if own_scale else limit for tile in drawn]
    broken = [tiles.center(tile.layer, tile.head) for tile in drawn if tile.bad.any()]
    every = [(*tiles.origin(layer, head), *tiles.shape) for layer in tiles.layers for head in tiles.heads]
    parts.traces += [
        _cells(tiles, limits, own_scale),
        _hatching(tiles),
        *cells.crosses([x for _, x in broken], [y for y, _ in broken], 12.0),
        _tile_targets(tiles, limits, numbering),
        cells.frames(every, theme.FRAME),
    ]
    if selected is not None:
        parts.add_box(tiles.origin(*selected), tiles.shape, color=theme.SELECTED_COLOR, width=3)
    _add_axes(parts, tiles, numbering)
    info = thumbnails.stage.value
    pooled = f", largest |x| of {thumbnails.block} x {thumbnails.block} cells" if thumbnails.block > 1 else ""
    return parts.figure(f"All heads · {info.long} ({info.unit}){pooled}")


class _Tiles:
    def __init__(self, thumbnails: Thumbnails, width: int) -> None:
        self.thumbnails = thumbnails
        self.layers = sorted((*thumbnails.layers, *thumbnails.lacking))
        _, n_heads, *shape = thumbnails.values.shape
        self.heads, self.shape = range(n_heads), (int(shape[0]), int(shape[1]))
        self.pitch = max(self.shape) + _GAP
        self.columns, self.rows = n_heads * self.pitch - _GAP, len(self.layers) * self.pitch - _GAP
        room = (width - _LEFT - _RIGHT) / self.columns
        self.cell_px = min(room, _MAX_TILE_PX / max(self.shape))
        spare = width - _LEFT - _RIGHT - round(self.columns * self.cell_px)
        self.height = round(self.rows * self.cell_px) + _TOP + _BOTTOM
        self.margin = {"l": _LEFT, "r": _RIGHT + max(spare, 0), "t": _TOP, "b": _BOTTOM}

    def origin(self, layer: int, head: int) -> tuple[int, int]:
        """Row and column of a tile's top left cell."""
        return self.layers.index(layer) * self.pitch, head * self.pitch

    def center(self, layer: int, head: int) -> tuple[float, float]:
        """Row and column of its middle."""
        row, column = self.origin(layer, head)
        return row + (self.shape[0] - 1) / 2, column + (self.shape[1] - 1) / 2


def _cells(tiles: _Tiles, limits: list[float], own_scale: bool) -> go.Heatmap:
    z = np.full((tiles.rows, tiles.columns), np.nan, np.float32)
    for tile, limit in zip(tiles.thumbnails.maps(), limits, strict=True):
        row, column = tiles.origin(tile.layer, tile.head)
        block = np.s_[row : row + tiles.shape[0], column : column + tiles.shape[1]]
        z[block] = cells.drawn_values(tile) / (limit if own_scale else 1.0)
    end = 1.0 if own_scale or not limits else limits[0]
    signed = not tiles.thumbnails.distribution
    bar = theme.color_bar(end, signed=signed, values=z, **theme.PIXELS)
    if own_scale:
        bar["ticktext"] = theme.OWN_LIMIT if signed else ["0", "", "own limit"]
    return cells.grid(z, end, signed=signed, colorbar=bar, hoverinfo="skip")


def _hatching(tiles: _Tiles) -> go.Scatter:
    """The masked corner of every tile, and the whole tile in layers that lack the stage."""
    rows, columns = tiles.shape
    corner = [(row + 0.5, row + dy) for row in range(rows) for dy in (-0.5, 0.5)]
    corner += [(columns - 0.5, -0.5), (np.nan, np.nan)]
    whole = np.stack(cells.corners([(0, 0, rows, columns)]), 1)
    outlines = [
        np.array(whole if layer in tiles.thumbnails.lacking else corner) + tiles.origin(layer, head)[::-1]
        for layer in tiles.layers
        for head in tiles.heads
    ]
    return cells.hatched(*np.concatenate(outlines).T)


def _tile_targets(tiles: _Tiles, limits: list[float], numbering: int) -> go.Scatter:
    places = [(layer, head) for layer in tiles.layers for head in tiles.heads]
    middle = np.array([tiles.center(*place) for place in places], np.float32)
    drawn = zip(tiles.thumbnails.maps(), limits, strict=True)
    facts = {(tile.layer, tile.head): _tile_facts(tile, limit) for tile, limit in drawn}
    texts = [
        f"{head_name(*place, numbering)}<br>{facts.get(place, 'this layer has no such stage')}"
        for place in places
    ]
    data = np.array(places, np.int16)
    return cells.targets(middle[:, 1], middle[:, 0], 9.0, "%{text}<br>click to open", data).update(text=texts)


def _tile_facts(tile: AttentionMap, limit: float) -> str:
    unit, n_bad = tile.stage.value.unit, int(tile.bad.sum())
    sizes = tile.values[~tile.bad].abs()
    peak = float(sizes.max()) if len(sizes) else 0.0
    value = theme.weight_text(peak) if unit == "weight" else f"{peak:.3g}"
    broken = f"<br>NaN or inf in {n_bad} blocks" if n_bad else ""
    return f"largest |{unit}| {value}, colours to {limit:g}{broken}"


def _add_axes(parts: Parts, tiles: _Tiles, numbering: int) -> None:
    bare = {"showline": False, "mirror": False, "ticklen": 2, "fixedrange": True}
    heads = {tiles.center(tiles.layers[0], head)[1]: f"H{head + numbering}" for head in tiles.heads}
    layers = {tiles.center(layer, 0)[0]: f"L{layer + numbering}" for layer in tiles.layers}
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, tiles.columns - 0.5), **theme.ticks(heads), **bare),
        "yaxis": theme.axis(range=(tiles.rows - 0.5, -0.5), **theme.ticks(layers), **bare),
        "hoverdistance": round(0.75 * tiles.pitch * tiles.cell_px),
        "dragmode": False,
    }
    parts.add_axis_titles("head", "layer")


def score_map(scores: HeadScores, key: str, **options: Any) -> go.Figure:
    """One score of all heads; options as of `value_map`."""
    score = next(score for score in scores.scores if score.key == key)
    return value_map(score, scores.values[key].numpy(), **options)


def value_map(
    score: Score,
    values: Float[np.ndarray, "layer head"],
    *,
    limit: float | None = None,
    numbering: int = 0,
    selected: tuple[int, int] | None = None,
    width: int = 460,
    scale: str | None = None,
) -> go.Figure:
    """One number a head as a layer x head map, with numbers where they fit.

    The scale goes to `limit` (None: the largest size), about 0 for scores that may be negative.
    Numbers have the digits that the limit has three of; ~0 is under 0.5 % of it.
    Heads without a value are hatched. `scale` is a colour scale (None: by the score's sign). The event's
    customdata is (layer, head), x the head and y the layer.
    """
    n_layers, n_heads = values.shape
    column_px = min((width - _LEFT - _RIGHT) / n_heads, _MAX_COLUMN_PX)
    row_px = max(min(_ROW_PX, _ROWS_PX // n_layers), _LEAST_ROW_PX)
    spare = width - _LEFT - _RIGHT - round(column_px * n_heads)
    margin = {"l": _LEFT, "r": _RIGHT + max(spare, 0), "t": _TOP, "b": _BOTTOM}
    parts = Parts((width, n_layers * row_px + _TOP + _BOTTOM), margin)
    limit = round_up(cells.largest(values)) if limit is None else limit
    colored = cells.grid(
        values,
        limit,
        signed=score.signed,
        colorbar=theme.color_bar(limit, signed=score.signed),
        text=[[_cell_text(value, limit, signed=score.signed) for value in row] for row in values.tolist()],
        texttemplate="%{text}" if column_px >= _NUMBER_PX else None,
        textfont={"size": 10},
        hoverinfo="skip",
    )
    if scale:
        colored.colorscale = scale
    without = np.argwhere(~np.isfinite(values)).tolist()
    places = np.argwhere(np.ones_like(values, bool)).astype(np.int16)
    texts = [
        f"{head_name(layer, head, numbering)}<br>{_value_line(score, float(values[layer, head]))}"
        for layer, head in places.tolist()
    ]
    targets = cells.targets(places[:, 1], places[:, 0], 9.0, "%{text}<br>click to open", places)
    parts.traces += [
        colored,
        *cells.hatched_boxes((layer, head, 1, 1) for layer, head in without),
        targets.update(text=texts),
    ]
    if selected is not None:
        parts.add_box(selected, color=theme.INK, width=3)
    parts.layout |= {
        "xaxis": theme.listed([f"H{head + numbering}" for head in range(n_heads)]),
        "yaxis": theme.listed([f"L{layer + numbering}" for layer in range(n_layers)], down=True),
        "dragmode": False,
        "hoverdistance": round(max(column_px, row_px)),
    }
    return parts.figure(_title(score), "head", "layer")


def _cell_text(value: float, limit: float, *, signed: bool) -> str:
    if not np.isfinite(value):
        return "–"
    if abs(value) < NOTHING * limit:
        return theme.pale("~0") if value else "0"
    digits = 3 - math.ceil(math.log10(limit))
    text = f"{round(value, digits):{'+' if signed else ''}g}"
    return text if len(text) <= _CHARS else f"{value:{'+' if signed else ''}.0e}"


def value_text(score: Score, value: float) -> str:
    """A score's value as it is written everywhere: sign and three digits, or three decimals."""
    if not np.isfinite(value):
        return "–"
    if score.signed:
        return f"{value:+.3f}" if score.unit in ("share", "weight") else theme.score_text(value)
    return theme.weight_text(value) if score.unit in ("share", "of norm") else f"{value:.3g}"


def _value_line(score: Score, value: float) -> str:
    words = f"{value_text(score, value)} {score.unit}" if np.isfinite(value) else "not measured here"
    return f"{theme.escape(score.name)}: {words}"


_POINT_PX, _SELECTED_PX = 10, 15


def head_scatter(
    scores: HeadScores,
    axes: tuple[str, str, str],
    *,
    numbering: int = 0,
    selected: tuple[int, int] | None = None,
) -> go.Figure:
    """A point for each head at the scores `axes` = keys of (x, y, colour); hovers tell all three.

    Heads without a value of x or y are not drawn, those without one of the colour are grey. The
    `selected` (layer, head) is larger, with a dark rim and its name. The event's customdata is
    (layer, head).
    """
    by_key = {score.key: score for score in scores.scores}
    x, y, color = (by_key[key] for key in axes)
    values = np.stack([scores.values[key].numpy() for key in axes])
    places = np.argwhere(np.isfinite(values[:2]).all(0))
    points = values[:, places[:, 0], places[:, 1]]
    parts = Parts(SCATTER_SIZE, {"l": 72, "r": 14, "t": 66, "b": 48})
    names = [head_name(layer, head, numbering) for layer, head in places.tolist()]
    chosen = (places == np.array(selected or (-1, -1))).all(1)
    parts.traces += _points(points, (x, y, color), places, names, chosen)
    ends = [_ends(values) for values in points[:2]]
    first = np.argsort(~chosen, kind="stable")
    parts.add_names([names[at] for at in first[: chosen.sum()]], points[:2].T[first].tolist(), ends)
    parts.layout |= {"xaxis": _axis(ends[0], x), "yaxis": _axis(ends[1], y), "dragmode": False}
    return parts.figure(f"Heads · colour: {_title(color)}", _title(x), _title(y))


def n_without(scores: HeadScores, axes: tuple[str, str, str]) -> int:
    """How many heads the scatter cannot draw: they lack a value of x or y."""
    x, y = (scores.values[key].numpy() for key in axes[:2])
    return int((~(np.isfinite(x) & np.isfinite(y))).sum())


def _title(score: Score) -> str:
    return f"{theme.escape(score.name)} ({score.unit})"


def _points(
    values: Float[np.ndarray, "axis point"],
    about: tuple[Score, Score, Score],
    places: np.ndarray,
    names: list[str],
    chosen: np.ndarray,
) -> list[go.Scatter]:
    """Heads without a colour first, so that they lie under the others."""
    hovers = [
        "<br>".join([name, *map(_value_line, about, facts)])
        for name, facts in zip(names, values.T.tolist(), strict=True)
    ]
    colored = np.isfinite(values[2])
    looks: dict[bool, dict[str, object]] = {False: {"color": theme.MASKED_LINE}}
    if colored.any():
        shown, signed = values[2][colored], about[2].signed
        limit = round_up(float(np.abs(shown).max()))
        ends = {"cmin": -limit if signed else 0.0, "cmax": limit}
        bar = theme.color_bar(limit, signed=signed, **theme.PIXELS)
        scale = theme.SIGNED_SCALE if signed else theme.MASS_SCALE
        looks[True] = {"color": shown, **ends, "colorscale": scale, "colorbar": bar}
    return [
        go.Scatter(
            x=values[0][here],
            y=values[1][here],
            mode="markers",
            marker=looks[has_color]
            | {
                "size": np.where(chosen[here], _SELECTED_PX, _POINT_PX),
                "opacity": 1,
                "line": {"color": theme.INK, "width": np.where(chosen[here], 2.5, 0.5)},
            },
            selected={"marker": {"opacity": 1}},
            unselected={"marker": {"opacity": 1}},
            customdata=places[here].astype(np.int16),
            hovertext=np.array(hovers)[here].tolist(),
            hovertemplate="%{hovertext}<br>click to open<extra></extra>",
        )
        for has_color, here in ((False, ~colored), (True, colored))
        if here.any()
    ]


def _ends(values: Float[np.ndarray, " point"]) -> tuple[float, float]:
    """All points with room around them."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    room = 0.12 * (high - low) or 0.5 * abs(high) or 0.5
    return low - room, high + room


def _axis(ends: tuple[float, float], score: Score) -> dict[str, object]:
    """A line at 0 where a score may go below it."""
    zero = {"zeroline": score.signed, "zerolinecolor": theme.MASKED_LINE}
    return theme.axis(range=ends, nticks=6, fixedrange=True, **zero)
