"""What a head-mixing matrix does: W[target, source] of a group of n heads, numpy float64; and over layers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY, layer_kernels
from mta_viz.analysis.kernels.measures import ratio
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE, SEED, SIMULATED
from mta_viz.config import MixingPlace, ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.tables import Table


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
    return float(ratio(np.trace(mixing), np.sqrt(len(mixing)) * np.linalg.norm(mixing)))


def mean_diagonal(mixing: Mixing) -> float:
    """Mean |W_tt|: sizes, as drawn over layers."""
    return float(np.abs(np.diag(mixing)).mean())


def off_diagonal_ratio(mixing: Mixing) -> float:
    """Mean |off-diagonal| / mean |diagonal|; NaN for one head."""
    size = len(mixing)
    off = np.abs(mixing).sum() - np.abs(np.diag(mixing)).sum()
    return float(ratio(ratio(off, float(size * (size - 1))), mean_diagonal(mixing)))


def permutation_match(mixing: Mixing) -> tuple[Int[Array, " target"], float]:
    """The one-to-one match pi of most energy, and its share sum W[t, pi(t)]^2 / ||W||^2.

    The share is 0 where no exchange beats the identity: leaving one pair of heads out of a perfect
    identity would otherwise still count (n - 2) / n.
    """
    energy = np.square(mixing)
    match = best_match(energy)
    if (match == np.arange(len(match))).all():
        return match, 0.0
    return match, float(ratio(energy[np.arange(len(match)), match].sum(), energy.sum()))


def subtracted_fraction(mixing: Mixing) -> Mixing:
    """kappa[t, u] = -W[t, u] / W[t, t]: head t takes itself minus kappa times head u.

    Comparable with lambda of the Differential Transformer. NaN where W[t, t] = 0.
    """
    return ratio(-mixing, np.diag(mixing)[:, None])


def contrast(mixing: Mixing) -> tuple[PerTarget, Int[Array, " target"]]:
    """C_t = max_{u != t} -sgn(W_tt) W_tu / ||W_t,off||, and that u; NaN and -1 without other weights."""
    off = mixing * (1 - np.eye(len(mixing)))
    length = np.linalg.norm(off, axis=-1)
    opposed = -np.sign(np.diag(mixing))[:, None] * off
    np.fill_diagonal(opposed, -np.inf)
    return ratio(opposed.max(-1), length), np.where(length > 0, opposed.argmax(-1), -1)


def common_mode(mixing: Mixing) -> PerTarget:
    """CM_t = (sum_u W_tu)^2 / (n ||W_t||^2): 1 averages, 1/n identity, 0 cancels what all heads share."""
    return ratio(np.square(mixing.sum(-1)), len(mixing) * np.square(mixing).sum(-1))


def energy_off_own(mixing: Mixing) -> PerTarget:
    """Share of a row's energy that comes from other heads, 0..1."""
    return np.clip(1 - ratio(np.square(np.diag(mixing)), np.square(mixing).sum(-1)), 0, 1)


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
        scores = group | {name: float(values[target]) for name, values in rows.items()}
        if np.isfinite(mixing).all():
            shape = row_name(clean, target, int(match[target]), scores)
            shapes.append(HeadShape(target, int(source[target]), shape, _verdict(shape, scores), scores))
        else:
            nothing = dict.fromkeys(scores, np.nan)
            shapes.append(HeadShape(target, -1, NOT_FINITE, NOT_FINITE, nothing))
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
    most = (1 - NEAR_IDENTITY) * np.square(mixing[target]).sum()
    if matched != target and mixing[target, matched] ** 2 >= most:
        return "permutation"
    if scores["contrast"] >= random_contrast(size) and scores["subtracted_fraction"] >= SMALLEST_SUBTRACTION:
        return "contrast"
    return "averaging" if scores["common_mode"] >= random_common_mode(size) else NONE


def _verdict(shape: str, scores: dict[str, float]) -> str:
    """One line; `{source}` is filled in by whoever knows how heads are counted."""
    if shape == "contrast":
        shape += f": itself minus {scores['subtracted_fraction']:.2f} x head {{source}}"
    has_angle = bool(np.isfinite(scores["angle"])) and shape != ALL_ZERO
    return shape + f", angle {scores['angle']:+.0f} degrees" * has_angle


