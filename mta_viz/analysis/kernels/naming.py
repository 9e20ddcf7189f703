"""What a key-query kernel is called: the rules that turn scores into names, or into none.

Broken, all zero, then every template, edge and dominant tap that fires; without any near identity, or none of
these. A name that holds less than 2 % of the kernel is faint. Owns too whether a name could be chance in
Gaussian or rearranged kernels: thresholds, permutation p, and what many kernels do to both. Owns no measure:
those are `measures.py`'s; nor the null that has a model's own energy at each tap: that is `envelope.py`'s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from mta_viz.analysis.kernels import edges, measures
from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY, Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel, library, own_sign, unit_templates

SEED = 0
SIMULATED = 200_000
SIZE_QUANTILE = 0.995
TAP_QUANTILE = 0.999
SMALLEST_DOMINANT = 0.5
BETWEEN_NAMES = "; "
PERMUTATIONS = 999
STAGES = (PERMUTATIONS, 9_999, 99_999)  # a kernel goes on while fewer than FEW orders are as large
FEW = 10
ROUNDING = 1e-6  # of a score in float32
BLOCK = 2**20  # taps of permuted templates, and scores of kernels, at a time


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


def permutation_p(
    kernels: Kernels, offsets: Offsets, rho: PerKernel, permutations: int = PERMUTATIONS
) -> PerKernel:
    """p of max_t |rho(t)| when a kernel's own taps (the own tap left out) change places at random.

    (1 + #{M* >= `rho`}) / (1 + permutations), M* that of the permuted taps: exact if taps are exchangeable,
    whatever their distribution.
    """
    row, column = offsets.own
    own = row * len(offsets.key) + column
    taps = np.delete(measures.without_own_tap(kernels, offsets).reshape(len(kernels), -1), own, 1)
    length = np.linalg.norm(taps, axis=-1, keepdims=True)
    taps = (taps / np.where(length > 0, length, 1)).astype(np.float32)
    units = np.delete(unit_templates(offsets), own, 1).astype(np.float32)
    random, count = np.random.default_rng(SEED), np.zeros(len(kernels))
    block = max(BLOCK // max(units.size, len(taps) * len(units) // 8), 1)
    for start in range(0, permutations, block):
        size = min(block, permutations - start)
        order = random.permuted(np.tile(np.arange(taps.shape[1]), (size, 1)), axis=1)
        count += (_largest(taps, units, order) >= (rho - ROUNDING)[:, None]).sum(-1)
    return (1 + count) / (1 + permutations)


def _largest(
    taps: Float[Array, "kernel tap"], units: Float[Array, "template tap"], order: Int[Array, "order tap"]
) -> Float[Array, "kernel order"]:
    """max_t |rho(t)| in each order. Permuting the templates is the same as permuting the taps."""
    if len(taps) < len(units):
        return np.abs(taps[:, order] @ units.T).max(-1)
    along = taps @ units[:, order].reshape(-1, taps.shape[1]).T
    return np.abs(along.reshape(len(taps), len(units), len(order))).max(1)


def benjamini_hochberg(p: Float[Array, " test"], level: float = 0.05) -> Bool[Array, " test"]:
    """Which tests survive when `level` of the survivors are expected to be false (Benjamini & Hochberg 1995).

    Not scipy's `false_discovery_control`: it divides where this multiplies, so that a p at the very threshold
    may be lost to rounding.
    """
    order = np.argsort(p)
    passing = np.flatnonzero(p[order] <= level * np.arange(1, len(p) + 1) / max(len(p), 1))
    kept = np.zeros(len(p), bool)
    kept[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return kept


def number_of(chances: Sequence[float]) -> Float[Array, " number"]:
    """How probable it is that 0, 1, ... of independent events with these chances happen."""
    distribution = np.ones(1)
    for chance in chances:
        distribution = np.convolve(distribution, [1 - chance, chance])
    return distribution


def at_least(observed: int, chances: Sequence[float]) -> float:
    """Probability that at least `observed` of independent events with these chances happen."""
    return float(min(1.0, number_of(chances)[observed:].sum()))


FAINT = 0.02  # of the kernel's energy
NOT_FINITE, ALL_ZERO, IDENTITY, NONE = "not finite", "all zero", "near identity", "none of these"
UNNAMED = (NOT_FINITE, ALL_ZERO, IDENTITY, NONE)


@dataclass(frozen=True)
class Name:
    """A rule that fires.

    `score`: rho, EF, EL or EX, or the tap's share. `share`: of the energy off the own tap. `template`: its
    place in the library, None for an edge or a single tap.
    """

    name: str
    evidence: str
    score: float
    share: float
    detail: str
    template: int | None = None

    def text(self) -> str:
        """`priming +0.67`."""
        return f"{self.name} {self.score:+.2f}"


@dataclass(frozen=True)
class KernelShape:
    """One key-query kernel.

    `shape`: the first of its names (see `naming.py`), one of `UNNAMED` if nothing is to be seen. `fired`:
    every rule that fires, the one with the largest share first. `faint`: the first name holds less than 2 %
    of the kernel. `evidence`: what it rests on, "template", "edge", "dominant tap" or "". `score`: its score.
    `verdict`: one line for people. `p`: the permutation p of the first template among the names, else of the
    largest template; 1 where the size rule fails and no test was made, NaN where the kernel has no template.
    `scores`: every measure by name; NaN where it means nothing for this kernel.
    """

    shape: str
    faint: bool
    evidence: str
    score: float
    verdict: str
    p: float
    scores: dict[str, float]
    fired: tuple[Name, ...] = ()

    @property
    def templates(self) -> tuple[int, ...]:
        """The templates among its names, by their place in the library."""
        return tuple(name.template for name in self.fired if name.template is not None)

    @property
    def template(self) -> str | None:
        """The first template's name among its names; an edge that holds more may stand before it."""
        return next((name.name for name in self.fired if name.template is not None), None)

    def bears(self, name: str) -> bool:
        """Whether this is one of its names, the first or not."""
        return any(fired.name == name for fired in self.fired)

    @property
    def names(self) -> str | None:
        """`edge-first +0.91; priming +0.67`: every name with its score; None without any."""
        return BETWEEN_NAMES.join(name.text() for name in self.fired) or None


def name_kernels(
    kernels: Float[Array, "kernel c_q c_k"], offsets: Offsets, stages: Sequence[int] = (PERMUTATIONS,)
) -> tuple[KernelShape, ...]:
    """Scores and names of each kernel; `offsets` say where its own tap is. Nothing depends on other kernels.

    Names are unchanged by any positive factor, and by a negative one if the kernel has an own tap. `stages`:
    in how many orders p is taken, `STAGES` where a p below 0.001 matters.
    """
    kernels = np.asarray(kernels, np.float64)
    finite = np.isfinite(kernels).all((-2, -1))
    clean = np.where(finite[:, None, None], kernels, 0.0)
    scores = all_scores(clean, offsets)
    largest = np.abs(clean).max((-2, -1))
    evidence = Evidence(clean, offsets, stages)
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
    scores["first_of_run"], scores["last_of_run"] = measures.edge_indices(clean, offsets)
    scores["dominant_share"], place = measures.dominant_tap(kernels, offsets)
    row, column = np.divmod(place, len(offsets.key))
    scores["dominant_query"] = np.array(offsets.query, float)[row]
    scores["dominant_key"] = np.array(offsets.key, float)[column]
    tap = kernels.reshape(len(kernels), -1)[np.arange(len(kernels)), place]
    scores["dominant_sign"] = np.sign(tap) * own_sign(kernels, offsets)
    return scores


class Evidence:
    """What the rules look at, for all kernels at once: finite ones, of any scale.

    `templates`: which fire, `p`: their permutation p, NaN where none was made. `edges`, `taps`: whether a
    kernel is an edge, or has a dominant tap.
    """

    def __init__(self, kernels: Kernels, offsets: Offsets, stages: Sequence[int] = (PERMUTATIONS,)) -> None:
        largest = np.abs(kernels).max((-2, -1))
        kernels = kernels / np.where(largest > 0, largest, 1)[:, None, None]  # squares stay in range
        self.offsets = offsets
        self.off = measures.energy_off_identity(kernels, offsets)
        self.rho = measures.template_scores(kernels, offsets)
        self.p = _template_p(kernels, offsets, self.rho, stages)
        self.templates = measures.coherent(kernels, offsets) & (self.p <= measures.LARGEST_P)
        self.edge = edges.best_edges(kernels, offsets)
        self.has_own = measures.has_own_tap(kernels, offsets)
        self.top, self.place = measures.dominant_tap(kernels, offsets)
        self.taps = self.top >= dominant_threshold(offsets)
        tap = kernels.reshape(len(kernels), -1)[np.arange(len(kernels)), self.place]
        self.tap_sign = np.sign(tap) * own_sign(kernels, offsets)
        own = np.abs(measures.own_tap(kernels, offsets))
        self.of_own = np.abs(tap) / np.where(own > 0, own, np.nan)


def _template_p(
    kernels: Kernels, offsets: Offsets, rho: Float[Array, "kernel template"], stages: Sequence[int]
) -> Float[Array, "kernel template"]:
    """The permutation p of every score that passes the size rule, against the largest of all; else NaN.

    Where fewer than 10 of 999 orders are as large there are 9,999, and then 99,999, so that a single true
    kernel is not lost among hundreds of tests.
    """
    p = np.full(rho.shape, np.nan)
    tested = np.abs(rho) >= size_threshold(offsets)
    for permutations in stages:
        kernel, template = np.nonzero(tested)
        if len(kernel):
            p[tested] = permutation_p(kernels[kernel], offsets, np.abs(rho[kernel, template]), permutations)
        tested = p <= FEW / (1 + permutations)  # NaN is not
    return p


def _named(evidence: Evidence, index: int, scores: dict[str, float]) -> KernelShape:
    names = fired_names(evidence, index)
    p, off = _p_of(evidence, index, names), evidence.off[index]
    if not names:
        shape = IDENTITY if off < NEAR_IDENTITY else NONE
        return KernelShape(shape, False, "", np.nan, shape, p, scores)
    first = names[0]
    faint, verdict = bool(off * first.share < FAINT), f"{first.name} {first.detail}"
    if faint:
        verdict = f"{IDENTITY} (faint {verdict})"
    return KernelShape(first.name, faint, first.evidence, first.score, verdict, p, scores, names)


def _p_of(evidence: Evidence, index: int, names: Sequence[Name]) -> float:
    """Of the first template among the names, else of the largest."""
    rho, p = np.abs(evidence.rho[index]), evidence.p[index]
    if not len(rho):
        return np.nan
    of_one = p[next((name.template for name in names if name.template is not None), int(rho.argmax()))]
    return 1.0 if np.isnan(of_one) else float(of_one)


def fired_names(evidence: Evidence, index: int) -> tuple[Name, ...]:
    """Every rule that fires, the one that holds most of the energy off the own tap first.

    Where two hold as much, templates stand before edges, and edges before a dominant tap.
    """
    names = (*template_names(evidence, index), *edge_name(evidence, index), *dominant_name(evidence, index))
    return tuple(sorted(names, key=lambda name: -round(name.share, 9)))


def template_names(evidence: Evidence, index: int) -> Iterator[Name]:
    """Each template whose score is large, unlikely by permutation, and coherent; of a name the largest."""
    of_name: dict[str, Name] = {}
    for at in np.flatnonzero(evidence.templates[index]).tolist():
        rho, template = float(evidence.rho[index, at]), library(evidence.offsets)[at]
        p = evidence.p[index, at]
        detail = f"{rho:+.2f}, p {p:.{3 if p >= 0.001 else 5}f}"
        name = Name(template.called(rho), "template", rho, rho**2, detail, at)
        of_name[template.name] = max(name, of_name.get(template.name, name), key=lambda fired: fired.share)
    yield from of_name.values()


def edge_name(evidence: Evidence, index: int) -> Iterator[Name]:
    """The difference between neighbouring keys that fits best, if rarer than in 199 of 200 Gaussian kernels.

    Its score is EF, EL or EX of the fit, at least 0.1; a "?" stays until it is probed.
    """
    edge = evidence.edge
    if edge.fires[index]:
        name, score = edges.NAMES[edge.kind[index]], float(edge.index[index])
        yield Name(name, "edge", score, float(edge.share[index]), f"{score:+.2f} (?)")


def dominant_name(evidence: Evidence, index: int) -> Iterator[Name]:
    """One tap with most of the energy off the own tap: a key shift if it reads the query itself."""
    share, offsets = float(evidence.top[index]), evidence.offsets
    if not evidence.taps[index]:
        return
    row, column = divmod(int(evidence.place[index]), len(offsets.key))
    lag, key = -offsets.query[row], offsets.key[column]
    own, same = bool(evidence.has_own[index]), bool(evidence.tap_sign[index] > 0)
    if lag:
        name, where = "single tap", f"({lag}, {key:+d})"
    else:
        name, where = "KV shift" if key == -1 and same and own else "key shift", f"{key:+d}"
    beside = f", {'same' if same else 'opposite'} sign, {evidence.of_own[index]:.2g} of own tap"
    yield Name(name, "dominant tap", share, share, where + (beside if own else ", no own tap"))


def family(name: str) -> str:
    """What a name is a kind of: edge of edge-first, diagonal of diagonal at +1, else itself."""
    return "edge" if name in edges.NAMES else name.partition(" at ")[0]


def names_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """All names in a row of the kernel table; its shape where no rule fires."""
    listed = (row.get("names") or "").split(BETWEEN_NAMES)
    return tuple(text.rpartition(" ")[0] for text in listed if text) or (row["shape"],)


def has_name(row: Mapping[str, Any], name: str) -> bool:
    """Whether a row has this name, or one of this kind."""
    return any(name in (own, family(own)) for own in names_of(row))
