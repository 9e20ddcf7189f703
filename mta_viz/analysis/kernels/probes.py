"""What a kernel does to a score map made for it: the evidence for "acts like it" beside "looks like".

Owns the synthetic maps, what is read off them, and how large it must be. Every answer is the project's own
convolution applied to a map; nothing is computed from the taps. A map is a block of a causal map whose keys
all come before its queries, so that no cell is masked; what lies beyond its border reads 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import responses
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel, library, own_sign, template_scores
from mta_viz.analysis.kernels.responses import (
    QUANTILE,
    answers,
    claimed_edge,
    edge_answers,
    edge_threshold,
    gain_null,
    gain_parts,
    moved_share,
    spike_threshold,
)
from mta_viz.tables import Table

SMALLEST_EFFECT = 0.1  # of a single score's largest answer
GAINS = ("sequence", "after a sequence", "reversed sequence", "priming", "patch")
EDGES, SPIKE = "run of keys", "single score"
PROBES = (*GAINS, EDGES, SPIKE)
_OF_SHAPE = {
    "diagonal": "sequence",
    "induction": "after a sequence",
    "anti-diagonal": "reversed sequence",
    "priming": "priming",
    "inhibition of return": "priming",
    "smoothing": "patch",
    "sharpening": "patch",
    "edge-first": EDGES,
    "edge-last": EDGES,
    "both edges": EDGES,
    "key shift": SPIKE,
    "KV shift": SPIKE,
    "single tap": SPIKE,
}
_CLAIMS = {
    "sequence": ("diagonal", "negative diagonal"),
    "after a sequence": ("induction", "negative induction"),
    "reversed sequence": ("anti-diagonal", "negative anti-diagonal"),
    "priming": ("priming", "inhibition of return"),
    "patch": ("smoothing", "sharpening"),
}
_LOWERING = ("inhibition of return", "sharpening")


@dataclass(frozen=True)
class ProbeResult:
    """A kernel's answer to one probe.

    `before` and `after`: the synthetic map and what the kernel makes of it, rows = queries. `read_at`: the
    cells (row, column) the number is read off. `threshold`: what `measured` must pass, upwards or, if
    `lowers`, downwards. `acts`: it does. `sentence`: the finding in plain words.
    """

    probe: str
    claim: str
    before: Float[Array, "query key"]
    after: Float[Array, "query key"]
    read_at: tuple[tuple[int, int], ...]
    measured: float
    threshold: float
    lowers: bool
    acts: bool
    sentence: str

    def table(self) -> Table:
        """A row a cell of the map: the score before and after the kernel."""
        cells = zip(np.ndindex(self.before.shape), self.before.flat, self.after.flat, strict=True)
        rows = ((*cell, float(before), float(after)) for cell, before, after in cells)
        return Table.of(("row", "column", "before", "after"), rows)


def probe_of(shape: str) -> str | None:
    """The probe that tests a shape's name; None for names that claim nothing."""
    return _OF_SHAPE.get(shape.removeprefix("negative "))


def claims_of(probe: str, scores: Mapping[str, Any]) -> str:
    """The shape to test with a probe when none is claimed: the one of its shapes the scores speak for.

    `scores` has the columns of the kernel table; a missing score counts as 0.
    """

    def score(name: str) -> float:
        return scores.get(name) or 0.0

    if probe == EDGES:
        return "edge-first" if score("edge_first") >= score("edge_last") else "edge-last"
    if probe == SPIKE:
        return "single tap"
    rising, falling = _CLAIMS[probe]
    return rising if score(rising.replace("-", "_")) >= 0 else falling


def run_probe(kernel: Float[Array, "c_q c_k"], offsets: Offsets, claim: str) -> ProbeResult:
    """Test one finite kernel, not all 0, for the shape `claim` (a name with a probe).

    Thresholds are 99 % quantiles of what random kernels reach, so that about 1 in 100 of them passes by
    chance; how many do, probe by probe, is measured (`measured.py`).
    For sequences, priming and patches these are Gaussian kernels with this kernel's own tap and its other
    taps' length, which holds for plain Gaussian kernels and for an identity with noise alike. For runs and
    single scores, that hang on one or two taps, they are plain Gaussian kernels and an identity with 5 %
    Gaussian noise, whichever reach more.
    """
    kernels = np.asarray(kernel, np.float64)[None]
    largest = np.abs(kernels).max()
    if not (np.isfinite(largest) and largest > 0):
        raise ValueError("a kernel with NaN, infinite or only zero taps cannot be probed")
    kernels = kernels / largest
    probe = _OF_SHAPE[claim.removeprefix("negative ")]
    if probe in GAINS:
        return _gain_result(kernels, offsets, probe, claim)
    return (_edge_result if probe == EDGES else _spike_result)(kernels, offsets, claim)


