"""Maps of one head as figures: at a stage, all stages beside one another, what a step changed."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any, Literal, TypeVar

from mta_viz.analysis.attention import changes
from mta_viz.analysis.attention import maps as analysis
from mta_viz.analysis.attention.changes import Change, DifferenceMap, HeadStatistics
from mta_viz.analysis.attention.spans import Span
from mta_viz.errors import PromptError, check_index
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.plots.attention.maps import attention_map, difference_caption, difference_map
from mta_viz.plots.attention.stages import stage_strip
from mta_viz.plots.theme import Figure
from mta_viz.printed import head_name
from mta_viz.tables import Table
from mta_viz.tokenizers.base import Tokens

R = TypeVar("R")
Range = tuple[int, int]  # of tokens, the end excluded
Scale = Literal["this map", "all stages"]
WHOLE_UP_TO = 256  # tokens a side: longer maps are drawn in blocks, since more cells take no clicks
HEADS_TOGETHER = 1024  # tokens: beyond, a pass over a layer takes so long that all of its heads are pooled
BLOCKS = 192  # a side of these: with the text beside it a browser is sent less than 2 MB
STATISTICS = (
    "Row sum: sum of a query's row. Negative: sum of max(-x, 0) over sum of |x|, all cells; in rows: how "
    "many rows hold any. Cancelled: 1 - |sum| / sum of |x|. Effective keys: (sum |x|)² / sum x² of a row, "
    "over the number of keys it sees. At score stages as if the softmax came there. Entropy only at the "
    "softmax, where rows are probabilities, over log of the number of keys. The last two are medians over "
    "rows."
)


@dataclass(frozen=True)
class OfHead(NamedFigure[R]):
    """A figure of one head of a run."""

    layer: int
    head: int

    @property
    def place(self) -> tuple[int, int]:
        """Layer and head."""
        return self.layer, self.head

    def table(self, source: Source, result: Any) -> Table:
        return result.table(source.trace.tokens)


def stage_of(source: Source, layer: int, key: str) -> Stage:
    """The layer's stage of this name, such as `kq`. Raises PromptError listing those it has."""
    check_index("layer", layer, source.model.config.n_layers)
    stages = {stage.value.key: stage for stage in layer_stages(source.model.config.kernels(layer))}
    if key not in stages:
        raise PromptError(f"layer {layer} has no stage {key!r}; it has {', '.join(stages)}")
    return stages[key]


def maps_of(source: Source, layer: int, head: int) -> Mapping[Stage, analysis.AttentionMap]:
    """Every stage of a head: whole, in blocks beyond `WHOLE_UP_TO` tokens, `BLOCKS` for many."""
    if len(source.trace.tokens) > HEADS_TOGETHER:
        return layer_maps_of(source, layer)[head]
    return source.of_run(analysis.head_maps, layer, head, WHOLE_UP_TO)


def layer_maps_of(source: Source, layer: int) -> Sequence[Mapping[Stage, analysis.AttentionMap]]:
    """The same of every head, in one pass, which takes hardly longer; reports to `source.progress`."""

    def pool() -> Sequence[Mapping[Stage, analysis.AttentionMap]]:
        return analysis.layer_maps(source.trace, layer, BLOCKS, progress=source.progress)

    return source.remember_with_run(pool, *layer_maps_key(layer))


def layer_maps_key(layer: int) -> tuple[Hashable, ...]:
    """What they are kept by; a few, as they are large."""
    return ("layer maps", layer)


def limit_of(
    maps: Mapping[Stage, analysis.AttentionMap], stage: Stage, scale: Scale, first_token: bool
) -> float:
    """The end of a map's colours, small and large: by itself, or of all stages of the head in its unit."""
    unit = stage.value.unit
    of = [stage] if scale == "this map" else [other for other in maps if other.value.unit == unit]
    return analysis.shared_limit([maps[stage] for stage in of], first_token)


@dataclass(frozen=True)
class MapParts:
    """What is drawn: cells and the end of their colours; the same cells one stage earlier, or the change."""

    shown: analysis.AttentionMap
    limit: float
    before: analysis.AttentionMap | None = None
    change: Change | None = None

    def table(self, tokens: Tokens) -> Table:
        """One row a cell, or a block."""
        return self.shown.table(tokens)


