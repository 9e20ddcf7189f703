"""One head's map in two runs and the difference of the two, A in the figure's source and B beside it."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any, ClassVar, Literal, TypeVar

from mta_viz.analysis.attention.changes import DifferenceMap, subtract
from mta_viz.analysis.attention.maps import AttentionMap, exact_map, head_maps, round_up, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.compare.maps import ComparedMap, agreement, compared_map, same_vocabulary, stage_beside
from mta_viz.analysis.compare.pairs import same_weights
from mta_viz.config import Head
from mta_viz.errors import PromptError
from mta_viz.figures.attention.maps import HeadMap, Range, stage_of
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map, difference_caption, difference_map
from mta_viz.plots.compare import compared_caption, compared_figure
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.printed import head_name
from mta_viz.run.tracing import Trace
from mta_viz.tables import Table
from mta_viz.tokenizers.base import Tokens

T = TypeVar("T")
CELLS = 256  # longer prompts are pooled
MAP_PX = 300
ROUNDING = 1e-3  # of the maps' own limit


def name_of(source: Source, place: Head) -> str:
    """`L2 H1`, counted as the visitor wants."""
    return head_name(*place, source.numbering)


def check_head(source: Source, place: Head) -> None:
    """Raises PromptError for a head the model has not."""
    config = source.model.config
    if not (0 <= place[0] < config.n_layers and 0 <= place[1] < config.n_heads):
        last = f"L{config.n_layers - 1} H{config.n_heads - 1}"
        raise PromptError(f"{source.name} has no head L{place[0]} H{place[1]}; they are L0 H0 to {last}")


@dataclass(frozen=True)
class MapOnScale:
    """A map with its tokens, the end of its colour scale, and the words that go under it."""

    map: AttentionMap
    tokens: Tokens
    limit: float
    words: str


@dataclass(frozen=True)
class ScaledMap(NamedFigure[MapOnScale]):
    """A figure that is one map."""

    def table(self, source: Source, result: MapOnScale) -> Table:
        return result.map.table(result.tokens)

    def caption(self, source: Source, result: MapOnScale) -> str:
        return result.words


@dataclass(frozen=True)
class MapBeside(ScaledMap):
    """One of three maps: a head's in each of two runs, on one scale, and their difference on its own.

    The cell (`query`, `key`) is framed, `spans` of A's prompt are marked at the axes; scales leave out the
    first token unless `first_token`.
    """

    picture_of_difference: ClassVar[Callable[..., Figure]]
    layer: int
    head: int
    stage: str
    side: str
    query: int | None = None
    key: int | None = None
    spans: tuple[Span, ...] = ()
    first_token: bool = False

    @property
    def place(self) -> Head:
        """Layer and head."""
        return self.layer, self.head

    def stage_in(self, source: Source) -> Stage:
        """The stage. Raises PromptError where A has no such layer, head or stage."""
        check_head(source, self.place)
        return stage_of(source, self.layer, self.stage)

    def whole(self, source: Source, run: Trace, place: Head, stage: Stage) -> AttentionMap:
        """A head's whole map in one of the runs."""
        own = run is source.trace  # a run in the key would be kept as long as the maps
        return source.remember(lambda: head_maps(run, *place, CELLS), "maps beside", own, *place)[stage]

    def less(self, a: Trace, b: Trace, other: Head, stage: Stage, most: int = CELLS) -> ComparedMap:
        """The head in one run less the `other` in another, where the tokens agree."""
        shared = agreement(a.tokens, b.tokens, same_ids=same_vocabulary(a.model, b.model))
        return compared_map(a, b, self.place, other, stage, shared, most)

    def kept(self, source: Source, make: Callable[[], T], *key: Hashable) -> T:
        """What does not hang on the cell and the spans, made once."""
        return source.remember(make, self.name, self.layer, self.head, self.stage, *key)

    def draw(self, source: Source, result: MapOnScale) -> Figure:
        """The map, or the difference in its own colours."""
        own = result.tokens.pieces == source.trace.tokens.pieces
        look: dict[str, Any] = {
            "limit": result.limit,
            "numbering": source.numbering,
            "size": (MAP_PX, MAP_PX),
            "selected": None if self.query is None or self.key is None else (self.query, self.key),
            "spans": self.spans if own else (),
        }
        if isinstance(result.map, DifferenceMap):
            return type(self).picture_of_difference(result.map, result.tokens, **look)
        return attention_map(result.map, result.tokens, look=SMALL, **look)


