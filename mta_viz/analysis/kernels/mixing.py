"""The best one-to-one match of rows to columns (the assignment problem).

What a head-mixing matrix does: W[target, source] of a group of n heads, numpy float64.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE, SEED, SIMULATED


def best_match(gain: Float[Array, "row column"]) -> Int[Array, " row"]:
    """Column of each row so that the summed gain is largest; on a tie rows keep their own column.

    With more rows than columns, rows that are left out get -1.
    """
    from scipy.optimize import linear_sum_assignment  # a third of a second, and few calls need it

    own = np.eye(*gain.shape) * (np.abs(gain).max(initial=0) * 1e-12)
    rows, columns = linear_sum_assignment(gain + own, maximize=True)
    match = np.full(len(gain), -1)
    match[rows] = columns
    return match


Mixing = Float[Array, "target source"]
PerTarget = Float[Array, " target"]

CONTRAST_QUANTILE = 0.99
SMALLEST_SUBTRACTION = 0.2
FEWEST_HEADS = 3  # two numbers carry no significance
PAIR_ANGLES = ((-45.0, "contrast"), (45.0, "averaging"), (-90.0, "swap"), (90.0, "swap"))
ANGLE_WIDTH = 22.5


@dataclass(frozen=True)
class HeadShape:
    """One row of a head-mixing matrix: the target head `target` (counted in its group).

    `source`: the head with the largest contrast, or -1. `scores`: every score by name, those of the whole
    group repeated in each of its rows. `shape`: near identity, contrast, averaging, swap (pairs only),
    permutation, none of these, all zero or not finite.
    """

    target: int
    source: int
    shape: str
    verdict: str
    scores: dict[str, float]


def scaled_identity(mixing: Mixing) -> float:
    """tr W / (sqrt(n) ||W||), -1..1."""
    return _ratio(np.trace(mixing), np.sqrt(len(mixing)) * np.linalg.norm(mixing))


def mean_diagonal(mixing: Mixing) -> float:
    """Mean |W_tt|: sizes, as drawn over layers."""
    return float(np.abs(np.diag(mixing)).mean())


def off_diagonal_ratio(mixing: Mixing) -> float:
    """Mean |off-diagonal| / mean |diagonal|; NaN for one head."""
    size = len(mixing)
    off = np.abs(mixing).sum() - np.abs(np.diag(mixing)).sum()
    return _ratio(_ratio(off, float(size * (size - 1))), mean_diagonal(mixing))


def permutation_match(mixing: Mixing) -> tuple[Int[Array, " target"], float]:
    """The one-to-one match pi of most energy, and its share sum W[t, pi(t)]^2 / ||W||^2.

    The share is 0 where no exchange beats the identity: leaving one pair of heads out of a perfect
    identity would otherwise still count (n - 2) / n.
    """
    energy = np.square(mixing)
    match = best_match(energy)
    if (match == np.arange(len(match))).all():
        return match, 0.0
    return match, _ratio(energy[np.arange(len(match)), match].sum(), energy.sum())


def subtracted_fraction(mixing: Mixing) -> Mixing:
    """kappa[t, u] = -W[t, u] / W[t, t]: head t takes itself minus kappa times head u.

    Comparable with lambda of the Differential Transformer. NaN where W[t, t] = 0.
    """
    own = np.diag(mixing)[:, None]
    return np.where(own == 0, np.nan, -mixing / np.where(own == 0, 1, own))


def contrast(mixing: Mixing) -> tuple[PerTarget, Int[Array, " target"]]:
    """C_t = max_{u != t} -sgn(W_tt) W_tu / ||W_t,off||, and that u; NaN and -1 without other weights."""
    off = mixing * (1 - np.eye(len(mixing)))
    length = np.linalg.norm(off, axis=-1)
    opposed = -np.sign(np.diag(mixing))[:, None] * off
    opposed[np.arange(len(mixing)), np.arange(len(mixing))] = -np.inf
    source, some = opposed.argmax(-1), length > 0
    score = np.where(some, opposed.max(-1), np.nan) / np.where(some, length, 1)
    return score, np.where(some, source, -1)


def common_mode(mixing: Mixing) -> PerTarget:
    """CM_t = (sum_u W_tu)^2 / (n ||W_t||^2): 1 averages, 1/n identity, 0 cancels what all heads share."""
    energy = len(mixing) * np.square(mixing).sum(-1)
    return np.where(energy > 0, np.square(mixing.sum(-1)) / np.where(energy > 0, energy, 1), np.nan)


def energy_off_own(mixing: Mixing) -> PerTarget:
    """Share of a row's energy that comes from other heads, 0..1."""
    energy = np.square(mixing).sum(-1)
    share = 1 - np.square(np.diag(mixing)) / np.where(energy > 0, energy, 1)
    return np.where(energy > 0, np.clip(share, 0, 1), np.nan)