@dataclass(frozen=True)
class OfMap(OfHead[MapParts]):
    """A map of one head at a stage: whole, or exactly in some `queries` and `keys`.

    The cell (`query`, `key`) is framed, `spans` are marked at the axes; `first_token`: whether it counts for
    the limits. `size`: pixels a side.
    """

    stage: str
    query: int | None = None
    key: int | None = None
    queries: Range | None = None
    keys: Range | None = None
    first_token: bool = False
    spans: tuple[Span, ...] = ()
    size: int = 600

    def looks(self, source: Source, result: MapParts) -> dict[str, Any]:
        """How the map is drawn, as `plots` takes it."""
        cell = None if self.query is None or self.key is None else (self.query, self.key)
        looks = {"tokens": source.trace.tokens, "limit": result.limit, "numbering": source.numbering}
        return looks | {"size": (self.size, self.size), "selected": cell, "spans": self.spans}

    def part(self, source: Source) -> tuple[Range, Range] | None:
        """Both sides of the exact part, None: the whole map. Raises PromptError where it is too large."""
        if self.queries is None and self.keys is None:
            return None
        n_tokens = len(source.trace.tokens)
        sides = self.queries or (0, n_tokens), self.keys or (0, n_tokens)
        for start, stop in sides:
            if not 0 <= start < stop <= n_tokens:
                raise PromptError(
                    f"tokens {start}..{stop - 1} are not in the prompt; it has 0..{n_tokens - 1}"
                )
            if stop - start > WHOLE_UP_TO:
                most = f"at most {WHOLE_UP_TO} queries and {WHOLE_UP_TO} keys"
                raise PromptError(f"{most} are drawn; choose shorter spans")
        return sides

    def part_words(self, source: Source) -> str:
        """What of a caption says which part it is."""
        sides = self.part(source)
        if sides is None:
            return ""
        (top, bottom), (left, right) = sides
        return f" Queries {top} to {bottom - 1}, keys {left} to {right - 1}."

    def file_parts(self) -> tuple[object, ...]:
        sides = (("q", self.queries), ("k", self.keys))
        part = [f"{letter}{side[0]}-{side[1] - 1}" for letter, side in sides if side is not None]
        return f"L{self.layer}", f"H{self.head}", self.stage, *part

    def cropped(self, queries: Range | None, keys: Range | None) -> "OfMap":
        return replace(self, queries=queries or self.queries, keys=keys or self.keys, query=None, key=None)


@named("attention-map")
class HeadMap(OfMap):
    """One head's map at a stage.

    `scale`: the limits of this map or of all stages of its unit. The part `outlined` (queries, keys) has a
    frame, and a box can be drawn.
    """

    scale: Scale = "this map"
    outlined: tuple[Range, Range] | None = None

    def result(self, source: Source) -> MapParts:
        """Raises PromptError for what is not there, and a part that is too large."""
        stage, maps = stage_of(source, self.layer, self.stage), maps_of(source, *self.place)
        if stage not in maps:  # a saved run that does not hold it says so
            maps = {stage: analysis.head_map(source.trace, self.layer, stage, self.head, WHOLE_UP_TO)}
        earlier = [other for other in maps if other.value.unit == stage.value.unit]
        earlier = earlier[: earlier.index(stage)]
        limit = limit_of(maps, stage, self.scale, self.first_token)
        shown = [*earlier[-1:], stage]
        if self.part(source) is not None:
            maps = self._exact(source, stage)
        cells = [maps[at] for at in shown]
        return MapParts(cells[-1], limit, cells[0] if earlier else None)

    def exact(self, source: Source, stage: Stage) -> analysis.AttentionMap:
        """The cells of the part at a stage of the head; of the whole map where there is no part."""
        return self._exact(source, stage)[stage]

    def _exact(self, source: Source, stage: Stage) -> Mapping[Stage, analysis.AttentionMap]:
        """Of every stage of its unit, in one pass: the step before it is among them."""
        trace, unit, sides = source.trace, stage.value.unit, self.part(source) or ()
        there = layer_stages(source.model.config.kernels(self.layer))
        stages = {at for at in there if at.value.unit == unit and trace.has(self.layer, at)} | {stage}
        return source.remember(
            lambda: analysis.exact_maps(trace, self.layer, stages, self.head, *starmap(slice, sides)),
            *("part", *self.place, frozenset(stages), sides),
        )

    def draw(self, source: Source, result: MapParts) -> Figure:
        whole = self.part(source) is None
        outlined = tuple(slice(*side) for side in self.outlined) if self.outlined and whole else None
        looks = self.looks(source, result) | {"before": result.before, "part": outlined}
        return attention_map(result.shown, **looks)

    def caption(self, source: Source, result: MapParts) -> str:
        """Which map, its scale, and what is not to be seen in it."""
        shown, tokens, info = result.shown, source.trace.tokens, result.shown.stage.value
        low = "0" if shown.distribution else f"-{result.limit:g}"
        counted = "blocks" if shown.block > 1 else "cells"
        left_out = "" if self.first_token else " (first token left out)"
        words = (
            f"{head_name(*self.place, source.numbering)}, {info.long}, {len(tokens):,} tokens. "
            f"Rows: query, columns: key. Colour: {info.unit}, {low} to {result.limit:g}: 99.5 % of the "
            f"{counted} and the largest one of half of the rows lie within{left_out}. Hatched: masked."
        )
        return " ".join([words, *_warnings(shown)]) + self.part_words(source)

    def file_parts(self) -> tuple[object, ...]:
        return (*super().file_parts(), *["overview"] * (self.outlined is not None and self.queries is None))


