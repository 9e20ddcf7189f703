"""Steps of the way from two tokens' scores to the weights, one figure each, and a kernel one paints oneself."""

from dataclasses import replace
from typing import Any

import numpy as np

from mta_viz.analysis.attention import playing
from mta_viz.analysis.attention.cells import CrossSection
from mta_viz.analysis.attention.decomposition import Scored, decompose
from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.attention.playing import Played
from mta_viz.errors import MtaVizError
from mta_viz.figures.attention.maps import OfHead
from mta_viz.figures.attention.tokens import Row
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage
from mta_viz.plots.attention import path as plots
from mta_viz.plots.cells import largest
from mta_viz.plots.theme import Figure, head_name, limit_text
from mta_viz.tables import Table

SIZE = (900, 300)


@named("score-products", kw_only=True)
class ScoreProducts(OfHead[Scored]):
    """A raw score as the products of its query's and key's vectors, one a dimension."""

    query: int
    key: int

    def result(self, source: Source) -> Scored:
        """Raises PromptError for a cell that is masked or not there."""
        scored = decompose(source.trace, self.layer, Stage.RAW, self.head, self.query, self.key)
        assert isinstance(scored, Scored)
        return scored

    def draw(self, source: Source, result: Scored) -> Figure:
        """A bar a product."""
        return plots.product_bars(result, source.trace.tokens, size=SIZE)

    def table(self, source: Source, result: Scored) -> Table:
        """A row a dimension."""
        return Table.of(("dimension", "product"), enumerate(result.products))

    def caption(self, source: Source, result: Scored) -> str:
        """What is multiplied."""
        return (
            f"{head_name(*self.place, source.numbering)}: the raw score of query {self.query} and key "
            f"{self.key} is the sum of {result.d_head} products, each of one dimension of both rotated "
            f"vectors, over √{result.d_head}. Red above 0, blue below."
        )


@named("softmax-row", kw_only=True)
class SoftmaxRow(Row):
    """A query's row before the softmax and after it; a line stands at `key`."""

    def result(self, source: Source) -> CrossSection:
        """Raises PromptError for a query that is not there."""
        row = super().result(source)
        stages = [*row.values]
        after = stages.index(Stage.SOFTMAX)
        return replace(row, values={stage: row.values[stage] for stage in stages[after - 1 : after + 1]})


@named("playground", kw_only=True)
class Playground(NamedFigure[Played]):
    """A kernel of one's own on a map of scores, before and after the model's convolution.

    `taps`: rows by query offset, the current query last; what columns read hangs on the model's padding.
    `scores`: a map made by hand, or those of `layer` and `head` around the cell (`query`, `key`).
    """

    taps: tuple[tuple[float, ...], ...]
    scores: playing.Scores = "one match"
    layer: int = 0
    head: int = 0
    query: int = 0
    key: int = 0

    def result(self, source: Source) -> Played:
        """Raises MtaVizError for taps that are no table, PromptError for scores that are not there."""
        if not self.taps or len({len(row) for row in self.taps}) != 1 or not self.taps[0]:
            raise MtaVizError("the taps of a kernel are a table: rows of one length, at least one")
        taps = np.array(self.taps, np.float64)
        if self.scores != "this head's scores":
            return playing.play(taps, source.model.config, self.scores)
        return playing.play_on(source.trace, self.layer, self.head, (self.query, self.key), taps)

    def draw(self, source: Source, result: Played) -> Figure:
        """Both maps on one scale, the kernel between them."""
        tokens = source.trace.tokens if self._of_run else None
        look: dict[str, Any] = {"limit": self._limit(result), "title": f"Named: {named_words(result)}"}
        return plots.painted_panels(result, tokens, **look)

    def caption(self, source: Source, result: Played) -> str:
        """What was convolved, on which scale."""
        of = f"of {head_name(self.layer, self.head, source.numbering)} " if self._of_run else "made by hand "
        return (
            f"Raw scores {of}({self.scores}), a kernel, and the scores after the model's convolution with it, "
            f"cells of the future read as 0. Rows: queries, columns: keys; limits ±"
            f"{limit_text(self._limit(result))}; hatched: masked. By its taps the kernel is named: "
            f"{named_words(result)}."
        )

    def file_parts(self) -> tuple[object, ...]:
        """Without the taps, which are many."""
        return self.name, self.scores.replace("'", "").replace(" ", "-")

    @property
    def _of_run(self) -> bool:
        return self.scores == "this head's scores"

    @staticmethod
    def _limit(result: Played) -> float:
        """One for both maps, that holds every cell seen."""
        seen = ~result.before.masked
        return round_up(max(largest(side.values[seen].numpy()) for side in (result.before, result.after)))


def named_words(result: Played) -> str:
    """What the rules call the kernel, each name with its score."""
    return result.shape.names or result.shape.shape
