"""What a key-query kernel is called: the rules that turn scores into one name, or into none.

The order is: broken, all zero, template, edge, dominant tap, near identity, none of these. A name that holds
less than 2 % of the kernel is faint. Owns too whether a name could be chance: thresholds on random kernels,
permutation p, and what many kernels do to both. Owns no measure: those are `measures.py`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import measures
from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY, Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel, library, own_sign, unit_templates

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
    taps = np.delete(measures.without_own_tap(kernels, offsets).reshape(len(kernels), -1), own, 1)
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
    """Which tests survive when at most `level` of the survivors may be false (Benjamini & Hochberg 1995).

    Not scipy's `false_discovery_control`: it divides where this multiplies, so that a p at the very threshold
    may be lost to rounding.
    """
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


EDGE = 0.5
FEWEST_EDGE_TAPS = 8  # besides the own tap: with fewer there is no noise to tell an edge from
FAINT = 0.02  # of the kernel's energy
NOT_FINITE, ALL_ZERO, IDENTITY, NONE = "not finite", "all zero", "near identity", "none of these"
UNNAMED = (NOT_FINITE, ALL_ZERO, IDENTITY, NONE)


@dataclass(frozen=True)
class KernelShape:
    """One key-query kernel.

    `shape`: its name (see `naming.py`), one of `UNNAMED` if nothing is to be seen. `faint`: the name holds
    less than 2 % of the kernel. `evidence`: what the name rests on, "template", "edge", "dominant tap" or
    "". `score`: of the name (rho, EF or EL, the tap's share). `verdict`: one line for people. `p`: the
    permutation p of the templates, 1 where the size rule fails and no test was made, NaN where the kernel
    has no template. `scores`: every measure by name; NaN where it means nothing for this kernel.
    """

    shape: str
    faint: bool
    evidence: str
    score: float
    verdict: str
    p: float
    scores: dict[str, float]


_Name = tuple[str, str, float, float, str]  # shape, evidence, score, the share of the energy it holds, detail


def name_kernels(kernels: Float[Array, "kernel c_q c_k"], offsets: Offsets) -> tuple[KernelShape, ...]:
    """Scores and name of each kernel; `offsets` say where its own tap is. Nothing depends on other kernels.

    Names are unchanged by any positive factor, and by a negative one if the kernel has an own tap.
    """
    kernels = np.asarray(kernels, np.float64)
    finite = np.isfinite(kernels).all((-2, -1))
    clean = np.where(finite[:, None, None], kernels, 0.0)
    scores = all_scores(clean, offsets)
    largest = np.abs(clean).max((-2, -1))
    unit = clean / np.where(largest > 0, largest, 1)[:, None, None]  # squares neither vanish nor overflow
    evidence = _Evidence(unit, offsets)
    shapes = []
    for index in range(len(kernels)):
        if finite[index] and largest[index] > 0:
            of_kernel = {name: float(values[index]) for name, values in scores.items()}
            shapes.append(_named(evidence, index, of_kernel))
        else:  # nothing can be measured
            shape = ALL_ZERO if finite[index] else NOT_FINITE
            shapes.append(KernelShape(shape, False, "", np.nan, shape, np.nan, dict.fromkeys(scores, np.nan)))
    return tuple(shapes)


def all_scores(kernels: Kernels, offsets: Offsets) -> dict[str, PerKernel]:
    """Every column of the atlas for key-query kernels."""
    scores = {name: measure(kernels, offsets) for name, measure in measures.MEASURES.items()}
    return scores | shape_scores(kernels, offsets)


def shape_scores(kernels: Kernels, offsets: Offsets) -> dict[str, PerKernel]:
    """Those that names rest on; of several templates of a name the largest in size, NaN of none."""
    by_template, scores = measures.template_scores(kernels, offsets), dict[str, PerKernel]()
    names = np.array([template.name for template in library(offsets)])
    for name in measures.NAMES:
        scores[name] = np.full(len(kernels), np.nan)
        if name in names:
            of_name = by_template[:, names == name]
            best = np.abs(of_name).argmax(-1)[:, None]
            scores[name] = np.take_along_axis(of_name, best, 1)[:, 0]
    clean = measures.denoised(kernels, offsets)
    scores["edge_first"], scores["edge_last"] = measures.edge_indices(clean, offsets)
    scores["dominant_share"], place = measures.dominant_tap(kernels, offsets)
    row, column = np.divmod(place, len(offsets.key))
    scores["dominant_query"] = np.array(offsets.query, float)[row]
    scores["dominant_key"] = np.array(offsets.key, float)[column]
    tap = kernels.reshape(len(kernels), -1)[np.arange(len(kernels)), place]
    scores["dominant_sign"] = np.sign(tap) * own_sign(kernels, offsets)
    return scores


class _Evidence:
    """What the rules look at, for all kernels at once."""

    def __init__(self, kernels: Kernels, offsets: Offsets) -> None:
        self.offsets = offsets
        self.off = measures.energy_off_identity(kernels, offsets)
        self.rho, self.coherent = (
            of(kernels, offsets) for of in (measures.template_scores, measures.coherent)
        )
        self.p = np.full(len(kernels), 1.0 if self.rho.shape[1] else np.nan)
        large = np.abs(self.rho).max(-1, initial=0) >= size_threshold(offsets)
        if large.any():
            self.p[large] = permutation_p(kernels[large], offsets)
        clean = measures.denoised(kernels, offsets)
        self.edges = measures.edge_indices(clean, offsets)
        self.beside = measures.weight_beside(clean, offsets)
        self.has_own = measures.has_own_tap(kernels, offsets)
        self.top, self.place = measures.dominant_tap(kernels, offsets)
        tap = kernels.reshape(len(kernels), -1)[np.arange(len(kernels)), self.place]
        self.tap_sign = np.sign(tap) * own_sign(kernels, offsets)
        own = np.abs(measures.own_tap(kernels, offsets))
        self.of_own = np.abs(tap) / np.where(own > 0, own, np.nan)


def _named(evidence: _Evidence, index: int, scores: dict[str, float]) -> KernelShape:
    rules = (rule(evidence, index) for rule in (template_name, edge_name, dominant_name))
    name = next(filter(None, rules), None)
    p, off = float(evidence.p[index]), evidence.off[index]
    if name is None:
        shape = IDENTITY if off < NEAR_IDENTITY else NONE
        return KernelShape(shape, False, "", np.nan, shape, p, scores)
    shape, kind, score, share, detail = name
    faint, verdict = bool(share < FAINT), f"{shape} {detail}"
    if faint:
        verdict = f"{IDENTITY} (faint {verdict})"
    return KernelShape(shape, faint, kind, score, verdict, p, scores)


def template_name(evidence: _Evidence, index: int) -> _Name | None:
    """The template of the largest score, if large, unlikely by permutation, and coherent."""
    if not evidence.p[index] <= measures.LARGEST_P:  # NaN without templates, 1 below the size threshold
        return None
    best = int(np.abs(evidence.rho[index]).argmax())
    if not evidence.coherent[index, best]:
        return None
    rho = float(evidence.rho[index, best])
    name, detail = library(evidence.offsets)[best].called(rho), f"{rho:+.2f}, p {evidence.p[index]:.3f}"
    return name, "template", rho, float(evidence.off[index]) * rho**2, detail


def edge_name(evidence: _Evidence, index: int) -> _Name | None:
    """EF or EL of the denoised kernel at least 0.5, an own tap, and weight beside it; a "?" until probed."""
    first, last = (evidence.edges[:, index] >= EDGE) & evidence.beside[:, index]
    enough = len(evidence.offsets.query) * len(evidence.offsets.key) > FEWEST_EDGE_TAPS
    if not (enough and evidence.has_own[index] and (first or last)):
        return None
    name = "both edges" if first and last else "edge-first" if first else "edge-last"
    score = float(evidence.edges[:, index].max())
    return name, "edge", score, float(evidence.off[index]), f"{score:+.2f} (?)"


def dominant_name(evidence: _Evidence, index: int) -> _Name | None:
    """One tap with most of the energy off the own tap: a key shift if it reads the query itself."""
    share, offsets = float(evidence.top[index]), evidence.offsets
    if share < dominant_threshold(offsets):
        return None
    row, column = divmod(int(evidence.place[index]), len(offsets.key))
    lag, key = -offsets.query[row], offsets.key[column]
    own, same = bool(evidence.has_own[index]), bool(evidence.tap_sign[index] > 0)
    if lag:
        name, where = "single tap", f"({lag}, {key:+d})"
    else:
        name, where = "KV shift" if key == -1 and same and own else "key shift", f"{key:+d}"
    beside = f", {'same' if same else 'opposite'} sign, {evidence.of_own[index]:.2g} of own tap"
    detail = where + (beside if own else ", no own tap")
    return name, "dominant tap", share, float(evidence.off[index]) * share, detail
