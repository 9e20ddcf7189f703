"""What a key-query kernel weighs, does and draws, as numbers: measures, templates, edges, single taps.

Kernels are numpy float64 [kernel, c_q, c_k] with their `Offsets`. k[n, d] is the tap that reads the query
n before (the lag, 0 = now) and the key d after (negative = earlier); the own tap is k[0, 0]; r is k with the
own tap set to 0; ||.|| is the root of the summed squares. A measure without meaning for a kernel (a division
by zero) is NaN. Owns which templates a kernel's size allows and what coherent means; what a shape is called,
and whether it could be chance, is decided in `naming.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.errors import ConfigError

Kernels = Float[Array, "kernel c_q c_k"]
PerKernel = Float[Array, " kernel"]

OWN_TAP_SHARE = 0.1  # of ||k||: a smaller own tap counts as none
FFT_SIZE = 64
LOW_FREQUENCY = 1 / 8  # cycles per token


def norm(kernels: Kernels) -> PerKernel:
    """||k|| = sqrt(sum k^2)."""
    return np.sqrt(np.square(kernels).sum((-2, -1)))


def own_tap(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """beta = k[0, 0], the weight of the query's own key."""
    row, column = offsets.own
    return kernels[:, row, column]


def without_own_tap(kernels: Kernels, offsets: Offsets) -> Kernels:
    """r: a copy of k with its own tap set to 0."""
    rest = kernels.copy()
    rest[(slice(None), *offsets.own)] = 0
    return rest


def has_own_tap(kernels: Kernels, offsets: Offsets) -> Array:
    """Whether |beta| >= 0.1 ||k||."""
    own = np.abs(own_tap(kernels, offsets))
    return (own > 0) & (own >= OWN_TAP_SHARE * norm(kernels))


