"""How often a kernel that learned nothing gets a name, by the kind of noise and the size of the kernel.

    python -m benchmarks.false_names [--kernels 10000]

Heavy tails hold real single taps and edges, and smooth noise is smooth: their rates are printed because a
trained kernel may be either, not because a bar is set for them.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

KERNELS, SEED = 10_000, 0
SIZES = ((6, 11, "both"), (2, 9, "both"), (4, 9, "both"), (8, 13, "both"), (6, 11, "left"), (6, 11, "right"))
SMOOTH_TAPS = 0.8  # standard deviation of the Gaussian that smooths, in taps


def noise_kinds() -> dict[str, Callable[..., Any]]:
    """Name -> draw(generator, shape) of the kernels' taps."""
    return {
        "Gaussian": lambda random, shape: random.standard_normal(shape),
        "Laplace": lambda random, shape: random.laplace(size=shape),
        "t3": lambda random, shape: random.standard_t(3, shape),
        "smooth": smooth,
    }


def smooth(random: Any, shape: tuple[int, int, int]) -> Any:
    """Gaussian noise under a Gaussian of 0.8 taps along both axes, drawn larger so that it has no border."""
    import numpy as np

    reach = 4
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SMOOTH_TAPS) ** 2)
    taps = random.standard_normal((shape[0], shape[1] + 2 * reach, shape[2] + 2 * reach))
    for axis in (1, 2):
        taps = np.lib.stride_tricks.sliding_window_view(taps, 2 * reach + 1, axis) @ weights
    return taps


def print_rates(count: int) -> None:
    """One line per kind and size: share with any name in per cent, and the most frequent names."""
    import numpy as np

    from mta_viz.analysis.kernels import Offsets
    from mta_viz.analysis.shapes.naming import UNNAMED, name_kernels

    cases = [("Gaussian", own, size) for own in (None, 0.05, 0.3) for size in SIZES]
    cases += [("Laplace", own, SIZES[0]) for own in (None, 0.05, 0.2)]
    cases += [("t3", None, SIZES[0]), ("smooth", None, SIZES[0])]
    print(f"{count} kernels a line\n{'kernels':<30} {'size':<13} {'any name':>8}   of which")
    for kind, own, (c_q, c_k, pad) in cases:
        left = {"both": (c_k - 1) // 2, "left": c_k - 1, "right": 0}[pad]
        offsets = Offsets(tuple(range(1 - c_q, 1)), tuple(range(-left, c_k - left)))
        taps = noise_kinds()[kind](np.random.default_rng(SEED), (count, c_q, c_k))
        if own is not None:
            taps = taps * own
            taps[(slice(None), *offsets.own)] += 1
        names = Counter(found.shape for found in name_kernels(taps, offsets) if found.shape not in UNNAMED)
        label = kind if own is None else f"identity + {own:g} x {kind}"
        most = ", ".join(f"{name} {100 * n / count:.1f}" for name, n in names.most_common(3))
        rate = 100 * sum(names.values()) / count
        print(f"{label:<30} {f'{c_q} x {c_k} {pad}':<13} {rate:>7.1f}%   {most}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=KERNELS, metavar="N")
    print_rates(parser.parse_args().kernels)


if __name__ == "__main__":
    main()
