"""A trace whose maps are planted, so that what is read off them can be redone by hand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace
from mta_viz.tokenizers.base import Tokens

FULL = MTAOptions(pre_kernel=(2, 3), post_kernel=(2, 3), head_pre=True, head_post_group=2)


@dataclass(frozen=True)
class PlantedTrace(Trace):
    """`planted[layer][stage]` [head, query, key]; handed out in slabs of two rows, the future as 0."""

    planted: Sequence[Mapping[Stage, Tensor]] = field(default=(), repr=False)

    def stage_slabs(
        self, layer: int, queries: range | None = None
    ) -> Iterator[tuple[int, dict[Stage, Tensor]]]:
        queries = range(len(self.tokens)) if queries is None else queries
        for start in range(queries.start, queries.stop, 2):
            stop = min(start + 2, queries.stop)
            yield start, {s: whole.tril()[:, start:stop, :stop] for s, whole in self.planted[layer].items()}

    def slabs(self, layer: int, stage: Stage, queries: range | None = None) -> Iterator[tuple[int, Tensor]]:
        self._attention(layer, stage)
        for start, found in self.stage_slabs(layer, queries):
            yield start, found[stage]


def planted(
    maps: Sequence[Mapping[Stage, Tensor]], ids: Sequence[int] | None = None, mta: MTAOptions = FULL
) -> PlantedTrace:
    """A trace of a tiny model with these maps; stages a layer has and `maps` lacks are 0."""
    some = next(iter(maps[0].values()))
    n_heads, n_tokens = some.shape[:2]
    config = ModelConfig(
        d_model=4 * n_heads, n_layers=len(maps), n_heads=n_heads, n_kv_heads=n_heads, d_head=4, d_mlp=8,
        vocab_size=50, mta=mta,
    )  # fmt: skip
    layers = [
        {stage: given.get(stage, torch.zeros_like(some)) for stage in layer_stages(config.kernels(layer))}
        for layer, given in enumerate(maps)
    ]
    ids = tuple(range(n_tokens)) if ids is None else tuple(ids)
    tokens = Tokens(ids, tuple(f"<id {one}>" for one in ids), ((0, 0),) * n_tokens, None)
    residuals = torch.zeros(len(maps) + 1, n_tokens, config.d_model)
    return PlantedTrace(tokens, residuals, HookedMTA(config), planted=layers)


def heads(*maps: list[list[float]]) -> Tensor:
    """[head, query, key] from lists of causal rows, which may end at the diagonal."""
    size = len(maps[0])
    return torch.tensor([[row + [0.0] * (size - len(row)) for row in rows] for rows in maps])
