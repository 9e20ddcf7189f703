"""Small pictures of many heads' maps at one stage, pooled while their rows pass by."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mta_viz.analysis.maps import AttentionMap
from mta_viz.analysis.pooling import Pooler
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.tracing import Progress, Trace

CELLS = 24  # a side
MAX_CELLS = 180_000  # of all tiles together: more make a figure of over 2 MB


@dataclass(frozen=True)
class Thumbnails:
    """Pooled maps of all heads of `layers` at one stage.

    `values` [layer, head, row, column] float32 on the CPU: the causal cell of largest |x| in a
    block of `block` x `block` cells, sign kept (a NaN wins); 0 where all are masked. Row r of
    `values` is layer `layers[r]`; those without the stage are left out and stand in `lacking`.
    """

    stage: Stage
    layers: tuple[int, ...]
    lacking: tuple[int, ...]
    block: int
    distribution: bool
    values: Float[Tensor, "layer head row column"]

    @property
    def masked(self) -> Bool[Tensor, "row column"]:
        """Blocks in which every key comes after every query."""
        return torch.ones(self.values.shape[2:], dtype=torch.bool).triu(1)

    def map(self, layer: int, head: int) -> AttentionMap:
        """One of them as a map (for colour limits, which maps share)."""
        values = self.values[self.layers.index(layer), head]
        return AttentionMap(layer, head, self.stage, values, 0, 0, self.block, self.distribution)

    def maps(self) -> list[AttentionMap]:
        """All of them."""
        return [self.map(layer, head) for layer in self.layers for head in range(self.values.shape[1])]


def layer_thumbnails(
    trace: Trace, layer: int, stage: Stage, cells: int = CELLS, *, n_tokens: int | None = None
) -> Thumbnails:
    """All heads of a layer, at most `cells` x `cells` each, of the first `n_tokens` (None: all).

    Raises PromptError for a missing stage.
    """
    n_tokens, kernels = n_tokens or len(trace.tokens), trace.model.config.kernels(layer)
    block = -(-n_tokens // cells)
    values = _pooled(trace, layer, stage, block, n_tokens, None)
    return Thumbnails(stage, (layer,), (), block, is_distribution(stage, kernels), values[None])


def all_thumbnails(
    trace: Trace, stage: Stage, cells: int = CELLS, *, progress: Progress | None = None
) -> Thumbnails:
    """All heads of all layers that have the stage; one pass a layer.

    At most `cells` x `cells` each, fewer where hundreds of heads would make too large a picture.

    `progress(share done)` is called after every slab of rows; raise `Cancelled` in it to stop.
    """
    config = trace.model.config
    block = _block(trace, min(cells, math.isqrt(MAX_CELLS // (config.n_layers * config.n_heads))))
    all_layers = range(config.n_layers)
    there = tuple(layer for layer in all_layers if stage in trace.model.blocks[layer].attn.stages)

    def pooled(place: int, layer: int) -> Tensor:
        told = None if progress is None else lambda share: progress((place + share) / len(there))
        return _pooled(trace, layer, stage, block, len(trace.tokens), told)

    parts = [pooled(place, layer) for place, layer in enumerate(there)]
    side = -(-len(trace.tokens) // block)
    values = torch.stack(parts) if parts else torch.zeros(0, config.n_heads, side, side)
    distribution = bool(there) and all(is_distribution(stage, config.kernels(layer)) for layer in there)
    lacking = tuple(layer for layer in all_layers if layer not in there)
    return Thumbnails(stage, there, lacking, block, distribution, values)


def _block(trace: Trace, cells: int) -> int:
    return -(-len(trace.tokens) // cells)


def _pooled(
    trace: Trace, layer: int, stage: Stage, block: int, n_tokens: int, progress: Progress | None
) -> Float[Tensor, "head row column"]:
    poolers = [Pooler(block, n_tokens) for _ in range(trace.model.config.n_heads)]
    for first_row, slab in trace.slabs(layer, stage, range(n_tokens)):
        for pooler, values in zip(poolers, slab.detach().cpu(), strict=True):
            pooler.add(values)
        if progress:
            progress(((first_row + slab.shape[1]) / n_tokens) ** 2)
    return torch.stack([pooler.result().values for pooler in poolers])
