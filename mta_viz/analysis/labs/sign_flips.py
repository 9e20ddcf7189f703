"""Which of many means over the same samples are above 0, corrected for having looked at all of them.

Without an effect a sample's value is as likely negative as positive. So the values' signs are flipped, one
sign a sample for all tests at once, which keeps how tests hang together; the largest t of all tests over many
flips is what the best of them reaches by chance (Westfall and Young's single-step max-T). P(any p <= a) is at
most a, whatever the number of tests, where values are symmetric about 0.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

EXHAUSTIVE = 13  # samples up to which every combination of signs is tried
FLIPS = 9_999  # random ones beyond, and the one that flips nothing
CHUNK = 512  # flips at once


def corrected_p(values: Float[Tensor, "sample test"]) -> Float[Tensor, " test"]:
    """One-sided p of each test's mean being above 0, corrected for all tests; float64. Values must be finite.

    The least there can be is `least_p`. A test whose values are all 0 has p 1.
    """
    values = values.double()
    each = values / values.norm(dim=0).clamp_min(1e-300)
    flipped = [(signs @ each).amax(1) for signs in _signs(len(values))]
    largest, observed = torch.cat(flipped).sort().values, each.sum(0)
    reached = len(largest) - torch.searchsorted(largest, observed - 1e-9)
    return reached.double() / len(largest)


def least_p(n_samples: int) -> float:
    """The smallest p that so many samples can give."""
    return 2.0**-n_samples if n_samples <= EXHAUSTIVE else 1 / (1 + FLIPS)


def standardized(values: Float[Tensor, "sample *tests"]) -> Float[Tensor, "*tests"]:
    """Each mean / root mean square, which orders tests as Student's t does: -1 to 1."""
    values = values.double()
    return values.mean(0) / values.pow(2).mean(0).sqrt().clamp_min(1e-300)


def _signs(n: int) -> Iterator[Float[Tensor, "flip sample"]]:
    """Rows of 1 and -1, a chunk at a time; the first flips nothing."""
    generator = torch.Generator().manual_seed(0)
    total = 2**n if n <= EXHAUSTIVE else 1 + FLIPS
    for start in range(0, total, CHUNK):
        count = min(CHUNK, total - start)
        if n <= EXHAUSTIVE:
            numbers = torch.arange(start, start + count)
            bits = numbers[:, None] >> torch.arange(n) & 1
        else:
            bits = torch.randint(2, (count, n), generator=generator)
            bits[0] = 0 if start == 0 else bits[0]
        yield 1.0 - 2.0 * bits.double()
