"""Edges along keys: a difference between neighbouring keys, with whatever weights the queries have.

An edge is q[n] e[d]. The difference e is one of `DIFFERENCES`; the weights q of the queries are free, over
the query itself, the latest three or all. Owns how well each fits, how rare that is among Gaussian kernels,
and how far the edge goes; the name is given in `naming.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from mta_viz.analysis.kernels import measures
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel

NEIGHBOURS = (-1, 0, 1)  # the keys that differences are between
DIFFERENCES: dict[str, tuple[float, float, float]] = {
    "edge-first": (-1.0, 1.0, 0.0),
    "edge-last": (0.0, 1.0, -1.0),
    "both edges": (-1.0, 2.0, -1.0),
    "edge": (-1.0, 0.0, 1.0),
}
NAMES = tuple(DIFFERENCES)
DEPTHS = (1, 3)  # and all rows of the kernel
COHERENT = 0.75
SMALLEST = 0.1  # index: the first of a run gets 1.2 times as much as its middle
QUANTILE, COMMON_P = 0.005, 0.05  # a larger p is not told from 1
SIMULATED, DRAWN, SEED = 100_000, 4_000_000, 0  # kernels, and taps beside the own column, at most

Near = Float[Array, "kernel c_q 3"]


@dataclass(frozen=True)
class Edges:
    """The difference each kernel fits best.

    `kind`: its place in `NAMES`. `share`: of ||r||^2, that the fit holds. `p`: how often a Gaussian kernel
    has a share as large in a difference over as many queries; 1 where none is coherent. `index`: EF, EL or EX
    of the fit. `fires`: p is below what 1 in 200 Gaussian kernels reach in any difference, and the index is
    at least 0.1.
    """

    kind: Int[Array, " kernel"]
    share: PerKernel
    p: PerKernel
    index: PerKernel
    fires: Bool[Array, " kernel"]


@dataclass(frozen=True)
class _Fits:
    """Of every difference and depth: how rare, what share of the energy, the queries' weights."""

    p: Float[Array, "fit kernel"]
    share: Float[Array, "fit kernel"]
    weights: Float[Array, "fit kernel c_q"]


def best_edges(kernels: Kernels, offsets: Offsets) -> Edges:
    """How well each kernel is an edge: the rarest of its coherent fits.

    A fit over m queries holds the share A / ||r||^2 of the energy off the own tap, which is Beta(m / 2,
    (D - 1 - m) / 2) in Gaussian kernels. The own tap is left out; where the difference reads the own key, the
    query's own row counts only if the kernel has an own tap, and its neighbour opposes that. Coherent: A is
    at least 3/4 of the energy in the columns of the difference, so that a column alone (priming) is none.
    """
    count, candidates = len(kernels), tuple(_candidates(offsets))
    if not candidates:
        nothing = np.zeros(count)
        return Edges(np.zeros(count, int), nothing, nothing + 1, nothing, np.zeros(count, bool))
    rest = measures.without_own_tap(kernels, offsets)
    sign = np.where(measures.has_own_tap(kernels, offsets), measures.own_sign(kernels, offsets), 0.0)
    fits = _fits(_near(rest, offsets), np.square(rest).sum((-2, -1)), sign, offsets)
    best = fits.p.argmin(0), np.arange(count)
    kind, depth = np.array([(NAMES.index(name), depth) for name, depth in candidates]).T[:, best[0]]
    index = _index(kernels, offsets, kind, depth, fits.weights[best])
    p = fits.p[best]
    return Edges(kind, fits.share[best], p, index, (p <= edge_threshold(offsets)) & (index >= SMALLEST))


