"""TransformerLens's names on our model and its cache: what is asked for beside hooks.

Sums are exact; directions of tokens have the final norm's gain in them, which is not folded into the weights.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError

RETURNS = ("logits", "loss", "both", None)


def check_options(return_type: object, options: dict[str, Any]) -> None:
    """PromptError for what a run of the model does not take."""
    if options:
        raise PromptError(f"{', '.join(options)}: the model takes a text or ids, and return_type, alone")
    if return_type not in RETURNS:
        raise PromptError(f"return_type {return_type!r}; expected one of {', '.join(map(repr, RETURNS))}")


def returned(
    logits: Float[Tensor, "batch position vocab"], ids: Int[Tensor, "batch position"], return_type: str | None
) -> Any:
    """What was asked for; the loss is the mean over next tokens, in nats, computed in float32."""
    if return_type in ("logits", None):
        return logits if return_type else None
    if ids.shape[1] < 2:
        raise PromptError("one token has no next one, so no loss; give two or more")
    loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten().long())
    return (logits, loss) if return_type == "both" else loss


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


WRAPPED = "transformer_lens.ActivationCache(cache, model)"
_SCALE = re.compile(r"(blocks\.\d+\.)?(ln1|ln2|ln_final)\.hook_scale")
_BY_PART = re.compile(r"(blocks\.\d+)\.(attn\.hook_result|mlp\.hook_post)")


class LensCache(dict[str, Tensor]):
    """Activations by hook name, and on demand what follows from them and has no hook point of its own.

    That is `hook_scale` of each norm, `attn.hook_result` (what each head adds) and `mlp.hook_post` (neurons);
    they are not among the keys.
    """

    def __init__(self, cache: dict[str, Tensor], model: Any) -> None:
        super().__init__(cache)
        self.model = model

    def get(self, name: Any, default: Any = None) -> Any:
        """As of any dict; what follows is there."""
        try:
            return self[name]
        except KeyError:
            return default

    def __missing__(self, name: Any) -> Tensor:
        text = name if isinstance(name, str) else ""
        with torch.no_grad():
            if match := _SCALE.fullmatch(text):
                return self._scale(match[1] or "", match[2])
            if match := _BY_PART.fullmatch(text):
                return self._by_part(match[1], match[2])
        raise KeyError(f"{name!r}: expected a hook's name; {WRAPPED} takes short names and has methods")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a cache by hook name has no {name}; {WRAPPED} has TransformerLens's methods")

    def _scale(self, place: str, norm: str) -> Tensor:
        """What a norm divides by, [..., 1]."""
        last = f"blocks.{self.model.config.n_layers - 1}.hook_resid_post"
        resid = {"ln1": f"{place}hook_resid_pre", "ln2": f"{place}hook_resid_mid", "ln_final": last}
        x = self[resid[norm]]
        return (x.float().pow(2).mean(-1, keepdim=True) + self.model.config.norm_eps).sqrt().to(x.dtype)

    def _by_part(self, place: str, part: str) -> Tensor:
        """What each head adds, [..., head, d_model], or the neurons, [..., d_mlp]."""
        by_head = part.startswith("attn")
        source = self[f"{place}.attn.hook_z_gated" if by_head else f"{place}.ln2.hook_normalized"]
        block = self.model.get_submodule(place)
        if by_head:
            return torch.einsum("...hd,hdm->...hm", source, block.attn.output_by_head)
        return block.mlp.neurons((source * block.ln2.weight * block.ln2.factor).to(source.dtype))


LAYER = "model.blocks[layer]"
ELSEWHERE = {
    "generate": "mta_viz.run.tracing.generate(model, text, n) continues greedily",
    "loss_fn": 'model(text, return_type="loss") is the mean over next tokens',
    "get_token_position": "model.to_str_tokens(text) has every token in its place",
    "all_head_labels": "mta_viz.head_scores(trace) names every head",
    "set_use_attn_result": "the cache has blocks.N.attn.hook_result as it is asked for",
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "QK", "OV"), f"{LAYER}.attn.wq, wk, wv, wo have them"),
    **dict.fromkeys(("W_in", "W_gate", "W_out"), f"{LAYER}.mlp.w1, w3, w2 have them"),
    "W_pos": "positions are rotary",
}


class NotHere(MtaVizError, AttributeError):
    """A name of TransformerLens that our model does not have, with what to take in its place."""


class LensNames:
    """A base of `HookedMTA`, which has the attributes that are read here."""

    config: ModelConfig
    embed: Any
    unembed: Any
    blocks: Any
    ln_final: Any
    tokenizer: Any

    def run_with_cache(self, *arguments: Any, **options: Any) -> tuple[Any, LensCache]:
        """As `HookedRootModule` has it; the cache gives what follows from it as well."""
        output, cache = super().run_with_cache(*arguments, **options)  # type: ignore[misc]
        return output, LensCache(cache, self)

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

    def __getattr__(self, name: str) -> Any:
        if name in ELSEWHERE:
            raise NotHere(f"this model has no {name} of TransformerLens's: {ELSEWHERE[name]}")
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def W_E(self) -> Float[Tensor, "vocab d_model"]:
        """The embedding."""
        return self.embed.weight

    def to_tokens(self, text: str) -> Int[Tensor, "one position"]:
        """A text's ids, BOS first where the tokenizer has one, on the model's device."""
        return torch.tensor([self._encoder.encode(text).ids], device=self.embed.weight.device)

    def to_str_tokens(self, tokens: Any) -> list[str]:
        """The label of each token of a text or of the ids of one prompt."""
        ids = self.to_tokens(tokens) if isinstance(tokens, str) else torch.as_tensor(tokens)
        return list(self._encoder.pieces(tuple(ids.flatten().tolist())))

    def to_string(self, tokens: Any) -> str:
        """The text that the ids of one prompt stand for."""
        return str(self._encoder.decode(tuple(torch.as_tensor(tokens).flatten().tolist())))

    @property
    def _encoder(self) -> Any:
        if self.tokenizer is None:
            raise PromptError("this model came without its tokenizer; give ids")
        return self.tokenizer

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token. Raises PromptError for any other."""
        ids = [token for token in self._encoder.encode(text).ids if token != self.tokenizer.bos_id]
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
        return sum((bias.to(none.device) for bias in (*attended, *wide) if bias is not None), none)
