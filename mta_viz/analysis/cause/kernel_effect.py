"""What one kernel does on this prompt: to its head's maps, to the needle, to the answer; and to whom.

Everything is a comparison with the same model without the kernel, which `model.editing` makes; effects
measured on a task are `effects`'. Paths to the answer are patched (Wang et al. 2022; Goldowsky-Dill et al.
2023): everything stays as in the run but one edge, along which the receiver gets what it would read had the
kernel been taken out; what lies above it runs on. Their effects are exact, one forward pass each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.changes import EMPTY_ROW, Change, head_statistics
from mta_viz.analysis.attention.spans import Span, check_span, share_and_mass
from mta_viz.analysis.cause.answers import Answer, AnswerMeter, Standing, answer_after
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.config import ModelConfig
from mta_viz.model.editing import edited
from mta_viz.model.plans import Edit
from mta_viz.model.stages import Stage
from mta_viz.run.scoring import attention_output, moved_inputs, with_added
from mta_viz.run.tracing import Progress, Trace, ignore
from mta_viz.tables import Table


@dataclass(frozen=True)
class SpanGain:
    """Share of one query's final weights on a span, `with_kernel` and with it at identity.

    share = sum over the span of |P| / sum of |P| over the keys <= query.
    """

    span: Span
    query: int
    with_kernel: float
    without: float

    @property
    def gain(self) -> float:
        """What the kernel adds to the share, -1..1 (the counterfactual needle gain)."""
        return self.with_kernel - self.without


@dataclass(frozen=True)
class KernelEffect:
    """One kernel on one prompt. `change`: its own step on its head's map (see `Change`).

    `mass_moved` 0..1: the mean over queries of half the sum of |w - w'|, w and w' the head's final
    weights with the kernel and with it at identity, the layer's input the same, each row divided by
    its sum of sizes; NaN without rows. `rows_left_out`: rows where either sum is below 1e-8. `standing`: how
    the prompt's answer stands, `without` with the kernel at identity, run through all layers above.
    """

    kernel: KernelId
    change: Change
    mass_moved: float
    rows_left_out: int
    gain: SpanGain | None
    answer: Answer
    standing: Standing
    without: Standing


def kernel_effect(
    trace: Trace, kernel: KernelId, span: Span | None = None, query: int | None = None
) -> KernelEffect:
    """Measure one kernel, a target's row of head mixing included; about two runs of the prompt.

    `span` asks for its gain at `query` (default: the last token). Raises ConfigError for a kernel
    the model does not have, PromptError for a span the query does not see.
    """
    query = len(trace.tokens) - 1 if query is None else query
    if span is not None:
        check_span(span, query)
    plan, meter = (without(kernel),), AnswerMeter(trace, answer_after(trace))
    other = replace(trace, model=edited(trace.model, plan))  # with the same input of this layer
    changes = head_statistics(trace, kernel.layer, kernel.head).changes
    change = next(change for change in changes if change.after is MADE_BY[kernel.where])
    gain = None if span is None else _span_gain(trace, other, kernel, span, query)
    answers = meter.answer, meter.standing(), meter.standing(plan)
    moved, left_out = _mass_moved(trace, other, kernel)
    return KernelEffect(kernel, change, moved, left_out, gain, *answers)


def moved_mass(
    before: Float[Tensor, "query key"], after: Float[Tensor, "query key"]
) -> Float[Tensor, " query"]:
    """Half the sum of |w - w'| of each row, 0..1; NaN where a row's sizes sum to less than 1e-8."""
    sizes = [part.abs().sum(-1, keepdim=True) for part in (before, after)]
    moved = (before / sizes[0] - after / sizes[1]).abs().sum(-1) / 2
    return moved.masked_fill(~(torch.minimum(*sizes)[:, 0] >= EMPTY_ROW), torch.nan)


def _mass_moved(trace: Trace, other: Trace, kernel: KernelId) -> tuple[float, int]:
    slabs = (run.slabs(kernel.layer, Stage.PATTERN) for run in (trace, other))
    rows = [
        moved_mass(with_kernel[kernel.head].cpu().double(), without[kernel.head].cpu().double())
        for (_, with_kernel), (_, without) in zip(*slabs, strict=True)
    ]
    moved = torch.cat(rows)
    return float(moved.nanmean()), int(moved.isnan().sum())


def _span_gain(trace: Trace, other: Trace, kernel: KernelId, span: Span, query: int) -> SpanGain:
    shares = []
    for run in (trace, other):
        row = run.map(kernel.layer, Stage.PATTERN, kernel.head, queries=slice(query, query + 1))
        share, _ = share_and_mass(row[:, : query + 1], span)
        shares.append(float(share))
    return SpanGain(span, query, *shares)


Part = Literal["queries", "keys", "values", "scores", "mlp", "logits"]
HOOKS: dict[Part, tuple[str, ...]] = {
    "queries": ("attn.hook_rot_q",),
    "keys": ("attn.hook_rot_k",),
    "values": ("attn.hook_v",),
    "scores": ("attn.hook_rot_q", "attn.hook_rot_k"),
}
STRONGEST = 10
SMALL = 0.01  # nats: of a smaller whole effect no share is given
BATCH = 8


@dataclass(frozen=True)
class Edge:
    """One edge from the kernel's head to a receiver, and what the answer loses along it, in nats.

    `head` is None for an MLP and the logits; with grouped queries, `keys` and `values` count key-value
    heads. `scores`: queries and keys of the head together. `effect`: change of the answer's
    log-probability when this edge alone carries what the kernel taken out would send.
    """

    part: Part
    layer: int
    head: int | None
    effect: float

    def name(self) -> str:
        """As `L4 H2 queries`."""
        if self.part == "logits":
            return "logits"
        return f"L{self.layer} {'' if self.head is None else f'H{self.head} '}{self.part}"


@dataclass(frozen=True)
class KernelPaths:
    """Every edge from one kernel's head output, the largest effect by size first.

    `whole`: the change of the answer's log-probability (nats) when the kernel is taken out and all runs
    on. `together`: that of the first `n_together` edges (of heads' queries, keys and values, MLPs and the
    logits) at once, `share` their part of the whole. Single edges need not sum to it.
    """

    kernel: KernelId
    edit: Edit
    answer: Answer
    before: float
    whole: float
    edges: tuple[Edge, ...]
    together: float
    n_together: int

    def strongest(self, into: Literal["inputs", "scores"] = "inputs") -> tuple[Edge, ...]:
        """The edges opened together; of raw scores, which hold queries and keys at once, as many."""
        scores = into == "scores"
        return tuple(edge for edge in self.edges if (edge.part == "scores") == scores)[:STRONGEST]

    @property
    def share(self) -> float:
        """`together` / `whole`; NaN where taking the kernel out changes the answer by less than `SMALL`."""
        return self.together / self.whole if abs(self.whole) >= SMALL else float("nan")

    def table(self) -> Table:
        """A row an edge."""
        rows = [(edge.part, edge.layer, edge.head, edge.effect) for edge in self.edges]
        return Table.of(("part", "layer", "head", "effect"), rows)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready."""
        head = {name: getattr(self, name) for name in ("before", "whole", "together", "n_together", "share")}
        place = {"kernel": self.kernel.name(), "edit": self.edit, "answer": self.answer.as_data()}
        return place | head | {"edges": self.table().records()}


