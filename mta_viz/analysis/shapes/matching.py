"""The best one-to-one match of rows to columns (the assignment problem), small and exact."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array


def best_match(gain: Float[Array, "n n"]) -> Int[Array, " n"]:
    """Column of each row so that the summed gain is largest; on a tie rows keep their own column.

    Shortest augmenting paths with potentials (Kuhn 1955, Munkres 1957), O(n^3).
    """
    size = len(gain)
    own = np.eye(size) * (np.abs(gain).max(initial=0) * 1e-12)
    cost = -(gain + own)
    row_price, column_price = np.zeros(size), np.zeros(size + 1)
    row_of = np.full(size + 1, -1)  # the last column stands for "no column yet"
    for row in range(size):
        row_of[size] = row
        _augment(cost, row_price, column_price, row_of)
    match = np.empty(size, int)
    match[row_of[:size]] = np.arange(size)
    return match


def _augment(cost: Array, row_price: Array, column_price: Array, row_of: Array) -> None:
    """Add the row waiting at the last place of `row_of` to the match; works on `best_match`'s own arrays."""
    size = len(cost)
    slack, before = np.full(size, np.inf), np.full(size, size)
    used = np.zeros(size + 1, bool)
    column = size
    while row_of[column] >= 0:
        used[column] = True
        row = row_of[column]
        reduced = cost[row] - row_price[row] - column_price[:size]
        shorter = ~used[:size] & (reduced < slack)
        slack[shorter], before[shorter] = reduced[shorter], column
        step = np.where(used[:size], np.inf, slack).min()
        row_price[row_of[used]] += step
        column_price[used] -= step
        slack[~used[:size]] -= step
        column = int(np.flatnonzero(~used[:size] & (slack <= 0))[0])
    while column != size:
        row_of[column] = row_of[before[column]]
        column = int(before[column])
