"""Why one cell has its value: the exact sum over kernel taps or heads, from final weights to raw scores.

Owns taking a value apart, for every stage of every layer, and what comes of it. The order of the steps is
`changes.py`'s, the values are the trace's. Depth scale, group norm and gate act on the weighted values, after
the last T x T stage, and so are in no sum here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from mta_viz.analysis.attention.cells import check_place
from mta_viz.analysis.attention.changes import Step, layer_steps
from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.run.tracing import Trace
from mta_viz.tables import Printed, Row, Table, number
from mta_viz.tokenizers.base import Tokens

State = Literal["inside", "outside", "future"]
_WITHOUT = {
    Stage.KQ: "no key-query kernel before the softmax; the score is q·k/√d of the two tokens",
    Stage.MIX: "no head mixing before the softmax; every head keeps its own score",
    Stage.SOFTMAX_KQ: "no key-query kernel after the softmax; the softmax is not convolved",
    **dict.fromkeys((Stage.RAW_2, Stage.SOFTMAX_2), "one softmax map a head, not two that are subtracted"),
}


@dataclass(frozen=True)
class Term:
    """One product of a sum: `weight` (kernel tap or mixing weight) x `source` = `product`.

    The source is the cell (head, query, key) one stage earlier. `state`: "inside" the prompt's
    causal cells; "outside" the prompt and "future" (key after query) are read as 0.
    """

    head: int
    query: int
    key: int
    state: State
    weight: float
    source: float
    product: float

    def row(self, tokens: Tokens) -> dict[str, object]:
        """What it reads, by column; there is no token outside the prompt."""
        there = self.state != "outside"
        return {
            "source_head": self.head,
            "source_query": self.query,
            "source_query_token": tokens.pieces[self.query] if there else None,
            "source_key": self.key,
            "source_key_token": tokens.pieces[self.key] if there else None,
            **{"state": self.state, "weight": self.weight, "source": self.source, "product": self.product},
        }


@dataclass(frozen=True, repr=False)
class Decomposition(Printed):
    """Why the cell (layer, stage, head, query, key) has its `value`.

    `terms`: largest |product| first; empty where the value is no sum of cells. `residual`:
    |value - what the parts give| over the sum of |terms|, rounding alone: below 1e-5 in float32.
    A half-precision model rounds every stage to its own format, and the residual shows that.
    """

    layer: int
    stage: Stage
    head: int
    query: int
    key: int
    value: float
    stage_before: Stage | None
    terms: tuple[Term, ...]
    residual: float

    def _title(self) -> str:
        where = f"L{self.layer} H{self.head} {self.stage.value.long}, query {self.query}, key {self.key}"
        return f"{where}: {number(self.value)} = {self._sum_words()}"

    def as_data(self) -> dict[str, Any]:
        """Plain values; stages by their hooks' names, terms largest first."""
        left_out = {"stage", "stage_before", "terms", "window", "products"}
        return {
            "stage": self.stage.value.hook,
            "stage_before": self.stage_before and self.stage_before.value.hook,
            **{name: value for name, value in vars(self).items() if name not in left_out},
            "terms": [asdict(term) for term in self.terms],
        }

    def _sum_words(self) -> str:
        return f"sum of {len(self.terms)} products"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        rows = [
            (f"H{term.head}", term.query, term.key, *map(number, (term.weight, term.source, term.product)))
            for term in self.terms
        ]
        return ("head", "query", "key", "weight", "source", "product"), rows

    def table(self, tokens: Tokens) -> Table:
        """One row a term, largest |product| first, with the cell itself in each.

        A value that is no sum of cells (softmax, raw score) is one row with what it was computed from.
        """
        pieces = tokens.pieces
        cell = {
            **{"layer": self.layer, "head": self.head, "stage": self.stage.value.hook},
            **{"query": self.query, "query_token": pieces[self.query], "key": self.key},
            **{"key_token": pieces[self.key], "value": self.value, "residual": self.residual},
        }
        before = self.stage_before and self.stage_before.value.hook
        terms = [{"source_stage": getattr(t, "source_stage", before)} | t.row(tokens) for t in self.terms]
        rows: list[dict[str, object]] = [cell | made for made in terms or [self._made_of()]]
        return Table.of(rows[0], (tuple(row.values()) for row in rows))

    def _made_of(self) -> dict[str, object]:
        return {}

    @property
    def own(self) -> Term | None:
        """The term of the cell itself, whose source is its value one stage earlier."""
        here = (self.head, self.query, self.key)
        return next((term for term in self.terms if (term.head, term.query, term.key) == here), None)

    @property
    def largest(self) -> Term | None:
        """The term of largest |product| besides the cell's own; None where all others are 0."""
        own = self.own
        return next((term for term in self.terms if term is not own and term.product != 0), None)


