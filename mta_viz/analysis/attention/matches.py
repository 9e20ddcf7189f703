"""What a kernel does where tokens match: the sign it meets there, and what it adds, in numbers and words.

A shape's name describes taps; whether they raise or lower a key depends on the maps they are applied to.
Owns the mean of matching cells against the others before the convolution, what the convolution adds at the
place its shape points to, their intervals over prompts, the words for both, and how they are measured from
the maps of prompts' runs, slab by slab.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.attention.taps import READS, match_gap
from mta_viz.analysis.kernels.definitions import Section, documented
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MADE_BY, KernelId
from mta_viz.analysis.kernels.naming import NOT_FINITE, UNNAMED
from mta_viz.analysis.kernels.table import MEASURED_WHOLE, Row, kernel_of
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tasks.intervals import LEVEL, level_text, median_interval

NO_MATCH = "not measured at matches: no token of the prompt comes again in it"

ON_THE_MATCH = ("diagonal", "anti-diagonal", "smoothing", "sharpening")
_BEFORE = {"induction": (0, -1), "priming": (-1, 0), "inhibition of return": (-1, 0)}  # the main tap reads


@dataclass(frozen=True)
class Target:
    """Where a kernel's main tap writes what it reads at a match (i, j): cell (i + `query`, j + `key`)."""

    query: int
    key: int

    @property
    def words(self) -> str:
        """`the key after a match`."""
        side = "after" if self.key > 0 else "before"
        far = "" if abs(self.key) == 1 else f"{abs(self.key)} "
        place = f"the key {far}{side} a match" if self.key else "the matched key"
        later = f", {self.query} {'query' if self.query == 1 else 'queries'} later" if self.query else ""
        return place + later


def target_of(row: Row) -> Target:
    """Where a kernel's shape acts on a match, from its row of the kernel table.

    Of a template the place its line gives: diagonals and boxes hold the own tap, so the matched key itself;
    induction reads the key before, so the key after the match (alike other shifted diagonals); priming the
    query before, so the same key one query later. Of edges and single taps the place the largest tap besides
    the own one writes to: opposite to what it reads. Without a name the matched key itself.
    """
    shape, _, shift = row["shape"].removeprefix("negative ").partition(" at ")
    if shift:  # a diagonal at another key offset
        return Target(0, -int(shift))
    if shape in (*ON_THE_MATCH, *UNNAMED):
        return Target(0, 0)
    query, key = _BEFORE[shape] if shape in _BEFORE else (row["dominant_query"], row["dominant_key"])
    return Target(-query, -key)


@dataclass(frozen=True)
class OverPrompts:
    """The median of the numbers of `prompts`, NaN over none; of one prompt its number, without an interval.

    `low`, `high`: ends of its exact interval, of 95 % from six prompts on, else of `level`: the range.
    """

    value: float
    low: float
    high: float
    prompts: int
    level: float = LEVEL

    @property
    def across_zero(self) -> bool:
        """Whether there is an interval, and it holds 0."""
        return self.low <= 0 <= self.high

    @property
    def words(self) -> str:
        """The value, and its interval where there is one."""
        if self.prompts < 2:
            return number(self.value)
        ends = f"{number(self.low)} to {number(self.high)}"
        return f"{number(self.value)}, {level_text(self.level)} interval {ends}"


