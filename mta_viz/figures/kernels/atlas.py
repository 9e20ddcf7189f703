"""The atlas: every key-query kernel under what it does, the one that matters most first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import plotly.graph_objects as go

from mta_viz.analysis.attention.spans import needle_spans
from mta_viz.analysis.cause.choosing import kernel_gains, moved_weight
from mta_viz.analysis.cause.effects import Effects
from mta_viz.analysis.cause.story import ASKED, span_words
from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.kernels.naming import names_of
from mta_viz.analysis.kernels.probes import EDGES, SPIKE, probe_of, read_off
from mta_viz.analysis.kernels.query import NO_SORT, select_rows
from mta_viz.analysis.kernels.table import Row, kernel_of
from mta_viz.analysis.labs.blocks import block_spans
from mta_viz.analysis.labs.finder import Parts, find
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source, named
from mta_viz.figures.kernels import gallery
from mta_viz.figures.kernels.gallery import GROUPS, KEY_QUERY_WORDS, KernelFigure, group_of
from mta_viz.plots.kernels import gallery as tiles
from mta_viz.plots.theme import head_name
from mta_viz.run.trace import Trace
from mta_viz.tables import Table

WIDTH = 470
SMALLEST, DISTANCE = 0.005, "distance_from_identity"  # a value that is rounded to 0 is not written
By = Literal["effect", "gain", "moved", "size", "column"]
MEANING = {
    "diagonal": "sequence match",
    "induction": "the key after a match",
    "anti-diagonal": "reversed sequence",
    "priming": "earlier queries attended the same key",
    "inhibition of return": "earlier queries at the same key, against the own tap",
    "smoothing": "neighbours averaged",
    "sharpening": "both sides against the own tap",
    "edge-first": "first of a run",
    "edge-last": "last of a run",
    "both edges": "first and last of a run",
    "edge": "where a run begins or ends",
    "KV shift": "reads the previous key",
    "single tap": "reads one other cell",
    "identity": "passes scores as they are",
    "unnamed": "changed, in none of these shapes",
    "broken": "NaN, infinite or all 0",
}
STIMULI = {
    "sequence": "a repeated sequence",
    "after a sequence": "the key after a repeated sequence",
    "reversed sequence": "a sequence repeated backwards",
    "priming": "a key attended again and again",
    "patch": "a patch of equal scores",
    EDGES: "first, middle and last of a run",
    SPIKE: "a single score",
}


@dataclass(frozen=True)
class Placed:
    """A kernel under its group. `value`: what it is sorted by, None where it has none.

    `before` and `after` it: the cells of the probe that are read; none of a broken kernel.
    """

    row: Row
    group: str
    value: float | None
    probe: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    def also(self) -> str:
        """Its other names; of a faint kernel all."""
        return " ".join(f"+ {name}" for name in names_of(self.row)[0 if self.row["faint"] else 1 :])

    def probed(self) -> str:
        """`probe, a repeated sequence: +1 before, +4.29 after`."""
        if not self.after:
            return ""
        before, after = (" · ".join(f"{at + 0.0:+.3g}" for at in side) for side in (self.before, self.after))
        return f"<br>probe, {STIMULI[self.probe]}: {before} before, {after} after".replace("-", "−")


@dataclass(frozen=True)
class Atlas:
    """The kernels group by group, each group in its order; `by` and `words`: what that is.

    `first`: the first of all groups; `largest`: the largest distance from the identity in the model.
    """

    placed: tuple[Placed, ...]
    first: KernelId
    by: By
    words: str
    largest: float
    layers: tuple[kernels.LayerKernelSet, ...]

    def sheet(self, numbering: int) -> tiles.Sheet:
        """The tiles under their groups; where the model has both places, a heading for each."""
        places = {at.row["where"] for at in self.placed}
        groups: dict[str, list[tiles.Tile]] = {}
        for at in self.placed:
            place = f", {kernels.WHERE[kernel_of(at.row).where]}" if len(places) > 1 else ""
            meaning = f": {MEANING[at.group]}" if at.group in MEANING else ""
            groups.setdefault(f"<b>{at.group.capitalize()}</b>{meaning}{place}", []).append(
                self._tile(at, numbering)
            )
        return tiles.Sheet.grouped(groups, width=WIDTH)

    def _tile(self, at: Placed, numbering: int) -> tiles.Tile:
        made, kernel = gallery.tile_of(at.row, self.layers, numbering), kernel_of(at.row)
        value = f" {value_text(at.value, self.by)}" if at.value is not None else ""
        distance = at.row[DISTANCE]
        size = "" if distance is None else f"<br>distance from the identity {distance:.3g}"
        (target,) = made.targets
        return replace(
            made,
            name=f"{head_name(kernel.layer, kernel.head, numbering)}{value}".rstrip(),
            mark=at.also(),
            size=(distance or 0.0) / self.largest,
            targets=(replace(target, hover=f"{target.hover}{size}{at.probed()}"),),
        )

    def table(self) -> Table:
        """A row a kernel."""
        columns = ("layer", "head", "where", "group", "names", DISTANCE, self.by, "probe")
        rows = (
            (
                *(at.row[name] for name in ("layer", "head", "where")),
                at.group,
                "; ".join(names_of(at.row)),
                *(at.row[DISTANCE], at.value, at.probe),
                *("; ".join(f"{cell:.6g}" for cell in side) for side in (at.before, at.after)),
            )
            for at in self.placed
        )
        return Table.of((*columns, "before", "after"), rows)


def value_text(value: float, by: By) -> str:
    """`−2.31`, shares as `+12%`; empty for what is rounded to nothing."""
    if not math.isfinite(value):
        return "NaN"
    if abs(value) < SMALLEST or by == "size":
        return ""
    return (f"{value:+.0%}" if by in ("gain", "moved") else f"{value:+.2f}").replace("-", "−")


@named("kernel-atlas")
class KernelAtlas(KernelFigure[Atlas]):
    """The key-query kernels that satisfy `query` under what they do; `sort`: a column of the kernel table.

    Without one they are sorted by the effects measured beside the weights, else by what they do on the run,
    else by their size. `layer`, `head` and `where` frame one.
    """

    query: str = ""
    sort: str = NO_SORT
    places: tuple[kernels.Place, ...] = kernels.KEY_QUERY
    layer: int | None = None
    head: int | None = None
    where: kernels.Where | None = None

    def result(self, source: Source) -> Atlas:
        """Raises MtaVizError where no kernel is left."""
        return source.remember(lambda: self._atlas(source), "atlas", self.unframed())

    def _atlas(self, source: Source) -> Atlas:
        every = [row for row in gallery.kernel_rows(source) if row["where"] in kernels.KEY_QUERY]
        rows, layers = select_rows(every, self.query, self.sort, self.places), gallery.model_layers(source)
        if not rows:
            raise MtaVizError(f"no kernel {' or '.join(self.places)} of this model is left by the query")
        by, words, values = _order(source, rows, self.sort)
        rank, groups = {kernel: at for at, kernel in enumerate(values)}, list(GROUPS)
        placed = [_placed(row, values.get(kernel_of(row)), layers[row["layer"]]) for row in rows]
        placed.sort(key=lambda at: rank.get(kernel_of(at.row), len(rank)))
        first = kernel_of(placed[0].row)
        placed.sort(key=lambda at: (groups.index(at.group), at.row["where"] == "post"))
        largest = max(row[DISTANCE] or 0.0 for row in every) or 1.0
        return Atlas(tuple(placed), first, by, words, largest, layers)

    def unframed(self) -> "KernelAtlas":
        """The same without a frame."""
        return replace(self, layer=None, head=None, where=None)

    def sheet(self, source: Source, result: Atlas) -> tiles.Sheet:
        """Where the tiles lie."""
        key = ("atlas sheet", self.unframed(), source.numbering)
        return source.remember(lambda: result.sheet(source.numbering), *key)

    def draw(self, source: Source, result: Atlas) -> go.Figure:
        """Tiles on their own scales; a frame is put on a copy."""
        sheet = self.sheet(source, result)
        look = tiles.Look(own_scale=True, title=f"bar: distance from identity, to {result.largest:.2g}")
        key = ("atlas picture", self.unframed(), source.numbering)
        figure = source.remember(lambda: tiles.gallery(sheet, look, 1.0), *key)
        return gallery.framed(figure, sheet, self.layer, self.head, self.where)

    def caption(self, source: Source, result: Atlas) -> str:
        """How it is sorted and read."""
        return (
            f"Kernels under the first name they have, + the others; in each group sorted by {result.words}. "
            f"{KEY_QUERY_WORDS} Each tile has its own colour scale, of an identity one that holds its own tap; "
            "hatched: own taps beyond the scale, hidden. The bar under a tile: the kernel's distance from the "
            f"identity, as wide as the tile at {result.largest:.3g}."
        )


def _order(source: Source, rows: Sequence[Row], sort: str) -> tuple[By, str, dict[KernelId, float]]:
    """By what kernels are sorted, in words too, and the value of each that has one, the first first."""
    effects = gallery.measured_effects(source)
    if sort != NO_SORT:
        return "column", sort.replace("_", " "), _column(rows, sort)
    if isinstance(effects, Effects) and not source.model.plan:
        lost = {at: effect.log_probability_change.value for at, effect in effects.of_each().items()}
        words = (
            "what the answer loses without each (number: its log-probability's change in nats, mean over "
            f"{effects.samples:,} samples of the {effects.task} task)"
        )
        return "effect", words, lost
    if source.run is not None:
        return _on_run(source.run)
    return "size", "the size of the change", _falling(_column(rows, DISTANCE))


def _on_run(run: Trace) -> tuple[By, str, dict[KernelId, float]]:
    """By the gain at what the prompt asks for, else by how much of the last token's weight is moved."""
    named_spans, last = needle_spans(run.tokens) or block_spans(run.tokens), len(run.tokens) - 1
    asked = next((span for span in named_spans if span.name.endswith(ASKED) and span.stop <= last), None)
    if asked is not None:
        gains = kernel_gains(find(run, Parts(asked, (asked,), last)))
        words = f"what each adds to the last token's share of {span_words(asked)} on this prompt"
        return "gain", words, _falling(gains)
    moved = "how much of the last token's weight each moves on this prompt, which asks for no needle"
    return "moved", moved, _falling(moved_weight(run))


def _column(rows: Sequence[Row], name: str) -> dict[KernelId, float]:
    return {kernel_of(row): float(row[name]) for row in rows if row[name] is not None}


def _falling(values: dict[KernelId, float]) -> dict[KernelId, float]:
    return dict(sorted(values.items(), key=lambda pair: -pair[1]))


def _placed(row: Row, value: float | None, layer: kernels.LayerKernelSet) -> Placed:
    group, where, probe = group_of(row), kernel_of(row).where, probe_of(row["shape"]) or SPIKE
    taps, offsets = (layer.pre, layer.pre_offsets) if where == "pre" else (layer.post, layer.post_offsets)
    if group == "broken" or taps is None or offsets is None:
        return Placed(row, group, value, probe, (), ())
    before, after = read_off(taps[row["head"]].double().numpy(), offsets, probe)
    return Placed(row, group, value, probe, before, after)
