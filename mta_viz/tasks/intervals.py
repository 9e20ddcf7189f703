"""How sure a measured number is: the intervals of shares, of bounded means and of medians. Owns no task.

Each covers at nominal 95 % whatever the law of the samples. A mean without bounds has none here: no method
covers it where a rare large value may not have been seen yet, so the median stands beside it.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
DRAWS = 4000
AT_ONCE = 2**21  # weights in memory
ROUNDING = 1e-3  # how far rounding may put a value outside its bounds


@dataclass(frozen=True)
class Median:
    """The median over samples and the ends of its interval, which covers it in `level` (0..1) of cases."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float


def accuracy_interval(hits: int, n: int) -> tuple[float, float]:
    """95 % Clopper-Pearson interval of the share `hits` / `n`, both ends within [0, 1].

    It covers every true share in at least 95 % of cases. Raises ValueError when n < 1 or `hits` lies
    outside 0..n.
    """
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"{hits} of {n}: n must be at least 1, hits from 0 to n")
    from scipy.special import betaincinv  # slow to import, and many commands need no interval

    low = betaincinv(hits, n - hits + 1, (1 - LEVEL) / 2) if hits else 0.0
    high = betaincinv(hits + 1, n - hits, (1 + LEVEL) / 2) if hits < n else 1.0
    return float(low), float(high)


def widest_half(n: int) -> float:
    """Half of the widest interval of an accuracy over `n` samples, that of one half."""
    low, high = accuracy_interval(round(n / 2), n)
    return (high - low) / 2


def paired_change_interval(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, float]:
    """95 % interval of mean(after) - mean(before), both measured on the same samples.

    That of the mean of one change a sample, -1, 0 or 1. It is not empty where all samples agree. Raises
    ValueError for unequal lengths or no sample.
    """
    changes = [int(new) - int(old) for old, new in zip(before, after, strict=True)]
    low, high = mean_interval(changes, (-1.0, 1.0))
    return float(low), float(high)


def mean_interval(values: ArrayLike, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of the mean of values [sample, ...] that lie within `bounds`, by Gaffke's (2005) bound.

    The lower end is the 2.5 % quantile of the samples' mean under random weights, uniform on the simplex,
    with one sample more at the lower bound; the upper end likewise. Of values 0 and 1 it is Clopper's and
    Pearson's. NaN where a value is. Raises ValueError without samples and for values outside the bounds.
    """
    measured, (least, most) = _measured(values), bounds
    if (measured < least - ROUNDING).any() or (measured > most + ROUNDING).any():
        raise ValueError(f"a value lies outside {least:g} to {most:g}")
    measured = np.sort(measured.clip(least, most), axis=0)
    return _lower_end(measured, least), np.asarray(-_lower_end(-measured[::-1], -most))


def _lower_end(ascending: np.ndarray, least: float) -> np.ndarray:
    """The same weights for every cell, so that ends do not hang on what stands beside."""
    n = len(ascending) + 1
    values = np.concatenate([[np.full(ascending.shape[1:], least)], ascending]).reshape(n, -1).T
    rng, means, rows = np.random.default_rng(0), [], max(AT_ONCE // n, 1)
    for start in range(0, DRAWS, rows):
        weights = rng.standard_exponential((min(rows, DRAWS - start), n))
        means.append(values @ (weights / weights.sum(1, keepdims=True)).T)
    ends = np.quantile(np.concatenate(means, axis=1), (1 - LEVEL) / 2, axis=1)
    return np.maximum(ends, least).reshape(ascending.shape[1:])  # weights sum to 1 but for rounding


def median_interval(values: ArrayLike) -> Median:
    """The median of values [sample, ...] with its interval between two of them in order.

    Exact for every law: the number of samples below the median is binomial. Below 6 samples no 95 %
    interval exists: it is the range then, and `level` says of what level. NaN where a value is. Raises
    ValueError without samples.
    """
    measured = np.sort(_measured(values), axis=0)  # NaN last
    rank, level = median_rank(len(measured))
    ends = (measured[rank], measured[-1 - rank])
    absent = np.isnan(measured[-1])
    value, low, high = (np.where(absent, np.nan, end) for end in (np.median(measured, axis=0), *ends))
    return Median(value, low, high, level)


@functools.cache
def median_rank(n: int) -> tuple[int, float]:
    """How many of `n` samples lie outside the interval of the median at each end, and its exact level."""
    from scipy.special import bdtr

    below = bdtr(np.arange(n // 2 + 1), n, 0.5)
    outside = max(int(np.searchsorted(below, (1 - LEVEL) / 2, "right")) - 1, 0)
    return outside, float(1 - 2 * below[outside])


def level_text(level: float) -> str:
    """`95 %`, or the level of a range of few samples, rounded down: `93.7 %`."""
    return f"{min(int(1000 * level) / 10, 100 * LEVEL):g} %"


def median_words(n: int) -> str:
    """What the ends beside a median over `n` samples are; a sentence."""
    level = level_text(median_rank(n)[1])
    if n < 2:
        return "One sample has no interval."
    if level == level_text(LEVEL):
        return f"Ends beside a median: its 95 % interval over {n:,} samples."
    return (
        f"Ends beside a median: the range of the {n} samples, a {level} interval; below 6 samples there is "
        "no 95 % interval."
    )


def mean_words(bounds: tuple[float, float] | None) -> str:
    """Whether a mean has an interval, and why not; a sentence."""
    if bounds is None:
        return "The mean has no interval: a rare large value may not be among the samples."
    return f"Ends beside a mean: its 95 % interval, values being within {bounds[0]:g} to {bounds[1]:g}."


def _measured(values: ArrayLike) -> np.ndarray:
    measured = np.asarray(values, dtype=np.float64)
    if not len(measured):
        raise ValueError("no values: expected at least one")
    return measured
