"""What a kernel does to a score map made for it: the evidence for "acts like it" beside "looks like".

Owns the synthetic maps (a repeated n-gram, one key attended again and again, a run), what is read off them,
and how large it must be, by what random kernels answer. Every answer is the project's own convolution applied
to a map; nothing is computed from the taps. A map is a block of a causal map whose keys all come before its
queries, so that no cell is masked; what lies beyond its border reads 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import measures
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel, own_sign
from mta_viz.analysis.kernels.naming import SEED
from mta_viz.model.ops import key_query_convolution
from mta_viz.tables import Table

Cell = tuple[int, int]
SMALLEST_EFFECT = 0.1  # of a single score's largest answer
BOX_KEYS = 1  # of a patch without a template: 3 x 3, as far as the kernel has rows
NULL_KERNELS, NULL_WORK = 10_000, 3e9  # random kernels; fewer where their multiply-adds would pass this
QUANTILE = 0.99
NOISE_BESIDE_IDENTITY = 0.05
_CLAIMS = {
    "sequence": ("diagonal", "negative diagonal"),
    "after a sequence": ("induction", "negative induction"),
    "reversed sequence": ("anti-diagonal", "negative anti-diagonal"),
    "priming": ("priming", "inhibition of return"),
    "patch": ("smoothing", "sharpening"),
}
GAINS = tuple(_CLAIMS)
EDGES, SPIKE = "run of keys", "single score"
PROBES = (*GAINS, EDGES, SPIKE)
_OF_SHAPE = {
    **{claim: probe for probe, claims in _CLAIMS.items() for claim in claims},
    **dict.fromkeys(("edge-first", "edge-last", "both edges", "edge"), EDGES),
    **dict.fromkeys(("key shift", "KV shift", "single tap"), SPIKE),
}
_LINES = {  # keys a score is farther for each query it is later, and the key of the score now
    **{"sequence": (1, 0), "after a sequence": (1, -1), "reversed sequence": (-1, 0), "priming": (0, 0)}
}
_SENTENCES = {
    "sequence": "On a repeated {size}-gram the full match gets {full} (its last token alone: {alone})",
    "after a sequence": "The key after a repeated {size}-gram gets {full} ({alone} without the sequence)",
    "reversed sequence": "On a {size}-gram repeated backwards the match gets {full} (its last token alone: "
    "{alone})",
    "priming": "A key attended by the {before} queries before and now gets {full} (attended now alone: "
    "{alone})",
    "patch": "The last row of a patch of {rows} x {keys} equal scores gets {full} (the middle's own score "
    "alone: {alone})",
}
ASSUMED = "for a match of +1; not measured on this model's scores"


@dataclass(frozen=True)
class Stimulus:
    """A map of scores, and the cells (row, column) its answer is read at."""

    scores: Float[Array, "query key"]
    read_at: tuple[Cell, ...]


def gain(probe: str, offsets: Offsets, box: int | None = None) -> Stimulus:
    """The map of one of the probes that sum evidence; `box`: a patch's template, its place in the library."""
    if probe in _LINES:
        step, now = _LINES[probe]
        return _stimulus(offsets, [(query, step * query + now) for query in offsets.query])
    if box is None:
        near = [key for key in offsets.key if -BOX_KEYS <= key <= BOX_KEYS]
        return _stimulus(offsets, [(query, key) for query in offsets.query[-3:] for key in near])
    taps = np.argwhere(measures.library(offsets)[box].taps)
    return _stimulus(offsets, [(0, 0), *((offsets.query[row], offsets.key[column]) for row, column in taps)])


def spike_map(offsets: Offsets) -> Stimulus:
    """One score: what a kernel makes of it is the kernel itself, mirrored."""
    return _stimulus(offsets, [(0, 0)])


def run_map(offsets: Offsets) -> Stimulus:
    """A run of equal keys longer than the kernel, read at its first, a middle and its last key."""
    run = range(offsets.key[0] - 1, offsets.key[-1] + 2)
    cells = [(query, key) for query in offsets.query for key in run]
    return _stimulus(offsets, cells, ((0, run[0]), (0, 0), (0, run[-1])))


def _stimulus(offsets: Offsets, cells: Iterable[Cell], read: Sequence[Cell] = ((0, 0),)) -> Stimulus:
    """Scores of 1 in these cells, seen from the middle: all, and where they spread to, are in the block."""
    now = len(offsets.query) - 1
    side = max(len(offsets.query), len(offsets.key) + 1) + len(offsets.key)
    scores = np.zeros((2 * now + 1, 2 * side + 1))
    for query, key in cells:
        scores[now + query, side + key] = 1.0
    return Stimulus(scores, tuple((now + query, side + key) for query, key in read))


