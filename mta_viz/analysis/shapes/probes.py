"""What a kernel does to a score map made for it: the evidence for "acts like it" beside "looks like".

Owns the synthetic maps, what is read off them, and how large it must be. Every answer is the project's own
convolution applied to a map; nothing is computed from the taps. A map is a block of a causal map whose keys
all come before its queries, so that no cell is masked; what lies beyond its border reads 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.shapes import stimuli
from mta_viz.analysis.shapes.measures import Kernels, PerKernel, own_sign, own_tap, without_own_tap
from mta_viz.analysis.shapes.significance import SEED
from mta_viz.analysis.shapes.stimuli import Stimulus
from mta_viz.analysis.shapes.templates import library, template_scores
from mta_viz.model.ops import key_query_convolution

NULL_KERNELS, NULL_WORK = 10_000, 3e9  # random kernels; fewer where their multiply-adds would pass this
QUANTILE = 0.99
NOISE_BESIDE_IDENTITY = 0.05
SMALLEST_EFFECT = 0.1  # of a single score's largest answer
SOFTENING = 0.05
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


def probe_of(shape: str) -> str | None:
    """The probe that tests a shape's name; None for names that claim nothing."""
    return _OF_SHAPE.get(shape.removeprefix("negative "))


def run_probe(kernel: Float[Array, "c_q c_k"], offsets: Offsets, claim: str) -> ProbeResult:
    """Test one finite kernel, not all 0, for the shape `claim` (a name with a probe).

    Thresholds are 99 % quantiles of what random kernels reach, so that 1 in 100 of them passes by chance.
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
        return _edge_indices(kernels, offsets).max(0)
    if probe == SPIKE:
        return _moved(_answers(kernels, offsets, stimuli.spike(offsets)), stimuli.spike(offsets))
    full, _, peak = _gain_parts(kernels, offsets, stimuli.gain(probe, offsets))
    return own_sign(kernels, offsets) * full / np.where(peak > 0, peak, np.nan)


def _answers(kernels: Kernels, offsets: Offsets, stimulus: Stimulus) -> Float[Array, "kernel query key"]:
    """Every kernel's convolution of one map."""
    block = torch.from_numpy(stimulus.scores).expand(1, len(kernels), -1, -1).float()
    taps = torch.from_numpy(np.ascontiguousarray(kernels, np.float32))
    return key_query_convolution(block, taps, -offsets.key[0])[0].double().numpy()


def _at(answers: Array, cell: tuple[int, int]) -> PerKernel:
    return answers[:, cell[0], cell[1]]


