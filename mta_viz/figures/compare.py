"""Run A beside run B: answers, shares of a span, and kernels, of all heads and of one pair.

B is what stands beside the figure's source: another model, another prompt, or A's model with interventions.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.compare.comparing import Comparison, NeedleShares, Paired, compare_runs, pair_runs
from mta_viz.analysis.compare.maps import Spans, spans_beside
from mta_viz.analysis.compare.pairs import KernelPair, Rule, pair_taps, same_weights, step_folder
from mta_viz.analysis.kernels.kernels import SHORT, WHERE
from mta_viz.config import Head, KernelPlace, Where
from mta_viz.errors import MtaVizError
from mta_viz.figures import beside
from mta_viz.figures.base import Measured, Source, named
from mta_viz.model.plans import every_kernel
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.cause import sweep_map
from mta_viz.plots.compare import kernel_trio, share_lines
from mta_viz.plots.theme import Figure
from mta_viz.tables import Table

DISTANCES_PX = 245  # four of them in a row, one beside a trio


def side_names(source: Source) -> tuple[str, str]:
    """What A and B are called."""
    a, b = source.model, source.other.model
    if not same_weights(a, b):
        return _model_name(source), _model_name(source.other)
    if b.plan == a.plan:
        return "prompt A", "prompt B"
    twin = b.plan == every_kernel(a.config)
    return (_model_name(source), "kernels at identity") if twin else ("original", "edited")


def _model_name(source: Source) -> str:
    origin = source.model.source
    if origin is None or origin.step is None:
        return source.name
    return f"{step_folder(origin.path).parents[1].name}, step {origin.step:,}"


@dataclass(frozen=True, kw_only=True)
class OfComparison(Measured[Comparison]):
    """A figure of what two runs have in common and what they do otherwise.

    `answer`: None is the number or block A asks for, else its likeliest token. `span` of A's prompt is what
    shares are measured of, None the needle asked for. `pair_by`: how heads are paired, None by what fits.
    """

    answer: str | None = None
    span: Span | None = None
    pair_by: Rule | None = None
    result_of, hangs_on = "comparison", ("answer", "span", "pair_by")

    def paired(self, source: Source) -> Paired:
        """Which heads stand beside which: kept, since maps are drawn before all is compared."""
        a, b = source.trace, source.other.trace
        spans: Spans | Literal["asked"] | None = "asked"
        if self.span is not None:
            spans = spans_beside(a, b, self.span)
        how: dict[str, Any] = {"spans": spans, "pair_by": self.pair_by, "progress": source.progress}
        return source.remember(lambda: pair_runs(a, b, **how), "paired", self.span, self.pair_by)

    def measure(self, source: Source) -> Comparison:
        a, b, paired = source.trace, source.other.trace, self.paired(source)
        return compare_runs(a, b, answer=self.answer, paired=paired, progress=source.progress)


@named("compared-answers", kw_only=True)
class ComparedAnswers(OfComparison):
    """The answers' log-probabilities and the likeliest next tokens in both runs, as a table."""

    def table(self, source: Source, result: Comparison) -> Table:
        return result.answers_table()

    def caption(self, source: Source, result: Comparison) -> str:
        if result.same_ids:
            return "The likeliest next tokens: A's five, then those of B's five that are not among them."
        return "The likeliest next tokens: A's five, then B's five. The models write with other tokenizers."


@dataclass(frozen=True, kw_only=True)
class OfShares(OfComparison):
    """A figure of what heads give a span."""

    def needle(self, result: Comparison) -> NeedleShares:
        """Raises MtaVizError where a prompt has no such span."""
        if result.needle is None:
            raise MtaVizError("a prompt has no needle that is asked for; name a span that both prompts hold")
        return result.needle

    def table(self, source: Source, result: Comparison) -> Table:
        return result.shares_table()


@named("compared-shares", kw_only=True)
class ComparedShares(OfShares):
    """Each layer's largest share of the final weights on the span, a line for A and one for B."""

    def draw(self, source: Source, result: Comparison) -> Figure:
        needle, names = self.needle(result), side_names(source)
        return share_lines(needle.a, needle.b, names, numbering=source.numbering)

    def caption(self, source: Source, result: Comparison) -> str:
        a, b = side_names(source)
        return (
            f"Each layer's head that gives it most. A ({a}) solid, B ({b}) dashed. The CSV has every head, "
            "its partner, and both shares."
        )