@dataclass(frozen=True)
class MixingOverLayers:
    """The head-mixing matrices of one place, a group of heads at a time."""

    where: MixingPlace
    layers: tuple[int, ...]
    matrices: Float[np.ndarray, "layer group target source"]

    def table(self) -> Table:
        """A row a weight, heads counted over all groups."""
        size = self.matrices.shape[-1]
        columns = ("layer", "where", "group", "target_head", "source_head", "value")
        rows = (
            (layer, self.where, group, group * size + target, group * size + source, float(weight))
            for layer, groups in zip(self.layers, self.matrices, strict=True)
            for (group, target, source), weight in np.ndenumerate(groups)
        )
        return Table.of(columns, rows)


@dataclass(frozen=True)
class MixingMeans:
    """Means over a layer's head-mixing weights of one place, float64; NaN in a layer that holds NaN.

    "Size" is |w|, the mean is over all groups at once. Without off-diagonal weights (groups of one head)
    their means are NaN. `n_bad`: weights that are NaN or infinite.
    """

    where: MixingPlace
    diagonal_size: Float[np.ndarray, " layer"]
    diagonal: Float[np.ndarray, " layer"]
    off_diagonal_size: Float[np.ndarray, " layer"]
    off_diagonal: Float[np.ndarray, " layer"]
    n_bad: tuple[int, ...]

    @property
    def ratio(self) -> Float[np.ndarray, " layer"]:
        """Mean off-diagonal size over mean diagonal size; NaN where the diagonal is 0."""
        return ratio(self.off_diagonal_size, self.diagonal_size)

    @property
    def signed_ratio(self) -> Float[np.ndarray, " layer"]:
        """The same of the means with their signs."""
        return ratio(self.off_diagonal, self.diagonal)


@dataclass(frozen=True)
class MixingByLayer:
    """The means of each place that mixes heads; `key_query[layer]`: whether it has key-query kernels."""

    places: tuple[MixingMeans, ...]
    key_query: tuple[bool, ...]

    def table(self) -> Table:
        """A row a place and layer: means of sizes and of signed values, their ratios, how many are NaN."""
        columns = (
            *("where", "layer", "key_query_kernels", "mean_abs_diagonal", "mean_diagonal"),
            *("mean_abs_off_diagonal", "mean_off_diagonal", "ratio_of_abs", "ratio_of_signed", "nan_weights"),
        )
        rows = []
        for means in self.places:
            own, off = (means.diagonal_size, means.diagonal), (means.off_diagonal_size, means.off_diagonal)
            numbers = [column.tolist() for column in (*own, *off, means.ratio, means.signed_ratio)]
            marked = map(int, self.key_query)
            for layer, facts in enumerate(zip(marked, *numbers, means.n_bad, strict=True)):
                rows.append((means.where, layer, *facts))
        return Table(columns, tuple(rows), exact=True)


def mixing_over_layers(
    state_dict: Mapping[str, Tensor],
    config: ModelConfig,
    where: MixingPlace,
    layers: Sequence[int] | None = None,
) -> MixingOverLayers:
    """The head-mixing matrices of some layers (None: all)."""
    wanted = tuple(range(config.n_layers) if layers is None else layers)
    for layer in wanted:
        kernels.check_layer(config, layer, where)
    stack = [layer_kernels(state_dict, config, layer).mixing(where).numpy() for layer in wanted]
    return MixingOverLayers(where, wanted, np.stack(stack))


def mixing_by_layer(
    state_dict: Mapping[str, Tensor], config: ModelConfig, *, off_diagonal: bool = False
) -> MixingByLayer:
    """Mean diagonal and off-diagonal weights by layer; `off_diagonal`: only places that have such weights."""
    stacks = [mixing_over_layers(state_dict, config, place) for place in kernels.mixing_places(config)]
    means = tuple(_means(stack) for stack in stacks if not off_diagonal or stack.matrices.shape[-1] > 1)
    if not means:
        raise MtaVizError("heads are mixed in groups of one, which have no off-diagonal weights to compare")
    layers = map(config.kernels, range(config.n_layers))
    return MixingByLayer(means, tuple(bool(layer.pre or layer.post) for layer in layers))


def _means(stack: MixingOverLayers) -> MixingMeans:
    weights = stack.matrices.astype(np.float64)
    own = np.eye(weights.shape[-1], dtype=bool)
    finite = np.isfinite(weights)
    weights = np.where(finite, weights, np.nan)

    def mean(of: Callable[[np.ndarray], np.ndarray], where: np.ndarray) -> np.ndarray:
        chosen = of(weights)[..., where].reshape(len(weights), -1)
        return chosen.mean(1) if chosen.size else np.full(len(weights), np.nan)

    diagonal, off = ((mean(np.abs, where), mean(np.positive, where)) for where in (own, ~own))
    return MixingMeans(stack.where, *diagonal, *off, tuple((~finite).sum((1, 2, 3)).tolist()))
