"""What a kernel's taps do on this prompt: its shape with sign and scale folded out, its gain on a span."""

import math

from mta_viz.analysis.attention.taps import Operator, TapGains, operator, tap_gains
from mta_viz.analysis.kernels.kernels import KernelId, Place
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.theme import Figure, score_text

WIDTH = 412


@named("operator")
class KernelOperator(NamedFigure[Operator]):
    """A kernel's taps by what they move on this prompt, unchanged when W_q and kernel trade sign or scale."""

    layer: int
    head: int
    where: Place = "pre"

    def result(self, source: Source) -> Operator:
        """Raises MtaVizError for a kernel the model lacks."""
        kernel = KernelId(self.layer, self.head, self.where)
        run = source.trace
        return source.remember(lambda: operator(run, kernel), "operator", kernel)

    def draw(self, source: Source, result: Operator) -> Figure:
        """The weights, as taps are drawn."""
        return kernel_picture(result.weights, result.offsets, title="Shape on this prompt", width=WIDTH)

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
    where: Place = "pre"
    query: int | None = None

    def result(self, source: Source) -> TapGains:
        """Raises MtaVizError for a kernel the model lacks, PromptError for keys the query does not see."""
        queries = None if self.query is None else (self.query,)
        return tap_gains(
            source.trace, KernelId(self.layer, self.head, self.where), range(*self.keys), queries
        )

    def draw(self, source: Source, result: TapGains) -> Figure:
        """The gains, as taps are drawn."""
        title = f"What each tap adds to tokens {self.keys[0]} to {self.keys[1] - 1}"
        return kernel_picture(result.taps, result.offsets, title=title, width=WIDTH)

    def caption(self, source: Source, result: TapGains) -> str:
        """The whole gain, and how much of it comes from repeated tokens."""
        unit = "of score" if self.where == "pre" else "of weight"
        query = "the last token" if self.query is None else f"token {self.query}"
        return (
            f"Seen from {query}, tokens {self.keys[0]} to {self.keys[1] - 1} are lifted by "
            f"{score_text(result.total)} {unit} above the mean of the row; "
            f"{score_text(float(result.match.sum()))} of it comes from keys that repeat the query's token."
        )
