"""The best one-to-one match of rows to columns (the assignment problem), exact, by shortest paths.

The Hungarian method with potentials: each row in turn takes the column that makes the whole match best.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array


def best_match(gain: Float[Array, "row column"]) -> Int[Array, " row"]:
    """Column of each row so that the summed gain is largest; on a tie rows keep their own column.

    With more rows than columns, rows that are left out get -1.
    """
    own = np.eye(*gain.shape) * (np.abs(gain).max(initial=0) * 1e-12)
    cost = -(gain + own).astype(float)
    if len(cost) <= cost.shape[1]:
        return _cheapest(cost)
    rows = _cheapest(cost.T)
    match = np.full(len(cost), -1)
    match[rows] = np.arange(len(rows))
    return match


def _cheapest(cost: Float[Array, "row column"]) -> Int[Array, " row"]:
    """Column of each row, the summed cost least; at least as many columns as rows."""
    n_rows, n_columns = cost.shape
    row_price, column_price = np.zeros(n_rows), np.zeros(n_columns + 1)
    owner = np.full(n_columns + 1, -1)  # the last column stands for "none yet"
    for row in range(n_rows):
        owner[-1] = row
        _take_column(cost, row_price, column_price, owner)
    match = np.empty(n_rows, int)
    for column, row in enumerate(owner[:-1]):
        if row >= 0:
            match[row] = column
    return match


def _take_column(cost: Array, row_price: Array, column_price: Array, owner: Array) -> None:
    """Give the row that waits in the last place a column; others may move. Changes prices and owners."""
    none = len(owner) - 1
    least, before = np.full(none, np.inf), np.full(none, none)
    seen, column = np.zeros(none + 1, bool), none
    while owner[column] >= 0:
        seen[column], row = True, owner[column]
        reduced = cost[row] - row_price[row] - column_price[:-1]
        nearer = ~seen[:-1] & (reduced < least)
        least[nearer], before[nearer] = reduced[nearer], column
        after = int(np.where(seen[:-1], np.inf, least).argmin())
        step = least[after]
        row_price[owner[seen]] += step
        column_price[seen] -= step
        least[~seen[:-1]] -= step
        column = after
    while column != none:
        owner[column] = owner[before[column]]
        column = before[column]