def kernel_paths(
    meter: AnswerMeter, kernel: KernelId, edit: Edit = "own-tap", *, progress: Progress = ignore
) -> KernelPaths:
    """The edges from `kernel` to every later head, MLP and the logits.

    Raises ConfigError for a kernel the model does not have. Raise in `progress` to stop.

    >>> from mta_viz.analysis.cause.answers import AnswerMeter, answer_after
    >>> from mta_viz.analysis.kernels.kernels import KernelId
    >>> paths = mta_viz.kernel_paths(AnswerMeter(trace, answer_after(trace)), KernelId(0, 0, "pre"))
    >>> paths.n_together
    10
    """
    plan, run = (without(kernel, edit),), meter.run
    model = edited(run.model, plan)
    moved = attention_output(model, run, kernel.layer) - attention_output(run.model, run, kernel.layer)
    paths = _Paths(run, moved, kernel.layer, meter)
    edges = sorted(paths.edges(progress), key=lambda edge: -abs(edge.effect))
    whole = meter.log_probability(plan) - meter.before
    result = KernelPaths(kernel, edit, meter.answer, meter.before, whole, tuple(edges), 0.0, 0)
    carried = result.strongest()
    return replace(result, together=paths.effects([list(carried)])[0], n_together=len(carried))


def edge_count(config: ModelConfig, layer: int) -> int:
    """How many edges leave a head of `layer`: as many forward passes of the layers above it."""
    above = config.n_layers - 1 - layer
    return above * (2 * config.n_heads + 2 * config.n_kv_heads + 1) + 2