def own_sign(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """s = sign(beta), +1 for a kernel without an own tap."""
    return np.where(has_own_tap(kernels, offsets), np.sign(own_tap(kernels, offsets)), 1.0)


def identity_cosine(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """|beta| / ||k||, 0..1."""
    return ratio(np.abs(own_tap(kernels, offsets)), norm(kernels))


def energy_off_identity(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """||r||^2 / ||k||^2 = 1 - cosine^2, 0..1."""
    return ratio(np.square(without_own_tap(kernels, offsets)).sum((-2, -1)), np.square(kernels).sum((-2, -1)))


def distance_from_identity(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """||k - E||, E the kernel with 1 at the own tap and 0 elsewhere: absolute, in the units of a tap."""
    identity = np.zeros(kernels.shape[1:])
    identity[offsets.own] = 1
    return norm(kernels - identity)


def sum_of_taps(kernels: Kernels, _: Offsets) -> PerKernel:
    """sum k: the answer to a constant map. Before the softmax a constant changes nothing."""
    return kernels.sum((-2, -1))


def dc_cosine(kernels: Kernels, _: Offsets) -> PerKernel:
    """sum k / (sqrt(D) ||k||) with D taps, -1..1: cosine with the constant kernel."""
    return ratio(kernels.sum((-2, -1)), np.sqrt(kernels[0].size) * norm(kernels))


def effective_rank(kernels: Kernels, _: Offsets) -> PerKernel:
    """exp of the entropy of the singular values over their sum, 1..min(c_q, c_k) (Roy & Vetterli 2007)."""
    values = np.linalg.svd(kernels, compute_uv=False)
    share = ratio(values, values.sum(-1, keepdims=True))
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.exp(-(share * logs).sum(-1))


def query_centroid(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """Mean query offset weighted by k^2: -(c_q - 1)..0, 0 = the query itself."""
    energy = np.square(kernels)
    return ratio(energy.sum(-1) @ np.array(offsets.query, float), energy.sum((-2, -1)))


def key_centroid(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """Mean key offset weighted by k^2: negative = earlier keys."""
    energy = np.square(kernels)
    return ratio(energy.sum(-2) @ np.array(offsets.key, float), energy.sum((-2, -1)))


def key_symmetry(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """sum r[n, d] r[n, -d] / ||r||^2: 1 where earlier and later keys count alike, -1 where oppositely."""
    rest, key = without_own_tap(kernels, offsets), offsets.key
    mirrored = np.zeros_like(rest)
    for column, offset in enumerate(key):
        if -offset in key:
            mirrored[..., column] = rest[..., key.index(-offset)]
    return ratio((rest * mirrored).sum((-2, -1)), np.square(rest).sum((-2, -1)))


def sequence_gain(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """sum_n k[n, -n] / max_n |k[n, -n]|: a match of c_q tokens in a row against a match of one."""
    rows, columns = diagonal_taps(offsets)
    along = kernels[:, rows, columns]
    return ratio(along.sum(-1), np.abs(along).max(-1))


def priming_gain(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """sum_{n >= 1} k[n, 0] / beta: evidence for a key from earlier queries per unit of evidence now."""
    own = own_tap(kernels, offsets)
    return ratio(kernels[:, :, offsets.key.index(0)].sum(-1) - own, own)


def smoothing_index(kernels: Kernels, _: Offsets) -> PerKernel:
    """(LF - A) / (1 - A): 0 for a single tap, 1 for slow changes only.

    LF is the share of |FFT(k)|^2 (zero-padded to 64 x 64) where both frequencies are at most 1/8 cycle
    per token, A that square's share of the area. The square is a product of two bands, so LF is a
    quadratic form of the taps; no transform is taken.
    """
    rows, columns = _band(kernels.shape[1]), _band(kernels.shape[2])
    low = np.einsum("knd,nm,kme,de->k", kernels, rows, kernels, columns, optimize=True)
    area = rows[0, 0] * columns[0, 0]
    share = ratio(low, np.square(kernels).sum((-2, -1)))
    return (share - area) / (1 - area)


def diagonal_taps(offsets: Offsets) -> tuple[list[int], list[int]]:
    """Rows and columns of the taps (n, -n), as far as the kernel reaches."""
    taps = [(row, offsets.key.index(lag)) for row, lag in enumerate(offsets.query) if lag in offsets.key]
    return [row for row, _ in taps], [column for _, column in taps]


@lru_cache(maxsize=64)
def _band(size: int) -> Float[Array, "tap tap"]:
    """The share of low frequencies as a form on a line of taps: mean over f of [f low] cos 2 pi f (n - m)."""
    frequencies = np.fft.fftfreq(max(FFT_SIZE, size))
    low = frequencies[np.abs(frequencies) <= LOW_FREQUENCY]
    distance = np.arange(size)[:, None] - np.arange(size)
    return np.cos(2 * np.pi * distance[..., None] * low).sum(-1) / len(frequencies)


def ratio(above: Array | float, below: Array | float) -> Array:
    """above / below, NaN where below is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.equal(below, 0), np.nan, np.divide(above, below))


MEASURES: dict[str, Callable[[Kernels, Offsets], PerKernel]] = {
    measure.__name__: measure
    for measure in (
        *(own_tap, identity_cosine, energy_off_identity, distance_from_identity, sum_of_taps, dc_cosine),
        *(effective_rank, query_centroid, key_centroid, key_symmetry, smoothing_index),
        *(sequence_gain, priming_gain),
    )
}

NAMES = ("diagonal", "induction", "anti-diagonal", "priming", "smoothing")
FEWEST_TAPS = 2  # besides the own tap
SAME_SIGN = 2 / 3  # of a template's taps, at least
LARGEST_P = 0.005  # of the permutation test
LARGEST_TAP = 0.6  # of the energy along a template, at most
OPPOSED = {"priming": "inhibition of return", "smoothing": "sharpening"}


@dataclass(frozen=True)
class Template:
    """A set of taps of equal weight, the own tap left out; `taps` is True there. Several may share a name."""

    name: str
    taps: Bool[Array, "c_q c_k"]

    def called(self, score: float) -> str:
        """The shape's name for a score of that sign."""
        return self.name if score > 0 else OPPOSED.get(self.name, f"negative {self.name}")


@lru_cache(maxsize=64)
def library(offsets: Offsets) -> tuple[Template, ...]:
    """The templates a kernel of these offsets can show.

    - diagonal (n, -n): a sequence of queries matches a sequence of keys (paper, section 6)
    - induction (n, -1 - n): the key after such a match
    - diagonal at -2, diagonal at +1 ... (n, o - n): two keys after such a match, one key before it ...
    - anti-diagonal (n, n): the reversed order, a control
    - priming (n, 0), n >= 1: earlier queries attended the same key; negative: inhibition of return
    - smoothing: boxes of 1 x 3, 3 x 3 and c_q x 5 around the own tap; negative: sharpening

    Clipped at the border of the kernel. Left out are those with fewer than two taps besides the own one, a
    repetition of another, and one that covers the whole kernel (its score is no evidence for a place); of
    diagonals at another offset than the own one those with under three taps, or on under half the queries.
    """
    lag, key = -np.array(offsets.query)[:, None], np.array(offsets.key)[None, :]
    own = (lag == 0) & (key == 0)
    near = np.abs(key)
    drawn = (
        ("diagonal", key == -lag),
        ("induction", key == -1 - lag),
        ("anti-diagonal", key == lag),
        ("priming", (key == 0) & (lag >= 1)),
        ("smoothing", (lag == 0) & (near <= 1)),
        ("smoothing", (lag <= 2) & (near <= 1)),
        ("smoothing", (lag >= 0) & (near <= 2)),
        *((f"diagonal at {shift:+d}", key == shift - lag) for shift in offsets.key if shift not in (0, -1)),
    )
    kept: dict[bytes, Template] = {}
    for name, drawing in drawn:
        taps = drawing & ~own
        fewest = FEWEST_TAPS if name in NAMES else max(FEWEST_TAPS + 1, len(lag) / 2)
        if fewest <= taps.sum() < own.size - 1:
            kept.setdefault(taps.tobytes(), Template(name, taps))
    return tuple(kept.values())


def cannot_show(offsets: Offsets) -> tuple[str, ...]:
    """Names no kernel of these offsets can get: a two-row kernel cannot show a diagonal.

    There is no room for such a template, or its few taps have so few places to be that a permutation of the
    taps hits them too often by chance.
    """
    free = len(offsets.query) * len(offsets.key) - 1
    places = ((drawn.name, comb(free, int(drawn.taps.sum()))) for drawn in library(offsets))
    shown = {name for name, count in places if count >= 1 / LARGEST_P}
    return tuple(name for name in NAMES if name not in shown)


def size_words(c_q: int, c_k: int) -> str:
    """What a kernel of that size is called when it has no room for a shape: two-row, or 3 x 5."""
    return {1: "one-row", 2: "two-row"}.get(c_q, f"{c_q} x {c_k}")


def unit_templates(offsets: Offsets) -> Float[Array, "template tap"]:
    """The library as rows of length 1."""
    rows = [template.taps.ravel() / np.sqrt(template.taps.sum()) for template in library(offsets)]
    return np.array(rows).reshape(len(rows), len(offsets.query) * len(offsets.key))


def template_scores(kernels: Kernels, offsets: Offsets) -> Float[Array, "kernel template"]:
    """rho(t) = s <r, t> / (||r|| ||t||), -1..1: positive adds to what the own tap does, negative opposes it.

    Unchanged by any positive factor, by a negative one too where there is an own tap, and by the size of
    the own tap. 0 for a kernel without other taps.
    """
    rest = without_own_tap(kernels, offsets).reshape(len(kernels), -1)
    length = np.sqrt(np.square(rest).sum(-1))
    along = rest @ unit_templates(offsets).T
    scores = along / np.where(length > 0, length, 1)[:, None]
    return np.clip(scores, -1, 1) * own_sign(kernels, offsets)[:, None]


def coherent(kernels: Kernels, offsets: Offsets) -> Bool[Array, "kernel template"]:
    """Whether a template is really drawn, and not one big tap on its line.

    At least two thirds of its taps have the sign of their sum, and none holds more than 60 % of the energy
    along it.
    """
    answers = np.zeros((len(kernels), len(library(offsets))), bool)
    for index, template in enumerate(library(offsets)):
        along = kernels[:, template.taps]
        energy = np.square(along)
        same = (np.sign(along) == np.sign(along.sum(-1, keepdims=True))) & (along != 0)
        spread = energy.max(-1) <= LARGEST_TAP * energy.sum(-1)
        answers[:, index] = (same.mean(-1) >= SAME_SIGN - 1e-9) & spread
    return answers


ROBUST_SD = 1.4826  # times the median size of Gaussian values is their standard deviation
NOISE = 3.5  # standard deviations a tap must stand out by
SOFTENING = 0.05


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
    return profile_edges(kernels.sum(-2), offsets)[:2]


def profile_edges(profile: Float[Array, "kernel key"], offsets: Offsets) -> Float[Array, "3 kernel"]:
    """EF, EL and EX of the weights w_d of the keys."""
    key = np.array(offsets.key)
    answers = np.stack([profile[:, key >= 0].sum(-1), profile.sum(-1), profile[:, key <= 0].sum(-1)])
    return run_edges(answers, SOFTENING * np.abs(profile).sum(-1))


def run_edges(answers: Float[Array, "3 kernel"], soft: PerKernel) -> Float[Array, "3 kernel"]:
    """EF, EL and EX of the answers y at the first, a middle and the last key of a run; `soft` is e.

    EX = (x - |y_mid|) / (x + |y_mid| + e) with x = |y_first - y_last| / 2: how far the first and the last key
    get opposite answers, and the middle none.
    """
    largest = np.take_along_axis(answers, np.abs(answers).argmax(0)[None], 0)
    first, middle, last = np.maximum(answers * np.sign(largest), 0)
    sides = np.stack([first, last, np.abs(answers[0] - answers[2]) / 2])
    inside = np.stack([middle, middle, np.abs(answers[1])])
    below = sides + inside + soft
    return (sides - inside) / np.where(below > 0, below, 1)


def dominant_tap(kernels: Kernels, offsets: Offsets) -> tuple[PerKernel, Int[Array, " kernel"]]:
    """Share of ||r||^2 in the largest tap besides the own one, and that tap's place in the flat kernel.

    The share is 0 for r = 0.
    """
    energy = np.square(without_own_tap(kernels, offsets)).reshape(len(kernels), -1)
    place = energy.argmax(-1)
    total = energy.sum(-1)
    share = np.take_along_axis(energy, place[:, None], 1)[:, 0] / np.where(total > 0, total, 1)
    return share, place


def round_to_template(taps: Float[Array, "c_q c_k"], offsets: Offsets) -> tuple[str, Float[Array, "c_q c_k"]]:
    """(name, taps) of the template with the largest |score|, at the size that is nearest to the kernel.

    Raises ConfigError for a kernel too small for any template, or one with no tap besides its own.
    """
    kernel = np.asarray(taps, float)[None]
    scores = template_scores(kernel, offsets)[0]
    if not np.abs(scores).max(initial=0) > 0:
        why = "the kernel has no tap besides its own, so no template is nearest"
        if not scores.size:
            why = f"a {size_words(*kernel.shape[1:])} kernel has no room for any template"
        raise ConfigError([why], subject="Rounding to a template")
    best = int(np.abs(scores).argmax())
    rest, unit = without_own_tap(kernel, offsets).ravel(), unit_templates(offsets)[best]
    rounded = (float(rest @ unit) * unit).reshape(kernel.shape[1:])
    rounded[offsets.own] = kernel[0][offsets.own]
    return library(offsets)[best].called(float(scores[best])), rounded
