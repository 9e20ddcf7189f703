"""What each step of a layer changed: which stage comes from which, difference maps, statistics of rows.

Also the health of a checkpoint at one glance: of its weights, and of all rows of a run.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.maps import NO_CELLS, AttentionMap, WholeMap, exact_maps, with_facts
from mta_viz.analysis.kernels.kernels import layer_kernels, near_identity
from mta_viz.config import LayerKernels
from mta_viz.errors import PromptError
from mta_viz.model.ops import future_cells
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import SelfCheck, self_check
from mta_viz.run.tracing import Trace
from mta_viz.tables import Row, Table
from mta_viz.tokenizers.base import Tokens

Operation = Literal["product", "convolution", "mixing", "softmax", "subtraction", "nothing"]


@dataclass(frozen=True)
class Step:
    """`operation` makes stage `after` from stage `before` (None: from queries and keys)."""

    before: Stage | None
    after: Stage
    operation: Operation


def layer_steps(kernels: LayerKernels) -> tuple[Step, ...]:
    """One step for every stage the layer computes, in order."""
    stages = layer_stages(kernels)
    last: Operation = "mixing" if kernels.head_post else "nothing"
    made: dict[Stage, Operation] = {
        Stage.RAW: "product",
        Stage.RAW_2: "product",
        Stage.KQ: "convolution",
        Stage.MIX: "mixing",
        Stage.SOFTMAX: "softmax",
        Stage.SOFTMAX_2: "softmax",
        Stage.SOFTMAX_KQ: "convolution",
        Stage.PATTERN: "subtraction" if kernels.differential else last,
    }
    befores: dict[Stage, Stage | None] = dict(zip(stages, (None, *stages), strict=False))
    if kernels.differential:  # two ways from scores to weights, and the second is taken off the first
        befores |= {Stage.RAW_2: None, Stage.SOFTMAX: Stage.RAW, Stage.SOFTMAX_2: Stage.RAW_2}
        befores[Stage.PATTERN] = Stage.SOFTMAX
    return tuple(Step(befores[after], after, made[after]) for after in stages)


def difference_steps(kernels: LayerKernels) -> tuple[tuple[Stage, Stage], ...]:
    """(before, after) of each convolution, head mixing and subtraction: two stages of one unit."""
    return tuple(
        (step.before, step.after)
        for step in layer_steps(kernels)
        if step.before is not None and step.operation in ("convolution", "mixing", "subtraction")
    )


@dataclass(frozen=True, kw_only=True)
class DifferenceMap(AttentionMap):
    """`values` = stage `stage` minus stage `before` of the same head, in the unit of both.

    Where both are the same stage, an edited run's minus the original one's.

    Otherwise an `AttentionMap`: pooled by largest |change|, masked cells 0, limits by
    `shared_limit`. `negative_share`: share of all change that lowers. Row sums are not given.
    """

    before: Stage

    @property
    def title(self) -> str:
        """What a row says of the stages: both hooks."""
        return f"{self.stage.value.hook} - {self.before.value.hook}"


def subtract(after: AttentionMap, before: AttentionMap) -> DifferenceMap:
    """Difference of two exact maps of the same cells. Raises PromptError for others."""
    if max(after.block, before.block) > 1 or _place(after) != _place(before):
        raise PromptError("maps can be subtracted cell by cell only where both show the same exact cells")
    cells = (after.values - before.values, after.query_start, after.key_start)
    difference = DifferenceMap(after.layer, after.head, after.stage, *cells, before=before.stage)
    return with_facts(difference, whole_rows=False)


def _place(attention: AttentionMap) -> tuple[object, ...]:
    shape = tuple(attention.values.shape)
    return attention.layer, attention.head, attention.query_start, attention.key_start, shape


def exact_difference(
    trace: Trace, layer: int, stage: Stage, head: int, queries: slice = slice(None), keys: slice = slice(None)
) -> DifferenceMap:
    """Every cell of a crop of `stage` minus the stage before it.

    Raises PromptError where the layer has no such step, or one that changes the unit.
    """
    befores = {after: before for before, after in difference_steps(trace.model.config.kernels(layer))}
    if stage not in befores:
        there = ", ".join(after.value.hook for after in befores) or "none"
        raise PromptError(
            f"layer {layer} has no convolution, head mixing or subtraction that makes {stage.value.hook}; "
            f"its stages with a difference: {there}"
        )
    maps = exact_maps(trace, layer, {stage, befores[stage]}, head, queries, keys)
    return subtract(maps[stage], maps[befores[stage]])


def differences(trace: Trace, layer: int, head: int, max_cells: int = 512) -> dict[Stage, DifferenceMap]:
    """Every difference of a layer by its later stage, in one pass.

    Exact when the prompt fits `max_cells`, else pooled slab by slab: memory grows with T.
    """
    wholes: dict[Stage, WholeMap[DifferenceMap]] = {}
    for before, after in difference_steps(trace.model.config.kernels(layer)):
        empty = DifferenceMap(layer, head, after, *NO_CELLS, before=before)
        wholes[after] = WholeMap(empty, len(trace.tokens), max_cells)
    for first_row, slabs in trace.stage_slabs(layer):
        for after, whole in wholes.items():
            before = whole.empty.before
            whole.add(slabs[after][head].float() - slabs[before][head].float(), first_row)
    return {after: whole.result(row_sums=False) for after, whole in wholes.items()}


EMPTY_ROW = 1e-8  # rows whose sizes sum to less have no shape to speak of


@dataclass(frozen=True)
class StageStatistics:
    """One stage of one head, a number a query; w are a row's values over its keys <= query.

    `row_sums` sum w, `absolute_sums` sum |w|, `negative_sums` sum max(-w, 0). `effective_keys`
    (sum |w|)^2 / sum w^2: 1 for one key, n for n equal ones. At score stages, which a constant per
    row does not change, they are those of the row's softmax, "as if the softmax came here".
    `entropy` in nats, only at the softmax, where rows are probabilities. Effective keys and entropy
    are NaN in rows with sum |w| below 1e-8 and in those that hold NaN or inf.
    """

    stage: Stage
    row_sums: Float[Tensor, " query"]
    absolute_sums: Float[Tensor, " query"]
    negative_sums: Float[Tensor, " query"]
    effective_keys: Float[Tensor, " query"]
    entropy: Float[Tensor, " query"] | None

    @property
    def negative_shares(self) -> Float[Tensor, " query"]:
        """nu = sum max(-w, 0) / sum |w| of every row, 0..1; NaN in empty rows."""
        return _full(self.negative_sums / self.absolute_sums, self.absolute_sums)

    @property
    def cancelled_shares(self) -> Float[Tensor, " query"]:
        """1 - |sum w| / sum |w| of every row = 2 min(nu, 1 - nu): what its signs cancel."""
        return _full(1 - self.row_sums.abs() / self.absolute_sums, self.absolute_sums)

    def rows(self) -> Iterator[tuple[float | None, ...]]:
        """Of every query its row sum, negative and cancelled share, effective keys and entropy.

        None for a fact the row does not have; a row sum of NaN stays, which says that the row holds it.
        """
        entropy = torch.full_like(self.row_sums, torch.nan) if self.entropy is None else self.entropy
        facts = (self.negative_shares, self.cancelled_shares, self.effective_keys, entropy)
        return zip(self.row_sums.tolist(), *(map(_present, fact.tolist()) for fact in facts), strict=True)

    def summary(self) -> Row:
        """The row of `HeadStatistics.summary`: shares of all rows together, medians over rows."""
        sums, total = self.row_sums, float(self.absolute_sums.sum())
        low, middle, high = float(sums.min()), float(sums.quantile(0.5)), float(sums.max())
        negative = _share(float(self.negative_sums.sum()), total)
        cancelled = _share(total - float(sums.abs().sum()), total)
        n_negative = int((self.negative_sums > 0).sum())
        n_keys = torch.arange(1, len(sums) + 1)
        keys, entropy = float((self.effective_keys / n_keys).nanquantile(0.5)), math.nan
        if self.entropy is not None and len(sums) > 1:  # the log of the first row's one key is 0
            entropy = float((self.entropy[1:] / n_keys[1:].log()).nanquantile(0.5))
        facts = (round(fact, 4) for fact in (low, middle, high, negative, n_negative, cancelled))
        shares = (_present(round(share, 4)) for share in (keys, entropy))
        return (self.stage.value.long, self.stage.value.unit, *facts, *shares)


@dataclass(frozen=True)
class Change:
    """How much one step changed a head's map, over all cells with key <= query.

    `size` = norm of (after - before) / norm of before; at score stages each row's mean is taken from
    both first, since the softmax does not see it. `largest`: the change of largest size, of the
    values as they are, at (`query`, `key`).
    """

    before: Stage
    after: Stage
    size: float
    largest: float
    query: int
    key: int


@dataclass(frozen=True)
class HeadStatistics:
    """All stages of one head in order, and the changes by convolutions and head mixing."""

    layer: int
    head: int
    stages: dict[Stage, StageStatistics]
    changes: tuple[Change, ...]

    def table(self, tokens: Tokens) -> Table:
        """One row a stage and query."""
        rows = (
            (self.layer, self.head, stage.value.hook, query, tokens.pieces[query], *numbers)
            for stage, statistics in self.stages.items()
            for query, numbers in enumerate(statistics.rows())
        )
        where = ("layer", "head", "stage", "query", "query_token")
        return Table.of((*where, "row_sum", "negative", "cancelled", "effective_keys", "entropy_nats"), rows)

    def summary(self) -> Table:
        """One row a stage: what its rows are like, shares rounded to four digits."""
        columns = (
            *("stage", "unit", "row sum, smallest", "median", "largest", "negative", "in rows", "cancelled"),
            *("effective keys / keys", "entropy / log keys"),
        )
        return Table.of(columns, (statistics.summary() for statistics in self.stages.values()))


def head_statistics(trace: Trace, layer: int, head: int) -> HeadStatistics:
    """One pass over a layer. Raises PromptError for a layer or head that is not there."""
    trace.map(layer, Stage.RAW, head, slice(0, 0))  # checks both
    steps = difference_steps(trace.model.config.kernels(layer))
    rows: dict[Stage, list[list[Tensor]]] = {}
    changes = [_Changing(*step) for step in steps]
    for first, slabs in trace.stage_slabs(layer):
        maps = {stage: slab[head].double().cpu() for stage, slab in slabs.items()}
        for stage, values in maps.items():
            rows.setdefault(stage, []).append(_row_facts(stage, values, first))
        for change in changes:
            change.add(maps[change.before], maps[change.after], first)
    statistics = {}
    for stage in filter(rows.__contains__, Stage):
        sums, sizes, negative, keys, entropy = (
            torch.cat(part).float() for part in zip(*rows[stage], strict=True)
        )
        kept = entropy if stage is Stage.SOFTMAX else None
        statistics[stage] = StageStatistics(stage, sums, sizes, negative, keys, kept)
    return HeadStatistics(layer, head, statistics, tuple(change.result() for change in changes))


def _row_facts(stage: Stage, values: Float[Tensor, "query key"], first: int) -> list[Tensor]:
    """What `StageStatistics` has of some rows, in its order; `first` is the position of the first."""
    weights = values
    if stage.value.unit == "score":
        weights = values.masked_fill(_future(values, first), -torch.inf).softmax(-1)
    sizes = weights.abs().sum(-1)
    keys = _full(sizes.square() / weights.square().sum(-1), sizes)
    entropy = _full(0 - torch.special.xlogy(weights, weights).sum(-1), sizes)
    return [values.sum(-1), values.abs().sum(-1), values.clamp(max=0).abs().sum(-1), keys, entropy]


class _Changing:
    """The change of one step while its rows pass by."""

    def __init__(self, before: Stage, after: Stage) -> None:
        self.before, self.after = before, after
        self._changed = self._norm = self._size = self._largest = 0.0
        self._cell = (0, 0)

    def add(self, before: Float[Tensor, "query key"], after: Float[Tensor, "query key"], first: int) -> None:
        change, future = after - before, _future(before, first)
        sizes = change.abs().nan_to_num(nan=torch.inf)
        query, key = divmod(int(sizes.argmax()), sizes.shape[1])
        if float(sizes[query, key]) > self._size:
            self._size, self._largest = float(sizes[query, key]), float(change[query, key])
            self._cell = (query + first, key)
        if self.before.value.unit == "score":
            change, before = (centred(part, future) for part in (change, before))
        self._changed += float(change.square().sum())
        self._norm += float(before.square().sum())

    def result(self) -> Change:
        size = _share(math.sqrt(self._changed), math.sqrt(self._norm)) if self._changed else 0.0
        return Change(self.before, self.after, size, self._largest, *self._cell)


def centred(values: Tensor, future: Tensor) -> Tensor:
    """Each row less its mean over the keys that are not `future`; the others 0."""
    means = values.sum(-1, keepdim=True) / (~future).sum(-1, keepdim=True)
    return (values - means).masked_fill(future, 0.0)


def _future(values: Tensor, first: int) -> Tensor:
    return future_cells(range(first, first + values.shape[0]), values.shape[1], values.device)


def _full(values: Tensor, sizes: Tensor) -> Tensor:
    """`values` where a row has any size, NaN in the others."""
    return values.masked_fill(~(sizes >= EMPTY_ROW), torch.nan)


def _present(value: float) -> float | None:
    """The value; None for NaN, which a table leaves empty."""
    return None if math.isnan(value) else value


def _share(part: float, whole: float) -> float:
    """part / whole; of nothing: 0 for nothing, infinite for anything else."""
    if whole:
        return part / whole
    return math.inf if part else 0.0


CLOSED_GATE = 0.05


@dataclass(frozen=True)
class Health:
    """Facts of the weights, and of one run where there is a trace (else None).

    `n_nan`, `n_inf`: parameters that are. `kernels_at_identity`: (near identity, all), key-query
    kernels of every layer, head and place; near = under 5 % of the energy off the own tap.
    `largest_tap`: largest |tap|, None without kernels. `gates_below_0_05`: share of gate values of
    the run under 0.05, None without gates. `row_sum_range`: smallest and largest row sum of the
    final weights over all layers and heads. Each of the three is NaN as soon as one of the numbers
    it is taken from is NaN. `self_check`: recomputation against the run.
    """

    n_nan: int
    n_inf: int
    kernels_at_identity: tuple[int, int]
    largest_tap: float | None
    gates_below_0_05: float | None
    row_sum_range: tuple[float, float] | None
    self_check: SelfCheck | None


def health(model: HookedMTA, trace: Trace | None = None) -> Health:
    """Examine a model and, if given, one run of it. Computes every layer's final weights once."""
    state, config = model.state_dict(), model.config
    layers = (layer_kernels(state, config, layer) for layer in range(config.n_layers))
    stacks = [(taps, offsets) for layer in layers for _, taps, offsets in layer.key_query()]
    weights = [weight for weight in state.values() if not weight.is_meta]
    at_identity = sum(int(near_identity(taps, offsets.own).sum()) for taps, offsets in stacks)
    largest = [taps.abs().max() for taps, _ in stacks]
    no_run: dict[str, Any] = {"gates_below_0_05": None, "row_sum_range": None, "self_check": None}
    return Health(
        n_nan=sum(int(weight.isnan().sum()) for weight in weights),
        n_inf=sum(int(weight.isinf().sum()) for weight in weights),
        kernels_at_identity=(at_identity, sum(len(taps) for taps, _ in stacks)),
        largest_tap=float(torch.stack(largest).max()) if largest else None,
        **(_of_run(trace) if trace else no_run),
    )


def _of_run(trace: Trace) -> dict[str, Any]:
    """What one pass over the layers tells: gates, sums of weights, and the check."""
    gates, sums = list[Tensor](), list[Tensor]()

    def look(layer: int, z: Float[Tensor, "position head d"], own: Float[Tensor, "head position"]) -> None:
        sums.append(own.flatten())
        if (gate := trace.gate_of(layer, z)) is not None:
            gates.append(gate.flatten().cpu())  # layers may lie on several devices

    check = self_check(trace, look)
    closed = _closed(torch.cat(gates)) if gates else None
    return {"gates_below_0_05": closed, "row_sum_range": _range(sums), "self_check": check}


def _closed(gates: Float[Tensor, " value"]) -> float:
    # A comparison with NaN is False, which would count as an open gate.
    return float("nan") if gates.isnan().any() else float((gates < CLOSED_GATE).float().mean())


def _range(sums: list[Tensor]) -> tuple[float, float]:
    # torch's min and max keep a NaN; Python's drop it or not, by the order of their arguments.
    lowest = torch.stack([part.min() for part in sums]).min()
    highest = torch.stack([part.max() for part in sums]).max()
    return float(lowest), float(highest)