class _Paths:
    """All that an edge needs of the run: what each receiver's inputs become, computed once a layer."""

    def __init__(self, run: Trace, moved: Float[Tensor, "position d_model"], layer: int, meter: AnswerMeter):
        self.run, self.moved, self.layer, self.answer = run, moved, layer, meter.answer.ids
        self.unchanged = float(
            with_added(run, layer, {self._last(): torch.zeros_like(moved)[None]}, self.answer)
        )
        self.inputs = {
            name: value
            for at in range(layer, run.model.config.n_layers)
            for name, value in moved_inputs(run, at, moved).items()
            if at > layer or name.endswith("mlp_out")
        }

    def edges(self, progress: Progress) -> Iterator[Edge]:
        """Each edge alone."""
        receivers = list(self._receivers())
        for start in range(0, len(receivers), BATCH):
            part = receivers[start : start + BATCH]
            for edge, effect in zip(part, self.effects([[edge] for edge in part]), strict=True):
                yield Edge(edge.part, edge.layer, edge.head, effect)
            progress(min((start + BATCH) / len(receivers), 1.0))

    def effects(self, variants: list[list[Edge]]) -> list[float]:
        """The answer's change when each variant's edges are open together."""
        added: dict[str, Tensor] = {}
        for row, edges in enumerate(variants):
            for edge in edges:
                for name, value in self._carried(edge):
                    more = added.setdefault(
                        name, torch.zeros(len(variants), *value.shape, device=value.device)
                    )
                    more[row] += value
        after = with_added(self.run, self.layer, added, self.answer)
        return [float(value) - self.unchanged for value in after]

    def _receivers(self) -> Iterator[Edge]:
        config = self.run.model.config
        for layer in range(self.layer, config.n_layers):
            if layer > self.layer:
                for part in ("queries", "scores", "keys", "values"):
                    heads = config.n_heads if part in ("queries", "scores") else config.n_kv_heads
                    yield from (Edge(part, layer, head, 0.0) for head in range(heads))
            yield Edge("mlp", layer, None, 0.0)
        yield Edge("logits", config.n_layers - 1, None, 0.0)

    def _carried(self, edge: Edge) -> Iterator[tuple[str, Tensor]]:
        """What the edge adds, by hook name."""
        if edge.part == "logits":
            yield self._last(), self.moved
        elif edge.head is None:
            name = f"blocks.{edge.layer}.hook_mlp_out"
            yield name, self.inputs[name]
        else:
            for hook in HOOKS[edge.part]:
                name = f"blocks.{edge.layer}.{hook}"
                moved = self.inputs[name]
                group = self.run.model.config.n_heads // moved.shape[1] if edge.part == "scores" else 1
                alone = torch.zeros_like(moved)
                alone[:, edge.head // group] = moved[:, edge.head // group]
                yield name, alone

    def _last(self) -> str:
        return f"blocks.{self.run.model.config.n_layers - 1}.hook_resid_post"