def probe_values(kernels: Kernels, offsets: Offsets, probe: str) -> PerKernel:
    """The measured number of each of many finite kernels, to rank them; NaN for a kernel of zeros.

    Of a run the larger of its two edges counts, of a patch the 3 x 3 one.
    """
    if probe == EDGES:
        return edge_answers(kernels, offsets).max(0)
    if probe == SPIKE:
        return moved_share(
            answers(kernels, offsets, responses.spike_map(offsets)), responses.spike_map(offsets)
        )
    full, _, peak = gain_parts(kernels, offsets, responses.gain(probe, offsets))
    return own_sign(kernels, offsets) * full / np.where(peak > 0, peak, np.nan)


def _gain_result(kernels: Kernels, offsets: Offsets, probe: str, claim: str) -> ProbeResult:
    box = _box(kernels, offsets) if probe == "patch" else None
    stimulus = responses.gain(probe, offsets, box)
    sign = own_sign(kernels, offsets)
    full, alone, peak = (float(part[0]) for part in gain_parts(kernels, offsets, stimulus))
    full, alone = float(sign[0]) * full / peak, float(sign[0]) * alone / peak
    lowers = claim.startswith("negative ") or claim in _LOWERING
    null = gain_null(kernels, offsets, probe, box)
    level = (1 - QUANTILE) / (_boxes(offsets) if box is not None else 1)  # the best of so many was taken
    if lowers:
        threshold = min(float(np.quantile(null, level)), alone - SMALLEST_EFFECT)
        acts = full < threshold
    else:
        threshold = max(float(np.quantile(null, 1 - level)), alone + SMALLEST_EFFECT)
        acts = full > threshold
    after = answers(kernels, offsets, stimulus)[0]
    sentence = f"{stimulus.words} {full:+.2f} x {_ALONE[probe].format(alone=f'{alone:+.2f}')}"
    return ProbeResult(
        probe, claim, stimulus.scores, after, stimulus.read_at, full, threshold, lowers, acts, sentence
    )


_ALONE = {
    "sequence": "the largest answer to a single match (its last token alone: {alone} x).",
    "after a sequence": "the largest answer to a single match ({alone} x without the sequence).",
    "reversed sequence": "the largest answer to a single match (its last token alone: {alone} x).",
    "priming": "the largest answer to a single score; attended now alone: {alone} x.",
    "patch": "the largest answer to a single score; the middle's own score alone: {alone} x.",
}


def _box(kernels: Kernels, offsets: Offsets) -> Array | None:
    """The box of the smoothing templates that this kernel shows most; None in a kernel without any."""
    scores = np.abs(template_scores(kernels, offsets)[0])
    boxes = [
        (score, template.taps)
        for score, template in zip(scores, library(offsets), strict=True)
        if template.name == "smoothing"
    ]
    return max(boxes, key=lambda box: box[0])[1] if boxes else None


def _boxes(offsets: Offsets) -> int:
    return sum(template.name == "smoothing" for template in library(offsets))


def _edge_result(kernels: Kernels, offsets: Offsets, claim: str) -> ProbeResult:
    run = responses.run_map(offsets)
    after = answers(kernels, offsets, run)[0]
    measured, threshold = float(claimed_edge(kernels, offsets, claim)[0]), edge_threshold(offsets, claim)
    first, middle, last = (f"{after[cell]:+.2f}" for cell in run.read_at)
    words = f"{run.words} the first key gets {first}, the middle {middle}, the last {last} (largest tap = 1)."
    acts = measured > threshold
    return ProbeResult(EDGES, claim, run.scores, after, run.read_at, measured, threshold, False, acts, words)


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _spike_result(kernels: Kernels, offsets: Offsets, claim: str) -> ProbeResult:
    spike = responses.spike_map(offsets)
    after = answers(kernels, offsets, spike)
    measured, threshold = float(moved_share(after, spike)[0]), spike_threshold(offsets)
    (row, column), shown = spike.read_at[0], after[0].copy()
    shown[row, column] = 0
    place = divmod(int(np.abs(shown).argmax()), shown.shape[1])
    moved = " and ".join(
        [f"{_count(place[0] - row, 'query', 'queries')} later"] * (place[0] != row)
        + [f"{_count(abs(place[1] - column), 'key', 'keys')} {'later' if place[1] > column else 'earlier'}"]
        * (place[1] != column)
    )
    sentence = (
        f"A single score appears again {moved or 'nowhere else'}, {shown[place]:+.2f} x as large, "
        f"and stays at its place {after[0, row, column]:+.2f} x (largest tap = 1)."
    )
    large = abs(shown[place]) >= SMALLEST_EFFECT
    acts = bool(measured > threshold and large)
    read_at = (spike.read_at[0], place)
    return ProbeResult(
        SPIKE, claim, spike.scores, after[0], read_at, measured, threshold, False, acts, sentence
    )
