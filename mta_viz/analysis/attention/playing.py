"""A painted kernel on a map of scores, by hand or a head's: what the model's convolution makes of it.

Owns the kernels and maps one may begin with. The convolution and its mask are the model's; what a kernel is
called is `kernels.naming`'s business.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.attention.maps import AttentionMap, centred, stages_table
from mta_viz.analysis.kernels import edges
from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import library
from mta_viz.analysis.kernels.naming import name_kernels
from mta_viz.config import ModelConfig
from mta_viz.model import ops
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace
from mta_viz.tables import Table
from mta_viz.tokenizers.base import Tokens

Scores = Literal["one match", "diagonal stripe", "block edge", "this head's scores"]
HERE: Scores = "this head's scores"
SIDE = 24  # tokens of a map
PRESETS = ("diagonal", "priming", "edge", "smoothing", "identity")
_MATCHES: dict[str, list[tuple[int, int]]] = {  # (query, key) of every score of 1
    "one match": [(15, 8)],
    "diagonal stripe": [(13 + step, 5 + step) for step in range(7)],
    "block edge": [(query, key) for query in range(6, 19) for key in range(6, 13)],  # in part of the future
}
_TOKENS = Tokens(tuple(range(SIDE)), ("",) * SIDE, ((0, 0),) * SIDE, None)


@dataclass(frozen=True)
class Played:
    """`maps`: scores before and after a kernel, the same cells; `names`: what the kernel is called."""

    maps: tuple[AttentionMap, AttentionMap]
    tokens: Tokens
    taps: Float[Array, "c_q c_k"]
    offsets: Offsets
    names: str

    def table(self) -> Table:
        """A row a cell of each map."""
        return stages_table({shown.stage: shown for shown in self.maps}, self.tokens)


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
    """A kernel on one of the maps made by hand, which are of no head (-1)."""
    before = torch.zeros(SIDE, SIDE)
    for cell in _MATCHES[scores]:
        before[cell] = 1.0
    shown = AttentionMap(-1, -1, Stage.RAW, before, 0, 0)
    return _played(shown, convolved(before, taps, config), taps, config, _TOKENS)


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
    after = convolved(raw, taps, trace.model.config, first)
    before, after = (side[top - first :, left:right] for side in (raw, after))
    shown = AttentionMap(layer, head, Stage.RAW, before, top, left)
    return _played(shown, after, taps, trace.model.config, trace.tokens)


def _played(
    before: AttentionMap, after: Tensor, taps: Float[Array, "c_q c_k"], config: ModelConfig, tokens: Tokens
) -> Played:
    offsets = kernel_offsets(config, *taps.shape)
    shape = name_kernels(taps[None], offsets)[0]
    maps = before, replace(before, stage=Stage.KQ, values=after)
    return Played(maps, tokens, taps, offsets, shape.names or shape.shape)