@dataclass(frozen=True)
class Window:
    """The taps of a kernel over the cell, as they lie in the map: rows by query, columns by key.

    `sources` are the values the convolution reads (0 where `outside` or `future`),
    `products` = `kernel` x `sources`.
    """

    offsets: Offsets
    kernel: Float[Tensor, "c_q c_k"]
    sources: Float[Tensor, "c_q c_k"]
    products: Float[Tensor, "c_q c_k"]
    outside: Bool[Tensor, "c_q c_k"]
    future: Bool[Tensor, "c_q c_k"]


@dataclass(frozen=True, repr=False)
class Convolved(Decomposition):
    """A cell after a key-query convolution: one term for every tap of the kernel."""

    window: Window


@dataclass(frozen=True, repr=False)
class Mixed(Decomposition):
    """A cell after head mixing: one term for every source head of the target's group."""


@dataclass(frozen=True)
class Half(Term):
    """The cell in one of the two softmax maps of a DIFF Transformer's head; the weight is 1 or -lambda."""

    source_stage: str  # its hook


@dataclass(frozen=True, repr=False)
class Subtracted(Decomposition):
    """A DIFF Transformer's final weight: a term for each softmax map of the head."""


@dataclass(frozen=True, repr=False)
class Softmaxed(Decomposition):
    """A cell of the softmax: value = exp(score - log_normaliser), both in nats.

    `rival` is the key of the largest other score in the row and `margin` = score - its score
    (negative when the rival leads); None in a row of one key.
    """

    score: float
    log_normaliser: float
    rival: int | None
    margin: float | None

    def _sum_words(self) -> str:
        words = f"exp({number(self.score)} - {number(self.log_normaliser)})"
        if self.rival is None:
            return words
        return f"{words}; the next key, {self.rival}, is {self.margin:.3g} nats behind"

    def _made_of(self) -> dict[str, object]:
        row: dict[str, object] = {"score": self.score, "log_normaliser": self.log_normaliser}
        return row | {"runner_up_key": self.rival, "margin_nats": self.margin}


@dataclass(frozen=True, repr=False)
class Scored(Decomposition):
    """A raw score: value = query_norm x key_norm x cosine / sqrt(d), of the rotated vectors.

    `products`: q_i k_i / sqrt(d) of each dimension, which sum to the value.
    """

    query_norm: float
    key_norm: float
    cosine: float
    d_head: int
    products: tuple[float, ...] = ()

    def _sum_words(self) -> str:
        return f"{self.query_norm:.3g} x {self.key_norm:.3g} x cosine {self.cosine:.3g} / sqrt({self.d_head})"

    def _made_of(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("query_norm", "key_norm", "cosine", "d_head")}


@dataclass(frozen=True, repr=False)
class Passed(Decomposition):
    """Final weights with no head mixing after them: the stage before, unchanged; one term of weight 1."""


def decompose(trace: Trace, layer: int, stage: Stage, head: int, query: int, key: int) -> Decomposition:
    """Take the value of one cell apart: `Convolved`, `Mixed`, `Softmaxed`, `Scored` or `Passed`.

    Sources are what `trace.map` gives one stage earlier, in the unit of that stage (score or weight). Raises
    PromptError for a cell that is masked or not in the prompt, and for a stage the layer does not compute.

    >>> why = mta_viz.decompose(trace, 3, mta_viz.Stage.KQ, head=1, query=20, key=8)
    >>> len(why.terms), why.residual < 1e-3  # computed in half precision
    (18, True)
    """
    step = _checked_step(trace, layer, stage, head, query, key)
    return _Cell(trace, layer, step, head, query, key).decompose()


