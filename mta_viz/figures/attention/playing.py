"""A kernel one paints oneself, between scores and what the model's convolution makes of them."""

from dataclasses import replace

import numpy as np

from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.playing import HERE, Played, Scores, play, play_on
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.side_by_side import side_by_side
from mta_viz.plots.theme import Figure, limit_text

MAP_PX, KERNEL_PX = (300, 320), 300
LOOK = replace(SMALL, title=lambda drawn, _: " after" if drawn.stage is Stage.KQ else " before")


@named("playground", kw_only=True)
class Playground(NamedFigure[Played]):
    """A kernel of one's own on a map of scores, before and after the model's convolution.

    `taps`: rows by query offset, the current query last; which keys they read hangs on the model's padding.
    `scores`: a map made by hand, or those of `layer` and `head` around the cell (`query`, `key`).
    """

    taps: tuple[tuple[float, ...], ...]
    scores: Scores = "one match"
    layer: int = 0
    head: int = 0
    query: int = 0
    key: int = 0

    def result(self, source: Source) -> Played:
        """Raises MtaVizError for taps that are no table, PromptError for scores that are not there."""
        if not self.taps or not self.taps[0] or len({len(row) for row in self.taps}) > 1:
            raise MtaVizError("the taps of a kernel are a table: rows of one length, at least one")
        taps = np.array(self.taps, np.float64)
        if self.scores == HERE:
            return play_on(source.trace, self.layer, self.head, (self.query, self.key), taps)
        return play(taps, source.model.config, self.scores)

    def draw(self, source: Source, result: Played) -> Figure:
        """Both maps on one scale, the kernel between them."""
        before, after = (
            attention_map(
                shown,
                result.tokens,
                limit=self._limit(result),
                numbering_from=source.numbering,
                size=MAP_PX,
                look=LOOK,
            )
            for shown in result.maps
        )
        kernel = kernel_picture(result.taps, result.offsets, title="kernel", width=KERNEL_PX)
        return side_by_side([before, kernel, after], f"Named: {result.names}")

    def caption(self, source: Source, result: Played) -> str:
        """What was convolved, on which scale, and what the kernel is called."""
        of = (
            f"of L{self.layer + source.numbering} H{self.head + source.numbering}"
            if self.scores == HERE
            else "made by hand"
        )
        return (
            f"Raw scores {of} ({self.scores}), a kernel, and what the model's convolution makes of them, "
            "cells of the future read as 0. Rows: queries, columns: keys; hatched: masked; limits "
            f"±{limit_text(self._limit(result))}. By its taps the kernel is named: {result.names}."
        )

    def file_parts(self) -> tuple[object, ...]:
        """Without the taps, which are many."""
        return self.name, self.scores.replace("'", "").replace(" ", "-")

    @staticmethod
    def _limit(result: Played) -> float:
        return shared_limit(result.maps, first_token=True)
