"""What TransformerLens's `ActivationCache` asks of a model beside its hooks, under TransformerLens's names.

Sums are exact: directions of tokens have the final norm's gain in them, which is not folded into the weights.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.config import ModelConfig
from mta_viz.errors import PromptError


@dataclass(frozen=True)
class LensConfig:
    """The model's sizes under TransformerLens's names."""

    n_layers: int
    n_heads: int
    n_key_value_heads: int
    d_model: int
    d_head: int
    d_mlp: int
    d_vocab: int
    n_ctx: int
    device: torch.device
    dtype: torch.dtype
    normalization_type: str = "RMS"
    act_fn: str = "silu"
    gated_mlp: bool = True
    attn_only: bool = False
    positional_embedding_type: str = "rotary"


class LensNames:
    """A base of `HookedMTA`, which has the attributes that are read here."""

    config: ModelConfig
    embed: Any
    unembed: Any
    blocks: Any
    ln_final: Any
    tokenizer: Any

    @property
    def cfg(self) -> LensConfig:
        """Sizes and settings."""
        own, weight = self.config, self.embed.weight
        heads = own.n_heads, own.n_kv_heads
        sizes = own.d_model, own.d_head, own.d_mlp, own.vocab_size, own.n_ctx
        return LensConfig(own.n_layers, *heads, *sizes, weight.device, weight.dtype)

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The unembedding; of a tied model the embedding."""
        return (self.embed if self.unembed is None else self.unembed).weight.T

    @property
    def b_U(self) -> Float[Tensor, " vocab"]:
        """The unembedding has no bias."""
        return torch.zeros(self.config.vocab_size, dtype=self.W_U.dtype, device=self.W_U.device)

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token. Raises PromptError for any other."""
        if self.tokenizer is None:
            raise PromptError("this model came without its tokenizer; give ids")
        ids = [one for one in self.tokenizer.encode(text).ids if one != self.tokenizer.bos_id]
        if len(ids) != 1:
            raise PromptError(f"{text!r} is {len(ids)} tokens here; expected one, or give its id")
        return ids[0]

    def tokens_to_residual_directions(self, tokens: Any) -> Float[Tensor, "*axes d_model"]:
        """What the normed residual stream is multiplied by for the logits of `tokens`: a text, id or ids."""
        ids = self.to_single_token(tokens) if isinstance(tokens, str) else tokens
        return self.W_U.T[torch.as_tensor(ids, device=self.W_U.device)] * self.ln_final.weight

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """What the biases of the layers before `layer` add, with its attention's where `mlp_input`."""
        attended = [block.attn.wo.bias for block in [*self.blocks][: layer + mlp_input]]
        wide = [block.mlp.w2.bias for block in [*self.blocks][:layer]] if include_mlp_biases else []
        none = torch.zeros(
            self.config.d_model, dtype=self.embed.weight.dtype, device=self.embed.weight.device
        )
        return sum((bias for bias in (*attended, *wide) if bias is not None), none)
