"""What kernels answer to synthetic maps, and what random kernels answer: the numbers behind a probe.

The maps: a repeated n-gram, one key attended again and again, a run. Every answer is the project's own
convolution applied to one. Owns no verdict: that is `probes.py`'s.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel, own_sign, own_tap, without_own_tap
from mta_viz.analysis.kernels.naming import SEED
from mta_viz.model.ops import key_query_convolution

Cell = tuple[int, int]
BOX_KEYS = 1  # of a patch without a template: 3 x 3, as far as the kernel has rows


@dataclass(frozen=True)
class Stimulus:
    """A map of scores, the cells (row, column) its answer is read at, and the beginning of a sentence."""

    scores: Float[Array, "query key"]
    read_at: tuple[Cell, ...]
    words: str

    def only_own(self) -> "Stimulus":
        """The map with nothing but the score of the cell that is read, if there is one."""
        alone = np.zeros_like(self.scores)
        alone[self.read_at[0]] = self.scores[self.read_at[0]]
        return replace(self, scores=alone)


def gain(probe: str, offsets: Offsets, box: Bool[Array, "c_q c_k"] | None = None) -> Stimulus:
    """The map of one of the probes that sum evidence; `box` are the taps a patch stands for."""
    size = len(offsets.query)
    now, key = _middle(offsets)
    steps = range(size)  # queries ago
    if probe == "sequence":
        cells = [(now - ago, key - ago) for ago in steps]
        return _stimulus(offsets, cells, (now, key), f"On a repeated {size}-gram the full match gets")
    if probe == "after a sequence":
        cells = [(now - ago, key - 1 - ago) for ago in steps]
        return _stimulus(offsets, cells, (now, key), f"The key after a repeated {size}-gram gets")
    if probe == "reversed sequence":
        cells = [(now - ago, key + ago) for ago in steps]
        return _stimulus(offsets, cells, (now, key), f"On a {size}-gram repeated backwards the match gets")
    if probe == "priming":
        cells = [(now - ago, key) for ago in steps]
        words = f"A key attended by the {size - 1} queries before and now gets"
        return _stimulus(offsets, cells, (now, key), words)
    reach = [(now + query, key + at) for query, at in _patch(offsets, box)]
    words = f"The last row of a patch of {len({row for row, _ in reach})} x {len({at for _, at in reach})} "
    return _stimulus(offsets, reach, (now, key), words + "equal scores gets")


def spike_map(offsets: Offsets) -> Stimulus:
    """One score: what a kernel makes of it is the kernel itself, mirrored."""
    place = _middle(offsets)
    return _stimulus(offsets, [place], place, "A single score gets")


def attended_key(offsets: Offsets) -> Stimulus:
    """One key attended by every query a kernel reaches."""
    now, key = _middle(offsets)
    return _stimulus(offsets, [(now - ago, key) for ago in range(len(offsets.query))], (now, key), "")


def run_map(offsets: Offsets) -> Stimulus:
    """A run of equal keys longer than the kernel, read at its first, a middle and its last key."""
    now, key = _middle(offsets)
    length, left = len(offsets.key) + 2, -offsets.key[0]
    first = key - left - 1
    cells = [(now - ago, first + step) for ago in range(len(offsets.query)) for step in range(length)]
    read = ((now, first), (now, key), (now, first + length - 1))
    return Stimulus(_map(offsets, cells), read, f"In a run of {length} equal keys")


def _patch(offsets: Offsets, box: Bool[Array, "c_q c_k"] | None) -> list[Cell]:
    """(query offset, key offset) of a patch's scores, the own one included."""
    if box is None:
        return [
            (query, key)
            for query in offsets.query[-3:]
            for key in offsets.key
            if -BOX_KEYS <= key <= BOX_KEYS
        ]
    taps = [(offsets.query[row], offsets.key[column]) for row, column in np.argwhere(box)]
    return [*taps, (0, 0)]


def _middle(offsets: Offsets) -> Cell:
    """The cell that is read: every score of every map, and where it spreads to, lies inside the block."""
    return len(offsets.query) - 1, _side(offsets)


def _side(offsets: Offsets) -> int:
    return max(len(offsets.query), len(offsets.key) + 1) + len(offsets.key)


def _stimulus(offsets: Offsets, cells: list[Cell], read: Cell, words: str) -> Stimulus:
    return Stimulus(_map(offsets, cells), (read,), words)


def _map(offsets: Offsets, cells: list[Cell]) -> Float[Array, "query key"]:
    scores = np.zeros((2 * len(offsets.query) - 1, 2 * _side(offsets) + 1))
    for row, column in cells:
        scores[row, column] = 1.0
    return scores


NULL_KERNELS, NULL_WORK = 10_000, 3e9  # random kernels; fewer where their multiply-adds would pass this
QUANTILE = 0.99
NOISE_BESIDE_IDENTITY = 0.05
SOFTENING = 0.05


def answers(kernels: Kernels, offsets: Offsets, stimulus: Stimulus) -> Float[Array, "kernel query key"]:
    """Every kernel's convolution of one map."""
    block = torch.from_numpy(stimulus.scores).expand(1, len(kernels), -1, -1).float()
    taps = torch.from_numpy(np.ascontiguousarray(kernels, np.float32))
    return key_query_convolution(block, taps, -offsets.key[0])[0].double().numpy()


def _at(answers: Array, cell: tuple[int, int]) -> PerKernel:
    return answers[:, cell[0], cell[1]]


