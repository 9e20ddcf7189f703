"""The best one-to-one match of rows to columns (the assignment problem)."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array


def best_match(gain: Float[Array, "row column"]) -> Int[Array, " row"]:
    """Column of each row so that the summed gain is largest; on a tie rows keep their own column.

    With more rows than columns, rows that are left out get -1.
    """
    from scipy.optimize import linear_sum_assignment  # a third of a second, and few calls need it

    own = np.eye(*gain.shape) * (np.abs(gain).max(initial=0) * 1e-12)
    rows, columns = linear_sum_assignment(gain + own, maximize=True)
    match = np.full(len(gain), -1)
    match[rows] = columns
    return match
