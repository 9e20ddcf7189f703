"""What a kernel does where tokens match: the sign it meets there, and what it adds, in numbers and words.

A shape's name describes taps; whether they raise or lower a key depends on the maps they are applied to.
Owns the mean of matching cells against the others before the convolution, what the convolution adds at the
place its shape points to, their intervals over prompts, and the words for both.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mta_viz.analysis.attention.match_places import Target, target_of
from mta_viz.analysis.attention.taps import match_gap
from mta_viz.analysis.kernels.definitions import Section, documented
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.kernels.table import MEASURED_WHOLE, Row, kernel_of
from mta_viz.tasks.intervals import LEVEL, level_text

NO_MATCH = "not measured at matches: no token of the prompt comes again in it"


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
