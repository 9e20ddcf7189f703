"""The synthetic maps kernels are probed with: a repeated n-gram, one key attended again and again, a run.

A map is a block [query, key] of a causal map, scores 0 or 1, all keys before all queries. Owns where the
scores lie and where an answer is read; not what an answer means (`probes.py`).
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import Offsets

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


def spike(offsets: Offsets) -> Stimulus:
    """One score: what a kernel makes of it is the kernel itself, mirrored."""
    place = _middle(offsets)
    return _stimulus(offsets, [place], place, "A single score gets")


def attended_key(offsets: Offsets) -> Stimulus:
    """One key attended by every query a kernel reaches."""
    now, key = _middle(offsets)
    return _stimulus(offsets, [(now - ago, key) for ago in range(len(offsets.query))], (now, key), "")


def run(offsets: Offsets) -> Stimulus:
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