def pair_angle(mixing: Mixing) -> PerTarget:
    """atan2(sgn(W_tt) W_tu, |W_tt|) in degrees, for a group of two; NaN in other groups.

    0 identity, -45 contrast, 45 average, +-90 swap. Two numbers carry no significance.
    """
    if len(mixing) != 2:
        return np.full(len(mixing), np.nan)
    own = np.diag(mixing)
    sign = np.where(own < 0, -1.0, 1.0)
    return np.degrees(np.arctan2(sign * mixing[[0, 1], [1, 0]], np.abs(own)))


@lru_cache(maxsize=32)
def random_contrast(size: int) -> float:
    """The 99 % quantile of C_t in a Gaussian group of `size` heads (0.99, 0.89, 0.73 for 4, 8, 16)."""
    rows = np.random.default_rng(SEED).standard_normal((SIMULATED // 4, size - 1))
    return float(np.quantile(rows.max(-1) / np.linalg.norm(rows, axis=-1), CONTRAST_QUANTILE))


@lru_cache(maxsize=32)
def random_common_mode(size: int) -> float:
    """The 99 % quantile of CM_t in a Gaussian group of `size` heads."""
    rows = np.random.default_rng(SEED).standard_normal((SIMULATED // 4, size))
    gain = np.square(rows.sum(-1)) / (size * np.square(rows).sum(-1))
    return float(np.quantile(gain, CONTRAST_QUANTILE))


def name_head_rows(mixing: Mixing) -> tuple[HeadShape, ...]:
    """Scores and name of each row of one group's matrix."""
    mixing = np.asarray(mixing, np.float64)
    clean = np.where(np.isfinite(mixing).all(), mixing, 0.0)
    match, permutation = permutation_match(clean)
    score, source = contrast(clean)
    kappa = subtracted_fraction(clean)
    group = {
        "scaled_identity": scaled_identity(clean),
        "permutation": permutation,
        "mean_diagonal": mean_diagonal(clean),
        "off_diagonal_ratio": off_diagonal_ratio(clean),
    }
    rows = {
        "own_weight": np.diag(clean),
        "energy_off_identity": energy_off_own(clean),
        "contrast": score,
        "subtracted_fraction": np.where(source < 0, np.nan, kappa[np.arange(len(kappa)), source]),
        "common_mode": common_mode(clean),
        "angle": pair_angle(clean),
    }
    shapes = []
    for target in range(len(clean)):
        scores = {**group, **{name: float(values[target]) for name, values in rows.items()}}
        if not np.isfinite(mixing).all():
            shape, source_of, scores = NOT_FINITE, -1, dict.fromkeys(scores, np.nan)
        else:
            shape, source_of = row_name(clean, target, int(match[target]), scores), int(source[target])
        shapes.append(HeadShape(target, source_of, shape, _verdict(shape, scores), scores))
    return tuple(shapes)


def row_name(mixing: Mixing, target: int, matched: int, scores: dict[str, float]) -> str:
    """Identity, then what is clear against random rows; angles in pairs, where nothing can be tested."""
    size = len(mixing)
    if not mixing[target].any():
        return ALL_ZERO
    if scores["energy_off_identity"] < NEAR_IDENTITY:
        return IDENTITY
    if size < FEWEST_HEADS:
        near = (name for angle, name in PAIR_ANGLES if abs(scores["angle"] - angle) <= ANGLE_WIDTH)
        return next(near, NONE)
    if (
        matched != target
        and mixing[target, matched] ** 2 >= (1 - NEAR_IDENTITY) * np.square(mixing[target]).sum()
    ):
        return "permutation"
    if scores["contrast"] >= random_contrast(size) and scores["subtracted_fraction"] >= SMALLEST_SUBTRACTION:
        return "contrast"
    return "averaging" if scores["common_mode"] >= random_common_mode(size) else NONE


def _verdict(shape: str, scores: dict[str, float]) -> str:
    """One line; `{source}` is filled in by whoever knows how heads are counted."""
    text = shape
    if shape == "contrast":
        text += f": itself minus {scores['subtracted_fraction']:.2f} x head {{source}}"
    if np.isfinite(scores["angle"]) and shape not in (ALL_ZERO, NOT_FINITE):
        text += f", angle {scores['angle']:+.0f} degrees"
    return text


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else float("nan")
