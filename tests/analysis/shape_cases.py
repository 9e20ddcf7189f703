"""Kernels of known shape for the tests: offsets by size and padding, exact taps, planted shapes in noise."""

import numpy as np

from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.measures import template_scores
from mta_viz.analysis.kernels.naming import permutation_p

SIZES = [(6, 11, "both"), (4, 9, "both"), (2, 9, "both"), (8, 13, "both"), (6, 11, "left"), (6, 11, "right")]


def offsets(c_q: int, c_k: int, pad: str = "both") -> Offsets:
    left = {"both": (c_k - 1) // 2, "left": c_k - 1, "right": 0}[pad]
    return Offsets(query=tuple(range(1 - c_q, 1)), key=tuple(range(-left, c_k - left)))


def kernel(at: Offsets, taps: dict[tuple[int, int], float]) -> np.ndarray:
    """`taps[lag, key]`, zero elsewhere; those beyond the border are dropped."""
    values = np.zeros((len(at.query), len(at.key)))
    for (lag, key), value in taps.items():
        if -lag in at.query and key in at.key:
            values[at.query.index(-lag), at.key.index(key)] = value
    return values


def largest_p(kernels: np.ndarray, at: Offsets) -> np.ndarray:
    """The permutation p of each kernel's largest template score."""
    return permutation_p(kernels, at, np.abs(template_scores(kernels, at)).max(-1))


def row(at: Offsets, **taps: float) -> np.ndarray:
    """Taps of the query's own row: `row(at, before=-1, own=1)`, `before2` is two keys before."""
    places = {"before2": -2, "before": -1, "own": 0, "after": 1, "after2": 2, "after3": 3}
    return kernel(at, {(0, places[name]): value for name, value in taps.items()})


def drawing(shape: str, at: Offsets) -> np.ndarray:
    """1 where the shape's taps are, the own tap left out: written apart from the package's templates."""
    taps: dict[tuple[int, int], float] = {}
    for lag in range(len(at.query)):
        lines = {
            "diagonal": [-lag],
            "induction": [-lag - 1],
            "anti-diagonal": [lag],
            "priming": [0],
            "smoothing 1x3": [-1, 0, 1] if lag == 0 else [],
            "smoothing 3x3": [-1, 0, 1] if lag < 3 else [],
            "smoothing c_q x 5": [-2, -1, 0, 1, 2],
        }
        taps |= {(lag, key): 1.0 for key in lines[shape]}
    return kernel(at, {**taps, (0, 0): 0.0})


def planted(
    shape: str, at: Offsets, *, sd: float, sign: int = 1, count: int = 200, seed: int = 0, own: float = 8.0
) -> np.ndarray:
    """Kernels of unit noise with an own tap, and the shape's taps `sd` standard deviations higher."""
    noise = np.random.default_rng(seed).standard_normal((count, len(at.query), len(at.key)))
    taps = noise + sign * sd * drawing(shape, at)
    taps[(slice(None), *at.own)] = own
    return taps
