"""What each kernel is worth to a task: alone removed, alone kept, and on average over all orders.

A kernel that is taken out keeps its gain and sign, unless another edit is asked for. Removing one
kernel cannot see what another one does as well: Shapley values share out the whole effect of all
kernels without that blindness. Owns coalitions of kernels and their values; what a sample is belongs
to `sweeps`.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from pydantic import Field, PlainValidator

from mta_viz.analysis.cause.coalitions import Alone, Coalitions, Kept
from mta_viz.analysis.cause.effects import kernel_ids
from mta_viz.analysis.cause.sweeps import RANDOM_SETS, Outcome, random_sets
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.config import Where
from mta_viz.model.plans import Edit
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.jobs import Spread, workers
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tables import Table
from mta_viz.tasks.intervals import LEVEL, median_interval

LARGEST_ERROR = 0.05  # of the whole effect: the standard error at which sampling stops
FEWEST, MOST = 20, 400  # pairs of orders
TRIED, LARGEST_SET = 8, 5
KernelName = Annotated[KernelId, PlainValidator(KernelId.named)]  # a kernel as a field of a file


@dataclass(frozen=True)
class KernelValue:
    """One kernel's worth in nats of the gold answer's log-probability, averaged over samples.

    `necessary`: what is lost when it alone is taken out. `sufficient`: what is gained when it alone is
    kept, all others taken out. `shapley`: the mean over sampled orders of what it adds to those before
    it, `standard_error` that mean's. Over all kernels the Shapley values sum to the whole effect.
    These are means, which have no interval; the medians over samples have 95 % intervals, and are None with
    fewer than 6 samples and where a file has none.
    """

    layer: int
    head: int
    where: Where
    necessary: float
    sufficient: float
    shapley: float
    standard_error: float
    necessary_median: float | None = None
    necessary_median_low: float | None = None
    necessary_median_high: float | None = None
    sufficient_median: float | None = None
    sufficient_median_low: float | None = None
    sufficient_median_high: float | None = None

    @property
    def kernel(self) -> KernelId:
        """Whose worth it is."""
        return KernelId(self.layer, self.head, self.where)


@dataclass(frozen=True)
class Removal:
    """The task without a greedy set of kernels, and with that set alone.

    The set grows by the kernel, of the eight of largest Shapley value, without which the answer loses
    most beside those already out: greedy, so not the smallest. Accuracies 0..1, log-probabilities in
    nats. `random_accuracy`, `random_log_probability`: of the most harmful of up to 20 other sets of that
    size, drawn at random; None where there is no other.
    """

    kernels: tuple[KernelName, ...]
    without_accuracy: float
    without_log_probability: float
    only_accuracy: float
    only_log_probability: float
    random_accuracy: float | None
    random_log_probability: float | None


@dataclass(frozen=True)
class Shapley:
    """All kernels' values on a task. `edit`: what was made of a kernel that is taken out.

    `n_orders`: orders drawn, in pairs of an order and its reverse, each on one batch of samples.
    `complete`, `none`: the log-probability (nats) with all kernels and with none, `complete_accuracy`
    and `none_accuracy` beside it; the whole effect is their difference.
    """

    edit: Edit
    n_samples: int
    n_orders: int
    complete: float
    none: float
    complete_accuracy: float
    none_accuracy: float
    values: Annotated[tuple[KernelValue, ...], Field(validation_alias="kernels")]  # so in a file
    removals: Annotated[tuple[Removal, ...], Field(validation_alias="greedy_sets")]

    @property
    def effect(self) -> float:
        """What all kernels together add to the answer's log-probability, nats."""
        return self.complete - self.none

    @property
    def largest_error(self) -> float:
        """The largest standard error of a Shapley value, as a share of the whole effect's size."""
        return max(value.standard_error for value in self.values) / max(abs(self.effect), 1e-12)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready: the task's numbers, a row a kernel, and the greedy sets."""
        head = {name: value for name, value in vars(self).items() if name not in ("values", "removals")}
        sets = [
            {"kernels": [kernel.name() for kernel in removal.kernels]}
            | {name: value for name, value in vars(removal).items() if name != "kernels"}
            for removal in self.removals
        ]
        shared = {"effect": self.effect, "largest_error": self.largest_error}
        return head | shared | {"kernels": self.table().records(), "greedy_sets": sets}

    def table(self) -> Table:
        """A line a kernel, the largest Shapley value first; nats."""
        return Table.of([field.name for field in fields(KernelValue)], map(astuple, self.values))


