"""A painted kernel on a map of scores, made by hand or a head's own: what the model's convolution makes of it.

Owns the kernels and maps one may begin with. The convolution and its mask are the model's; what a kernel is
called is `kernels.naming`'s business.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.attention.maps import AttentionMap, centred
from mta_viz.analysis.kernels import edges
from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import library
from mta_viz.analysis.kernels.naming import KernelShape, name_kernels
from mta_viz.config import ModelConfig
from mta_viz.model import ops
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace
from mta_viz.tables import Table

Scores = Literal["one match", "diagonal stripe", "block edge", "this head's scores"]
SIDE = 24  # tokens of a map
PRESETS = ("diagonal", "priming", "edge", "smoothing", "identity")
_MATCHES: dict[str, list[tuple[int, int]]] = {  # (query, key) of every score of 1
    "one match": [(15, 8)],
    "diagonal stripe": [(13 + step, 5 + step) for step in range(7)],
    "block edge": [(query, key) for query in range(6, 19) for key in range(6, 13)],  # a part is of the future
}


@dataclass(frozen=True)
class Played:
    """Scores before and after a kernel, the same cells; `shape` is what the kernel is called."""

    before: AttentionMap
    after: AttentionMap
    taps: Float[Array, "c_q c_k"]
    offsets: Offsets
    shape: KernelShape

    def table(self) -> Table:
        """A row a cell that is not masked."""
        seen = (~self.before.masked).nonzero().tolist()
        rows = (
            (row + self.before.query_start, column + self.before.key_start, *(float(side.values[row, column])
             for side in (self.before, self.after)))
            for row, column in seen
        )  # fmt: skip
        return Table.of(("query", "key", "before", "after"), rows)


def preset(name: str, offsets: Offsets) -> Float[Array, "c_q c_k"]:
    """A kernel to begin with: the own tap, and the taps of the template or edge of this name.

    Smoothing is a mean. A kernel without room for the shape is the identity.
    """
    taps = np.zeros((len(offsets.query), len(offsets.key)))
    taps[offsets.own] = 1.0
    if name == "edge":
        for key, value in zip(edges.NEIGHBOURS, edges.DIFFERENCES["edge-first"], strict=True):
            if key in offsets.key:
                taps[:, offsets.key.index(key)] = value
    templates = [template.taps for template in library(offsets) if template.name == name]
    if templates:
        taps[templates[min(1, len(templates) - 1)]] = 1.0  # of the boxes that smooth the middle one
    return taps / taps.sum() if name == "smoothing" else taps


def convolved(
    scores: Float[Tensor, "query key"], taps: Float[Array, "c_q c_k"], config: ModelConfig, first: int = 0
) -> Float[Tensor, "query key"]:
    """What a layer of the model with this kernel makes of scores, the first row being query `first`."""
    kernel = torch.from_numpy(np.asarray(taps, np.float32))[None]
    future = ops.future_cells(range(first, first + len(scores)), scores.shape[1], scores.device)
    pad_left = config.key_pad_left(kernel.shape[2])
    return ops.causal_convolution(scores[None, None], kernel, pad_left, future)[0, 0]


def play(taps: Float[Array, "c_q c_k"], config: ModelConfig, scores: Scores) -> Played:
    """A kernel on one of the maps made by hand."""
    before = torch.zeros(SIDE, SIDE)
    for cell in _MATCHES[scores]:
        before[cell] = 1.0
    sides = before, convolved(before, taps, config)
    return _played(taps, config, *(AttentionMap(0, 0, Stage.RAW, values, 0, 0) for values in sides))


def play_on(
    trace: Trace, layer: int, head: int, cell: tuple[int, int], taps: Float[Array, "c_q c_k"]
) -> Played:
    """A kernel on a head's own raw scores around a cell (query, key), float32.

    What the kernel reads beside the cells that are shown is the head's too. With the head's own kernel these
    are the scores after its convolution.
    """
    (top, bottom), (left, right) = (centred(place, len(trace.tokens), SIDE) for place in cell)
    first = max(top + 1 - len(taps), 0)
    raw = trace.map(layer, Stage.RAW, head, slice(first, bottom)).detach().float().cpu()
    shown = slice(top - first, None), slice(left, right)
    before, after = raw[shown], convolved(raw, taps, trace.model.config, first)[shown]
    maps = AttentionMap(layer, head, Stage.RAW, before, top, left), AttentionMap(
        layer, head, Stage.KQ, after, top, left
    )
    return _played(taps, trace.model.config, *maps)


def _played(
    taps: Float[Array, "c_q c_k"], config: ModelConfig, before: AttentionMap, after: AttentionMap
) -> Played:
    offsets = kernel_offsets(config, *taps.shape)
    return Played(before, after, taps, offsets, name_kernels(taps[None], offsets)[0])
