"""All kernels of a model at once: the gallery's mosaics, the kernel table, what each kernel is worth."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.attention.matches import AtMatches, measure_matches, with_matches
from mta_viz.analysis.cause.effects import Absent, Effects, find_effects
from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.naming import BETWEEN_NAMES
from mta_viz.analysis.kernels.query import NO_SORT, PLACES, select_rows
from mta_viz.analysis.kernels.table import Row, as_table, kernel_of, kernel_table
from mta_viz.config import Where
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.figures.kernels.atlas import DISTANCE, MEANING, Order, also, group_of, order_of, probed
from mta_viz.model.plans import Edit
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.kernels import gallery as tiles
from mta_viz.plots.kernels.mosaic import Scale, fault_words
from mta_viz.plots.kernels.paper import full_matrix
from mta_viz.printed import head_name
from mta_viz.tables import Table

# Beside the softmax, where there is little room.
BESIDE: dict[Where, str] = {"pre": "before", "post": "after"}
BESIDE |= {"head_pre": "mix before", "head_post": "mix after"}
MAP_PX = 412
KERNELS_AT_MATCHES = ("all at matches",)  # what its result is kept by
PARTS = {"layer": "L", "head": "H", "where": "", "step": "step"}
KEY_QUERY_WORDS = (
    "Key-query kernels: in a tile, earlier queries above, the current one at the bottom; earlier keys left."
)
MIXING_WORDS = (
    "Head mixing: rows of a tile are target heads and what each receives, columns its source heads. "
    "Click a row to open it."
)


R = TypeVar("R")


@dataclass(frozen=True)
class KernelFigure(NamedFigure[R]):
    """What figures of kernels share: the name of their files."""

    def file_parts(self) -> tuple[object, ...]:
        """The figure's name, layer, head and place, as far as they are given."""
        given = ((sign, getattr(self, name, None)) for name, sign in PARTS.items())
        return self.name, *(f"{sign}{part}" for sign, part in given if part is not None)


def kernel_rows(source: Source) -> tuple[Row, ...]:
    """The kernel table of the source's model."""
    return source.remember_weights(
        lambda: kernel_table(source.model.state_dict(), source.model.config), "kernel table"
    )


def model_layers(source: Source) -> tuple[kernels.LayerKernelSet, ...]:
    """Every layer's kernels."""
    weights, config = source.model.state_dict(), source.model.config
    return source.remember_weights(
        lambda: tuple(kernels.layer_kernels(weights, config, layer) for layer in range(config.n_layers)),
        "all kernels",
    )


def kernels_at_matches(source: Source) -> dict[kernels.KernelId, AtMatches]:
    """What every kernel does where the run's tokens match. Raises MtaVizError without a run."""
    run, rows = source.trace, kernel_rows(source)
    return source.remember(
        lambda: measure_matches(rows, [run], progress=source.progress), *KERNELS_AT_MATCHES
    )


@named("kernel-table")
class KernelTable(KernelFigure[tuple[Row, ...]]):
    """The kernels that satisfy `query`, the largest of the column `sort` first, one a row.

    `matches`: with what each does where the run's tokens match.
    """

    query: str = ""
    sort: str = NO_SORT
    places: tuple[Where, ...] = PLACES
    matches: bool = False

    def result(self, source: Source) -> tuple[Row, ...]:
        """Rows of `kernel_table`. Raises QueryError, and MtaVizError for matches without a run."""
        rows = select_rows(kernel_rows(source), self.query, self.sort, self.places)
        return with_matches(rows, kernels_at_matches(source)) if self.matches else rows

    def table(self, source: Source, result: tuple[Row, ...]) -> Table:
        """All columns, those too that mean nothing for the rows shown."""
        return as_table(result)


