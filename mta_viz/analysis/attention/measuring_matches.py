"""Measuring what every kernel does where tokens match, from the maps of prompts' runs.

Owns which cells are matches and where they act, the sums over a slab of rows, and what a prompt gives; the
numbers' meaning and words are `matches.py`'s.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.attention.match_places import Target, target_of
from mta_viz.analysis.attention.matches import AtMatches, OverPrompts
from mta_viz.analysis.attention.taps import READS
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MADE_BY, KernelId
from mta_viz.analysis.kernels.naming import NOT_FINITE
from mta_viz.analysis.kernels.table import Row, kernel_of
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import Progress
from mta_viz.tasks.intervals import median_interval

Maps = Float[Tensor, "head query key"]
RowSums = Float[Tensor, "head query"]


def measure_matches(
    rows: Sequence[Row],
    traces: Iterable[Trace],
    n_traces: int = 1,
    progress: Progress = lambda share: None,
) -> dict[KernelId, AtMatches]:
    """Every key-query kernel of `rows` (of `kernel_table`) that is finite, over the prompts of `traces`.

    One trace is held at a time, and of its maps a slab of rows. `progress(share done)` of `n_traces`.
    """
    measurable = [row for row in rows if row["where"] in KEY_QUERY and row["shape"] != NOT_FINITE]
    targets = {kernel_of(row): target_of(row) for row in measurable}
    layers = sorted({kernel.layer for kernel in targets})
    totals: dict[KernelId, list[_Totals]] = {kernel: [] for kernel in targets}
    for at, trace in enumerate(traces):
        for done, layer in enumerate(layers, 1):
            for kernel, of_prompt in _of_layer(trace, layer, targets).items():
                totals[kernel].append(of_prompt)
            progress((at + done / len(layers)) / n_traces)
    own_taps = {kernel_of(row): row["own_tap"] or 0.0 for row in measurable}  # None: all zero
    return {
        kernel: _summed(kernel, target, own_taps[kernel], totals[kernel])
        for kernel, target in targets.items()
    }


@dataclass(frozen=True)
class _Totals:
    """A kernel's sums on a prompt: over all `matches`, `cells` of targets, those with keys `beside`.

    `other`, `elsewhere`: for each of these the mean of the other cells of its row. `under`: of what stands in
    the targets before the convolution.
    """

    match: float
    other: float
    matches: float
    effect: float
    under: float
    cells: float
    elsewhere: float
    beside: float


def _of_layer(trace: Trace, layer: int, targets: Mapping[KernelId, Target]) -> dict[KernelId, _Totals]:
    kernels = [kernel for kernel in targets if kernel.layer == layer]
    sums = {kernel: np.zeros(8) for kernel in kernels}
    ids = torch.tensor(trace.tokens.ids)
    for start, maps in trace.stage_slabs(layer):
        for where in KEY_QUERY:
            heads = {kernel.head: targets[kernel] for kernel in kernels if kernel.where == where}
            if heads:
                before, after = (maps[stage].cpu() for stage in (READS[where], MADE_BY[where]))
                totals = _of_slab(ids, start, before, after - before, heads)
                for head in heads:
                    sums[KernelId(layer, head, where)] += totals[head]
    return {kernel: _Totals(*total.tolist()) for kernel, total in sums.items()}


def _of_slab(
    ids: Tensor, start: int, before: Maps, added: Maps, targets: Mapping[int, Target]
) -> dict[int, Float[Array, "8"]]:
    """The sums of `_Totals` by head, over rows from `start` on; future cells of the maps are 0."""
    shape = before.shape[1], before.shape[2]
    seen = torch.arange(start + 1, start + 1 + shape[0])
    matches = _cells(ids, start, shape, Target(0, 0))
    count = matches.sum(1)
    match, others = _split(before, matches)
    read = match.sum(1), (others / (seen - count) * count).sum(1)  # the query's own cell is among the others
    matched = float(count.sum())
    totals = {}
    for target in set(targets.values()):
        cells = _cells(ids, start, shape, target)
        count, heads = cells.sum(1), [head for head in targets if targets[head] == target]
        (here, others), under = _split(added[heads], cells), _split(before[heads], cells)[0]
        beside = (count > 0) & (seen > count)
        elsewhere = (others / (seen - count) * count)[:, beside].sum(1)
        for at, head in enumerate(heads):
            sums = [*(float(part[head]) for part in read), matched]
            sums += [float(here[at].sum()), float(under[at].sum()), float(count.sum())]
            totals[head] = np.array([*sums, float(elsewhere[at]), float(count[beside].sum())])
    return totals


def _split(maps: Maps, cells: Bool[Tensor, "query key"]) -> tuple[RowSums, RowSums]:
    """Each row's sum over these cells, and over the others."""
    inside = torch.einsum("hqk,qk->hq", maps, cells.to(maps.dtype)).double()
    return inside, maps.sum(-1, dtype=torch.float64) - inside


def _cells(ids: Tensor, start: int, shape: tuple[int, int], target: Target) -> Bool[Tensor, "query key"]:
    """The target cells of all matches in rows `start` on; for (0, 0) the matches themselves."""
    rows, keys = torch.arange(start, start + shape[0])[:, None], torch.arange(shape[1])
    query, key = rows - target.query, keys - target.key  # the match
    inside = (query >= 0) & (key >= 0) & (key < query) & (keys <= rows)
    return inside & (ids[query.clamp(min=0)] == ids[key.clamp(0, len(ids) - 1)])


def _summed(kernel: KernelId, target: Target, own_tap: float, prompts: Sequence[_Totals]) -> AtMatches:
    matched = [each for each in prompts if each.matches]
    match, other = (
        _over_prompts([getattr(each, name) / each.matches for each in matched]) for name in ("match", "other")
    )
    gap = _over_prompts([(each.match - each.other) / each.matches for each in matched])
    effect = _over_prompts([each.effect / each.cells for each in prompts if each.cells])
    whole = [each for each in prompts if each.beside]
    elsewhere = _over_prompts([each.elsewhere / each.beside for each in whole])
    above_row = _over_prompts([each.effect / each.cells - each.elsewhere / each.beside for each in whole])
    under = _over_prompts([each.under / each.cells for each in prompts if each.cells])
    own = _over_prompts([(own_tap - 1) * each.under / each.cells for each in prompts if each.cells])
    cells = sum(int(each.cells) for each in prompts)
    return AtMatches(kernel, target, match, other, gap, effect, elsewhere, above_row, under, own, cells)


def _over_prompts(values: Sequence[float]) -> OverPrompts:
    if len(values) < 2:
        return OverPrompts(values[0] if values else math.nan, math.nan, math.nan, len(values))
    median = median_interval(values)
    return OverPrompts(
        float(median.value), float(median.low), float(median.high), len(values), float(median.level)
    )
