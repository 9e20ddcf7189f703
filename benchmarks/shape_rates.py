"""How often the atlas errs: names of noise, names of planted shapes, probes passed by noise.

    python -m benchmarks.shape_rates [--kernels 10000] [--planted 1000] [--probed 1000] [--out FILE]

Prints a line a kind and size; `--out` writes the file the definitions page prints. Heavy tails hold real
single taps and edges, and smooth noise is smooth: their rates are printed because a trained kernel may be
either, not because a bar is set for them.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mta_viz.analysis.kernels.definitions import MeasuredRate, MeasuredRates
from mta_viz.analysis.kernels.measures import cannot_show
from mta_viz.analysis.kernels.naming import UNNAMED, name_kernels
from mta_viz.analysis.kernels.probes import run_probe
from tests.analysis.shape_cases import SIZES, kernel, offsets, planted

SEED = 1  # not that of the thresholds' own random kernels
SMOOTH_TAPS = 0.8  # standard deviation of the Gaussian that smooths, in taps
LARGE = SIZES[0]
TEMPLATES = {
    "diagonal": "diagonal",
    "induction": "induction",
    "anti-diagonal": "anti-diagonal",
    "priming": "priming",
    "smoothing 3x3": "smoothing",
}
OPPOSED = {"priming": "inhibition of return", "smoothing": "sharpening"}
FEW_TAPS = {
    "edge-first": {(0, -1): -1.0},
    "edge-last": {(0, 1): -1.0},
    "edge": {(n, key): key * weight / 2 for n, weight in enumerate((1, 2, 1)) for key in (-1, 1)},
    "key shift": {(0, 2): 1.0},
    "single tap": {(1, -2): 1.0},
}
CLAIMS = (
    *("diagonal", "induction", "anti-diagonal", "priming", "inhibition of return", "smoothing", "sharpening"),
    *("edge-first", "edge-last", "both edges", "edge", "key shift", "KV shift", "single tap"),
)


def noise(kind: str, random: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Taps that learned nothing."""
    if kind == "Laplace":
        return random.laplace(size=shape)
    if kind == "t3":
        return random.standard_t(3, shape)
    return smooth(random, shape) if kind == "smooth" else random.standard_normal(shape)


def smooth(random: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Gaussian noise under a Gaussian of 0.8 taps along both axes, drawn larger so that it has no border."""
    reach = 4
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SMOOTH_TAPS) ** 2)
    taps = random.standard_normal((shape[0], shape[1] + 2 * reach, shape[2] + 2 * reach))
    for axis in (1, 2):
        taps = np.lib.stride_tricks.sliding_window_view(taps, 2 * reach + 1, axis) @ weights
    return taps


def beside_identity(taps: np.ndarray, size: tuple[int, int, str], strength: float) -> np.ndarray:
    """`strength` x noise and an own tap one larger."""
    taps = taps * strength
    taps[(slice(None), *offsets(*size).own)] += 1
    return taps


def false_names(count: int) -> Iterator[MeasuredRate]:
    """Kernels of noise, alone and beside an identity: hits have any name."""
    cases = [("Gaussian", own, size) for own in (None, 0.05, 0.3) for size in SIZES]
    cases += [("Laplace", own, LARGE) for own in (None, 0.05, 0.2)]
    cases += [("t3", None, LARGE), ("smooth", None, LARGE)]
    for kind, own, size in cases:
        taps = noise(kind, np.random.default_rng(SEED), (count, *size[:2]))
        label = kind if own is None else f"identity + {own:g} x {kind}"
        names = _names(taps if own is None else beside_identity(taps, size, own), size)
        yield _rate(label, size, count, sum(names.values()), names)


def power(count: int) -> Iterator[MeasuredRate]:
    """Shapes planted in noise of standard deviation 1: hits have the right name."""
    for shape, name in TEMPLATES.items():
        for size in SIZES:
            if name in cannot_show(offsets(*size)):
                continue
            for sign, right in ((1, name), (-1, OPPOSED.get(name, f"negative {name}"))):
                for sd in (2.0, 3.0, 5.0):
                    taps = planted(shape, offsets(*size), sd=sd, sign=sign, count=count, seed=SEED)
                    yield _right(f"{right}, taps of {sd:g} sd", size, _names(taps, size), right, count)
    for right, taps_of in FEW_TAPS.items():
        for sd in (3.0, 5.0, 10.0, 20.0):
            own = sd if right.startswith("edge") else 8.0
            drawn = sd * kernel(offsets(*LARGE), taps_of)
            taps = np.random.default_rng(SEED).standard_normal((count, *LARGE[:2])) + drawn
            taps[(slice(None), *offsets(*LARGE).own)] = own
            yield _right(f"{right}, tap of {sd:g} sd", LARGE, _names(taps, LARGE), right, count)


def probes(count: int) -> Iterator[MeasuredRate]:
    """Kernels of noise through the probe of each name: hits pass it."""
    taps = noise("Gaussian", np.random.default_rng(SEED), (count, *LARGE[:2]))
    for label, kernels in (
        ("Gaussian", taps),
        ("identity + 0.05 x Gaussian", beside_identity(taps, LARGE, 0.05)),
    ):
        for claim in CLAIMS:
            passed = sum(run_probe(one, offsets(*LARGE), claim).acts for one in kernels)
            yield _rate(f"{label}, probed for {claim}", LARGE, count, passed, {})


def _names(taps: np.ndarray, size: tuple[int, int, str]) -> Counter[str]:
    found = name_kernels(taps, offsets(*size))
    return Counter(one.shape for one in found if one.shape not in UNNAMED)


def _right(
    label: str, size: tuple[int, int, str], names: Counter[str], right: str, count: int
) -> MeasuredRate:
    return _rate(label, size, count, names.pop(right, 0), names)


def _rate(
    label: str, size: tuple[int, int, str], count: int, hits: int, names: dict[str, int]
) -> MeasuredRate:
    c_q, c_k, pad = size
    of_which = dict(Counter(names).most_common())
    found = MeasuredRate(label, f"{c_q} x {c_k}, padded {pad}", count, hits, of_which)
    most = ", ".join(f"{name} {number / count:.1%}" for name, number in list(found.of_which.items())[:3])
    print(f"{label:<52} {found.size:<20} {found.share:>7.2%}   {most}", flush=True)
    return found


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("kernels", 10_000), ("planted", 1000), ("probed", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    found = MeasuredRates(
        tuple(false_names(arguments.kernels)),
        tuple(power(arguments.planted)),
        tuple(probes(arguments.probed)),
    )
    if arguments.out:
        arguments.out.write_text(found.text(), encoding="utf-8")


if __name__ == "__main__":
    main()