@dataclass(frozen=True)
class Gallery:
    """The rows shown, in their order, all rows of the model, and the numbers behind them by layer.

    `reordered`: the tiles stand in the order of the rows instead of layers down and heads across. `order`:
    they stand under their shape, in this order.
    """

    shown: tuple[Row, ...]
    rows: tuple[Row, ...]
    layers: tuple[kernels.LayerKernelSet, ...]
    reordered: bool
    order: Order | None = None

    @property
    def largest(self) -> float:
        """The largest distance from the identity in the model."""
        return max((row[DISTANCE] or 0.0 for row in self.rows), default=0.0) or 1.0

    def sheet(self, numbering: int, width: int) -> tiles.Sheet:
        """The tiles and where they lie."""
        if self.order is not None:
            return tiles.Sheet.reading(self._groups(self.order, numbering), width=width)
        if self.reordered:
            each = [tile_of(row, self.layers, numbering) for row in self.shown]
            return tiles.Sheet.reading({"": each}, width=width)
        if self.shown[0]["where"] in kernels.MIXING:
            return tiles.Sheet.reading({"": list(self._matrix_tiles(numbering))}, width=width)
        by_row: dict[str, list[tiles.Tile | None]] = {}
        for row in self.shown:
            name = f"L{row['layer'] + numbering} {BESIDE[kernel_of(row).where]}"
            by_row.setdefault(name, []).append(tile_of(row, self.layers, numbering))
        heads = [f"H{head + numbering}" for head in range(max(map(len, by_row.values())))]
        return tiles.Sheet(list(by_row.values()), list(by_row), heads, width=width)

    def _groups(self, order: Order, numbering: int) -> dict[str, list[tiles.Tile]]:
        """By heading, one for each place where there are both."""
        groups, places = dict[str, list[tiles.Tile]](), {row["where"] for row in self.shown}
        for row in self.shown:
            kernel, tile, group = kernel_of(row), tile_of(row, self.layers, numbering), group_of(row)
            (target,), probe = tile.targets, probed(row, self.layers[row["layer"]])
            size = "" if row[DISTANCE] is None else f"<br>distance from the identity {row[DISTANCE]:.3g}"
            made = replace(
                tile,
                name=f"{head_name(kernel.layer, kernel.head, numbering)} {order.text(kernel)}".rstrip(),
                mark=also(row),
                size=(row[DISTANCE] or 0.0) / self.largest,
                targets=(replace(target, hover=f"{target.hover}{size}<br>{probe}".removesuffix("<br>")),),
            )
            meaning = f": {MEANING[group]}" if group in MEANING else ""
            place = f" {kernels.WHERE[kernel.where]}" if len(places) > 1 else ""
            groups.setdefault(f"<b>{group.capitalize()}</b>{place}{meaning}", []).append(made)
        return groups

    def _matrix_tiles(self, numbering: int) -> Iterator[tiles.Tile]:
        """A tile for each mixing matrix, [target, source]; each of its rows is a target of its own."""
        rows = {kernel_of(row): row for row in self.rows}
        for at in dict.fromkeys((row["layer"], row["where"]) for row in self.shown):
            values = full_matrix(self.layers[at[0]].mixing(at[1]).numpy())
            targets = tuple(
                tiles.Target(target_id(kernel), hover(rows[kernel], numbering), kernel.head, kernel.head)
                for kernel in (kernels.KernelId(at[0], head, at[1]) for head in range(len(values)))
            )
            own = tuple((head, head) for head in range(len(values)))
            name = f"L{at[0] + numbering} {BESIDE[at[1]]}"
            yield tiles.Tile(name, values, own, "", fault_words(values), targets)


def tile_of(row: Row, layers: Sequence[kernels.LayerKernelSet], numbering: int) -> tiles.Tile:
    """A key-query kernel, or a single row of a matrix, with the word for what it does."""
    kernel, layer = kernel_of(row), layers[row["layer"]]
    if kernel.where in kernels.KEY_QUERY:
        taps, offsets = layer.taps(kernel.where)
        values, own = taps[kernel.head].numpy(), offsets.own
    else:
        values, own = full_matrix(layer.mixing(kernel.where).numpy())[kernel.head][None], (0, kernel.head)
    target = tiles.Target(target_id(kernel), hover(row, numbering), 0, len(values) - 1)
    name = f"{head_name(kernel.layer, kernel.head, numbering)} {BESIDE[kernel.where]}"
    return tiles.Tile(
        name, values, (own,), f"{group_of(row)} {also(row)}".rstrip(), fault_words(values), (target,)
    )


