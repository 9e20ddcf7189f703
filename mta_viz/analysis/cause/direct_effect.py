"""The direct effect of softmax cells on a logit: what a layer adds to it, folded back through its last steps.

After the softmax everything up to the values is linear: convolution, head mixing, weighting the values. So
what a layer adds directly splits exactly into one number a cell of the softmax maps, without gradients. Held
fixed, each as the run left it: the group norm's scale, the gate, and the scale of the final norm; what later
layers make of it is not in it. What the model loses without a cell is `removed_cells`'s.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.cause.answers import Answer
from mta_viz.analysis.cause.attributed_prompt import ask
from mta_viz.errors import PromptError, check_index
from mta_viz.model import ops
from mta_viz.model.attention import GROUP_NORM_EPS, Attention
from mta_viz.model.stages import Stage, linear_from
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace
from mta_viz.tables import Printed, Row, Table, number
from mta_viz.tokenizers.base import Tokens

AFTER_SOFTMAX = {Stage.SOFTMAX_KQ.value.hook, Stage.PATTERN.value.hook, "hook_z"}


@dataclass(frozen=True)
class DirectEffect:
    """What one layer's heads add to a logit after `position`, cell by cell; logit units, float32.

    `values[h, q, k]`: through the softmax cell of source head h at query `first_query` + q and key k, whose
    weight is `softmax[h, q, k]` (the cell of a DIFF Transformer's signed difference); the last row is
    `position`, earlier ones are what its post-softmax convolution reads. `heads[t]`: the sum over everything
    that reaches the output of target head t. Both sum to `total`; `bias` is what the output projection's
    bias adds, which belongs to no head and no cell.
    """

    layer: int
    position: int
    first_query: int
    values: Float[Tensor, "head query key"]
    softmax: Float[Tensor, "head query key"]
    heads: Float[Tensor, " head"]
    bias: float = 0.0

    @property
    def sources(self) -> Float[Tensor, " head"]:
        """What comes through each source head's softmax map."""
        return self.values.double().sum((1, 2)).float()

    @property
    def total(self) -> float:
        """The direct contribution of the layer's heads to the logit."""
        return float(self.heads.sum())

    @property
    def error(self) -> float:
        """|sum of cells - total|, over the sum of the cells' sizes."""
        gap = abs(float(self.values.double().sum() - self.heads.double().sum()))
        return gap / max(float(self.values.abs().double().sum()), 1e-30)

    def as_data(self) -> dict[str, Any]:
        """The sums as plain values."""
        sums = {"sources": self.sources.tolist(), "targets": self.heads.tolist()}
        bias = {"bias": self.bias} if self.bias else {}
        return {"layer": self.layer, "total": self.total, "error": self.error, **sums, **bias}


def layer_effect(trace: Trace, layer: int, position: int, token: int) -> DirectEffect:
    """A layer's direct effect on `token`'s logit after `position`.

    Raises PromptError for a layer, position or token that is not there, and for a layer whose weights or
    output a patch replaced: they no longer come from its softmax cells.
    """
    attention = _checked(trace, layer, position, token)
    reach = 0 if attention.kernel_post is None else attention.kernel_post.shape[1] - 1
    first = max(position - reach, 0)
    kept = slice(0, position + 1)
    with torch.no_grad():
        there, bias = attention.wo.weight.device, attention.wo.bias
        pattern = trace.maps(layer, Stage.PATTERN, slice(position, position + 1), kept)[:, 0].to(there)
        softmax = trace.maps(layer, linear_from(attention.kernels), slice(first, position + 1), kept).to(
            there
        )
        onto = direction(trace, position, token).to(there)
        per_key = _per_key(trace, layer, position, pattern, onto)
        values = softmax * _folded(attention, per_key, position + 1 - first)
        heads = (pattern * per_key).sum(-1)
        added = 0.0 if bias is None else float(onto @ bias.float())
    return DirectEffect(layer, position, first, values.cpu(), softmax.cpu(), heads.cpu(), added)


def direction(trace: Trace, position: int, token: int) -> Float[Tensor, " d_model"]:
    """What a vector added to the residual stream after `position` is multiplied with to give the logit.

    The token's unembedding under the final norm, its scale as the run left it.
    """
    model, resid = trace.model, trace.residuals[-1, position]
    norm = model.ln_final
    scale = torch.rsqrt(resid.pow(2).mean() + norm.eps)
    return model.W_U[:, token].float() * norm.weight.float() * norm.factor * scale


def _checked(trace: Trace, layer: int, position: int, token: int) -> Attention:
    config = trace.model.config
    check_index("layer", layer, config.n_layers)
    check_index("position", position, len(trace.tokens))
    check_index("token", token, config.vocab_size)
    attention = trace.model.blocks[layer].attn
    if attention.patches.keys() & AFTER_SOFTMAX:
        raise PromptError(
            f"a patch replaced what layer {layer} computes after its softmax, so nothing of it can be folded "
            "back to softmax cells; ask about a run without that patch"
        )
    return attention


def _per_key(
    trace: Trace, layer: int, position: int, pattern: Float[Tensor, "head key"], onto: Tensor
) -> Float[Tensor, "head key"]:
    """What a final weight of 1 on a key adds to the logit, for each target head."""
    attention, config = trace.model.blocks[layer].attn, trace.model.config
    values = ops.repeat_kv_heads(trace.project(layer).v.float(), config.n_heads)[0, : position + 1]
    z = torch.einsum("hk,khd->hd", pattern, values)
    onto_heads = (onto @ attention.wo.weight.float()).unflatten(0, (config.n_heads, config.d_head))
    gate = trace.gate_of(layer, z[None])
    if gate is not None:
        onto_heads = onto_heads * gate[0]
    if attention.group_norm is not None:
        scale = torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + GROUP_NORM_EPS)
        onto_heads = onto_heads * attention.group_norm.float() * config.depth_scale(layer) * scale
    return torch.einsum("hd,khd->hk", onto_heads, values)