def chain(trace: Trace, layer: int, head: int, query: int, key: int) -> dict[Stage, float]:
    """The cell at every stage of the layer, final weights first and raw scores last.

    Raises PromptError as `decompose`.
    """
    _checked_step(trace, layer, Stage.RAW, head, query, key)
    rows = _rows(trace, layer, range(query, query + 1))
    return {stage: float(rows[stage][head, 0, key]) for stage in reversed(rows)}


class _Cell:
    """One cell of one stage, with the step that made it and what was read for it.

    `sources`: the stage before, some rows up to the query's over keys 0..query, float32 on the CPU.
    """

    def __init__(self, trace: Trace, layer: int, step: Step, head: int, query: int, key: int) -> None:
        self.trace, self.layer, self.head, self.query, self.key = trace, layer, head, query, key
        self.weights, self.operation = self._step_weights(step.after), step.operation
        reach = self.weights.shape[1] if step.operation == "convolution" else 1
        rows = _rows(trace, layer, range(max(query - reach + 1, 0), query + 1))
        self.sources = rows[step.before or Stage.RAW]  # raw scores, that are made of none, read none
        self.second = rows.get(Stage.SOFTMAX_2)
        self.value = float(rows[step.after][head, -1, key])
        self.facts = (layer, step.after, head, query, key, self.value, step.before)

    def _step_weights(self, stage: Stage) -> Tensor:
        """The kernels or mixing that make a stage as the model computes with them: rounded to its dtype."""
        attention = self.trace.model.blocks[self.layer].attn
        parameters = {
            Stage.KQ: attention.kernel_pre,
            Stage.MIX: attention.head_pre,
            Stage.SOFTMAX_KQ: attention.kernel_post,
            Stage.PATTERN: attention.head_post,
        }
        weights = parameters.get(stage)
        return torch.ones(1) if weights is None else weights.detach().to(self.trace.model.dtype).float().cpu()

    def decompose(self) -> Decomposition:
        """The decomposition that fits the step."""
        if self.operation == "product":
            return self._scored()
        if self.operation == "softmax":
            return self._softmaxed()
        if self.operation == "convolution":
            window = self._window(self.weights[self.head])
            return Convolved(*self.facts, *self._sum(self._taps(window)), window)
        if self.operation == "nothing":
            return Passed(*self.facts, *self._sum([self._same_cell(self.head, 1.0)]))
        if self.second is not None:
            return Subtracted(*self.facts, *self._sum(self._halves(self.second)))
        size = self.weights.shape[1]
        group, target = divmod(self.head, size)
        weights = enumerate(self.weights[group, target].tolist(), start=group * size)
        return Mixed(*self.facts, *self._sum([self._same_cell(head, weight) for head, weight in weights]))

    def _sum(self, terms: list[Term]) -> tuple[tuple[Term, ...], float]:
        return largest_first(terms), _relative_error(self.value, [term.product for term in terms])

    def _window(self, kernel: Float[Tensor, "c_q c_k"]) -> Window:
        offsets = kernel_offsets(self.trace.model.config, *kernel.shape)
        queries = torch.tensor(offsets.query)[:, None] + self.query
        keys = torch.tensor(offsets.key)[None, :] + self.key
        outside = (queries < 0) | (keys < 0) | (keys >= len(self.trace.tokens))
        first, stop = int(keys[0, 0]), int(keys[0, -1]) + 1
        there = self.sources[self.head, :, max(first, 0) : stop]
        # The convolution reads 0 before the prompt, and 0 for keys after their query.
        beyond = (max(-first, 0), max(stop - self.query - 1, 0), len(kernel) - len(there), 0)
        sources = pad(there, beyond)
        return Window(offsets, kernel, sources, kernel * sources, outside, (keys > queries) & ~outside)

    def _taps(self, window: Window) -> list[Term]:
        """One term a tap; products in float64, or their own rounding would be in the residual."""
        taps = window.offsets.rows(window.kernel.numpy())
        reads = (cells.flatten().tolist() for cells in (window.sources, window.outside, window.future))
        terms = []
        for (query, key, tap), source, outside, future in zip(taps, *reads, strict=True):
            state: State = "outside" if outside else "future" if future else "inside"
            cell = (self.head, self.query + query, self.key + key)
            terms.append(Term(*cell, state, tap, source, tap * source))
        return terms

    def _same_cell(self, head: int, weight: float, sources: Tensor | None = None) -> Term:
        source = float((self.sources if sources is None else sources)[head, -1, self.key])
        return Term(head, self.query, self.key, "inside", weight, source, weight * source)

    def _halves(self, second: Float[Tensor, "head row key"]) -> list[Term]:
        attention: Any = self.trace.model.blocks[self.layer].attn
        share = float(attention.subtracted_share().detach().to(self.trace.model.dtype))
        terms = self._same_cell(self.head, 1.0), self._same_cell(self.head, -share, second)
        names = zip(terms, ("hook_softmax", "hook_softmax_2"), strict=True)
        return [Half(**vars(term), source_stage=name) for term, name in names]

    def _softmaxed(self) -> Decomposition:
        scores = self.sources[self.head, -1].double()
        score, log_normaliser = float(scores[self.key]), float(scores.logsumexp(0))
        # An error of a weight counts against the row's sum, which is 1: tiny weights have no digits to lose.
        residual = _relative_error(self.value, [math.exp(score - log_normaliser)], scale=1.0)
        rival, margin = None, None
        if len(scores) > 1:
            rival = int(scores.index_fill(0, torch.tensor([self.key]), -torch.inf).argmax())
            margin = float(scores[self.key] - scores[rival])
        return Softmaxed(*self.facts, (), residual, score, log_normaliser, rival, margin)

    def _scored(self) -> Decomposition:
        qkv, config = self.trace.project(self.layer), self.trace.model.config
        own = slice(config.d_rotary, None) if self.facts[1] is Stage.RAW_2 else slice(config.d_rotary)
        q = qkv.q[0, self.query, self.head, own].double()
        k = qkv.k[0, self.key, self.head // (config.n_heads // config.n_kv_heads), own].double()
        norms = float(q.norm()), float(k.norm())
        cosine = float(q @ k) / (norms[0] * norms[1]) if all(norms) else 0.0
        products = tuple((q * k / config.d_rotary**0.5).tolist())
        residual = _relative_error(self.value, products)
        return Scored(*self.facts, (), residual, *norms, cosine, config.d_rotary, products)


def _rows(trace: Trace, layer: int, queries: range) -> dict[Stage, Float[Tensor, "head row column"]]:
    """Every stage of some rows over keys 0..last row, from one pass: what was read, and what it gave."""
    parts = [slabs for _, slabs in trace.stage_slabs(layer, queries)]
    return {
        stage: torch.cat(
            [pad(part[stage], (0, queries.stop - part[stage].shape[2])) for part in parts], dim=1
        ).cpu()
        for stage in parts[0]
    }


def _checked_step(trace: Trace, layer: int, stage: Stage, head: int, query: int, key: int) -> Step:
    """The step that makes the stage; PromptError in the words of the page when there is no such cell."""
    check_place(trace, layer, head, query=query, key=key)
    if key > query:
        raise PromptError(
            f"Key {key} comes after query {query}. The model never sees it: weight is 0 by the mask."
        )
    config = trace.model.config
    step = next((step for step in layer_steps(config.kernels(layer)) if step.after is stage), None)
    if step is None:
        having = [str(at) for at in range(config.n_layers) if stage in layer_stages(config.kernels(at))]
        where = f"Layers with one: {', '.join(having)}." if having else "No layer of this model has one."
        raise PromptError(f"Layer {layer} has {_WITHOUT[stage]}. {where}")
    return step


def largest_first(terms: Iterable[Term]) -> tuple[Term, ...]:
    """By |product|, NaN before all; cells that are read as 0 come last."""

    def place(term: Term) -> tuple[float, bool]:
        return -math.inf if math.isnan(term.product) else -abs(term.product), term.state != "inside"

    return tuple(sorted(terms, key=place))


def _relative_error(value: float, parts: Sequence[float], scale: float | None = None) -> float:
    """|value - sum of parts| / sum of |parts| (or `scale`); where that is 0, the difference itself."""
    scale = math.fsum(map(abs, parts)) if scale is None else scale
    difference = abs(value - math.fsum(parts)) if all(map(math.isfinite, parts)) else math.nan
    return difference / scale if scale else difference