def _peak(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """The largest answer, in size, that a single score gives anywhere."""
    return np.abs(_answers(kernels, offsets, stimuli.spike(offsets))).max((-2, -1))


def _gain_parts(
    kernels: Kernels, offsets: Offsets, stimulus: Stimulus
) -> tuple[PerKernel, PerKernel, PerKernel]:
    """Answer where the map is read, the same with only that cell's own score, and a single score's peak."""
    cell = stimulus.read_at[0]
    return (
        _at(_answers(kernels, offsets, stimulus), cell),
        _at(_answers(kernels, offsets, stimulus.only_own()), cell),
        _peak(kernels, offsets),
    )


def _gain_result(kernels: Kernels, offsets: Offsets, probe: str, claim: str) -> ProbeResult:
    box = _box(kernels, offsets) if probe == "patch" else None
    stimulus = stimuli.gain(probe, offsets, box)
    sign = own_sign(kernels, offsets)
    full, alone, peak = (float(part[0]) for part in _gain_parts(kernels, offsets, stimulus))
    full, alone = float(sign[0]) * full / peak, float(sign[0]) * alone / peak
    lowers = claim.startswith("negative ") or claim in _LOWERING
    null = _gain_null(kernels, offsets, probe, box)
    level = (1 - QUANTILE) / (_boxes(offsets) if box is not None else 1)  # the best of so many was taken
    if lowers:
        threshold = min(float(np.quantile(null, level)), alone - SMALLEST_EFFECT)
        acts = full < threshold
    else:
        threshold = max(float(np.quantile(null, 1 - level)), alone + SMALLEST_EFFECT)
        acts = full > threshold
    after = _answers(kernels, offsets, stimulus)[0]
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
    return max(boxes, key=lambda one: one[0])[1] if boxes else None


def _boxes(offsets: Offsets) -> int:
    return sum(template.name == "smoothing" for template in library(offsets))


def _gain_null(kernels: Kernels, offsets: Offsets, probe: str, box: Array | None) -> PerKernel:
    """The same number for random kernels with this own tap and this length of the other taps.

    Answers are sums over taps: those to the own tap and to the rest are found apart, and added.
    """
    key = None if box is None else tuple(map(tuple, box.tolist()))
    full, alone, peak = _random_gains(offsets, probe, key)
    own, length = float(own_tap(kernels, offsets)[0]), float(np.linalg.norm(without_own_tap(kernels, offsets)))
    unit = np.zeros_like(kernels)
    unit[(slice(None), *offsets.own)] = 1
    own_full, _, _ = _gain_parts(unit, offsets, stimuli.gain(probe, offsets, box))
    largest = np.maximum(abs(own), length * peak)
    sign = float(own_sign(kernels, offsets)[0])
    return sign * (own * own_full + length * full) / np.where(largest > 0, largest, 1)


@lru_cache(maxsize=64)
def _random_gains(
    offsets: Offsets, probe: str, box: tuple[tuple[bool, ...], ...] | None
) -> tuple[PerKernel, PerKernel, PerKernel]:
    rest = without_own_tap(_gaussian(offsets), offsets)
    rest /= np.linalg.norm(rest, axis=(-2, -1))[:, None, None]
    taps = None if box is None else np.array(box)
    return _gain_parts(rest, offsets, stimuli.gain(probe, offsets, taps))


def _gaussian(offsets: Offsets) -> Kernels:
    shape = len(offsets.query), len(offsets.key)
    work = shape[0] * shape[1] * stimuli.spike(offsets).scores.size
    count = int(np.clip(NULL_WORK / work, 200, NULL_KERNELS))
    return np.random.default_rng(SEED).standard_normal((count, *shape))


def _threshold(offsets: Offsets, measure: Callable[[Kernels, Offsets], PerKernel]) -> float:
    """What 1 in 100 Gaussian kernels, and 1 in 100 identities with noise, does not pass."""
    noise = _gaussian(offsets)
    near = NOISE_BESIDE_IDENTITY * noise
    near[(slice(None), *offsets.own)] += 1
    return max(float(np.quantile(measure(some, offsets), QUANTILE)) for some in (noise, near))


def _edge_indices(kernels: Kernels, offsets: Offsets) -> Float[Array, "2 kernel"]:
    """How much more the first (last) of a run of equal keys gets than its middle, -1..1.

    With answers f, m, l at the run's first, middle and last key, in the direction of the largest and cut
    below 0: (f - m) / (f + m + e), (l - m) / (l + m + e); e is 5 % of the summed answers to one key.
    """
    run, one = stimuli.run(offsets), stimuli.attended_key(offsets)
    answers = _answers(kernels, offsets, run)
    parts = np.stack([_at(answers, cell) for cell in run.read_at])
    largest = np.take_along_axis(parts, np.abs(parts).argmax(0)[None], 0)
    first, middle, last = np.maximum(parts * np.sign(largest), 0)
    soft = SOFTENING * np.abs(_answers(kernels, offsets, one)[:, one.read_at[0][0]]).sum(-1)
    return np.stack([(edge - middle) / np.maximum(edge + middle + soft, 1e-300) for edge in (first, last)])


def _claimed_edge(kernels: Kernels, offsets: Offsets, claim: str) -> PerKernel:
    first, last = _edge_indices(kernels, offsets)
    return {"edge-first": first, "edge-last": last, "both edges": np.minimum(first, last)}[claim]


@lru_cache(maxsize=64)
def _edge_threshold(offsets: Offsets, claim: str) -> float:
    return _threshold(offsets, lambda kernels, at: _claimed_edge(kernels, at, claim))


def _edge_result(kernels: Kernels, offsets: Offsets, claim: str) -> ProbeResult:
    run = stimuli.run(offsets)
    after = _answers(kernels, offsets, run)[0]
    measured, threshold = float(_claimed_edge(kernels, offsets, claim)[0]), _edge_threshold(offsets, claim)
    first, middle, last = (f"{after[cell]:+.2f}" for cell in run.read_at)
    words = f"{run.words} the first key gets {first}, the middle {middle}, the last {last} (largest tap = 1)."
    acts = measured > threshold
    return ProbeResult(
        EDGES, claim, run.scores, after, run.read_at, measured, threshold, False, acts, words
    )


def _moved(answers: Array, stimulus: Stimulus) -> PerKernel:
    """The largest share of the squared answers, the score's own cell left out, that one cell holds."""
    energy = np.square(answers)
    energy[:, stimulus.read_at[0][0], stimulus.read_at[0][1]] = 0
    whole = energy.sum((-2, -1))
    return energy.max((-2, -1)) / np.where(whole > 0, whole, np.inf)


@lru_cache(maxsize=64)
def _spike_threshold(offsets: Offsets) -> float:
    spike = stimuli.spike(offsets)
    return _threshold(offsets, lambda kernels, at: _moved(_answers(kernels, at, spike), spike))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _spike_result(kernels: Kernels, offsets: Offsets, claim: str) -> ProbeResult:
    spike = stimuli.spike(offsets)
    after = _answers(kernels, offsets, spike)
    measured, threshold = float(_moved(after, spike)[0]), _spike_threshold(offsets)
    (row, column), shown = spike.read_at[0], after[0].copy()
    shown[row, column] = 0
    place = divmod(int(np.abs(shown).argmax()), shown.shape[1])
    moved = " and ".join(
        [f"{_count(place[0] - row, 'query', 'queries')} later"] * (place[0] != row)
        + [f"{_count(abs(place[1] - column), 'key', 'keys')} {'later' if place[1] > column else 'earlier'}"]
        * (place[1] != column)
    )
    sentence = (
        f"A single score appears again {moved or 'nowhere else'}, {shown[place]:+.2f} x as large, and stays at its place "
        f"{after[0, row, column]:+.2f} x (largest tap = 1)."
    )
    large = abs(shown[place]) >= SMALLEST_EFFECT
    acts = bool(measured > threshold and large)
    return ProbeResult(
        SPIKE, claim, spike.scores, after[0], (spike.read_at[0], place), measured, threshold, False, acts, sentence
    )  # fmt: skip
