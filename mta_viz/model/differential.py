"""DIFF Transformer's attention: each head's two softmax maps, subtracted, weight values twice as wide.

Owns its steps and their hook points (Ye et al. 2024, a baseline of the MTA paper). The halves of a head's
queries and keys, [:d/2] and [d/2:], are sub-heads 2i and 2i + 1. What follows, group norm and depth scale
(1 - lambda_init) included, is attention.py's.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mta_viz.checkpoint.types import LAMBDAS
from mta_viz.config import ModelConfig
from mta_viz.model import ops
from mta_viz.model.attention import Attention, OnRows, QueryKeyValue, Rows
from mta_viz.model.hooking import HookPoint, listened
from mta_viz.model.ops import Heads, Maps
from mta_viz.model.stages import Stage

_SPREAD = 0.1 * math.sqrt(3)  # ends of an even distribution of standard deviation 0.1
_HALVES = ((Stage.RAW, Stage.SOFTMAX), (Stage.RAW_2, Stage.SOFTMAX_2))


class DifferentialAttention(Attention):
    """One layer: O = (softmax(Q1 K1^T) - lambda softmax(Q2 K2^T)) V, head by head.

    lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init, of vectors [d_head / 2]
    that all heads share. `hook_lambda` sees and may replace it as [batch, head].
    """

    lambda_q1: nn.Parameter
    lambda_k1: nn.Parameter
    lambda_q2: nn.Parameter
    lambda_k2: nn.Parameter

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__(config, layer)
        for name in LAMBDAS:
            self._add(name, torch.empty(config.d_rotary).uniform_(-_SPREAD, _SPREAD))
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.hook_lambda = HookPoint()

    def subtracted_share(self) -> Float[Tensor, ""]:
        """The layer's lambda, computed in float32."""
        q1, k1, q2, k2 = (getattr(self, name).float() for name in LAMBDAS)
        return (q1 @ k1).exp() - (q2 @ k2).exp() + self.lambda_init

    @property
    def has_stage_hooks(self) -> bool:
        """Whether anybody listens to a T x T hook point or to lambda, which is seen once a pass."""
        return super().has_stage_hooks or listened(self.hook_lambda)

    def _attend_fast(self, backend: str, qkv: QueryKeyValue, on_rows: OnRows | None) -> Heads:
        """Both maps apart by torch's own attention, which wants values no wider than queries."""
        q, k, v = (part.unflatten(-1, (2, -1)) for part in (qkv.q, qkv.k, qkv.v))
        q, k = (part.repeat_interleave(2, 3).flatten(2, 3) for part in (q, k))
        halves = QueryKeyValue(q, k, v.repeat(1, 1, 1, 2, 1).flatten(2, 3))
        z = super()._attend_fast(backend, halves, on_rows)
        first, second = z.unflatten(2, (-1, 2, 2)).unbind(3)
        return (first - self.subtracted_share().to(first.dtype) * second).flatten(-2)

    def _stages_with_halo(
        self, qkv: QueryKeyValue, rows: Rows, hooked: bool
    ) -> Iterator[tuple[Stage, Tensor, int]]:
        q = qkv.q[:, rows.start - qkv.q_start : rows.stop - qkv.q_start]
        halves = zip(_HALVES, q.chunk(2, -1), qkv.k[:, : rows.stop].chunk(2, -1), strict=True)
        scores: dict[Stage, Maps] = {}
        for (raw, softmax), queries, keys in halves:
            scores[softmax] = self._seen(raw, ops.attention_scores(queries, keys), rows.start, hooked)
            yield raw, scores[softmax], rows.start
        maps: list[Maps] = []
        for softmax in list(scores):
            score = scores.pop(softmax)
            weights = ops.masked_softmax(score, self._future(score, rows.start))
            maps.append(self._seen(softmax, weights, rows.start, hooked))
            yield softmax, maps[-1], rows.start
        difference = maps[0] - self._lambda(maps[1], hooked) * maps[1]
        yield Stage.PATTERN, self._seen(Stage.PATTERN, difference, rows.start, hooked), rows.start

    def _lambda(self, maps: Maps, hooked: bool) -> Float[Tensor, "batch head one one"]:
        share = self.subtracted_share().to(maps.dtype).expand(maps.shape[:2])
        return (self.hook_lambda(share) if hooked else share)[..., None, None]