def _folded(
    attention: Attention, per_key: Float[Tensor, "target key"], n_queries: int
) -> Float[Tensor, "source query key"]:
    """What a softmax weight of 1 adds: head mixing and the convolution, backwards."""
    if attention.head_post is not None:
        mixing = attention.head_post.float()
        grouped = per_key.unflatten(0, mixing.shape[:2])
        per_key = torch.einsum("gts,gtk->gsk", mixing, grouped).flatten(0, 1)
    if attention.kernel_post is None:
        return per_key[:, None]
    kernel = attention.kernel_post.float()
    left = attention.config.key_pad_left(kernel.shape[2])
    n_keys = per_key.shape[1]
    # out[j] reads key j + b - left: the cell at key k is read by j = k - b + left, for b = 0..c_k - 1
    padded = torch.nn.functional.pad(per_key, (kernel.shape[2] - 1, kernel.shape[2] - 1))
    folded = per_key.new_zeros(len(per_key), n_queries, n_keys)
    for b in range(kernel.shape[2]):
        start = kernel.shape[2] - 1 - b + left
        taps = kernel[:, kernel.shape[1] - n_queries :, b]
        folded = folded + taps[:, :, None] * padded[:, None, start : start + n_keys]
    return folded


CELLS = 20


@dataclass(frozen=True)
class Cell:
    """A softmax cell of a source head, its weight, and its direct effect on the logit (`value`)."""

    layer: int
    head: int
    query: int
    key: int
    softmax: float
    value: float