@named("compared-share-map", kw_only=True)
class ComparedShareMap(OfShares):
    """Every head's share in A, in B, or A's less its partner's; `selected` (layer, head of A) is framed."""

    side: Literal["a", "b", "difference"]
    selected: Head | None = None

    def draw(self, source: Source, result: Comparison) -> Figure:
        needle, framed = self.needle(result), self.selected
        look: dict[str, Any] = {"numbering": source.numbering, "width": beside.MAP_PX}
        if self.side == "difference":
            values = needle.difference
            return sweep_map("A − B, paired heads", values, unit="share", selected=framed, **look)
        limit = round_up(float(np.nanmax([np.nanmax(needle.a), np.nanmax(needle.b)])))
        if self.side == "b" and framed is not None:
            beside.check_head(source, framed)
            framed = result.pairs.of(*framed)
        score = Score("share", f"share in {self.side.upper()}", "share", "", Stage.PATTERN, signed=False)
        return value_map(score, getattr(needle, self.side), limit=limit, selected=framed, **look)

    def caption(self, source: Source, result: Comparison) -> str:
        names = [span.words for span in self.needle(result).spans]
        what = names[0] if names[0] == names[1] else f"{names[0]} in A, {names[1]} in B"
        return (
            f"Share of {what} in the final weights of the prompt's last token: sum of |weight| on it over "
            "that of the row, 0 to 1. The third map is each of A's heads less its partner in B."
        )


@dataclass(frozen=True, kw_only=True)
class OfKernels(OfComparison):
    """A figure of the kernels of paired heads."""

    where: str

    def table(self, source: Source, result: Comparison) -> Table:
        return result.kernels_table()


@named("compared-kernels", kw_only=True)
class ComparedKernels(OfKernels):
    """How far each of A's kernels is from its partner's in B; `selected` (layer, head of A) is framed."""

    where: Where
    selected: Head | None = None

    def draw(self, source: Source, result: Comparison) -> Figure:
        """Layers down, heads across; hatched where neither has one."""
        values = np.full((source.model.config.n_layers, source.model.config.n_heads), np.nan)
        for row in result.kernels:
            if row.where == self.where:
                values[row.layer, row.head] = row.distance
        score = Score("distance", f"{SHORT[self.where]}: distance", "taps", "", Stage.PATTERN, signed=False)
        framed, numbering = self.selected, source.numbering
        return value_map(score, values, numbering=numbering, selected=framed, width=DISTANCES_PX)

    def caption(self, source: Source, result: Comparison) -> str:
        return f"{WHERE[self.where].capitalize()}."


@named("compared-kernel", kw_only=True)
class ComparedKernel(OfKernels):
    """One kernel of A, its partner's in B, and A minus B, on one scale."""

    where: KernelPlace
    layer: int
    head: int

    def row(self, result: Comparison) -> KernelPair:
        """What is known of the two. Raises MtaVizError where neither head has such a kernel."""
        wanted = (self.layer, self.head, self.where)
        row = next((row for row in result.kernels if (row.layer, row.head, row.where) == wanted), None)
        if row is None:
            raise MtaVizError(f"L{self.layer} H{self.head} has no kernel {WHERE[self.where]} in A nor in B")
        return row

    def draw(self, source: Source, result: Comparison) -> Figure:
        row = self.row(result)
        first, second = (self.layer, self.head), (row.layer_b, row.head_b)
        a, b, offsets = pair_taps(source.model, source.other.model, first, second, self.where)
        headings = (
            f"A {beside.name_of(source, first)}: {row.shape_a}",
            f"B {beside.name_of(source, second)}: {row.shape_b}",
            "A − B",
        )
        return kernel_trio(a, b, offsets, headings, f"Kernels {WHERE[self.where]}")

    def caption(self, source: Source, result: Comparison) -> str:
        row = self.row(result)
        return (
            f"Distance {row.distance:.3g}; from the identity A {row.off_a:.3g}, B {row.off_b:.3g}. One scale "
            "for all three, set by the taps other than the own one."
        )
