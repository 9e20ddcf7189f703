"""What a key-query kernel is called: the rules that turn scores into one name, or into none.

The order is: broken, all zero, template, edge, dominant tap, near identity, none of these. A name that holds
less than 2 % of the kernel is faint. Owns no formula: those are in `measures.py`, `templates.py`, `edges.py`
and `significance.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import NEAR_IDENTITY, Offsets
from mta_viz.analysis.shapes.edges import denoised, dominant_tap, edge_indices, weight_beside
from mta_viz.analysis.shapes.measures import (
    MEASURES,
    Kernels,
    energy_off_identity,
    has_own_tap,
    own_sign,
    own_tap,
)
from mta_viz.analysis.shapes.significance import dominant_threshold, permutation_p, size_threshold
from mta_viz.analysis.shapes.templates import LARGEST_P, NAMES, coherent, library, template_scores

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


@dataclass(frozen=True)
class _Found:
    """A name a rule gives: `share` of the kernel's energy is what it holds."""

    shape: str
    evidence: str
    score: float
    share: float
    detail: str


def name_kernel(kernel: Float[Array, "c_q c_k"], offsets: Offsets) -> KernelShape:
    """`name_kernels` for one kernel."""
    return name_kernels(kernel[None], offsets)[0]


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
    return tuple(
        _broken(NOT_FINITE, scores)
        if not finite[index]
        else _broken(ALL_ZERO, scores)
        if largest[index] == 0
        else _named(evidence, index, {name: float(values[index]) for name, values in scores.items()})
        for index in range(len(kernels))
    )


def all_scores(kernels: Kernels, offsets: Offsets) -> dict[str, Float[Array, " kernel"]]:
    """Every column of the atlas for key-query kernels."""
    by_template = template_scores(kernels, offsets)
    names = [template.name for template in library(offsets)]
    scores = {name: measure(kernels, offsets) for name, measure in MEASURES.items()}
    for name in NAMES:
        found = by_template[:, [index for index, known in enumerate(names) if known == name]]
        best = np.abs(found).argmax(-1)[:, None] if found.shape[1] else None
        nothing = np.full(len(kernels), np.nan)
        scores[name] = nothing if best is None else np.take_along_axis(found, best, 1)[:, 0]
    scores["edge_first"], scores["edge_last"] = edge_indices(denoised(kernels, offsets), offsets)
    scores["dominant_share"], place = dominant_tap(kernels, offsets)
    row, column = np.divmod(place, len(offsets.key))
    scores["dominant_query"] = np.array(offsets.query, float)[row]
    scores["dominant_key"] = np.array(offsets.key, float)[column]
    tap = kernels.reshape(len(kernels), -1)[np.arange(len(kernels)), place]
    scores["dominant_sign"] = np.sign(tap) * own_sign(kernels, offsets)
    return scores


def _broken(shape: str, scores: dict[str, Float[Array, " kernel"]]) -> KernelShape:
    """A kernel of which nothing can be measured."""
    return KernelShape(shape, False, "", np.nan, shape, np.nan, dict.fromkeys(scores, np.nan))


class _Evidence:
    """What the rules look at, for all kernels at once."""

    def __init__(self, kernels: Kernels, offsets: Offsets) -> None:
        self.offsets = offsets
        self.off = energy_off_identity(kernels, offsets)
        self.rho, self.coherent = template_scores(kernels, offsets), coherent(kernels, offsets)
        self.p = self._permutation_p(kernels)
        clean = denoised(kernels, offsets)
        self.edges, self.beside = edge_indices(clean, offsets), weight_beside(clean, offsets)
        self.has_own = has_own_tap(kernels, offsets)
        self.top, self.place = dominant_tap(kernels, offsets)
        tap = kernels.reshape(len(kernels), -1)[np.arange(len(kernels)), self.place]
        self.tap_sign = np.sign(tap) * own_sign(kernels, offsets)
        own = np.abs(own_tap(kernels, offsets))
        self.of_own = np.abs(tap) / np.where(own > 0, own, np.nan)

    def _permutation_p(self, kernels: Kernels) -> Float[Array, " kernel"]:
        if not self.rho.shape[1]:
            return np.full(len(kernels), np.nan)
        large = np.abs(self.rho).max(-1) >= size_threshold(self.offsets)
        p = np.ones(len(kernels))
        if large.any():
            p[large] = permutation_p(kernels[large], self.offsets)
        return p


def _named(evidence: _Evidence, index: int, scores: dict[str, float]) -> KernelShape:
    """The first rule that gives a name."""
    found = next(_names(evidence, index), None)
    p, off = float(evidence.p[index]), evidence.off[index]
    if found is None:
        shape = IDENTITY if off < NEAR_IDENTITY else NONE
        return KernelShape(shape, False, "", np.nan, shape, p, scores)
    faint = bool(found.share < FAINT)
    verdict = f"{found.shape} {found.detail}"
    if faint:
        verdict = f"{IDENTITY} (faint {verdict})"
    return KernelShape(found.shape, faint, found.evidence, found.score, verdict, p, scores)


def _names(evidence: _Evidence, index: int) -> Iterator[_Found]:
    """What each rule says, in order; nothing where it gives no name."""
    yield from template_name(evidence, index)
    yield from edge_name(evidence, index)
    yield from dominant_name(evidence, index)


def template_name(evidence: _Evidence, index: int) -> Iterator[_Found]:
    """The template of the largest score, if large, unlikely by permutation, and coherent."""
    if not evidence.p[index] <= LARGEST_P:  # NaN without templates, 1 below the size threshold
        return
    best = int(np.abs(evidence.rho[index]).argmax())
    if evidence.coherent[index, best]:
        rho = float(evidence.rho[index, best])
        name = library(evidence.offsets)[best].called(rho)
        detail = f"{rho:+.2f}, p {evidence.p[index]:.3f}"
        yield _Found(name, "template", rho, float(evidence.off[index]) * rho**2, detail)


def edge_name(evidence: _Evidence, index: int) -> Iterator[_Found]:
    """EF or EL of the denoised kernel at least 0.5, an own tap, and weight beside it; a "?" until probed."""
    first, last = (evidence.edges[:, index] >= EDGE) & evidence.beside[:, index]
    enough = len(evidence.offsets.query) * len(evidence.offsets.key) > FEWEST_EDGE_TAPS
    if not (enough and evidence.has_own[index] and (first or last)):
        return
    name = "both edges" if first and last else "edge-first" if first else "edge-last"
    score = float(evidence.edges[:, index].max())
    yield _Found(name, "edge", score, float(evidence.off[index]), f"{score:+.2f} (?)")


def dominant_name(evidence: _Evidence, index: int) -> Iterator[_Found]:
    """One tap with most of the energy off the own tap: a key shift if it reads the query itself."""
    share = float(evidence.top[index])
    if share < dominant_threshold(evidence.offsets):
        return
    offsets = evidence.offsets
    row, column = divmod(int(evidence.place[index]), len(offsets.key))
    lag, key = -offsets.query[row], offsets.key[column]
    own, same = bool(evidence.has_own[index]), bool(evidence.tap_sign[index] > 0)
    if lag:
        name, where = "single tap", f"({lag}, {key:+d})"
    else:
        name, where = "KV shift" if key == -1 and same and own else "key shift", f"{key:+d}"
    beside = f", {'same' if same else 'opposite'} sign, {evidence.of_own[index]:.2g} of own tap"
    detail = where + (beside if own else ", no own tap")
    yield _Found(name, "dominant tap", share, float(evidence.off[index]) * share, detail)
