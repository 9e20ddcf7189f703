"""Attribution in one call: from a prompt and an answer to what its tokens or maps bring to the answer.

`attribute` asks about the prompt's tokens, or one layer's maps; `attribute_heads` about every head's map at
one stage, by integrated gradients and by ablation. How a value is measured is `attribution`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.maps import AttentionMap, WholeMap
from mta_viz.analysis.cause import attribution as measuring
from mta_viz.analysis.cause.answers import Answer, answer_after
from mta_viz.analysis.cause.attribution import SECONDS, Attribution, Baseline
from mta_viz.errors import PromptError, check_index
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import Question
from mta_viz.run.tracing import Progress, Trace, capture, ignore, progress_within, tokenize
from mta_viz.tables import Printed, Row, Table, number
from mta_viz.tokenizers.base import Tokens

Method = Literal["gradients", "ablation"]
Groups = Sequence[Sequence[int]]
CELLS = 256
OTHER_BASELINE = (
    "more than half of the change comes in the first 1 % of the path, which more time does not mend: "
    "take another baseline, or ablation"
)


@dataclass(frozen=True, repr=False)
class AttributedPrompt(Printed):
    """`found.values`: a value a token, or a group of positions, or a map cell; `of` says which."""

    tokens: Tokens
    answer: Answer
    of: Literal["tokens", "groups", "maps", "heads"]
    groups: Groups
    found: Attribution

    def by_token(self) -> Float[Tensor, " token"]:
        """A value a token: its group's, whose tokens are replaced together; NaN where none was measured.

        Raises PromptError for values of maps.
        """
        if self.of == "tokens":
            return self.found.values
        if self.of != "groups":
            raise PromptError(f"these are values of {self.of}, not of tokens")
        values = torch.full((len(self.tokens),), torch.nan)
        for group, value in zip(self.groups, self.found.values, strict=True):
            values = values.index_fill(0, torch.tensor(list(group)), float(value))
        return values

    def table(self) -> Table:
        """A line a token: what it brings in nats, NaN where that was not measured."""
        rows = zip(range(len(self.tokens)), self.tokens.pieces, self.by_token().tolist(), strict=True)
        return Table.of(("position", "token", "value"), rows)

    def largest(self) -> list[tuple[Sequence[int], float]]:
        """Positions with what they bring in nats, largest |value| first; none of maps."""
        if self.found.values.ndim != 1:
            return []
        places = self.groups if self.of == "groups" else [(at,) for at in range(len(self.tokens))]
        return sorted(zip(places, self.found.values.tolist(), strict=True), key=lambda row: -abs(row[1]))

    def _title(self) -> str:
        values, answer = self.found, self.answer.text
        rough = completeness(values.error, values.reached, values.jumps)
        return f"log p({answer!r}) = {values.score:.3f} nats: {values.method} of {self.of}{rough}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Tokens or groups, largest |value| first; no table of maps."""
        rows = []
        for places, nats in self.largest():
            words = "".join(self.tokens.pieces[at] for at in places)
            rows.append((", ".join(map(str, places)), words, number(nats)))
        return (("position", "token", "nats") if rows else ()), rows

    def as_data(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        facts = vars(self.found) | {"values": self.found.values.tolist()}
        del facts["integral"]
        groups = {"groups": [list(group) for group in self.groups]} if self.of == "groups" else {}
        tokens, answer = list(self.tokens.pieces), self.answer.as_data()
        return {"tokens": tokens, "answer": answer, "of": self.of, **groups, **facts}


def completeness(error: float | None, reached: bool | None, jumps: bool) -> str:
    """How far gradients may be trusted, for a title; empty for other methods."""
    rough = "" if reached else f": rough, {OTHER_BASELINE if jumps else 'allow more seconds'}"
    return "" if error is None else f" (completeness error {error:.1%}{rough})"


def attribute(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    *,
    answer: str | None = None,
    position: int | None = None,
    method: Method = "gradients",
    baseline: Baseline | None = None,
    groups: Groups | None = None,
    layer: int | None = None,
    stage: Stage | None = None,
    max_seconds: float = SECONDS,
    progress: Progress = ignore,
    keep: Callable[[AttributedPrompt], None] | None = None,
    after: AttributedPrompt | None = None,
) -> AttributedPrompt:
    """What the tokens bring to log p(answer) after `position` (default: the prompt's last token), in nats.

    `answer`: None is the number or block asked for, else the likeliest token. With `layer` and `stage`
    of that layer's maps, else of the tokens. `baseline`: for gradients "zero", "mean" (default), "bos" or a
    token's id, for ablation a token's id. `groups`: positions ablated together; without, the up to 64 tokens
    of largest integrated gradients. Gradients take at most about `max_seconds`, and `keep` is told what they
    have found so far; those of tokens go on from `after`, an earlier result of the same question. Raises
    PromptError for what is not there or does not go together.

    >>> mta_viz.attribute(model, trace.tokens, method="ablation", groups=[[7, 8], [9]]).found.values.shape
    torch.Size([2])
    """
    _check_choices(method, baseline, groups, layer, stage)
    asked = ask(model, prompt, answer, position)
    if layer is not None and stage is not None:
        of_layer = asked.whole(), layer, stage, asked.question
        if method == "ablation":
            return asked.result("heads", measuring.ablate_maps(*of_layer))
        cells = measuring.integrated_gradients_of_maps(*of_layer, max_seconds=max_seconds, progress=progress)
        return asked.result("maps", cells)
    if method == "gradients":
        kept = None if keep is None else lambda so_far: keep(asked.result("tokens", so_far))
        gradients = measuring.integrated_gradients(
            model, asked.question, baseline="mean" if baseline is None else baseline, max_seconds=max_seconds,
            progress=progress, keep=kept, after=None if after is None else after.found,
        )  # fmt: skip
        return asked.result("tokens", gradients)
    return _by_ablation(asked, groups, baseline, max_seconds, progress)


def _by_ablation(
    asked: "PromptAndAnswer", groups: Groups | None, baseline: Any, max_seconds: float, progress: Progress
) -> AttributedPrompt:
    """Of `groups`; without, of every token where they are few, else of those the gradients single out."""
    model, n_tokens, searched = asked.trace.model, len(asked.trace.tokens), 0.0
    if not groups and n_tokens <= measuring.MOST_TOKENS:
        groups = tuple((at,) for at in range(n_tokens))
    elif not groups:
        searched = 0.5
        report = progress_within(progress, 0.0, searched)
        start = measuring.path_baseline(model, asked.question.prompt, baseline)
        gradients = measuring.integrated_gradients(
            model, asked.question, baseline=start, max_seconds=max_seconds, progress=report
        )
        groups = measuring.largest_tokens(gradients)
    report = progress_within(progress, searched, 1 - searched)
    ablated = measuring.ablate_tokens(model, asked.question, groups, baseline=baseline, progress=report)
    return asked.result("groups", ablated, groups)


def _check_choices(
    method: str, baseline: Baseline | None, groups: Groups | None, layer: int | None, stage: Stage | None
) -> None:
    """Raises PromptError for a choice that is none, or that another one would leave without effect."""
    if method not in get_args(Method):
        raise PromptError(f"there is no method {method!r}; expected {' or '.join(get_args(Method))}")
    if (layer is None) != (stage is None):
        raise PromptError("a layer and a stage go together; give both, or neither")
    if layer is not None and (baseline is not None or groups):
        raise PromptError("maps have a baseline of their own: leave out the baseline and the groups")
    if method == "gradients" and groups:
        raise PromptError("groups (spans) are replaced, which is ablation; choose it, or leave them out")
    if method == "ablation" and isinstance(baseline, str):
        raise PromptError(f"ablation puts a token in place of others; {baseline!r} is no token's id")


@dataclass(frozen=True)
class PromptAndAnswer:
    """A prompt up to the position that is asked about, and the answer after it."""

    trace: Trace
    answer: Answer

    @property
    def question(self) -> Question:
        """The same as ids."""
        return Question(tuple(self.trace.tokens.ids), self.answer.ids)

    def whole(self) -> Trace:
        """The run of the prompt with the answer's tokens that are read after it."""
        question = self.question
        if not question.before:
            return self.trace
        return capture(self.trace.model, (*question.prompt, *question.before))

    def result(
        self, of: Literal["tokens", "groups", "maps", "heads"], values: Attribution, groups: Groups = ()
    ) -> AttributedPrompt:
        """With the values measured."""
        return AttributedPrompt(self.trace.tokens, self.answer, of, groups, values)


def ask(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    answer: str | None = None,
    position: int | None = None,
) -> PromptAndAnswer:
    """The prompt's run up to `position` and the answer after it. Raises PromptError for what is not there."""
    tokens = tokenize(model, prompt)
    position = len(tokens) - 1 if position is None else position
    check_index("position", position, len(tokens))
    trace = capture(model, tokens if position == len(tokens) - 1 else tokens.ids[: position + 1])
    return PromptAndAnswer(trace, answer_after(trace, answer))


@dataclass(frozen=True)
class LayerAttribution:
    """One layer's maps, nats of log p(answer) a head. `maps`: integrated gradients, pooled beyond 256 tokens.

    `sums` and `sizes`: of all cells' values, and of their sizes. `ablated`: what is lost without the head's
    map. `error`, `reached`, `steps`, `baseline`, `jumps`: of the integral, as in `Attribution`.
    """

    layer: int
    maps: tuple[AttentionMap, ...]
    sums: Float[Tensor, " head"]
    sizes: Float[Tensor, " head"]
    ablated: Float[Tensor, " head"]
    error: float | None
    reached: bool | None
    steps: int | None
    baseline: str = "maps of zeros"
    jumps: bool = False

    def as_data(self) -> dict[str, Any]:
        """Plain values; the maps are left out."""
        numbers = {name: getattr(self, name).tolist() for name in ("sums", "sizes", "ablated")}
        return {name: value for name, value in vars(self).items() if name != "maps"} | numbers


@dataclass(frozen=True, repr=False)
class AttributedHeads(Printed):
    """`layers` in the order asked for. `trace`: of the prompt and the answer's tokens that are read."""

    trace: Trace
    answer: Answer
    stage: Stage
    layers: tuple[LayerAttribution, ...]

    def table(self) -> Table:
        """A line a head: sum and sum of sizes over its map's cells, what is lost without it, the error.

        The error is None where it is not known. `baseline`: of the gradients.
        """
        columns = (
            *("layer", "head", "stage", "sum", "sum_of_sizes", "ablated"),
            *("completeness_error", "baseline"),
        )
        rows = [
            (layer.layer, head, self.stage.value.hook, *values, layer.error, layer.baseline)
            for layer in self.layers
            for head, values in enumerate(torch.stack([layer.sums, layer.sizes, layer.ablated], 1).tolist())
        ]
        return Table(columns, tuple(rows))

    def _title(self) -> str:
        error = max((layer.error for layer in self.layers if layer.error is not None), default=None)
        return (
            f"log p({self.answer.text!r}): gradients of {self.stage.value.hook}, {len(self.layers)} layers"
            f"{completeness(error, self.reached, self.jumps)}"
        )

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Heads by the size of what their maps bring, in nats."""
        table: Any = self.table().rows
        heads = sorted(table, key=lambda row: -abs(row[3]))
        rows = [(f"L{row[0]} H{row[1]}", number(row[3]), number(row[5])) for row in heads]
        return ("head", "nats", "lost without"), rows

    @property
    def reached(self) -> bool:
        """Whether the gradients of every layer are as complete as was asked for."""
        return all(layer.reached for layer in self.layers)

    @property
    def jumps(self) -> bool:
        """Whether a layer's gradients that are not complete have a jump at the baseline."""
        return any(layer.jumps for layer in self.layers if not layer.reached)

    @property
    def tokens(self) -> Tokens:
        """Those of the maps' axes."""
        return self.trace.tokens

    def of(self, layer: int) -> LayerAttribution | None:
        """One layer, if it is there."""
        return next((measured for measured in self.layers if measured.layer == layer), None)

    def as_data(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        tokens, answer = list(self.tokens.pieces), self.answer.as_data()
        layers = [layer.as_data() for layer in self.layers]
        return {"tokens": tokens, "answer": answer, "stage": self.stage.value.hook, "layers": layers}


def attribute_heads(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    stage: Stage,
    *,
    answer: str | None = None,
    position: int | None = None,
    layers: Sequence[int] | None = None,
    max_seconds: float = SECONDS,
    progress: Progress = ignore,
    keep: Callable[[AttributedHeads], None] | None = None,
) -> AttributedHeads:
    """What each head's map at `stage` brings to log p(answer) after `position`, layer by layer.

    Gradients run from maps of zeros (of weights under a group norm: from even rows), at most about
    `max_seconds` a layer; what enters a layer is held as it was. `layers`: None is all that have the stage.
    `keep` is told the layers so far. Raises PromptError for layers without the stage and as `attribute` does.

    >>> final = mta_viz.Stage.PATTERN
    >>> found = mta_viz.attribute_heads(model, trace.tokens, final, layers=[3], max_seconds=1.0)
    >>> found.of(3).sums.shape
    torch.Size([2])
    """
    there = [at for at in range(model.config.n_layers) if stage in layer_stages(model.config.kernels(at))]
    wanted = there if layers is None else list(layers)
    if not wanted or set(wanted) - set(there):
        raise PromptError(f"the stage {stage.value.hook} exists in the layers {there}; asked for: {wanted}")
    asked = ask(model, prompt, answer, position)
    heads = AttributedHeads(asked.whole(), asked.answer, stage, ())
    work = [model.config.n_layers - layer for layer in wanted]
    for place, layer in enumerate(wanted):
        part = progress_within(progress, sum(work[:place]) / sum(work), work[place] / sum(work))
        measured = _layer(heads.trace, layer, stage, asked.question, max_seconds, part)
        heads = replace(heads, layers=(*heads.layers, measured))
        if keep is not None:
            keep(heads)
    return heads


def _layer(
    whole: Trace, layer: int, stage: Stage, question: Question, max_seconds: float, progress: Progress
) -> LayerAttribution:
    gradients = measuring.integrated_gradients_of_maps(
        whole, layer, stage, question, max_seconds=max_seconds, progress=progress
    )
    maps = []
    for head, values in enumerate(gradients.values):
        drawn = WholeMap(AttentionMap(layer, head, stage, torch.zeros(0, 0), 0, 0), len(values), CELLS)
        drawn.add(values, 0)
        maps.append(drawn.result(row_sums=False))
    cells = gradients.values.double().flatten(1)
    sums, sizes = cells.sum(1).float(), cells.abs().sum(1).float()
    ablated = measuring.ablate_maps(whole, layer, stage, question).values
    complete = gradients.error, gradients.reached, gradients.steps, gradients.baseline, gradients.jumps
    return LayerAttribution(layer, tuple(maps), sums, sizes, ablated, *complete)