def _answer_at(kernels: Kernels, offsets: Offsets, stimulus: Stimulus) -> PerKernel:
    """The answer where the map is read; only the cells a kernel reads for it are convolved."""
    row, column = stimulus.read_at[0]
    top, left = row + offsets.query[0], column + offsets.key[0]
    window = stimulus.scores[top : row + 1, left : left + len(offsets.key)]
    return _at(answers(kernels, offsets, Stimulus(window, (), "")), (row - top, column - left))


def _peak(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """The largest answer, in size, that a single score gives anywhere."""
    return np.abs(answers(kernels, offsets, spike_map(offsets))).max((-2, -1))


def gain_parts(
    kernels: Kernels, offsets: Offsets, stimulus: Stimulus
) -> tuple[PerKernel, PerKernel, PerKernel]:
    """Answer where the map is read, the same with only that cell's own score, and a single score's peak."""
    return (
        _answer_at(kernels, offsets, stimulus),
        _answer_at(kernels, offsets, stimulus.only_own()),
        _peak(kernels, offsets),
    )


def gain_null(kernels: Kernels, offsets: Offsets, probe: str, box: Array | None) -> Float[Array, " random"]:
    """The same number for random kernels with this own tap and this length of the other taps.

    Answers are sums over taps: those to the own tap and to the rest are found apart, and added.
    """
    key = None if box is None else tuple(map(tuple, box.tolist()))
    full, peak = _random_gains(offsets, probe, key), _random_peaks(offsets)
    own = float(own_tap(kernels, offsets)[0])
    length = float(np.linalg.norm(without_own_tap(kernels, offsets)))
    unit = np.zeros_like(kernels)
    unit[(slice(None), *offsets.own)] = 1
    own_full = _answer_at(unit, offsets, gain(probe, offsets, box))
    largest = np.maximum(abs(own), length * peak)
    sign = float(own_sign(kernels, offsets)[0])
    return sign * (own * own_full + length * full) / np.where(largest > 0, largest, 1)


@lru_cache(maxsize=64)
def _random_gains(offsets: Offsets, probe: str, box: tuple[tuple[bool, ...], ...] | None) -> PerKernel:
    taps = None if box is None else np.array(box)
    return _answer_at(_random_rest(offsets), offsets, gain(probe, offsets, taps))


@lru_cache(maxsize=64)
def _random_peaks(offsets: Offsets) -> PerKernel:
    return _peak(_random_rest(offsets), offsets)


def _random_rest(offsets: Offsets) -> Kernels:
    """Gaussian taps of length 1, the own tap 0."""
    rest = without_own_tap(_gaussian(offsets), offsets)
    return rest / np.linalg.norm(rest, axis=(-2, -1))[:, None, None]


def _gaussian(offsets: Offsets) -> Kernels:
    shape = len(offsets.query), len(offsets.key)
    work = shape[0] * shape[1] * spike_map(offsets).scores.size
    count = int(np.clip(NULL_WORK / work, 200, NULL_KERNELS))
    return np.random.default_rng(SEED).standard_normal((count, *shape))


def _threshold(offsets: Offsets, measure: Callable[[Kernels, Offsets], PerKernel]) -> float:
    """What 1 in 100 Gaussian kernels, and 1 in 100 identities with noise, does not pass."""
    noise = _gaussian(offsets)
    near = NOISE_BESIDE_IDENTITY * noise
    near[(slice(None), *offsets.own)] += 1
    return max(float(np.quantile(measure(some, offsets), QUANTILE)) for some in (noise, near))


def edge_answers(kernels: Kernels, offsets: Offsets) -> Float[Array, "2 kernel"]:
    """How much more the first (last) of a run of equal keys gets than its middle, -1..1.

    With answers f, m, l at the run's first, middle and last key, in the direction of the largest and cut
    below 0: (f - m) / (f + m + e), (l - m) / (l + m + e); e is 5 % of the summed answers to one key.
    """
    run, key = run_map(offsets), attended_key(offsets)
    of_run = answers(kernels, offsets, run)
    parts = np.stack([_at(of_run, cell) for cell in run.read_at])
    largest = np.take_along_axis(parts, np.abs(parts).argmax(0)[None], 0)
    first, middle, last = np.maximum(parts * np.sign(largest), 0)
    soft = SOFTENING * np.abs(answers(kernels, offsets, key)[:, key.read_at[0][0]]).sum(-1)
    return np.stack([(edge - middle) / np.maximum(edge + middle + soft, 1e-300) for edge in (first, last)])


def claimed_edge(kernels: Kernels, offsets: Offsets, claim: str) -> PerKernel:
    """Of `edge_answers` the one an edge's name claims; both edges: the smaller."""
    first, last = edge_answers(kernels, offsets)
    return {"edge-first": first, "edge-last": last, "both edges": np.minimum(first, last)}[claim]


@lru_cache(maxsize=64)
def edge_threshold(offsets: Offsets, claim: str) -> float:
    """What 1 in 100 random kernels passes on a run of keys."""
    return _threshold(offsets, lambda kernels, at: claimed_edge(kernels, at, claim))


def moved_share(answered: Array, stimulus: Stimulus) -> PerKernel:
    """The largest share of the squared answers, the score's own cell left out, that one cell holds."""
    energy = np.square(answered)
    energy[:, stimulus.read_at[0][0], stimulus.read_at[0][1]] = 0
    whole = energy.sum((-2, -1))
    return energy.max((-2, -1)) / np.where(whole > 0, whole, np.inf)


@lru_cache(maxsize=64)
def spike_threshold(offsets: Offsets) -> float:
    """What 1 in 100 random kernels passes on a single score."""
    spike = spike_map(offsets)
    return _threshold(offsets, lambda kernels, at: moved_share(answers(kernels, at, spike), spike))
