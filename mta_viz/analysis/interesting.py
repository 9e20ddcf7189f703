"""Where to look first in a run: the head its first convolution changes most, the largest key of a row."""

import torch

from mta_viz.model.stages import Stage
from mta_viz.tracing import Trace


def largest_key(trace: Trace, layer: int, head: int, stage: Stage, query: int) -> int:
    """The key of the largest size in the row of `query`; 0 in a row of NaN."""
    row = trace.map(layer, stage, head, queries=slice(query, query + 1))[0, : query + 1]
    return int(row.abs().nan_to_num(nan=-1.0).argmax())


def most_changed_head(trace: Trace) -> tuple[int, int] | None:
    """(layer, head) where the key-query convolution before the softmax changes the last row most.

    Change: norm of (after - before) over norm of before, each row less its mean, since the softmax
    does not see a constant. None where no such kernel changes anything.
    """
    last = len(trace.tokens) - 1
    rows = slice(last, last + 1)
    best, found = 0.0, None
    for layer in range(trace.model.config.n_layers):
        if not trace.model.config.kernels(layer).pre:
            continue
        before = trace.maps(layer, Stage.RAW, queries=rows)[:, 0]
        after = trace.maps(layer, Stage.KQ, queries=rows)[:, 0]
        before, after = (row - row.mean(dim=1, keepdim=True) for row in (before, after))
        change = (after - before).norm(dim=1) / before.norm(dim=1).clamp_min(1e-9)
        size, head = torch.where(change.isfinite(), change, 0.0).max(dim=0)
        if float(size) > best:
            best, found = float(size), (layer, int(head))
    return found