@dataclass(frozen=True)
class Pairs:
    """What each kernel added in pairs of orders, each the mean of an order and its reverse on one batch.

    `sizes`: the batches' samples, which count alike: the last batch may be smaller than the others.
    """

    marginals: Float[Array, "pair kernel"]
    sizes: Float[Array, " pair"]

    @property
    def mean(self) -> Float[Array, " kernel"]:
        """Over all samples."""
        return np.asarray(self.sizes @ self.marginals / self.sizes.sum())

    @property
    def standard_error(self) -> Float[Array, " kernel"]:
        """Of the mean, a ratio of sums over pairs: from how far pairs lie off it, by their samples."""
        n = len(self.sizes)
        apart = (self.sizes / self.sizes.mean())[:, None] * (self.marginals - self.mean)
        return np.asarray(np.sqrt(np.square(apart).sum(0) / (n * (n - 1))))


def shapley_values(
    model: HookedMTA,
    batches: Sequence[GoldBatch],
    edit: Edit = "own-tap",
    *,
    seed: int = 0,
    most: int = MOST,
    progress: Progress = ignore,
    on: str | None = None,
) -> Shapley:
    """Sample orders until the largest standard error is 5 % of the whole effect, at most `most` pairs.

    Each pair of orders (one and its reverse: Castro et al. 2009 with antithetic pairs) is walked on one
    batch in turn. What lies below the changed kernel is not run again, nor below one that is alone out or
    kept. Raise in `progress` to stop. `on`: where, as of `workers`. Raises ValueError for a model without
    kernels.

    >>> from mta_viz.analysis.labs.task_samples import blocks_batches
    >>> from mta_viz.tasks.blocks import BlockTask
    >>> batches = blocks_batches(model, BlockTask(n_blocks=5), 2, seed=0)
    >>> shared = mta_viz.shapley_values(model, batches, most=2)
    >>> abs(sum(value.shapley for value in shared.values) - shared.effect) < 1e-3
    True
    """
    coalitions = Coalitions(model, kernel_ids(model, edit), edit, batches)
    n = len(coalitions.kernels)
    if not n:
        raise ValueError("the model has no kernels to share the effect out to")
    report = _Steps(progress, passes(n, len(batches), most))
    with workers(coalitions, on) as run:
        alone = _alone(coalitions, run, report)
        pairs = _marginals(coalitions, run, alone.complete - alone.none, seed, most, report)
        order = np.argsort(-pairs.mean, kind="stable")
        removals = tuple(_removals(coalitions, run, order, seed, report))
    values = tuple(
        KernelValue(
            **asdict(coalitions.kernels[at]),
            **alone.gains[at],
            shapley=float(pairs.mean[at]),
            standard_error=float(pairs.standard_error[at]),
        )
        for at in order.tolist()
    )
    return Shapley(
        edit,
        sum(len(batch.answers) for batch in batches),
        2 * len(pairs.marginals),
        alone.complete,
        alone.none,
        alone.complete_accuracy,
        alone.none_accuracy,
        values,
        removals,
    )


def passes(n_kernels: int, n_batches: int, pairs: int) -> int:
    """Forward passes of a batch for `pairs` pairs of orders: each kernel out and alone, orders, sets.

    Most of them run only the layers from the changed kernel on.
    """
    alone, sets = 2 * n_kernels + 2, LARGEST_SET * (TRIED + 1 + RANDOM_SETS)
    return (alone + sets) * n_batches + 2 * n_kernels * pairs


def _means(result: Outcome) -> tuple[float, float]:
    return fmean(result.right), fmean(result.log_probability)


class _Alone(NamedTuple):
    complete: float
    complete_accuracy: float
    none: float
    none_accuracy: float
    gains: list[dict[str, Any]]  # of each kernel, as `KernelValue` has them


def _samples(
    coalitions: Coalitions, run: Spread, report: "_Steps", sets: Iterable[Kept | Alone]
) -> list[Outcome]:
    """All samples with each of these sets kept."""
    results = {}
    for at, result in run(sets):
        results[at] = result
        report.add(len(coalitions.batches))
    return [results[at] for at in sorted(results)]


