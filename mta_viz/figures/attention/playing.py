"""A kernel one paints oneself, between scores and what the model's convolution makes of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.playing import HERE, Played, Scores, play, play_on
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.kernels.mosaic import LATER_KEYS
from mta_viz.plots.side_by_side import side_by_side
from mta_viz.plots.theme import Figure, head_name, limit_text

MAP_PX, KERNEL_PX = (300, 276), 300
LOOK = replace(SMALL, title=lambda drawn, _: " after" if drawn.stage is Stage.KQ else " before")


@named("playground", kw_only=True)
class Playground(NamedFigure[Played]):
    """A kernel of one's own on a map of scores, before and after the model's convolution.

    `taps`: rows by query offset, the current query last; which keys they read hangs on the model's padding.
    `scores`: a map made by hand, or those of `layer` and `head` around the cell (`query`, `key`).
    """

    taps: tuple[tuple[float, ...], ...] = ()
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
        look: dict[str, Any] = {
            "limit": shared_limit(result.maps, first_token=True),
            "size": MAP_PX,
            "look": LOOK,
        }
        before, after = (
            attention_map(shown, result.tokens, numbering_from=source.numbering, **look)
            for shown in result.maps
        )
        kernel = kernel_picture(result.taps, result.offsets, title="kernel", width=KERNEL_PX)
        words = [part for part in kernel.layout.annotations if part.text != LATER_KEYS]  # wider than it
        kernel.layout.annotations = words
        return side_by_side([before, kernel, after], "")

    def caption(self, source: Source, result: Played) -> str:
        """What was convolved, on which scale, and what the kernel is called."""
        of = head_name(self.layer, self.head, source.numbering) if self.scores == HERE else "made by hand"
        limit = limit_text(shared_limit(result.maps, first_token=True))
        return (
            f"Raw scores ({of}, {self.scores}), a kernel, and what the model's convolution makes of them, "
            f"cells of the future read as 0. Rows: queries, columns: keys; hatched: masked; limits ±{limit}. "
            f"By its taps the kernel is named: {result.names}."
        )
