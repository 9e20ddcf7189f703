"""Greedy continuation one token at a time, recomputing only the query rows a new token needs.

Keeps each layer's keys and values, and the last queries its convolutions reach back to:
(c_q - 1) before and (c_q - 1) after the softmax. Owns no lock: tracing.py calls it.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.model.attention import Attention, QueryKeyValue
from mta_viz.model.transformer import HookedMTA


class Continuation:
    """A prompt being continued: `logits` [vocab] are those of the next token."""

    def __init__(self, model: HookedMTA, ids: Int[Tensor, " position"]) -> None:
        self.model = model
        self.length = len(ids)
        self.past: list[QueryKeyValue] = []
        resid = model.embed(ids[None])
        for block in model.blocks:
            qkv = block.attn.project(block.ln1(resid))
            resid = block.finish(resid, block.attn.output(block.attn.attend(qkv)))
            self.past.append(_keep_reach(block.attn, qkv))
        self.logits: Float[Tensor, " vocab"] = model.logits(resid[0, -1])

    def append(self, token: int) -> None:
        """Take `token` as the next one and compute the logits after it."""
        model = self.model
        resid = model.embed(torch.tensor([[token]], device=model.device))
        for layer, block in enumerate(model.blocks):
            new = block.attn.project(block.ln1(resid), start=self.length)
            qkv = _joined(self.past[layer], new)
            z = block.attn.attend_rows(qkv, block.attn.rows(self.length, self.length + 1))
            resid = block.finish(resid, block.attn.output(z))
            self.past[layer] = _keep_reach(block.attn, qkv)
        self.length += 1
        self.logits = model.logits(resid[0, -1])


def _joined(past: QueryKeyValue, new: QueryKeyValue) -> QueryKeyValue:
    q, k, v = (torch.cat([getattr(past, part), getattr(new, part)], dim=1) for part in "qkv")
    return QueryKeyValue(q, k, v, past.q_start)


def _keep_reach(attention: Attention, qkv: QueryKeyValue) -> QueryKeyValue:
    """Drop the queries that no later row's convolution reads."""
    n_keys = qkv.k.shape[1]
    first = attention.rows(n_keys, n_keys + 1).first
    return replace(qkv, q=qkv.q[:, first - qkv.q_start :], q_start=first)