def _alone(coalitions: Coalitions, run: Spread, report: "_Steps") -> _Alone:
    """All kept, none kept, each one removed and each one kept."""
    n = len(coalitions.kernels)
    each = [(at, others) for others in (True, False) for at in range(n)]  # in the order of layers
    sets: list[Kept | Alone] = [np.ones(n, bool), np.zeros(n, bool), *itertools.starmap(Alone, each)]
    complete, none, *others = _samples(coalitions, run, report, sets)
    necessary = [_gain("necessary", other, complete) for other in others[:n]]
    sufficient = [_gain("sufficient", none, other) for other in others[n:]]
    (accuracy, value), (none_accuracy, none_value) = _means(complete), _means(none)
    gains = [out | alone for out, alone in zip(necessary, sufficient, strict=True)]
    return _Alone(value, accuracy, none_value, none_accuracy, gains)


def _gain(side: str, before: Outcome, after: Outcome) -> dict[str, Any]:
    """What the log-probability of the same samples gains; few of them have no interval of 95 %."""
    gains = [new - old for new, old in zip(after.log_probability, before.log_probability, strict=True)]
    middle = median_interval(gains)
    enough = middle.level >= LEVEL
    parts = (float(middle.value), float(middle.low), float(middle.high)) if enough else (None, None, None)
    medians = zip(("", "_low", "_high"), parts, strict=True)
    return {side: fmean(gains)} | {f"{side}_median{end}": part for end, part in medians}


def _marginals(
    coalitions: Coalitions, run: Spread, effect: float, seed: int, most: int, report: "_Steps"
) -> Pairs:
    """Pairs of orders, until the largest standard error is small enough or there are `most`."""
    rows, walks = list[Array](), dict[int, Array]()
    n, n_batches = len(coalitions.kernels), len(coalitions.batches)
    sizes = np.array([float(len(batch.answers)) for batch in coalitions.batches])

    def pairs() -> Pairs:
        return Pairs(np.array(rows), np.resize(sizes, len(rows)))

    orders = (np.random.default_rng((seed, pair)).permutation(n) for pair in range(most))
    steps = ((way, at % n_batches) for at, order in enumerate(orders) for way in (order, order[::-1]))
    for at, walk in run(steps):
        walks[at] = walk
        report.add(n)
        while {2 * len(rows), 2 * len(rows) + 1} <= walks.keys():  # pairs count in their order
            rows.append(np.mean([walks.pop(2 * len(rows)), walks.pop(2 * len(rows) + 1)], axis=0))
            if (
                len(rows) >= max(FEWEST, n_batches)
                and len(rows) % n_batches == 0
                and pairs().standard_error.max() <= LARGEST_ERROR * abs(effect)
            ):
                return pairs()
    return pairs()


def _removals(
    coalitions: Coalitions, run: Spread, order: Array, seed: int, report: "_Steps"
) -> Iterator[Removal]:
    """Greedy sets of one kernel to five, beside the worst of random other sets of their size."""
    n = len(order)

    def measured(*sets: Kept) -> list[tuple[float, float]]:
        return [_means(result) for result in _samples(coalitions, run, report, sets)]

    def among(places: Sequence[int] | Array) -> Kept:
        return np.isin(np.arange(n), places)

    chosen: list[int] = []
    while len(chosen) < min(LARGEST_SET, n):
        left = [at for at in order[:TRIED].tolist() if at not in chosen]
        tried = dict(zip(left, measured(*(~among([*chosen, at]) for at in left)), strict=True))
        chosen.append(min(tried, key=lambda at: tried[at][1]))
        others = [~among(drawn) for drawn in random_sets(range(n), chosen, seed)]
        only, *randoms = measured(among(chosen), *others)
        worst = min(randoms, key=lambda pair: pair[1], default=(None, None))
        ends = (*tried[chosen[-1]], *only, *worst)
        yield Removal(tuple(coalitions.kernels[at] for at in chosen), *ends)


class _Steps:
    """Progress in batches run; sampling may end before its budget, so it never falls back."""

    def __init__(self, progress: Progress, budget: int) -> None:
        self.progress, self.budget, self.done = progress, budget, 0

    def add(self, steps: int) -> None:
        self.done += steps
        self.progress(min(self.done / self.budget, 1.0))
