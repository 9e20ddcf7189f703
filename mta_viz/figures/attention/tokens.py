"""Cells, rows and positions of a prompt as figures: bars, text, predictions, why a cell has its value."""

from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention import cells, decomposition
from mta_viz.analysis.attention.spans import Span
from mta_viz.errors import PromptError
from mta_viz.figures.attention.maps import OfHead, stage_of
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.plots.attention import tokens as pictures
from mta_viz.plots.attention.stages import section_bars, section_ends
from mta_viz.plots.attention.text import token_text
from mta_viz.plots.theme import Figure, score_text, weight_text
from mta_viz.printed import head_name
from mta_viz.tables import Table

Side = Literal["from the query", "to the key"]
WHY_PX = 540
CONTRIBUTION = (
    "Value norm: length ||v|| of the key's value vector in this head. Contribution: |weight| x ||v||, the "
    "size of what the key adds to the head's output at the query, in units of v."
)


@named("top-cells")
class TopCells(OfHead[tuple[cells.TopCell, ...]]):
    """The `count` cells of a map that stand out, largest first, `by` what is said. A table."""

    stage: str
    by: cells.By = "value"
    count: int = 50
    first_token: bool = False

    def result(self, source: Source) -> tuple[cells.TopCell, ...]:
        """Raises PromptError where the stage has no change or contribution."""
        of = (source.trace, *self.place, stage_of(source, self.layer, self.stage), self.count)
        return cells.top_cells(*of, by=self.by, first_token=self.first_token)

    def table(self, source: Source, result: tuple[cells.TopCell, ...]) -> Table:
        return cells.cells_table(result, source.trace.tokens)

    def caption(self, source: Source, result: tuple[cells.TopCell, ...]) -> str:
        stage = stage_of(source, self.layer, self.stage)
        before = cells.stage_before(source.trace, self.layer, stage)
        largest = self.by if self.by == "contribution" else f"|{self.by}|"
        left_out = "" if self.first_token else ", query 0 and key 0 left out"
        words = f"The {len(result)} cells of largest {largest} at {stage.value.long} ({stage.value.unit})"
        words += f"{left_out}. Change: less {before.value.long}." if before else f"{left_out}."
        return words + f" {CONTRIBUTION}" * (self.by == "contribution")


