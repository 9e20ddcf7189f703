"""Edge detectors and single taps: shapes that hang on one or two taps, so that no permutation can test them.

Owns the edge indices and the dominant tap. Their evidence is a probe of what the kernel does, and the count
over all kernels of a model. Notation: `measures.py`.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.shapes.measures import Kernels, PerKernel, own_tap, without_own_tap

ROBUST_SD = 1.4826  # times the median size of Gaussian values is their standard deviation
NOISE = 3.5  # standard deviations a tap must stand out by
SOFTENING = 0.05
NEAR_KEYS = 2
SIDE_SHARE = 0.5


def denoised(kernels: Kernels, offsets: Offsets) -> Kernels:
    """Taps below 3.5 x 1.4826 x median |r| set to 0, the own tap kept.

    The median is taken over the other taps; a kernel of very few taps has no noise to be told from, and
    may lose all of them.
    """
    row, column = offsets.own
    rest = without_own_tap(kernels, offsets)
    taps = np.delete(rest.reshape(len(kernels), -1), row * len(offsets.key) + column, 1)
    median = np.median(np.abs(taps), axis=-1) if taps.shape[1] else np.zeros(len(kernels))
    kept = np.where(np.abs(rest) >= (NOISE * ROBUST_SD * median)[:, None, None], rest, 0.0)
    kept[:, row, column] = own_tap(kernels, offsets)
    return kept


def edge_indices(kernels: Kernels, offsets: Offsets) -> Float[Array, "2 kernel"]:
    """EF and EL: how much more the first (last) of a run of equal keys gets than its middle, -1..1.

    With w_d = sum_n k[n, d] a long run answers y_first = sum_{d >= 0} w_d, y_mid = sum_d w_d and
    y_last = sum_{d <= 0} w_d. Multiplied by the sign of the largest and cut below 0 they are f, m, l;
    EF = (f - m) / (f + m + e), EL = (l - m) / (l + m + e), e = 0.05 sum |w_d|. 0 for a kernel of zeros.
    """
    profile, key = kernels.sum(-2), np.array(offsets.key)
    answers = np.stack([profile[:, key >= 0].sum(-1), profile.sum(-1), profile[:, key <= 0].sum(-1)])
    largest = np.take_along_axis(answers, np.abs(answers).argmax(0)[None], 0)
    first, middle, last = np.maximum(answers * np.sign(largest), 0)
    soft = SOFTENING * np.abs(profile).sum(-1)

    def index(edge: PerKernel) -> PerKernel:
        below = edge + middle + soft
        return (edge - middle) / np.where(below > 0, below, 1)

    return np.stack([index(first), index(last)])


def weight_beside(kernels: Kernels, offsets: Offsets) -> Bool[Array, "2 kernel"]:
    """Whether half of the weight |w_d| before (after) the own key lies within 2 keys of it."""
    profile, key = np.abs(kernels.sum(-2)), np.array(offsets.key)
    sides = []
    for side in (key < 0, key > 0):
        whole = profile[:, side].sum(-1)
        near = profile[:, side & (np.abs(key) <= NEAR_KEYS)].sum(-1)
        sides.append((whole > 0) & (near >= SIDE_SHARE * whole))
    return np.stack(sides)


def dominant_tap(kernels: Kernels, offsets: Offsets) -> tuple[PerKernel, Int[Array, " kernel"]]:
    """Share of ||r||^2 in the largest tap besides the own one, and that tap's place in the flat kernel.

    The share is 0 for r = 0.
    """
    energy = np.square(without_own_tap(kernels, offsets)).reshape(len(kernels), -1)
    place = energy.argmax(-1)
    total = energy.sum(-1)
    share = np.take_along_axis(energy, place[:, None], 1)[:, 0] / np.where(total > 0, total, 1)
    return share, place
