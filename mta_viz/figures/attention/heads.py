"""All heads of a model on one prompt as figures: a score as a map, scores as points, every map in small."""

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

from mta_viz.analysis.attention.heads import SCORES, HeadScores, head_scores
from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.patterns import Thumbnails, all_thumbnails, layer_thumbnails
from mta_viz.analysis.attention.spans import QUESTION, Span, needle_spans
from mta_viz.config import Head
from mta_viz.errors import PromptError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import head_scatter, head_tiles, n_without, score_map
from mta_viz.plots.theme import Figure

MAP_PX = 460


def scores_key(source: Source, query: int | None, span: Span | None) -> tuple[Hashable, ...]:
    """Under what all heads' scores are remembered: of the row of `query`, None: the last."""
    return "scores", len(source.trace.tokens) - 1 if query is None else query, span


def scores_of(source: Source, query: int | None, span: Span | None) -> HeadScores:
    """Every score of every head; the prompt's needles are the span's rivals."""
    needles = [needle for needle in needle_spans(source.trace.tokens) if needle.letter != QUESTION]
    return head_scores(source.trace, span, query, needles=needles, progress=source.progress)


@dataclass(frozen=True)
class OfScores(NamedFigure[HeadScores]):
    """Scores of all heads: of the row of `query` (None: the last), about `span` where there is one.

    The head `selected` (layer, head) stands out.
    """

    query: int | None = None
    span: Span | None = None
    selected: Head | None = None

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Of the scores that are drawn."""

    def result(self, source: Source) -> HeadScores:
        """Raises PromptError for a query or span the prompt does not have, and a score not measured here."""
        scores = source.remember(
            lambda: scores_of(source, self.query, self.span), *scores_key(source, self.query, self.span)
        )
        for key in self.keys:
            if key not in scores.values:
                more = "; it is one of a span, give one" * any(score.key == key for score in SCORES)
                raise PromptError(
                    f"there is no score {key!r} here{more}. There are {', '.join(scores.values)}"
                )
        return scores


@named("head-scores")
class ScoreMap(OfScores):
    """One `score` of all heads, layers down and heads across."""

    score: str = "previous"

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.score,)

    def draw(self, source: Source, result: HeadScores) -> Figure:
        return score_map(result, self.score, numbering=source.numbering, selected=self.selected, width=MAP_PX)

    def caption(self, source: Source, result: HeadScores) -> str:
        return f"{definition(result, self.score)} Hatched: this head has no such value."

    def file_parts(self) -> tuple[object, ...]:
        return "heads", self.score


@named("heads-scatter")
class HeadScatter(OfScores):
    """All heads as points at two scores, `across` and `up`, the third one as their `colour`."""

    across: str = "distance"
    up: str = "induction"
    colour: str = "previous"

    @property
    def keys(self) -> tuple[str, str, str]:
        return self.across, self.up, self.colour

    def draw(self, source: Source, result: HeadScores) -> Figure:
        numbering = source.numbering
        return head_scatter(result, self.keys, numbering=numbering, selected=self.selected)

    def caption(self, source: Source, result: HeadScores) -> str:
        without = n_without(result, self.keys)
        return "A point is a head." + f" {without} heads have no such value and are not drawn." * bool(
            without
        )

    def file_parts(self) -> tuple[object, ...]:
        return "heads", "scatter", *self.keys


def informative(scores: HeadScores) -> str:
    """What a step adds on the span, where there are a span and a step; else induction."""
    wanted = ("gain.kq", "gain.kq2", "gain.final", "span.final")
    there = (key for key in wanted if key in scores.values and bool(scores.values[key].isfinite().any()))
    return next(there, "induction")


def definition(scores: HeadScores, key: str) -> str:
    """What a score is, with its unit and the stage it is measured at."""
    score = next(score for score in scores.scores if score.key == key)
    return f"{score.name} ({score.unit}; {score.stage.value.long}): {score.definition}"


def tiles_key(stage: Stage, layer: int | None) -> tuple[Hashable, ...]:
    """Under what `tiles_of` is remembered."""
    return "tiles", stage, layer


def tiles_of(source: Source, stage: Stage, layer: int | None) -> Thumbnails:
    """Every head's map at a stage, pooled: of one layer or of all."""
    if layer is not None:
        return layer_thumbnails(source.trace, layer, stage)
    return all_thumbnails(source.trace, stage, progress=source.progress)


@named("head-tiles")
class HeadTiles(NamedFigure[Thumbnails]):
    """Every head's map at a stage in small: of one `layer`, None: of all.

    `own_scale`: every tile has its own colour limit. The head `selected` (layer, head) is framed.
    """

    stage: str
    layer: int | None = None
    own_scale: bool = True
    first_token: bool = False
    selected: Head | None = None

    def result(self, source: Source) -> Thumbnails:
        """Raises PromptError for a stage that is not there."""
        of = (Stage.from_key(self.stage), self.layer)
        return source.remember(lambda: tiles_of(source, *of), *tiles_key(*of))

    def _limit(self, result: Thumbnails) -> float:
        return shared_limit(result.maps(), self.first_token)

    def draw(self, source: Source, result: Thumbnails) -> Figure:
        return head_tiles(
            result,
            limit=self._limit(result),
            own_scale=self.own_scale,
            numbering=source.numbering,
            selected=self.selected,
        )

    def caption(self, source: Source, result: Thumbnails) -> str:
        which = "all layers" if self.layer is None else f"L{self.layer + source.numbering}"
        one_scale = f"all on one scale, limit {self._limit(result):g}"
        return (
            f"Every head of {which} at {result.stage.value.long}, the largest |x| of a block in each cell, "
            f"{'each on its own scale' if self.own_scale else one_scale}."
        )

    def file_parts(self) -> tuple[object, ...]:
        return "heads", *([] if self.layer is None else [f"L{self.layer}"]), self.stage
