"""Could it be chance? Thresholds on random kernels, permutation p, and what many kernels do to both.

Simulations are seeded and the same on every call. Owns no names and no thresholds of the tests' outcome.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.shapes.measures import Kernels, PerKernel, without_own_tap
from mta_viz.analysis.shapes.templates import unit_templates

SEED = 0
SIMULATED = 200_000
SIZE_QUANTILE = 0.995
TAP_QUANTILE = 0.999
SMALLEST_DOMINANT = 0.5
PERMUTATIONS = 999
BLOCK = 64  # permutations at a time: 64 x 7 templates x 4095 taps stay below 16 MiB


@lru_cache(maxsize=64)
def size_threshold(offsets: Offsets) -> float:
    """The 99.5 % quantile of max_t |rho(t)| over Gaussian kernels; infinite without templates.

    Only the part of a Gaussian kernel in the span of the q templates matters, and the length of the rest:
    a root of chi-square with D - 1 - q degrees of freedom. Both are drawn, whole kernels are not.
    """
    units = unit_templates(offsets)
    if not len(units):
        return np.inf
    _, sizes, basis = np.linalg.svd(units, full_matrices=False)
    basis = basis[sizes > 1e-9]
    free = units.shape[1] - 1
    random = np.random.default_rng(SEED)
    inside = random.standard_normal((SIMULATED, len(basis)))
    outside = random.chisquare(free - len(basis), SIMULATED) if free > len(basis) else np.zeros(SIMULATED)
    length = np.sqrt(np.square(inside).sum(-1) + outside)
    largest = np.abs(inside @ (basis @ units.T)).max(-1) / length
    return float(np.quantile(largest, SIZE_QUANTILE))


@lru_cache(maxsize=64)
def dominant_threshold(offsets: Offsets) -> float:
    """Share of the energy off the own tap that makes a tap dominant: 0.5, more in a kernel of few taps.

    There it is the 99.9 % quantile of the largest share in a Gaussian kernel (0.65 for 2 x 9). Infinite
    for a kernel with one other tap, which always holds everything.
    """
    free = len(offsets.query) * len(offsets.key) - 1
    if free < 2:
        return np.inf
    if free > 40:  # the quantile is below 0.5: no need to draw
        return SMALLEST_DOMINANT
    energy = np.square(np.random.default_rng(SEED).standard_normal((SIMULATED, free)))
    largest = energy.max(-1) / energy.sum(-1)
    return max(SMALLEST_DOMINANT, float(np.quantile(largest, TAP_QUANTILE)))


def permutation_p(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """p of max_t |rho(t)| when a kernel's own taps (the own tap left out) change places at random.

    (1 + #{M* >= M}) / (1 + 999): exact if taps are exchangeable, whatever their distribution. Permuting the
    templates instead of the taps is the same test, and serves all kernels at once.
    """
    row, column = offsets.own
    own = row * len(offsets.key) + column
    taps = np.delete(without_own_tap(kernels, offsets).reshape(len(kernels), -1), own, 1)
    units = np.delete(unit_templates(offsets), own, 1)
    if not len(units):
        return np.ones(len(kernels))
    reached = np.abs(taps @ units.T).max(-1)
    random = np.random.default_rng(SEED)
    count = np.zeros(len(kernels))
    for start in range(0, PERMUTATIONS, BLOCK):
        size = min(BLOCK, PERMUTATIONS - start)
        order = random.permuted(np.tile(np.arange(taps.shape[1]), (size, 1)), axis=1)
        answers = taps @ units[:, order].reshape(-1, taps.shape[1]).T
        largest = np.abs(answers.reshape(len(kernels), len(units), size)).max(1)
        count += (largest >= (reached * (1 - 1e-12))[:, None]).sum(-1)
    return (1 + count) / (1 + PERMUTATIONS)


def benjamini_hochberg(p: Float[Array, " test"], level: float = 0.05) -> Bool[Array, " test"]:
    """Which tests survive when at most `level` of the survivors may be false (Benjamini & Hochberg 1995)."""
    order = np.argsort(p)
    passing = np.flatnonzero(p[order] <= level * np.arange(1, len(p) + 1) / max(len(p), 1))
    kept = np.zeros(len(p), bool)
    kept[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return kept


def at_least(observed: int, chances: Sequence[float]) -> float:
    """Probability that at least `observed` of independent events with these chances happen."""
    distribution = np.ones(1)
    for chance in chances:
        distribution = np.convolve(distribution, [1 - chance, chance])
    return float(min(1.0, distribution[observed:].sum()))