@dataclass(frozen=True)
class AtMatches:
    """A key-query kernel at matches: cells (i, j) whose key j < i holds the query's token.

    In scores for a kernel before the softmax, in weights for one after it; each is a median over prompts.
    Every match counts alike. `match`, `other`: what the kernel is applied to, at matching cells, and for each
    of them the mean of the other cells of its row; `gap` is their difference. `effect`: the map after the
    convolution less the map before it, over the cells that `target` gives for the matches, those outside the
    map or of a later key left out; `cells` are as many, over all prompts. `elsewhere`: the same over the
    other keys of each of these cells' rows; `above_row` is `effect` less that. `under`: what
    stands in the cells before the convolution, which is `match` where they are the matched keys themselves.
    `own`: the part of `effect` that the own tap gives, (own tap - 1) times `under`; the rest is the shape's.
    A factor that moves between the query projection and the kernel changes nothing in the model, but the map
    before, and with it `effect`, its sign too; the shape's part stays.
    """

    kernel: KernelId
    target: Target
    match: OverPrompts
    other: OverPrompts
    gap: OverPrompts
    effect: OverPrompts
    elsewhere: OverPrompts
    above_row: OverPrompts
    under: OverPrompts
    own: OverPrompts
    cells: int

    @property
    def level(self) -> float | None:
        """What a match scores above its row, after the softmax what it weighs; None where none is finite."""
        level = self.gap.value if self.kernel.where == "pre" else self.match.value
        return level if math.isfinite(level) else None

    @property
    def action(self) -> str:
        """`raises the key after a match by 4.29`; empty where nothing was measured, or nothing finite.

        Before the softmax only differences within a row count: there the verb is that of `above_row`.
        """
        effect, beside, place = self.effect, self.elsewhere.value, self.target.words
        counts = self.above_row if self.kernel.where == "pre" and self.above_row.prompts else effect
        if not (math.isfinite(effect.value) and math.isfinite(counts.value)):
            return ""
        if effect.value == counts.value == 0:
            return f"leaves {place} as it is"
        if counts.across_zero:
            against = "" if counts is effect else " against its row"
            return f"neither raises nor lowers {place} clearly{against} ({number(counts.value)})"
        verb = "raises" if counts.value > 0 else "lowers"
        if effect.value * counts.value <= 0 or effect.across_zero:
            return f"{verb} {place} by {size(counts.value)} against the rest of its row"
        words = f"{verb} {place} by {size(effect.value)}"
        if counts is effect and effect.value * (effect.value - beside) < 0:
            words += f", and the rest of its row by more, {size(beside)}"
        return words

    @property
    def sentence(self) -> str:
        """The sign met and what the kernel does there, with n, intervals and what its row gets."""
        if not self.gap.prompts:
            return f"{NO_MATCH.capitalize()}."
        prompts = "One prompt: no interval." if self.gap.prompts == 1 else f"{self.gap.prompts} prompts."
        read = (
            f"Where a key repeats the query's token, the kernel reads {number(self.match.value)} against "
            f"{number(self.other.value)} elsewhere in the row (gap {self.gap.words}): {self._sign()}."
        )
        if not self.action:
            return f"{read} What it adds is not measured: {self._lacking()}. {prompts}"
        own, others = number(self.own.value), number(self.effect.value - self.own.value)
        return (
            f"{read} It {self.action}: there it adds {self.effect.words} ({own} by its own tap, which meets "
            f"{number(self.under.value)} there, {others} by the others), to the other keys of the row "
            f"{number(self.elsewhere.value)} ({self.cells:,} cells). {prompts}"
        )

    def _sign(self) -> str:
        if self.kernel.where == "post":
            return "weights are not negative, so a positive tap raises and a negative one lowers"
        if self.gap.across_zero:
            return "neither sign clearly"
        turned = "negative" if self.gap.value < 0 else "positive"
        return f"a {turned} tap lifts the cell that reads a match above its row"

    def _lacking(self) -> str:
        if self.effect.prompts:
            return "the maps hold NaN or infinite values"
        return f"{self.target.words} lies outside the map, or later than the query, at every match"

    def columns(self) -> Row:
        """The columns it adds to its kernel's row; None for what has no value."""
        values = {
            "match_gap": self.gap.value,
            "effect_at_match": self.effect.value,
            **{"match_gap_low": self.gap.low, "match_gap_high": self.gap.high},
            **{"effect_low": self.effect.low, "effect_high": self.effect.high},
            "effect_elsewhere": self.elsewhere.value,
            "effect_of_own_tap": self.own.value,
            "read_by_own_tap": self.under.value,
        }
        counts = (self.target.query, self.target.key, self.cells, self.effect.prompts)
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        return known | dict(zip(MEASURED_WHOLE, counts, strict=True)) | {"action": self.action or None}


COLUMNS = (
    *("match_gap", "effect_at_match", "match_gap_low", "match_gap_high", "effect_low", "effect_high"),
    *("effect_elsewhere", "effect_of_own_tap", "read_by_own_tap", *MEASURED_WHOLE, "action"),
)


def number(value: float) -> str:
    """Three digits, signed."""
    return f"{value + 0.0:+.3g}".replace("-", "−") if math.isfinite(value) else "NaN"


def size(value: float) -> str:
    """Three digits without a sign."""
    return number(abs(value)).removeprefix("+")


def definitions() -> Section:
    """What the columns mean, read off what computes them."""
    entries: dict[str, Callable[..., Any]] = {
        "match_gap": match_gap,
        "effect_at_match, effect_elsewhere, read_by_own_tap, match_cells": AtMatches,
        "match_query, match_key": target_of,
        "match_gap_low, effect_low, ..., match_prompts": OverPrompts,
    }
    intro = "Measured on a prompt, or on a task: which way a kernel acts is not in its taps."
    return documented("What a kernel does at matches", intro, entries)


def with_matches(rows: Sequence[Row], measured: Mapping[KernelId, AtMatches]) -> tuple[Row, ...]:
    """The rows with `COLUMNS` after their own; None for what was not measured, head mixing above all."""
    nothing: Row = dict.fromkeys(COLUMNS)
    return tuple(
        row | nothing | (measured[kernel_of(row)].columns() if kernel_of(row) in measured else {})
        for row in rows
    )


Maps = Float[Tensor, "head query key"]
RowSums = Float[Tensor, "head query"]


def measure_matches(
    rows: Sequence[Row], traces: Iterable[Trace], n_traces: int = 1, progress: Progress = ignore
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
