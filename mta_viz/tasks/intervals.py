"""How sure a measured number is: the intervals of shares, means and paired changes. Owns no task."""

import functools
import math
from collections.abc import Sequence

import numpy as np

Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
RESAMPLES = 2000


@functools.cache  # scipy works out a p-value as well, which takes a millisecond
def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """95 % Wilson score interval of the share `hits` / `n`, both ends within [0, 1].

    Unlike the normal approximation it is not empty at 0 or n hits. Raises ValueError when n < 1
    or `hits` lies outside 0..n.
    """
    from scipy.stats import binomtest  # half a second, and many commands need no interval

    low, high = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def paired_change_interval(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, float]:
    """95 % interval of mean(after) - mean(before), both measured on the same samples.

    Newcombe's (1998) method 10: the Wilson intervals of both shares, joined by their correlation
    phi. Like them it is not empty where all samples agree. Raises ValueError for unequal lengths
    or no sample.
    """
    pairs = list(zip(before, after, strict=True))
    n = len(pairs)
    both, lost = pairs.count((True, True)), pairs.count((True, False))
    gained, neither = pairs.count((False, True)), pairs.count((False, False))
    low_before, high_before = wilson_interval(both + lost, n)
    low_after, high_after = wilson_interval(both + gained, n)
    share_before, share_after = (both + lost) / n, (both + gained) / n
    phi, change = _phi(both, lost, gained, neither), share_after - share_before

    def joined(after: float, before: float) -> float:
        return math.sqrt(max(after**2 - 2 * phi * after * before + before**2, 0.0))

    down = joined(share_after - low_after, high_before - share_before)
    up = joined(high_after - share_after, share_before - low_before)
    return max(-1.0, change - down), min(1.0, change + up)


def bootstrap_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean: 2,000 resamples of `values`, drawn from `seed`.

    Raises ValueError without values.
    """
    if not len(values):
        raise ValueError("no values: expected at least one to take the mean of")
    # Not scipy.stats.bootstrap: it refuses a single value, and its ends differ in the last digits from those
    # recorded with the shipped models, though it draws the same resamples.
    rng, measured = np.random.default_rng(seed), np.asarray(values, dtype=np.float64)
    means = measured[rng.integers(len(measured), size=(RESAMPLES, len(measured)))].mean(1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def _phi(both: int, lost: int, gained: int, neither: int) -> float:
    """Correlation of the pairs, its continuity correction included; 0 where one side never changes."""
    sides = (both + lost) * (gained + neither) * (both + gained) * (lost + neither)
    if sides == 0:
        return 0.0
    product: float = both * neither - lost * gained
    if product > 0:
        product = max(product - (both + lost + gained + neither) / 2, 0.0)
    return product / math.sqrt(sides)