def answers(
    kernels: Kernels, offsets: Offsets, scores: Float[Array, "query key"]
) -> Float[Array, "kernel query key"]:
    """Every kernel's convolution of one map."""
    block = torch.from_numpy(scores).expand(1, len(kernels), -1, -1).float()
    taps = torch.from_numpy(np.ascontiguousarray(kernels, np.float32))
    return key_query_convolution(block, taps, -offsets.key[0])[0].double().numpy()


def _answer_at(kernels: Kernels, offsets: Offsets, stimulus: Stimulus) -> PerKernel:
    """The answer where the map is read; only the cells a kernel reads for it are convolved."""
    row, column = stimulus.read_at[0]
    top, left = row + offsets.query[0], column + offsets.key[0]
    window = stimulus.scores[top : row + 1, left : left + len(offsets.key)]
    return answers(kernels, offsets, window)[:, row - top, column - left]


def _peak(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """The largest answer, in size, that a single score gives anywhere."""
    return np.abs(answers(kernels, offsets, spike_map(offsets).scores)).max((-2, -1))


def _gain_null(kernels: Kernels, offsets: Offsets, probe: str, box: int | None) -> Float[Array, " random"]:
    """The gain of random kernels with this own tap and this length of the other taps.

    Answers are sums over taps: those to the own tap and to the rest are found apart, and added.
    """
    full, peak = _random_gains(offsets, probe, box), _random_peaks(offsets)
    own = float(measures.own_tap(kernels, offsets)[0])
    length = float(np.linalg.norm(measures.without_own_tap(kernels, offsets)))
    unit = np.zeros_like(kernels)
    unit[(slice(None), *offsets.own)] = 1
    own_full = _answer_at(unit, offsets, gain(probe, offsets, box))
    largest = np.maximum(abs(own), length * peak)
    sign = float(own_sign(kernels, offsets)[0])
    return sign * (own * own_full + length * full) / np.where(largest > 0, largest, 1)


@lru_cache(maxsize=64)
def _random_gains(offsets: Offsets, probe: str, box: int | None) -> PerKernel:
    return _answer_at(_random_rest(offsets), offsets, gain(probe, offsets, box))


@lru_cache(maxsize=64)
def _random_peaks(offsets: Offsets) -> PerKernel:
    return _peak(_random_rest(offsets), offsets)


def _random_rest(offsets: Offsets) -> Kernels:
    """Gaussian taps of length 1, the own tap 0."""
    rest = measures.without_own_tap(_gaussian(offsets), offsets)
    return rest / np.linalg.norm(rest, axis=(-2, -1))[:, None, None]


def _gaussian(offsets: Offsets) -> Kernels:
    shape = len(offsets.query), len(offsets.key)
    work = shape[0] * shape[1] * spike_map(offsets).scores.size
    count = int(np.clip(NULL_WORK / work, 200, NULL_KERNELS))
    return np.random.default_rng(SEED).standard_normal((count, *shape))


def _edge_answers(kernels: Kernels, offsets: Offsets) -> Float[Array, "3 kernel"]:
    """EF, EL and EX of the answers to a run of equal keys (`measures.run_edges`), -1..1.

    e is 5 % of the summed answers to one key.
    """
    run, key = run_map(offsets), gain("priming", offsets)  # one key attended by every query
    of_run = answers(kernels, offsets, run.scores)
    parts = np.stack([of_run[:, row, column] for row, column in run.read_at])
    to_key = answers(kernels, offsets, key.scores)[:, key.read_at[0][0]]
    return measures.run_edges(parts, measures.SOFTENING * np.abs(to_key).sum(-1))


def _few_taps(kernels: Kernels, offsets: Offsets, claim: str) -> PerKernel:
    """The number of a probe whose shape hangs on few taps: that of the claimed edge, or of a single score.

    The latter is the largest share of the squared answers that one cell holds, its own left out.
    """
    if claim != SPIKE:
        first, last, across = _edge_answers(kernels, offsets)
        of_both = np.minimum(first, last)
        return {"edge-first": first, "edge-last": last, "both edges": of_both, "edge": across}[claim]
    spike = spike_map(offsets)
    energy = np.square(answers(kernels, offsets, spike.scores))
    energy[(slice(None), *spike.read_at[0])] = 0
    whole = energy.sum((-2, -1))
    return energy.max((-2, -1)) / np.where(whole > 0, whole, np.inf)


@lru_cache(maxsize=64)
def _threshold(offsets: Offsets, claim: str) -> float:
    """What 1 in 100 Gaussian kernels, and 1 in 100 identities with noise, passes in `_few_taps`."""
    noise = _gaussian(offsets)
    near = NOISE_BESIDE_IDENTITY * noise
    near[(slice(None), *offsets.own)] += 1
    return max(float(np.quantile(_few_taps(some, offsets, claim), QUANTILE)) for some in (noise, near))


@dataclass(frozen=True)
class ProbeResult:
    """A kernel's answer to one probe.

    `before` and `after`: the synthetic map and what the kernel makes of it, rows = queries. `read_at`: the
    cells (row, column) the number is read off. `level`: what a match scores in it, as measured on the model;
    None: +1 is assumed, and the largest tap counts as 1 in `after`. `measured`, of a kernel with matches of
    +1, has no unit: for gains it is the answer over the largest to a single match, own tap's sign folded out.
    `threshold`: what it must pass, upwards or, if `lowers`, downwards. `acts`: it does. `sentence`: what the
    kernel does to the map, in plain words.
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
    level: float | None = None

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
        return "edge-first" if score("first_of_run") >= score("last_of_run") else "edge-last"
    if probe == SPIKE:
        return "single tap"
    rising, falling = _CLAIMS[probe]
    return rising if score(rising.replace("-", "_")) >= 0 else falling


def run_probe(
    kernel: Float[Array, "c_q c_k"], offsets: Offsets, claim: str, level: float | None = None
) -> ProbeResult:
    """Test one finite kernel, not all 0, for the shape `claim` (a name with a probe).

    `level` (None or 0: not measured): what a match scores above the rest of its row; maps and sentence are
    at that level, so that a negative tap on negative matches is seen to raise. The test itself is of the
    taps, with matches of +1: it says whether a shape is there, not which way it acts.
    Thresholds are 99 % quantiles of what random kernels reach, so that about 1 in 100 of them passes by
    chance; how many do, probe by probe, is measured by `benchmarks.shape_rates`.
    For sequences, priming and patches these are Gaussian kernels with this kernel's own tap and its other
    taps' length, which holds for plain Gaussian kernels and for an identity with noise alike. For runs and
    single scores, that hang on one or two taps, they are plain Gaussian kernels and an identity with 5 %
    Gaussian noise, whichever reach more.
    """
    kernels = np.asarray(kernel, np.float64)[None]
    largest = np.abs(kernels).max()
    if not (np.isfinite(largest) and largest > 0):
        raise ValueError("a kernel with NaN, infinite or only zero taps cannot be probed")
    probe = _OF_SHAPE[claim.removeprefix("negative ")]
    make = _gain_result if probe in GAINS else _edge_result if probe == EDGES else _spike_result
    return make(kernels / largest, offsets, claim, _Level(level or None, float(largest)))


@dataclass(frozen=True)
class _Level:
    """What a match scores, None where +1 is assumed, and the largest tap, which counts as 1 then."""

    measured: float | None
    largest: float

    @property
    def scale(self) -> float:
        """What an answer to matches of +1, the largest tap 1, is times."""
        return 1.0 if self.measured is None else self.measured * self.largest

    def text(self, answer: float) -> str:
        return f"{answer * self.scale + 0.0:+.3g}".replace("-", "−")

    def sentence(self, words: str) -> str:
        if self.measured is None:
            return f"{words}, {ASSUMED} (largest tap = 1)."
        return f"{words}, for a match of {self.measured:+.3g}, the measured level.".replace("of -", "of −")

    def result(
        self, stimulus: Stimulus, after: Float[Array, "query key"], words: str, **finding: Any
    ) -> ProbeResult:
        before = stimulus.scores * (1.0 if self.measured is None else self.measured)
        maps: dict[str, Any] = {"before": before, "after": after * self.scale, "read_at": stimulus.read_at}
        return ProbeResult(**maps, sentence=self.sentence(words), **finding, level=self.measured)


def read_off(kernels: Kernels, offsets: Offsets, probe: str) -> tuple[tuple[float, ...], ...]:
    """A probe's scores in the cells it is read at, before the first kernel, as it is, and after it."""
    box = _best_box(kernels, offsets)[0] if probe == "patch" else None
    at = gain(probe, offsets, box) if probe in GAINS else (run_map if probe == EDGES else spike_map)(offsets)
    maps = (at.scores, answers(kernels, offsets, at.scores)[0])
    return tuple(tuple(float(side[cell]) for cell in at.read_at) for side in maps)


def probe_values(kernels: Kernels, offsets: Offsets, probe: str) -> PerKernel:
    """The measured number of each of many finite kernels, to rank them; NaN for a kernel of zeros.

    Of a run the larger of its two edges counts, of a patch the 3 x 3 one.
    """
    if probe == EDGES:
        return _edge_answers(kernels, offsets)[:2].max(0)
    if probe == SPIKE:
        return _few_taps(kernels, offsets, SPIKE)
    full, peak = _answer_at(kernels, offsets, gain(probe, offsets)), _peak(kernels, offsets)
    return own_sign(kernels, offsets) * full / np.where(peak > 0, peak, np.nan)


def _best_box(kernels: Kernels, offsets: Offsets) -> tuple[int | None, int]:
    """The box of the smoothing templates that this kernel shows most, and of how many it is the best."""
    boxes = [at for at, template in enumerate(measures.library(offsets)) if template.name == "smoothing"]
    shown = np.abs(measures.template_scores(kernels, offsets)[0])
    return max(boxes, key=lambda at: shown[at], default=None), max(len(boxes), 1)


def _gain_result(kernels: Kernels, offsets: Offsets, claim: str, level: _Level) -> ProbeResult:
    probe = _OF_SHAPE[claim.removeprefix("negative ")]
    box, n_boxes = _best_box(kernels, offsets) if probe == "patch" else (None, 1)
    stimulus = gain(probe, offsets, box)
    own_score = np.zeros_like(stimulus.scores)
    own_score[stimulus.read_at[0]] = stimulus.scores[stimulus.read_at[0]]
    sign, peak = float(own_sign(kernels, offsets)[0]), float(_peak(kernels, offsets)[0])
    full, alone = (
        float(_answer_at(kernels, offsets, Stimulus(scores, stimulus.read_at))[0])
        for scores in (stimulus.scores, own_score)
    )
    size, rows, keys = len(offsets.query), *(stimulus.scores.any(axis).sum() for axis in (1, 0))
    facts = {"size": size, "before": size - 1, "rows": rows, "keys": keys}
    words = _SENTENCES[probe].format(full=level.text(full), alone=level.text(alone), **facts)
    measured, lowers = sign * full / peak, claim.startswith("negative ") or claim in measures.OPPOSED.values()
    share, null = (1 - QUANTILE) / n_boxes, _gain_null(kernels, offsets, probe, box)  # the best box was taken
    if lowers:
        threshold = min(float(np.quantile(null, share)), sign * alone / peak - SMALLEST_EFFECT)
    else:
        threshold = max(float(np.quantile(null, 1 - share)), sign * alone / peak + SMALLEST_EFFECT)
    acts = measured < threshold if lowers else measured > threshold
    numbers: dict[str, Any] = {"measured": measured, "threshold": threshold, "lowers": lowers, "acts": acts}
    after = answers(kernels, offsets, stimulus.scores)[0]
    return level.result(stimulus, after, words, probe=probe, claim=claim, **numbers)


def _edge_result(kernels: Kernels, offsets: Offsets, claim: str, level: _Level) -> ProbeResult:
    run = run_map(offsets)
    after = answers(kernels, offsets, run.scores)[0]
    measured, threshold = float(_few_taps(kernels, offsets, claim)[0]), _threshold(offsets, claim)
    first, middle, last = (level.text(after[cell]) for cell in run.read_at)
    words = (
        f"In a run of {len(offsets.key) + 2} equal keys the first key gets {first}, the middle {middle}, the "
        f"last {last}"
    )
    numbers: dict[str, Any] = {"measured": measured, "threshold": threshold, "lowers": False}
    return level.result(run, after, words, probe=EDGES, claim=claim, acts=measured > threshold, **numbers)


def _spike_result(kernels: Kernels, offsets: Offsets, claim: str, level: _Level) -> ProbeResult:
    spike = spike_map(offsets)
    own, after = spike.read_at[0], answers(kernels, offsets, spike.scores)[0]
    measured, threshold = float(_few_taps(kernels, offsets, SPIKE)[0]), _threshold(offsets, SPIKE)
    shown = after.copy()
    shown[own] = 0
    row, column = divmod(int(np.abs(shown).argmax()), shown.shape[1])
    later, across = row - own[0], column - own[1]
    side = "later" if across > 0 else "earlier"
    moved = [f"{later} {'query' if later == 1 else 'queries'} later"] * (later != 0)
    moved += [f"{abs(across)} key{'s' * (abs(across) > 1)} {side}"] * (across != 0)
    words = (
        f"A single score appears again {' and '.join(moved) or 'nowhere else'} as "
        f"{level.text(shown[row, column])}, and is {level.text(after[own])} at its own place"
    )
    acts = bool(measured > threshold and abs(shown[row, column]) >= SMALLEST_EFFECT)
    stimulus = Stimulus(spike.scores, (own, (row, column)))
    numbers: dict[str, Any] = {"measured": measured, "threshold": threshold, "lowers": False, "acts": acts}
    return level.result(stimulus, after, words, probe=SPIKE, claim=claim, **numbers)