@named("kernel-gallery")
class KernelGallery(KernelFigure[Gallery]):
    """Every kernel that satisfies `query` as a tile; `places` are of one kind: kernels, or head mixing.

    `layer`, `head` and `where` frame one of them; `most`: the first so many of the order, None: all.
    `arranged` by meaning: key-query kernels under their shape, each on its own scale, sorted by `sort`, else
    by the effects measured beside the weights, else by their gain on the run, else by size.
    """

    places: tuple[Where, ...] = kernels.KEY_QUERY
    query: str = ""
    sort: str = NO_SORT
    hide_own: bool = True
    scale: Scale = "shared"
    numbers: bool = False
    layer: int | None = None
    head: int | None = None
    where: Where | None = None
    most: int | None = None
    width: int = 900
    arranged: Literal["layer", "meaning"] = "layer"

    def result(self, source: Source) -> Gallery:
        """The rows and all layers. Raises MtaVizError where no kernel is left, or kinds are mixed."""
        if set(self.places) & set(kernels.KEY_QUERY) and set(self.places) & set(kernels.MIXING):
            raise MtaVizError("a gallery shows key-query kernels (pre, post) or head mixing, not both")
        rows = kernel_rows(source)
        shown = select_rows(rows, self.query, self.sort, self.places)[: self.most]
        if not shown:
            raise MtaVizError(f"no kernel {' or '.join(self.places)} of this model is left by the query")
        reordered = bool(self.query.strip()) or self.sort != NO_SORT
        if self.arranged == "layer" or shown[0]["where"] in kernels.MIXING:
            return Gallery(shown, rows, model_layers(source), reordered)
        make = partial(order_of, shown, self.sort, effects_without(source), source.run)
        order = source.remember(make, "kernel order", self._unframed())
        return Gallery(order.sorted(shown), rows, model_layers(source), reordered, order)

    def draw(self, source: Source, result: Gallery) -> go.Figure:
        """The mosaic; a frame is put on a copy, so that another costs little."""
        look = tiles.Look(self.hide_own, self.scale == "own" or result.order is not None, self.numbers)
        if result.order is not None:
            look = replace(look, title=f"bar: distance from identity, to {result.largest:.2g}")
        sheet, limit = self.sheet(source, result)
        key = ("gallery", self._unframed(), source.numbering)
        figure = source.remember(lambda: tiles.gallery(sheet, look, limit), *key)
        return framed(figure, sheet, self.layer, self.head, self.where)

    def _unframed(self, **look: Any) -> "KernelGallery":
        return replace(self, layer=None, head=None, where=None, **look)

    def sheet(self, source: Source, result: Gallery) -> tuple[tiles.Sheet, float]:
        """Where the tiles lie, and the limit of a shared scale."""

        def make() -> tuple[tiles.Sheet, float]:
            sheet = result.sheet(source.numbering, self.width)
            return sheet, tiles.common_limit(sheet.tiles)

        shown = self._unframed(hide_own=True, scale="shared", numbers=False)
        return source.remember(make, "gallery sheet", shown, source.numbering)

    def table(self, source: Source, result: Gallery) -> Table:
        names = {target_id(kernel := kernel_of(row)): kernel.name(source.numbering) for row in result.rows}
        rows = (
            (tile.name if len(tile.targets) > 1 else names[tile.targets[0].id], *cell, float(value))
            for tile in self.sheet(source, result)[0].tiles
            for cell, value in np.ndenumerate(tile.values)
        )
        return Table.of(("kernel", "row", "column", "value"), rows)

    def caption(self, source: Source, result: Gallery) -> str:
        """How a tile is read, the scale, what is hidden, and why there are no numbers."""
        sheet, limit = self.sheet(source, result)
        words = MIXING_WORDS if result.shown[0]["where"] in kernels.MIXING else KEY_QUERY_WORDS
        shared = f"one scale to ±{limit:g}"
        if result.order is not None:
            words += (
                f" Under their first names, + the others; in each group sorted by {result.order.words}. "
                f"The bar under a tile: its distance from the identity, full at {result.largest:.3g}."
            )
        own = self.scale == "own" or result.order is not None
        scales = "each tile on its own scale, that of an identity holds its own tap" if own else shared
        words += f" Colour: {scales}."
        if self.most is not None and len(result.shown) == self.most:
            words += f" The {self.most} largest in {self.sort.replace('_', ' ')}, the largest first."
        if self.hide_own:
            words += " Hatched: own taps and own weights, hidden."
        if self.numbers and sheet.cell_px < tiles.NUMBERS_FROM_PX:
            words += (
                f" Numbers need cells of {tiles.NUMBERS_FROM_PX} px, here they have {sheet.cell_px:.0f}: "
                "filter to a few kernels."
            )
        return words

    def file_parts(self) -> tuple[object, ...]:
        return "kernels", self.places[0]


