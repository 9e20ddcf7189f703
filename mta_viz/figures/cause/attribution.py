"""What adds to an answer: values of tokens and of every head's map, and direct effects of softmax cells.

By integrated gradients or by ablation, or exactly, by folding the maps back. A figure measures what it shows;
a page hands in what it measured already. Figures of direct effects have the older word in their names, which
stand in files.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import AttentionMap, exact_map, head_maps, round_up, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.cause import attributed_prompt as asking
from mta_viz.analysis.cause.answers import AnswerMeter, answer_after
from mta_viz.analysis.cause.attributed_prompt import AttributedHeads, AttributedPrompt, Method
from mta_viz.analysis.cause.attribution import MOST_TOKENS, SECONDS
from mta_viz.analysis.cause.direct_effect import DirectEffect, DirectEffects, direct_effect
from mta_viz.analysis.cause.removed_cells import WHOLE, RemovedCells, whole_effects
from mta_viz.config import Head
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Measured, NamedFigure, Source, named
from mta_viz.figures.beside import MapOnScale, ScaledMap, check_head
from mta_viz.model.stages import Stage, linear_from
from mta_viz.plots import cause as plots
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.attention.maps import SMALL, VALUES, attention_map
from mta_viz.plots.theme import Figure, limit_text

R = TypeVar("R")
MAP_PX, ROW_PX, AROUND_PX = 452, 16, 190
FEWEST_ROWS = 3  # a single one is drawn as high as these
CellKind = Literal["responsibility", "softmax", "final"]


def meter_of(source: Source, answer: str | None) -> AnswerMeter:
    """The answer that is looked at: given, or the one the prompt suggests."""
    run = source.trace
    return source.remember_with_run(lambda: AnswerMeter(run, answer_after(run, answer)), "meter", answer)


@dataclass(frozen=True, kw_only=True)
class OfAnswer(NamedFigure[R]):
    """A figure of what adds to an answer.

    `answer`: None is the number or block asked for, else the likeliest token; it stands after the token
    `position`, None for the last. Gradients take at most about `max_seconds`.
    """

    answer: str | None = None
    position: int | None = None

    def asked(self) -> dict[str, Any]:
        """The question as arguments."""
        return {"answer": self.answer, "position": self.position}


@named("attribution", kw_only=True)
class TokenValues(OfAnswer[AttributedPrompt], Measured[AttributedPrompt]):
    """What each token brings to the answer's log-probability, as bars or as the prompt's text in colours.

    By integrated gradients from a `baseline` ("zero", "mean", "bos" or a token's id), or by ablation: the
    tokens of each of `groups`, None for single ones, are replaced by the token `baseline`. `spans` are
    outlined.
    """

    kind: Literal["bars", "text"]
    method: Method = "gradients"
    baseline: Literal["zero", "mean", "bos"] | int | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    max_seconds: float = SECONDS
    spans: tuple[Span, ...] = ()
    hangs_on = ("answer", "position", "method", "baseline", "groups", "max_seconds")

    def measure(
        self,
        source: Source,
        keep: Callable[[AttributedPrompt], None] | None = None,
        after: AttributedPrompt | None = None,
    ) -> AttributedPrompt:
        """The values; `keep` and `after` as in `attribute`."""
        return asking.attribute(
            source.model, source.trace.tokens, **self.asked(), method=self.method, baseline=self.baseline,
            groups=self.groups, max_seconds=self.max_seconds, progress=source.progress, keep=keep,
            after=after,
        )  # fmt: skip

    def draw(self, source: Source, result: AttributedPrompt) -> Figure:
        values, tokens = result.by_token().numpy(), result.tokens
        brings = "each token brings to log p(answer)"
        what = brings if result.of == "tokens" else "log p(answer) loses without it"
        draw = plots.attribution_bars if self.kind == "bars" else plots.attribution_text
        title, limit = f"{result.found.method} · what {what} (nats)", plots.value_limit(values)
        return draw(values, tokens, title=title, limit=limit, spans=self.outlined(result))

    def outlined(self, result: AttributedPrompt) -> tuple[Span, ...]:
        """The spans before the answer."""
        return tuple(span for span in self.spans if span.stop <= len(result.tokens))

    def caption(self, source: Source, result: AttributedPrompt) -> str:
        """The method under the bars, the rest under the text."""
        outlined = " Outlined: the named spans." if self.outlined(result) else ""
        if self.kind == "text":
            return self._text_words(result) + outlined
        start = result.found.baseline
        words = f"Integrated gradients from {start}. Green: the token is for the answer."
        if result.of == "groups":
            words = (
                f"What is lost when a token, or a span as a whole, becomes {start}; each token of a "
                "span has the span's value. Green: the answer loses without it."
            )
        return f"{words} Brown: the opposite. Click a token to make it the query of the maps.{outlined}"

    def _text_words(self, result: AttributedPrompt) -> str:
        values = result.by_token().numpy()
        limit = limit_text(plots.value_limit(values))
        words = f"The same values, limits ±{limit}. Dotted underneath: below zero."
        if not np.isnan(values).any():
            return words
        single = all(len(group) == 1 for group in result.groups)
        which = f"; the {MOST_TOKENS} tokens of largest integrated gradients are" if single else ""
        return f"{words} Hatched: not replaced{which}."


@dataclass(frozen=True, kw_only=True)
class OfMaps(OfAnswer[R]):
    """A figure of what the heads' maps at one stage bring to an answer."""

    stage: str
    max_seconds: float = SECONDS

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What the heads are kept by."""
        return "attributed heads", self.answer, self.position, self.stage, self.max_seconds

    def heads(
        self,
        source: Source,
        layers: tuple[int, ...] | None = None,
        keep: Callable[[AttributedHeads], None] | None = None,
    ) -> AttributedHeads:
        """The heads of these layers, None for all that have the stage. Raises PromptError for no stage."""
        return asking.attribute_heads(
            source.model, source.trace.tokens, Stage.from_key(self.stage), **self.asked(), layers=layers,
            max_seconds=self.max_seconds, progress=source.progress, keep=keep,
        )  # fmt: skip


@named("attributed-heads", kw_only=True)
class HeadSizes(OfMaps[AttributedHeads], Measured[AttributedHeads]):
    """What every head's map brings to an answer: by the sizes of its cells' gradients, or by its ablation.

    `selected` (layer, head) is framed.
    """

    of: Literal["sizes", "ablated"]
    selected: Head | None = None
    holds_run = True

    def measure(self, source: Source) -> AttributedHeads:
        """Raises PromptError for a stage no layer has."""
        return self.heads(source)

    def draw(self, source: Source, result: AttributedHeads) -> Figure:
        config = source.model.config
        values = np.full((config.n_layers, config.n_heads), np.nan)
        for layer in result.layers:
            values[layer.layer] = getattr(layer, self.of).numpy()
        values = values.round(4) + 0.0  # no -0.0
        look: dict[str, Any] = {"selected": self.selected, "numbering": source.numbering}
        if self.of == "ablated":
            return plots.sweep_map("Lost without the map", values, width=MAP_PX, **look)
        score = Score("size", "Summed |attribution|", "nats", "", result.stage, signed=False)
        return value_map(score, values, width=MAP_PX, **look)

    def caption(self, source: Source, result: AttributedHeads) -> str:
        if self.of == "ablated":
            words = "Ablation: what log p(answer) loses when the head's map is all zeros."
            return f"{words} Green: it loses."
        words = "Integrated gradients: the sizes of all cells' values, summed. Click a head to choose it."
        return f"{words} Hatched: no such stage, or not measured."


@dataclass(frozen=True, kw_only=True)
class OfHead(ScaledMap, OfAnswer[MapOnScale]):
    """A map of one head."""

    layer: int
    head: int
    of: str
    first_token: bool = False


@named("attributed-map", kw_only=True)
class HeadCells(OfMaps[MapOnScale], OfHead):
    """What each cell of a head's map brings to the answer, or the map itself."""

    of: Literal["map", "attribution"]

    def result(self, source: Source) -> MapOnScale:
        """Raises PromptError for a stage the layer has not."""
        check_head(source, (self.layer, self.head))
        measure = source.remember_with_run(lambda: self.heads(source, (self.layer,)), *self.key, self.layer)
        return self.shown(source, measure)

    def shown(self, source: Source, heads: AttributedHeads) -> MapOnScale:
        """The map in heads that are measured. Raises MtaVizError for a layer that is not."""
        layer = heads.of(self.layer)
        if layer is None:
            raise MtaVizError(f"layer {self.layer} is not measured")
        cells = layer.maps[self.head]
        if self.of == "map":
            place = self.layer, self.head
            key = "asked map", *self.key, *place
            cells = source.remember(lambda: head_maps(heads.trace, *place, asking.CELLS)[heads.stage], *key)
        limit = shared_limit([cells], self.first_token)
        words = f"What each cell brings, in nats. Green: for the answer. Limits ±{limit_text(limit)}."
        own = f"The map itself. Limit {limit_text(limit)}."
        return MapOnScale(cells, heads.tokens, limit, own if self.of == "map" else words)

    def draw(self, source: Source, result: MapOnScale) -> Figure:
        look, size = (SMALL if self.of == "map" else plots.ATTRIBUTED), (MAP_PX, MAP_PX)
        numbering, limit, tokens = source.numbering, result.limit, result.tokens
        return attention_map(result.map, tokens, limit=limit, numbering=numbering, size=size, look=look)


def direct_effects(source: Source, figure: OfAnswer[Any], token: int | None) -> DirectEffects:
    """Every layer's direct effect on the logit of the answer's token number `token`, cell by cell."""
    model, tokens = source.model, source.trace.tokens
    return source.remember_with_run(
        lambda: direct_effect(model, tokens, **figure.asked(), place=token),
        "responsibility", figure.answer, figure.position, token,
    )  # fmt: skip


@named("responsibility", kw_only=True)
class SourceHeads(OfAnswer[DirectEffects]):
    """The direct effect on a logit through each head's softmax map; `selected` (layer, head) is framed.

    The logit is that of the answer's token number `token`, None: of the first that is not only white space.
    """

    token: int | None = None
    selected: Head | None = None
    holds_run = True
    words = (
        "Direct effect on the logit, norms and gate held: all softmax cells of a head, summed. Green: they "
        "raise it. Click a head to choose it."
    )

    def result(self, source: Source) -> DirectEffects:
        """Raises PromptError for what cannot be asked."""
        return direct_effects(source, self, self.token)

    def line(self, source: Source, result: DirectEffects) -> str:
        return "Green: a head's cells raise the logit directly. Click one to choose it."

    def caption(self, source: Source, result: DirectEffects) -> str:
        return f"Logit of {result.explained}. {self.words}"

    def draw(self, source: Source, result: DirectEffects) -> Figure:
        values = np.stack([layer.sources.numpy() for layer in result.layers]).round(4) + 0.0
        look: dict[str, Any] = {"selected": self.selected, "numbering": source.numbering}
        return plots.sweep_map("Direct effect of source heads", values, unit="logit", width=MAP_PX, **look)


@named("removed-cells", kw_only=True)
class CellsRemoved(OfAnswer[RemovedCells], Measured[RemovedCells]):
    """The softmax cells of largest direct effect, of a `layer` or (None) of all, each removed; a table."""

    token: int | None = None
    layer: int | None = None
    count: int = WHOLE
    hangs_on = ("answer", "position", "token", "layer", "count")
    words = (
        "Removed: the cell's softmax weight set to 0, the row not renormalised. Whole: what the logit, and "
        "the log-probability, then lose in the whole model. Direct: norms and gate held as they were, or "
        "free. Held, a cell that only makes a norm's input larger seems to act; free, the norm scales up "
        "what is left. None: not removed, for only the largest are."
    )

    def line(self, source: Source, result: RemovedCells) -> str:
        return "Removed: the cell's softmax weight set to 0, everything after it computed anew."

    def measure(self, source: Source) -> RemovedCells:
        """One run a cell. Raises PromptError for what cannot be asked."""
        effects, progress = direct_effects(source, self, self.token), source.progress
        return whole_effects(effects, layer=self.layer, count=self.count, progress=progress)


@named("responsible-cells", kw_only=True)
class SourceCells(OfHead):
    """A head's softmax cells of the rows that are read: what each adds to the logit, or the weights there.

    The `cell` (query, key) is framed; `keys` (start, stop) alone are drawn, None: all.
    """

    of: CellKind
    token: int | None = None
    cell: tuple[int, int] | None = None
    keys: tuple[int, int] | None = None

    def result(self, source: Source) -> MapOnScale:
        """Raises PromptError for what cannot be asked."""
        check_head(source, (self.layer, self.head))
        prompt = direct_effects(source, self, self.token)
        layer = prompt.layers[self.layer]
        start, stop = self.keys or (0, len(prompt.tokens))
        cells = self._cells(prompt, layer)
        cells = replace(cells, values=cells.values[:, start:stop], key_start=start)
        which = f" Keys {start} to {stop - 1}." if self.keys else ""
        if self.of == "responsibility":
            limit = round_up(float(cells.values.abs().max()))
            words = f"{_rows_words(layer)} Limit ±{limit_text(limit)}.{which}"
            return MapOnScale(cells, prompt.tokens, limit, words)
        limit = shared_limit([cells], self.first_token)  # from most cells, so that a few do not hide the rest
        own = "The head's softmax weights of the same cells."
        words = own if self.of == "softmax" else "Its final weights, after convolution and mixing."
        bound = limit_text(limit) if cells.distribution else f"±{limit_text(limit)}"
        return MapOnScale(cells, prompt.tokens, limit, f"{words} Limit {bound}.{which}")

    def _cells(self, prompt: DirectEffects, layer: DirectEffect) -> AttentionMap:
        if self.of == "final":
            rows, keys = slice(layer.first_query, layer.position + 1), slice(0, layer.position + 1)
            return exact_map(prompt.trace, self.layer, Stage.PATTERN, self.head, rows, keys)
        values = layer.values if self.of == "responsibility" else layer.softmax
        stage = linear_from(prompt.trace.model.config.kernels(self.layer))
        cells = AttentionMap(self.layer, self.head, stage, values[self.head], layer.first_query, 0)
        return replace(cells, distribution=self.of == "softmax" and stage is Stage.SOFTMAX)

    def draw(self, source: Source, result: MapOnScale) -> Figure:
        look = plots.DIRECT if self.of == "responsibility" else VALUES
        size = plots.WIDTH, AROUND_PX + ROW_PX * max(result.map.values.shape[0], FEWEST_ROWS)
        numbering, limit, tokens = source.numbering, result.limit, result.tokens
        shown, cell = result.map, self.cell
        framed = cell if cell is not None and cell[0] in shown.queries else None
        looks: dict[str, Any] = {"size": size, "look": look, "selected": framed}
        return attention_map(shown, tokens, limit=limit, numbering=numbering, **looks)


def _rows_words(layer: DirectEffect) -> str:
    n_rows = layer.position + 1 - layer.first_query
    words = (
        "What each softmax cell of this head adds directly to the logit, through every head it is mixed into."
    )
    if n_rows == 1:
        return f"{words} Only the last row is read: this layer has no convolution after the softmax."
    return f"{words} The {n_rows} rows that the last token's convolution reads."


def groups_of(spans: Sequence[Span], last: int) -> tuple[tuple[int, ...], ...]:
    """The spans' positions up to `last`, each in the first span that has it."""
    taken: set[int] = set()
    groups = []
    for span in spans:
        own = tuple(place for place in span.positions if place <= last and place not in taken)
        taken.update(own)
        groups += [own] if own else []
    return tuple(groups)