def _warnings(shown: analysis.AttentionMap) -> list[str]:
    """What a reader must know of a map: broken cells, blocks, weights that are no probabilities."""
    words, weights = [], shown.stage.value.unit == "weight"
    if shown.n_bad:
        words.append(f"{shown.n_bad:,} cells are NaN or inf, marked x.")
    if shown.block > 1:
        words.append(
            f"Each cell is the value of largest size in a {shown.block} x {shown.block} block, sign kept; it "
            "overstates rare peaks."
        )
    if weights and not shown.distribution:
        words.append("These rows are not probabilities: they may be negative and need not sum to 1.")
    if weights and shown.negative_share > 0:
        words.append(f"Negative: {shown.negative_share:.0%} of all |weight|.")
    return words


@named("stage-strip")
class StageStrip(OfHead[Mapping[Stage, analysis.AttentionMap]]):
    """All stages of a head as small maps in the order they are computed; `stage` is framed.

    `scale`: the limits of each map or of all stages of its unit.
    """

    stage: str
    first_token: bool = False
    scale: Scale = "all stages"

    def result(self, source: Source) -> Mapping[Stage, analysis.AttentionMap]:
        stage_of(source, self.layer, self.stage)
        return maps_of(source, *self.place)

    def _limits(self, source: Source, maps: Mapping[Stage, analysis.AttentionMap]) -> dict[Stage, float]:
        return source.remember(
            lambda: {stage: limit_of(maps, stage, self.scale, self.first_token) for stage in maps},
            *("stage limits", *self.place, self.scale, self.first_token),
        )

    def draw(self, source: Source, result: Mapping[Stage, analysis.AttentionMap]) -> Figure:
        stage = Stage.from_key(self.stage)
        return stage_strip(result, self._limits(source, result), stage)

    def table(self, source: Source, result: Mapping[Stage, analysis.AttentionMap]) -> Table:
        return analysis.stages_table(result, source.trace.tokens)

    def caption(self, source: Source, result: Mapping[Stage, analysis.AttentionMap]) -> str:
        head, limits = head_name(*self.place, source.numbering), self._limits(source, result)
        if self.scale == "this map":
            return f"All stages of {head}, each on its own colour limits, which stand over it."
        units = {stage.value.unit: limit for stage, limit in limits.items()}
        ends = ", ".join(f"{unit}s share the limits ±{limit:g}" for unit, limit in units.items())
        return f"All stages of {head}. {ends.capitalize()}."


def changed_stages(source: Source, layer: int, head: int) -> dict[Stage, DifferenceMap]:
    """The whole difference of every convolution and head mixing of a layer, by the stage it makes."""
    return source.of_run(changes.differences, layer, head, WHOLE_UP_TO)


@named("difference-map")
class StepChange(OfMap):
    """What the convolution or head mixing that makes `stage` changed in a head: after minus before."""

    def result(self, source: Source) -> MapParts:
        """Raises PromptError where the layer has no such step, and for a part that is too large."""
        stage, wholes = stage_of(source, self.layer, self.stage), changed_stages(source, *self.place)
        if stage not in wholes:
            there = ", ".join(after.value.key for after in wholes) or "none"
            raise PromptError(
                f"no convolution or head mixing of layer {self.layer} makes {self.stage!r}; stages with a "
                f"difference: {there}"
            )
        sides, shown, trace = self.part(source), wholes[stage], source.trace
        if sides is not None:
            shown = changes.exact_difference(trace, self.layer, stage, self.head, *starmap(slice, sides))
        statistics = source.of_run(changes.head_statistics, *self.place)
        (change,) = (change for change in statistics.changes if change.after is stage)
        return MapParts(shown, analysis.shared_limit([wholes[stage]], self.first_token), change=change)

    def draw(self, source: Source, result: MapParts) -> Figure:
        return difference_map(result.shown, **self.looks(source, result))

    def caption(self, source: Source, result: MapParts) -> str:
        """What was subtracted, and how much of the whole map changed."""
        words, change = difference_caption(result.shown, result.limit), result.change
        if change is None:
            return words
        largest = f"largest {change.largest:+.3g} at ({change.query}, {change.key})"
        return f"{words} Changed: {change.size:.2f} of the norm; {largest}.{self.part_words(source)}"

    def file_parts(self) -> tuple[object, ...]:
        return (*super().file_parts(), "difference")


@named("row-statistics")
class RowStatistics(OfHead[HeadStatistics]):
    """What the rows of every stage of a head are like: sums, signs, effective keys, entropy. A table."""

    words = STATISTICS

    def result(self, source: Source) -> HeadStatistics:
        """Raises PromptError for a head that is not there."""
        return source.of_run(changes.head_statistics, *self.place)