@lru_cache(maxsize=64)
def edge_threshold(offsets: Offsets) -> float:
    """The p of the best edge that 1 in 200 Gaussian kernels with an own tap stays below.

    The columns that differences are between are drawn; of the others only the energy matters.
    """
    rows, free = len(offsets.query), len(offsets.query) * len(offsets.key) - 1
    count = min(SIMULATED, DRAWN // rows)
    random = np.random.default_rng(SEED)
    near = random.standard_normal((count, rows, len(NEIGHBOURS)))
    there = np.isin(NEIGHBOURS, offsets.key)
    near[..., ~there], near[:, 0, 1] = 0, 0
    drawn = rows * int(there.sum()) - 1
    energy = np.square(near).sum((-2, -1))
    if free > drawn:
        energy += random.chisquare(free - drawn, count)
    return float(np.quantile(_fits(near, energy, np.ones(count), offsets).p.min(0), QUANTILE))


def _candidates(offsets: Offsets) -> Iterator[tuple[str, int]]:
    """Every difference whose keys the kernel has, over each number of queries; some noise must be left."""
    rows, free = len(offsets.query), len(offsets.query) * len(offsets.key) - 1
    for name, values in DIFFERENCES.items():
        if all(key in offsets.key for key, value in zip(NEIGHBOURS, values, strict=True) if value):
            for depth in sorted({*DEPTHS, rows}):
                if depth <= min(rows, free - 1):
                    yield name, depth


def _near(rest: Kernels, offsets: Offsets) -> Near:
    """The columns of the neighbouring keys, the query itself first; 0 where the kernel has none."""
    near = np.zeros((*rest.shape[:2], len(NEIGHBOURS)))
    for column, key in enumerate(NEIGHBOURS):
        if key in offsets.key:
            near[..., column] = rest[:, ::-1, offsets.key.index(key)]
    return near


def _fits(near: Near, energy: PerKernel, sign: PerKernel, offsets: Offsets) -> _Fits:
    """All fits. `near` without the own tap, `sign` of the own tap, 0 for none."""
    from scipy.special import betainc, betaincinv  # a tenth of a second, and few commands name kernels

    free = len(offsets.query) * len(offsets.key) - 1
    whole = np.where(energy > 0, energy, 1)
    ps, shares, every = [], [], []
    for name, depth in _candidates(offsets):
        difference = np.array(DIFFERENCES[name])
        weights, along = _weights(near[:, :depth], difference, sign)
        share = np.clip(along / whole, 0, 1)
        beside = np.square(near[:, :depth][..., difference != 0]).sum((-2, -1))
        rest = (free - depth) / 2, depth / 2
        rare = (along >= COHERENT * beside) & (1 - share <= betaincinv(*rest, COMMON_P))
        p = np.ones(len(near))
        p[rare] = betainc(*rest, 1 - share[rare])
        ps.append(p)
        shares.append(share)
        earlier = np.repeat(weights.mean(-1, keepdims=True), len(offsets.query) - depth, -1)
        every.append(np.concatenate([weights, earlier], -1))
    return _Fits(np.stack(ps), np.stack(shares), np.stack(every))


def _weights(
    near: Near, difference: Float[Array, "3"], sign: PerKernel
) -> tuple[Float[Array, "kernel c_q"], PerKernel]:
    """The queries' weights by least squares, and the energy they explain."""
    now = difference * (np.array(NEIGHBOURS) != 0)  # the own tap is not there to be fitted
    lengths = np.array([now @ now, *[difference @ difference] * (near.shape[1] - 1)])
    weights = near @ difference / lengths
    if difference[1]:
        weights[:, 0] *= weights[:, 0] * sign > 0
    return weights, np.square(weights) @ lengths


def _index(
    kernels: Kernels,
    offsets: Offsets,
    kind: Int[Array, " kernel"],
    depth: Int[Array, " kernel"],
    weights: Float[Array, "kernel c_q"],
) -> PerKernel:
    """EF, EL, the smaller of both, or EX of the columns summed with these weights of the queries.

    Queries beyond the fit have the mean weight. Taps that do not stand out count as 0, but for the own tap
    and those of the difference.
    """
    fitted, rows = np.zeros(kernels.shape, bool), -np.array(offsets.query) < depth[:, None]
    for column, key in enumerate(NEIGHBOURS):
        if key in offsets.key:
            of_kind = np.array([bool(values[column]) for values in DIFFERENCES.values()])[kind]
            fitted[:, :, offsets.key.index(key)] = of_kind[:, None] & rows
    clean = np.where(fitted, kernels, measures.denoised(kernels, offsets))
    profile = np.einsum("kn,knd->kd", weights[:, ::-1], clean)
    first, last, across = measures.profile_edges(profile, offsets)
    return np.choose(kind, [first, last, np.minimum(first, last), across])