def framed(
    figure: go.Figure, sheet: tiles.Sheet, layer: int | None, head: int | None, where: Where | None
) -> go.Figure:
    """The figure with a frame around one kernel, where one is given."""
    if layer is None or head is None or where is None:
        return figure
    return tiles.with_frame(figure, sheet.box(target_id(kernels.KernelId(layer, head, where))))


def target_id(kernel: kernels.KernelId) -> str:
    """What a click on the kernel's tile brings back."""
    return f"{kernel.where} {kernel.layer} {kernel.head}"


def hover(row: Row, numbering: int) -> str:
    """What is said of a kernel under the pointer."""
    kernel, off = kernel_of(row), row["energy_off_identity"]
    energy = "" if off is None else f"<br>{off:.0%} of its energy off the own tap"
    kind = "head mixing " if kernel.where in kernels.MIXING else ""
    name = head_name(kernel.layer, kernel.head, numbering)
    names = f"<br>{row['names']}" if BETWEEN_NAMES in (row["names"] or "") else ""
    return f"{name}, {kind}{kernels.WHERE[kernel.where]}<br>{row['verdict']}{names}{energy}"


def measured_effects(source: Source, edit: Edit = "identity") -> Effects | Absent:
    """The measured effects of the checkpoint's kernels, taken out as `edit` says; read and checked once."""
    return source.remember(partial(find_effects, source.model.path, edit), "effects", edit)


def effects_without(source: Source) -> Effects | Absent:
    """What is lost without each kernel: at its own tap where that is measured, else at the identity."""
    if source.model.plan:
        return Absent("The model is edited.")
    own = measured_effects(source, "own-tap")
    return measured_effects(source) if isinstance(own, Absent) else own


@named("kernel-effects")
class KernelEffects(KernelFigure[Effects]):
    """What the right answer loses when a kernel is taken out: all kernels of the kind of one, framed.

    `edit`: what is made of it, the identity or another. The table has the effects at the own tap beside them.
    """

    layer: int
    head: int
    where: Where = "pre"
    edit: Edit = "identity"

    def result(self, source: Source) -> Effects:
        """The measured effects. Raises MtaVizError where nothing is measured."""
        effects = measured_effects(source, self.edit)
        if isinstance(effects, Absent):
            raise MtaVizError(effects.reason)
        return effects

    def draw(self, source: Source, result: Effects) -> go.Figure:
        """Layers down and heads across, on one scale for all kinds."""
        sizes = [abs(effect.log_probability_change.value) for effect in result.of_each().values()]
        config, finite = source.model.config, [size for size in sizes if math.isfinite(size)]
        changes = np.full((config.n_layers, config.n_heads), np.nan)
        for kernel, effect in result.of_each(self.where).items():
            changes[kernel.layer, kernel.head] = effect.log_probability_change.value
        name = f"Answer's log-probability without it, {kernels.WHERE[self.where]}"
        return value_map(
            Score("effect", name, "nats", "", kernels.MADE_BY[self.where]),
            changes,
            limit=round_up(max(finite, default=1.0)),
            numbering=source.numbering,
            selected=(self.layer, self.head),
            width=MAP_PX,
        )

    def caption(self, source: Source, result: Effects) -> str:
        out = {"identity": "is the identity", "own-tap": "has its own tap only", "zero": "is zero"}
        kind = "rows of the head mixing" if self.where in kernels.MIXING else "key-query kernels"
        return (
            f"All {kind} {kernels.WHERE[self.where]}: how the log-probability of the right answer changes "
            f"when that one alone {out[self.edit]}. Blue: the answer loses. The colours are the same for all "
            "kinds. Click one to open it. Hatched: not measured."
        )

    def table(self, source: Source, result: Effects) -> Table:
        """A line a kernel; the effects of the other edit in columns of their own, where both are measured."""
        other = measured_effects(source, "identity" if self.edit == "own-tap" else "own-tap")
        return result.table(None if isinstance(other, Absent) else other)