@named("edited-map")
class EditedMaps(MapBeside):
    """A head's map in the original run, in the edited run beside it, or the second less the first.

    Whole, or exactly in some `queries` and `keys`.
    """

    picture_of_difference = staticmethod(difference_map)
    side: Literal["original", "edited", "difference"]
    queries: Range | None = None
    keys: Range | None = None

    def result(self, source: Source) -> MapOnScale:
        """Raises PromptError for a head, a stage or a part that is not there."""
        stage, tokens = self.stage_in(source), source.trace.tokens
        original, edited = self._maps(source, stage)
        if self.side == "difference":
            change = subtract(edited, original) if edited.block == 1 else self._pooled(source, stage)
            limit = shared_limit([change], self.first_token)
            moved = bool(change.values.any())
            words = difference_caption(change, limit) if moved else "No cell of this map changed."
            return MapOnScale(change, tokens, limit, words)
        limit = shared_limit([original, edited], self.first_token)
        shown = edited if self.side == "edited" else original
        return MapOnScale(shown, tokens, limit, f"One scale for both, to {limit_text(limit)}.")

    def _maps(self, source: Source, stage: Stage) -> Iterator[AttentionMap]:
        runs = source.trace, source.other.trace
        sides = HeadMap(*self.place, self.stage, queries=self.queries, keys=self.keys).part(source)
        if sides is None:
            return (self.whole(source, run, self.place, stage) for run in runs)
        return (exact_map(run, self.layer, stage, self.head, *starmap(slice, sides)) for run in runs)

    def _pooled(self, source: Source, stage: Stage) -> DifferenceMap:
        runs = source.other.trace, source.trace
        return self.kept(source, lambda: self.less(*runs, self.place, stage))

    def cropped(self, queries: Range | None, keys: Range | None) -> "EditedMaps":
        return replace(self, queries=queries or self.queries, keys=keys or self.keys)


@named("compared-map")
class ComparedMaps(MapBeside):
    """A's head, B's head beside it, or A minus B where both prompts hold the same tokens.

    `other`: B's layer and head; None for those of A. Where B's layer lacks the stage it is B's last before.
    """

    picture_of_difference = staticmethod(compared_figure)
    side: Literal["a", "b", "difference"]
    other: Head | None = None

    def result(self, source: Source) -> MapOnScale:
        """Raises PromptError for what is not there, a difference of prompts that begin otherwise included."""
        a, b, other = source.trace, source.other.trace, self.other or self.place
        stage = self.stage_in(source)
        check_head(source.other, other)
        first = self.whole(source, a, self.place, stage)
        second = self.whole(source, b, other, stage_beside(b.model.config, other[0], stage))
        limit = shared_limit([first, second], self.first_token)
        if self.side == "difference":
            return self._difference(source, stage, limit)
        map, run = (first, a) if self.side == "a" else (second, b)
        return MapOnScale(map, run.tokens, limit, f"One scale for A and B, to {limit_text(limit)}.")

    def exact(self, source: Source) -> MapOnScale:
        """The same with every cell of long prompts, on the scale of their blocks."""
        made, other = self.result(source), self.other or self.place
        if made.map.block == 1:
            return made

        def cells() -> AttentionMap:
            a, b = source.trace, source.other.trace
            if self.side == "difference":
                return self.less(a, b, other, made.map.stage, len(a.tokens))
            run, place = (a, self.place) if self.side == "a" else (b, other)
            return exact_map(run, place[0], made.map.stage, place[1])

        return replace(made, map=self.kept(source, cells, "exact", self.side, other))

    def _difference(self, source: Source, stage: Stage, limit_ab: float) -> MapOnScale:
        a, b = source.trace, source.other.trace
        difference = self.kept(source, lambda: self.less(a, b, self.other or self.place, stage), self.other)
        floor = round_up(ROUNDING * limit_ab)  # noise of the last bits is not drawn as a difference
        limit = max(shared_limit([difference], self.first_token), floor)
        words = compared_caption(difference, limit) if limit > floor else _equal_words(source, difference)
        return MapOnScale(difference, a.tokens, limit, words)


def _equal_words(source: Source, difference: ComparedMap) -> str:
    """Why there is no difference to see; of one model on two beginnings there can be none."""
    words = "The maps are equal in every cell compared, up to rounding."
    a, b = source.trace, source.other.trace
    alike = same_weights(a.model, b.model) and a.model.plan == b.model.plan
    if not alike or len(a.tokens) == len(b.tokens) or difference.unlike:
        return words
    return (
        f"{words} Both prompts begin alike, and no token sees what comes after it. Prompts of equally "
        "many tokens are compared at every position."
    )
