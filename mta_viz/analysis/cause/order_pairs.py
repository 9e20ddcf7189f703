"""Pairs of orders in which kernels come back, and the mean of what each added, with its standard error."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array


@dataclass(frozen=True)
class Pairs:
    """What each kernel added in pairs of orders, each the mean of an order and its reverse on one batch.

    `sizes`: the batches' samples, which count alike: the last batch may be smaller than the others.
    """

    marginals: Float[Array, "pair kernel"]
    sizes: Float[Array, " pair"]

    @property
    def mean(self) -> Float[Array, " kernel"]:
        """Over all samples."""
        return np.asarray(self.sizes @ self.marginals / self.sizes.sum())

    @property
    def standard_error(self) -> Float[Array, " kernel"]:
        """Of the mean, a ratio of sums over pairs: from how far pairs lie off it, by their samples."""
        n = len(self.sizes)
        apart = (self.sizes / self.sizes.mean())[:, None] * (self.marginals - self.mean)
        return np.asarray(np.sqrt(np.square(apart).sum(0) / (n * (n - 1))))