@dataclass(frozen=True, repr=False)
class DirectEffects(Printed):
    """Every layer's direct effect on the logit of the answer's token number `place`, cell by cell.

    The answer's tokens before that one are read: `trace` has them after the prompt. `logit`: the model's.
    """

    trace: Trace
    answer: Answer
    place: int
    logit: float
    layers: tuple[DirectEffect, ...]

    def table(self) -> Table:
        """A line a head: what comes through its softmax map, and what leaves at its output; logit units."""
        rows = [
            (layer.layer, head, *sums)
            for layer in self.layers
            for head, sums in enumerate(torch.stack([layer.sources, layer.heads], 1).tolist())
        ]
        return Table.of(("layer", "head", "as_source", "as_target"), rows)

    def _title(self) -> str:
        return f"Direct effects on the logit of {self.explained}: {number(self.logit)}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Heads by the size of what they add."""
        table: Any = self.table().rows
        rows = sorted(table, key=lambda row: -abs(row[3]))
        return ("head", "adds"), [(f"L{layer} H{head}", number(added)) for layer, head, _, added in rows]

    @property
    def tokens(self) -> Tokens:
        """The prompt's, and the answer's that are read."""
        return self.trace.tokens

    @property
    def position(self) -> int:
        """After which the token is predicted."""
        return self.layers[0].position

    @property
    def token(self) -> int:
        """The id of the token whose logit it is."""
        return self.answer.ids[self.place]

    @property
    def explained(self) -> str:
        """Which token it is: `token 2 of 3 of the answer: "7"`."""
        tokenizer = self.trace.model.tokenizer
        return self.answer.explains(self.place, tokenizer.pieces((self.token,))[0] if tokenizer else "")

    def largest(self, layer: int | None = None, count: int = CELLS) -> tuple[Cell, ...]:
        """The cells of largest |direct effect|, largest first: of one layer, or (None) of all.

        Raises PromptError for a layer that is not there.
        """
        if layer is not None:
            check_index("layer", layer, len(self.layers))
        layers = self.layers if layer is None else (self.layers[layer],)
        cells = [cell for effect in layers for cell in largest_cells(effect, count)]
        return tuple(sorted(cells, key=lambda cell: -abs(cell.value))[:count])

    def as_data(self, layer: int | None = None) -> dict[str, Any]:
        """Plain values, as the command prints them; with `layer` also that layer's cells.

        Raises PromptError for a layer that is not there.
        """
        self.largest(layer)
        data = {
            "tokens": list(self.tokens.pieces),
            "answer": self.answer.as_data(),
            "token": self.token,
            "explains": self.explained,
            "position": self.position,
            "logit": self.logit,
            "held_fixed": "group norm, gate and final norm held as the run left them",
            "layers": [own.as_data() for own in self.layers],
        }
        if layer is not None:
            own = self.layers[layer]
            cells = [asdict(cell) for cell in self.largest(layer)]
            data |= {"layer": layer, "first_query": own.first_query, "cells": cells}
            data["values"] = own.values.tolist()
        return data


def direct_effect(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    *,
    answer: str | None = None,
    position: int | None = None,
    place: int | None = None,
) -> DirectEffects:
    """What every softmax cell adds directly to the logit of the answer's token number `place`, by layer.

    `answer` and `position` as in `attribute`: None is the number or block asked for, else the
    likeliest token, after the prompt's last token. `place`: None is the first token of the answer that is
    not only white space. Exact, without gradients; held fixed are each head's group norm, its gate and the
    final norm's scale. It is not what the answer loses without the cell: that
    is `whole_effects`'. Raises PromptError for what is not there.

    >>> mta_viz.direct_effect(model, trace.tokens).layers[3].values.shape
    torch.Size([2, 1, 21])
    """
    asked = ask(model, prompt, answer, position)
    ids, place = asked.answer.ids, asked.answer.place if place is None else place
    if not 0 <= place < len(ids):
        raise PromptError(f"the answer has no token {place}; expected 0 to {len(ids) - 1}")
    trace = asked.whole()
    at = len(asked.trace.tokens) - 1 + place
    layers = tuple(layer_effect(trace, layer, at, ids[place]) for layer in range(model.config.n_layers))
    logit = float(trace.logits(slice(at, at + 1))[0, ids[place]])
    return DirectEffects(trace, asked.answer, place, logit, layers)


responsibilities = direct_effect  # the older word


def largest_cells(layer: DirectEffect, count: int = CELLS) -> tuple[Cell, ...]:
    """The cells of largest |direct effect| of a layer, largest first."""
    sizes = layer.values.abs().flatten()
    cells = []
    for at in sizes.topk(min(count, len(sizes))).indices.tolist():
        place = head, row, key = tuple(map(int, np.unravel_index(at, layer.values.shape)))
        weight, value = float(layer.softmax[place]), float(layer.values[place])
        cells.append(Cell(layer.layer, head, layer.first_query + row, key, weight, value))
    return tuple(cells)