@dataclass(frozen=True, kw_only=True)
class OfSection(OfHead[cells.CrossSection]):
    """A row or a column of a head as bars over its tokens, one row of bars a stage.

    `spans` are outlined; `first_token`: whether it counts for the limits.
    """

    first_token: bool = False
    spans: tuple[Span, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether stages are compared, on one scale."""
        return bool(getattr(self, "stages", ()))

    def draw(self, source: Source, result: cells.CrossSection) -> Figure:
        """The bars, with a line at the other token of the cell."""
        return section_bars(
            result,
            source.trace.tokens,
            ends=section_ends(result, first_token=self.first_token, shared=self.shared),
            numbering=source.numbering,
            selected=getattr(self, "key" if result.along == "keys" else "query"),
            spans=self.spans,
        )

    def caption(self, source: Source, result: cells.CrossSection) -> str:
        outlined = " Outlined: the named spans." if self.spans else ""
        scale = "Stages of a unit share one scale" if self.shared else "Each stage has its own scale"
        return f"Red above 0, blue below. {scale}.{outlined}"


@named("row", kw_only=True)
class Row(OfSection):
    """What `query` attends to; a line stands at `key`. `stages`: of these alone, empty: of all."""

    query: int
    key: int | None = None
    stages: tuple[str, ...] = ()

    def result(self, source: Source) -> cells.CrossSection:
        """Raises PromptError for a query that is not there."""
        row = source.of_run(cells.query_row, *self.place, self.query)
        shown = {at: values for at, values in row.values.items() if at.value.key in self.stages}
        return replace(row, values=shown) if shown else row


@named("column", kw_only=True)
class Column(OfSection):
    """Who attends to `key`; a line stands at `query`."""

    key: int
    query: int | None = None

    def result(self, source: Source) -> cells.CrossSection:
        """Raises PromptError for a key that is not there."""
        return source.of_run(cells.key_column, *self.place, self.key)


@named("attention-text")
class AttentionText(OfHead[cells.CrossSection]):
    """The prompt as text, each token on the colour of its value at `stage`.

    `side`: from the query at `position`, or to the key there. The other parameters are those of `row`.
    """

    stage: str
    position: int
    side: Side = "from the query"
    first_token: bool = False
    spans: tuple[Span, ...] = ()

    def result(self, source: Source) -> cells.CrossSection:
        """Raises PromptError for a stage or position that is not there."""
        stage_of(source, self.layer, self.stage)
        cut = cells.query_row if self.side == "from the query" else cells.key_column
        return source.of_run(cut, *self.place, self.position)

    def _scale(self, source: Source, result: cells.CrossSection) -> tuple[Stage, float, bool]:
        stage = stage_of(source, self.layer, self.stage)
        _, limit = section_ends(result, first_token=self.first_token)[stage]
        return stage, limit, is_distribution(stage, source.model.config.kernels(self.layer))

    def draw(self, source: Source, result: cells.CrossSection) -> Figure:
        stage, limit, distribution = self._scale(source, result)
        return token_text(
            source.trace.tokens,
            result,
            stage,
            limit=limit,
            distribution=distribution,
            numbering=source.numbering,
            spans=self.spans,
        )

    def caption(self, source: Source, result: cells.CrossSection) -> str:
        stage, limit, distribution = self._scale(source, result)
        ends = f"0 to {limit:g}" if distribution else f"±{limit:g}"
        outlined = " Outlined: the named spans." if self.spans else ""
        return (
            f"Each token has the colour of its {stage.value.unit} at this stage, {self.side}; limits of this "
            f"row alone: {ends}. Hatched: masked. Dotted underneath: negative.{outlined}"
        )


@named("next-token")
class NextToken(NamedFigure[cells.Predictions]):
    """The `count` most probable tokens after `position`."""

    position: int
    count: int = 10

    def result(self, source: Source) -> cells.Predictions:
        """Raises PromptError for a position that is not there, MtaVizError for logits that are NaN."""
        return cells.top_tokens(source.trace, self.position, self.count)

    def draw(self, source: Source, result: cells.Predictions) -> Figure:
        return pictures.next_tokens(result)

    def caption(self, source: Source, result: cells.Predictions) -> str:
        return f"Next token after {source.trace.tokens.named(self.position)}."


@named("lens")
class Lens(NamedFigure[cells.LogitLens]):
    """What the residual stream after `position` would predict after each layer.

    `shown`: the most probable tokens of every layer, or how probable the last layer's become.
    """

    position: int
    shown: Literal["tokens", "lines"] = "tokens"
    words = (
        "Logit lens: the residual stream after each layer, read off by the final norm and the "
        "unembedding. The last layer is the model's own output."
    )

    def result(self, source: Source) -> cells.LogitLens:
        """Raises as `next-token`."""
        return source.of_run(cells.lens_over_layers, self.position)

    def draw(self, source: Source, result: cells.LogitLens) -> Figure:
        make = pictures.lens_tokens if self.shown == "tokens" else pictures.lens_lines
        return make(result, numbering=source.numbering)


@named("gate")
class Gate(NamedFigure["Float[Tensor, 'head position']"]):
    """What part of each head's output passes the gate of a `layer` at each position, 0 to 1.

    The cell of `head` and `position` is framed.
    """

    layer: int
    head: int | None = None
    position: int | None = None
    words = (
        "Gate: what part of a head's normed output passes, 0 to 1, the mean where a head has several. "
        "Rows: heads, columns: tokens."
    )

    def result(self, source: Source) -> Float[Tensor, "head position"]:
        """Means over a head's dimensions. Raises PromptError for a model without gates."""
        gate = source.trace.gate(self.layer)
        if gate is None:
            raise PromptError("This model has no gate: every head's output passes as it is.")
        return gate.float().mean(-1).T.cpu()

    def draw(self, source: Source, result: Float[Tensor, "head position"]) -> Figure:
        cell = None if self.head is None or self.position is None else (self.head, self.position)
        return pictures.gate_map(
            result.numpy(), source.trace.tokens, layer=self.layer, selected=cell, numbering=source.numbering
        )

    def table(self, source: Source, result: Float[Tensor, "head position"]) -> Table:
        pieces = source.trace.tokens.pieces
        rows = (
            (self.layer, head, position, pieces[position], value)
            for head, values in enumerate(result.tolist())
            for position, value in enumerate(values)
        )
        return Table.of(("layer", "head", "position", "token", "gate"), rows)


@named("why")
class Why(OfHead[decomposition.Decomposition]):
    """Why the cell (`query`, `key`) has its value at `stage`: the sum it is, or what it was computed from.

    A picture of the sum, `width` pixels wide; of the softmax, which is none, a table.
    """

    stage: str
    query: int
    key: int
    width: int = WHY_PX

    def result(self, source: Source) -> decomposition.Decomposition:
        """Raises PromptError for a cell that is masked or not there."""
        stage = stage_of(source, self.layer, self.stage)
        return decomposition.decompose(source.trace, self.layer, stage, self.head, self.query, self.key)

    def draw(self, source: Source, result: decomposition.Decomposition) -> Figure | None:
        """The window of the kernel, or a bar a source head, or one a dimension of both vectors."""
        if isinstance(result, decomposition.Convolved):
            return pictures.convolution_window(result, source.trace.tokens, width=self.width)
        if isinstance(result, decomposition.Mixed):
            return pictures.mixing_bars(result, numbering=source.numbering, width=self.width)
        if isinstance(result, decomposition.Scored):
            return pictures.product_bars(result, source.trace.tokens, width=self.width)
        return None

    def caption(self, source: Source, result: decomposition.Decomposition) -> str:
        place = f"{result.stage.value.long}, query {self.query}, key {self.key}"
        words = f"{value_text(result, result.value)}. {sentence(source, result)} {residual(result)}"
        return f"{head_name(*self.place, source.numbering)}, {place}: {words}"


def value_text(why: decomposition.Decomposition, value: float) -> str:
    """A value in the unit of the cell."""
    return score_text(value) if why.stage.value.unit == "score" else weight_text(value)


def residual(why: decomposition.Decomposition) -> str:
    """How well the parts give the value."""
    return f"The terms add up to the value; residual {why.residual:.1e} of the sum of their sizes."


def sentence(source: Source, why: decomposition.Decomposition) -> str:
    """What the value is made of, in words."""
    before = why.stage_before.value.long if why.stage_before else "source"
    if isinstance(why, decomposition.Convolved):
        return f"Sum of {len(why.terms)} products: kernel tap x {before} there.{_cause(source, why)}"
    if isinstance(why, decomposition.Mixed):
        return f"Sum over source heads: mixing weight x the same cell in that head.{_cause(source, why)}"
    if isinstance(why, decomposition.Softmaxed):
        words = f"exp({why.score:+.4g} - {why.log_normaliser:.4g}): its score less the logsumexp of the row."
        if why.rival is None or why.margin is None:
            return words
        rival = f"key {source.trace.tokens.named(why.rival)}"
        side = "ahead of" if why.margin >= 0 else "behind"
        return f"{words} {abs(why.margin):.3g} nats {side} the largest other one, {rival}."
    if isinstance(why, decomposition.Scored):
        return (
            f"q·k/√d: |q| {why.query_norm:.3g} x |k| {why.key_norm:.3g} x cosine {why.cosine:+.3f} "
            f"/ √{why.d_head}. Nothing was mixed yet."
        )
    words = f"The same as {before}: nothing happens at this step."
    if isinstance(why, decomposition.Subtracted):
        first, second = sorted(why.terms, key=lambda term: term.weight, reverse=True)
        share = f"λ {-second.weight:.4g} x the second {weight_text(second.source)}"
        words = f"The first softmax's {weight_text(first.source)} less {share}."
    return words


def _cause(source: Source, why: decomposition.Decomposition) -> str:
    """What the step did here: before, after, and what moved it most besides the cell itself."""
    own, term = why.own, why.largest
    if own is None or term is None:
        return ""
    place = f"query {term.query}, key {term.key}"
    if isinstance(why, decomposition.Mixed):
        place = f"H{term.head + source.numbering}"
    before, after = value_text(why, own.source), value_text(why, why.value)
    largest = f"largest other term {term.product:+.3g} ({place})"
    return f" It was {before} before this step and is {after} now; {largest}."
