"""A kernel on this prompt: its shape with sign and scale folded out, its gain on a span; one painted."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from mta_viz.analysis.attention.kernel_map import HERE, Played, Scores, play, play_on
from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.taps import Operator, TapGains, operator, tap_gains
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.config import KernelPlace
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.kernels.mosaic import LATER_KEYS
from mta_viz.plots.parts import side_by_side
from mta_viz.plots.theme import Figure, limit_text, score_text
from mta_viz.printed import head_name


@named("operator")
class KernelOperator(NamedFigure[Operator]):
    """A kernel's taps by what they move on this prompt, unchanged when W_q and kernel trade sign or scale."""

    layer: int
    head: int
    where: KernelPlace = "pre"

    def result(self, source: Source) -> Operator:
        """Raises MtaVizError for a kernel the model lacks."""
        return source.of_run(operator, KernelId(self.layer, self.head, self.where))

    def draw(self, source: Source, result: Operator) -> Figure:
        return kernel_picture(result.weights, result.offsets, title="Shape on this prompt")

    def caption(self, source: Source, result: Operator) -> str:
        """The measured sign, and the taps of largest share."""
        places = [f"({query}, {key}) {share:.0%}" for query, key, _, share in result.top(3)]
        sign = "No token of this prompt repeats, so the sign is the kernel's own."
        if not math.isnan(result.match_gap):
            sign = (
                f"Where a key repeats the query's token, what it reads is {score_text(result.match_gap)} "
                "against the rest of the row; positive cells raise such places."
            )
        return (
            "Each tap times the spread of the scores it reads, over the spread of the result. "
            f"{sign} Largest shares of the result's variance: {', '.join(places)}."
        )


@named("tap-gains")
class TapGainMap(NamedFigure[TapGains]):
    """What each tap of a kernel adds to the cells of the keys `keys` (start, stop), above the row's mean.

    `query` None: the last token's row.
    """

    layer: int
    head: int
    keys: tuple[int, int]
    where: KernelPlace = "pre"
    query: int | None = None

    def result(self, source: Source) -> TapGains:
        """Raises MtaVizError for a kernel the model lacks, PromptError for keys the query does not see."""
        queries = None if self.query is None else (self.query,)
        return tap_gains(
            source.trace, KernelId(self.layer, self.head, self.where), range(*self.keys), queries
        )

    def draw(self, source: Source, result: TapGains) -> Figure:
        title = f"What each tap adds to tokens {self.keys[0]} to {self.keys[1] - 1}"
        return kernel_picture(result.taps, result.offsets, title=title)

    def caption(self, source: Source, result: TapGains) -> str:
        """The whole gain, and how much of it comes from repeated tokens."""
        unit = "of score" if self.where == "pre" else "of weight"
        query = "the last token" if self.query is None else f"token {self.query}"
        return (
            f"Seen from {query}, tokens {self.keys[0]} to {self.keys[1] - 1} are lifted by "
            f"{score_text(result.total)} {unit} above the mean of the row; "
            f"{score_text(float(result.match.sum()))} of it comes from keys that repeat the query's token."
        )


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
            attention_map(shown, result.tokens, numbering=source.numbering, **look) for shown in result.maps
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
