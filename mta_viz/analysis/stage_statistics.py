"""What the rows of each stage of a head are like, and how much each step changed: numbers, no maps.

Owns the definitions. Row by row in slabs, so that memory grows with T.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.steps import difference_steps
from mta_viz.model.ops import future_cells
from mta_viz.model.stages import Stage
from mta_viz.tracing import Trace

EMPTY_ROW = 1e-8


@dataclass(frozen=True)
class StageStatistics:
    """One stage of one head, a number a query; w are a row's values over its keys <= query.

    `row_sums` sum w, `absolute_sums` sum |w|, `negative_sums` sum max(-w, 0). `effective_keys`
    (sum |w|)^2 / sum w^2: 1 for one key, n for n equal ones. At score stages, which a constant per
    row does not change, they are those of the row's softmax, "as if the softmax came here".
    `entropy` in nats, only at the softmax, where rows are probabilities. Effective keys and entropy
    are NaN in rows with sum |w| below 1e-8 (`n_empty_rows`) and in those that hold NaN or inf.
    """

    stage: Stage
    row_sums: Float[Tensor, " query"]
    absolute_sums: Float[Tensor, " query"]
    negative_sums: Float[Tensor, " query"]
    effective_keys: Float[Tensor, " query"]
    entropy: Float[Tensor, " query"] | None

    @property
    def row_sum_range(self) -> tuple[float, float, float]:
        """Smallest, median and largest row sum."""
        sums = self.row_sums
        return float(sums.min()), float(sums.quantile(0.5)), float(sums.max())

    @property
    def n_empty_rows(self) -> int:
        """Rows with sum |w| below 1e-8."""
        return int((self.absolute_sums < EMPTY_ROW).sum())

    @property
    def n_negative_rows(self) -> int:
        """Rows with at least one value below 0."""
        return int((self.negative_sums > 0).sum())

    @property
    def negative_shares(self) -> Float[Tensor, " query"]:
        """nu = sum max(-w, 0) / sum |w| of every row, 0..1; NaN in empty rows."""
        return _full(self.negative_sums / self.absolute_sums, self.absolute_sums)

    @property
    def cancelled_shares(self) -> Float[Tensor, " query"]:
        """1 - |sum w| / sum |w| of every row = 2 min(nu, 1 - nu): what its signs cancel."""
        return _full(1 - self.row_sums.abs() / self.absolute_sums, self.absolute_sums)

    @property
    def negative_share(self) -> float:
        """sum max(-w, 0) / sum |w| over all rows together."""
        return _share(float(self.negative_sums.sum()), float(self.absolute_sums.sum()))

    @property
    def cancelled_share(self) -> float:
        """1 - sum over rows of |sum w| / sum |w| over all rows together."""
        total = float(self.absolute_sums.sum())
        return _share(total - float(self.row_sums.abs().sum()), total)

    @property
    def median_effective_share(self) -> float:
        """Median over rows of effective keys / keys the row has, 0..1."""
        return float((self.effective_keys / torch.arange(1, len(self.effective_keys) + 1)).nanmedian())

    @property
    def median_entropy_share(self) -> float:
        """Median over rows of entropy / log(keys the row has), 0..1; NaN where there is no entropy."""
        if self.entropy is None or len(self.entropy) < 2:
            return math.nan
        return float((self.entropy[1:] / torch.arange(2, len(self.entropy) + 1).log()).nanmedian())


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


def head_statistics(trace: Trace, layer: int, head: int) -> HeadStatistics:
    """One pass over a layer. Raises PromptError for a layer or head that is not there."""
    trace.map(layer, Stage.RAW, head, slice(0, 0))  # checks both
    steps = difference_steps(trace.model.config.kernels(layer))
    rows: dict[Stage, list[StageStatistics]] = {}
    changes = [_Changing(*step) for step in steps]
    for first, slabs in trace.stage_slabs(layer):
        maps = {stage: slab[head].double().cpu() for stage, slab in slabs.items()}
        for stage, values in maps.items():
            rows.setdefault(stage, []).append(_statistics(stage, values, first))
        for change in changes:
            change.add(maps[change.before], maps[change.after], first)
    found = {stage: _joined(stage, rows[stage]) for stage in Stage if stage in rows}
    return HeadStatistics(layer, head, found, tuple(change.result() for change in changes))


def _statistics(stage: Stage, values: Float[Tensor, "query key"], first: int) -> StageStatistics:
    """Of some rows; `first` is the position of the first."""
    future = _future(values, first)
    weights = values
    if stage.value.unit == "score":
        weights = values.masked_fill(future, -torch.inf).softmax(-1)
    sizes = weights.abs().sum(-1)
    return StageStatistics(
        stage,
        values.sum(-1),
        values.abs().sum(-1),
        values.clamp(max=0).abs().sum(-1),
        _full(sizes.square() / weights.square().sum(-1), sizes),
        _full(-torch.special.xlogy(weights, weights).sum(-1), sizes) if stage is Stage.SOFTMAX else None,
    )


def _joined(stage: Stage, parts: Sequence[StageStatistics]) -> StageStatistics:
    def join(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts]).float()

    return StageStatistics(
        stage,
        join("row_sums"),
        join("absolute_sums"),
        join("negative_sums"),
        join("effective_keys"),
        join("entropy") if stage is Stage.SOFTMAX else None,
    )


class _Changing:
    """The change of one step while its rows pass by."""

    def __init__(self, before: Stage, after: Stage) -> None:
        self.before, self.after = before, after
        self._changed = self._norm = 0.0
        self._largest, self._cell = 0.0, (0, 0)

    def add(self, before: Float[Tensor, "query key"], after: Float[Tensor, "query key"], first: int) -> None:
        change, future = after - before, _future(before, first)
        sizes = change.abs().nan_to_num(nan=torch.inf)
        query, key = divmod(int(sizes.argmax()), sizes.shape[1])
        if float(sizes[query, key]) > _size(self._largest):
            self._largest, self._cell = float(change[query, key]), (query + first, key)
        if self.before.value.unit == "score":
            change, before = (_centred(part, future) for part in (change, before))
        self._changed += float(change.square().sum())
        self._norm += float(before.square().sum())

    def result(self) -> Change:
        size = _share(math.sqrt(self._changed), math.sqrt(self._norm)) if self._changed else 0.0
        return Change(self.before, self.after, size, self._largest, *self._cell)


def _centred(values: Tensor, future: Tensor) -> Tensor:
    """Each row less its mean over keys <= query; the others 0."""
    means = values.sum(-1, keepdim=True) / (~future).sum(-1, keepdim=True)
    return (values - means).masked_fill(future, 0.0)


def _future(values: Tensor, first: int) -> Tensor:
    return future_cells(range(first, first + values.shape[0]), values.shape[1], values.device)


def _full(values: Tensor, sizes: Tensor) -> Tensor:
    """`values` where a row has any size, NaN in the others."""
    return values.masked_fill(~(sizes >= EMPTY_ROW), torch.nan)


def _share(part: float, whole: float) -> float:
    """part / whole; of nothing: 0 for nothing, infinite for anything else."""
    if whole:
        return part / whole
    return math.inf if part else 0.0


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else abs(value)
