"""Which softmax cells an answer rests on: what a layer adds to a logit, folded back through its last steps.

After the softmax everything up to the values is linear: convolution, head mixing, weighting the values. So
the contribution splits exactly into one number a cell of the softmax maps, without gradients. Held fixed,
each as the run left it: the group norm's scale, the gate, and the scale of the final norm.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model import ops
from mta_viz.model.attention import GROUP_NORM_EPS, Attention
from mta_viz.model.stages import Stage
from mta_viz.tracing import Trace

AFTER_SOFTMAX = {Stage.SOFTMAX_KQ.value.hook, Stage.PATTERN.value.hook, "hook_z"}


@dataclass(frozen=True)
class Responsibility:
    """What one layer's heads add to a logit after `position`, cell by cell; logit units, float32.

    `values[h, q, k]`: through the softmax cell of source head h at query `first_query` + q and key k, whose
    weight is `softmax[h, q, k]`; the last row is `position`, earlier ones are what its post-softmax
    convolution reads. `heads[t]`: the sum over everything that reaches the output of target head t. Both
    sum to `total`.
    """

    layer: int
    position: int
    first_query: int
    values: Float[Tensor, "head query key"]
    softmax: Float[Tensor, "head query key"]
    heads: Float[Tensor, " head"]

    @property
    def sources(self) -> Float[Tensor, " head"]:
        """What comes through each source head's softmax map."""
        return self.values.double().sum((1, 2)).float()

    @property
    def total(self) -> float:
        """The layer's attention's direct contribution to the logit."""
        return float(self.heads.sum())

    @property
    def error(self) -> float:
        """|sum of cells - total|, over the sum of the cells' sizes."""
        gap = abs(float(self.values.double().sum() - self.heads.double().sum()))
        return gap / max(float(self.values.abs().double().sum()), 1e-30)


def responsibility(
    trace: Trace, layer: int, position: int, token: int, *, against: int | None = None
) -> Responsibility:
    """The responsibility map of `token`'s logit after `position`, or of its lead over the token `against`.

    Raises PromptError for a layer, position or token that is not there, and for a layer whose weights or
    output a patch replaced: they no longer come from its softmax cells.
    """
    attention = _checked(trace, layer, position, token, against)

    reach = 0 if attention.kernel_post is None else attention.kernel_post.shape[1] - 1
    first = max(position - reach, 0)
    kept = slice(0, position + 1)
    with torch.no_grad():
        pattern = trace.maps(layer, Stage.PATTERN, slice(position, position + 1), kept)[:, 0]
        softmax = trace.maps(layer, Stage.SOFTMAX, slice(first, position + 1), kept)
        per_key = _per_key(trace, layer, position, pattern, direction(trace, position, token, against))
        values = softmax * _folded(attention, per_key, position + 1 - first)
        heads = (pattern * per_key).sum(-1)
    return Responsibility(layer, position, first, values.cpu(), softmax.cpu(), heads.cpu())


def direction(
    trace: Trace, position: int, token: int, against: int | None = None
) -> Float[Tensor, " d_model"]:
    """What a vector added to the residual stream after `position` is multiplied with to give the logit.

    The token's unembedding (minus that of `against`) under the final norm, its scale as the run left it.
    """
    model, resid = trace.model, trace.residuals[-1, position]
    weight = (model.embed if model.unembed is None else model.unembed).weight.float()
    wanted = weight[token] if against is None else weight[token] - weight[against]
    norm = model.ln_final
    scale = torch.rsqrt(resid.pow(2).mean() + norm.eps)
    return wanted * norm.weight.float() * norm.factor * scale


def _checked(trace: Trace, layer: int, position: int, token: int, against: int | None) -> Attention:
    config = trace.model.config
    ranges = {
        "layer": (layer, config.n_layers),
        "position": (position, len(trace.tokens)),
        "token": (token, config.vocab_size),
        "token to compare with": (against or 0, config.vocab_size),
    }
    for name, (index, count) in ranges.items():
        if not 0 <= index < count:
            raise PromptError(f"{name} {index} does not exist; expected 0 to {count - 1}")
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
    with trace.model.lock:  # the norm has a hook point, where another session may be listening
        normed = attention.normalize(z.to(trace.model.dtype)[None, None]).float()[0, 0]
        gate = attention.gate_values(normed.to(trace.model.dtype)[None, None])
    if gate is not None:
        onto_heads = onto_heads * gate[0, 0].float()
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
