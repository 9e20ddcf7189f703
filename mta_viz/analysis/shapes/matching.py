"""The best one-to-one match of rows to columns (the assignment problem)."""

import networkx as nx
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array


def best_match(gain: Float[Array, "n n"]) -> Int[Array, " n"]:
    """Column of each row so that the summed gain is largest; on a tie rows keep their own column."""
    size = len(gain)
    own = np.eye(size) * (np.abs(gain).max(initial=0) * 1e-12)
    graph = nx.Graph()
    weights = np.ndenumerate(gain + own)
    graph.add_weighted_edges_from((row, size + column, weight) for (row, column), weight in weights)
    match = np.empty(size, int)
    for pair in nx.max_weight_matching(graph, maxcardinality=True):
        match[min(pair)] = max(pair) - size
    return match
