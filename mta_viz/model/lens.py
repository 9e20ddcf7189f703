"""TransformerLens's names on our model and its cache: what is asked for beside hooks.

Sums are exact; directions of tokens have the final norm's gain in them, which is not folded into the weights.
"""

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from mta_viz.checkpoint.files import run_folder
from mta_viz.checkpoint.types import Source
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.hooking import ActivationCache
from mta_viz.tokenizers.base import tokens_of

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


_SCALE = re.compile(r"(blocks\.\d+\.)?(ln1|ln2|ln_final)\.hook_scale")
_BY_PART = re.compile(r"(blocks\.\d+)\.(attn\.hook_result|mlp\.hook_post)")


class LensCache(dict[str, Tensor]):
    """Activations by hook name, with all that TransformerLens's `ActivationCache` has: methods, short names.

    On demand it has what follows from them and has no hook point of its own: `hook_scale` of each norm,
    `attn.hook_result` (what each head adds) and `mlp.hook_post` (neurons); they are not among the keys.
    """

    def __init__(self, cache: dict[str, Tensor], model: Any, has_batch_dim: bool = True) -> None:
        super().__init__(cache)
        self.model, self.has_batch_dim = model, has_batch_dim

    @property
    def lens(self) -> ActivationCache:
        """TransformerLens's methods on this dict; made anew, since a circle would keep the maps in memory."""
        return ActivationCache(self, self.model, self.has_batch_dim)

    def remove_batch_dim(self) -> None:
        """Of a batch of one, in place."""
        lens = self.lens
        lens.remove_batch_dim()
        self.has_batch_dim = lens.has_batch_dim

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
        if isinstance(name, str | tuple) and name and "hook_" not in text:
            return self.lens[name]  # a short name, which `lens` asks for again under its long one
        raise KeyError(f"{name}: expected a hook's name, or a short one such as ('pattern', 0)")

    def __getattr__(self, name: str) -> Any:
        own = name in ("lens", "model", "has_batch_dim")
        if own or name.startswith("__"):  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.lens, name)

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


ELSEWHERE = {
    "generate": "mta_viz.run.tracing.generate(model, text, n) continues greedily",
    "loss_fn": 'model(text, return_type="loss") is the mean over next tokens',
    "get_token_position": "model.to_str_tokens(text) has every token in its place",
    "to_single_str_token": "model.to_str_tokens([id]) has its label",
    "all_head_labels": "mta_viz.head_scores(trace) names every head",
    "set_use_attn_result": "the cache has blocks.N.attn.hook_result as it is asked for",
    "set_use_split_qkv_input": "hook_q, hook_k and hook_v are there",
    **dict.fromkeys(("QK", "OV"), "FactoredMatrix(model.W_V, model.W_O), and so on, makes it"),
    **dict.fromkeys(("b_Q", "b_K", "b_V", "b_O"), "model.blocks[layer].attn.wq.bias, and so on, is there"),
    **dict.fromkeys(("b_in", "b_gate", "b_out"), "model.blocks[layer].mlp.w1.bias, and so on, is there"),
    "W_pos": "positions are rotary",
}
_STACKED = {
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), "attn"),
    **dict.fromkeys(("W_in", "W_gate", "W_out"), "mlp"),
}


def _are_texts(tokens: object) -> bool:
    """Whether it is a list of texts."""
    return isinstance(tokens, list | tuple) and bool(tokens) and all(isinstance(text, str) for text in tokens)


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
    source: Source | None
    parameters: Any

    def run_with_cache(
        self, tokens: Any, *arguments: Any, remove_batch_dim: bool = False, **options: Any
    ) -> tuple[Any, LensCache]:
        """As `HookedRootModule` has it; the cache is a dict with all that `ActivationCache` has."""
        ids = self.ids_of(tokens, options.pop("prepend_bos", None))
        if options.get("incl_bwd") and not any(weight.requires_grad for weight in self.parameters()):
            raise PromptError("incl_bwd: no weight asks for gradients; call model.requires_grad_(True) first")
        options["remove_batch_dim"] = remove_batch_dim
        output, cache = super().run_with_cache(ids, *arguments, **options)  # type: ignore[misc]
        return output, LensCache(cache, self, has_batch_dim=not remove_batch_dim)

    @property
    def cfg(self) -> SimpleNamespace:
        """Sizes and settings under TransformerLens's names; `n_params`: the layers' matrices, and kernels."""
        own, weight = self.config, self.embed.weight
        name = "multi-token-attention" if self.source is None else run_folder(self.source.path).name
        same = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "n_ctx")
        return SimpleNamespace(
            **{size: getattr(own, size) for size in same},
            n_key_value_heads=own.n_kv_heads,
            d_vocab=own.vocab_size,
            d_vocab_out=own.vocab_size,
            eps=own.norm_eps,
            rotary_base=own.rope_theta,
            model_name=name,
            n_params=sum(matrix.numel() for matrix in self.blocks.parameters() if matrix.ndim > 1),
            device=weight.device,
            dtype=weight.dtype,
            **{"normalization_type": "RMS", "act_fn": "silu", "gated_mlp": True, "attn_only": False},
            **{"positional_embedding_type": "rotary", "default_prepend_bos": True},
        )

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The unembedding; of a tied model the embedding."""
        return (self.embed if self.unembed is None else self.unembed).weight.T

    @property
    def b_U(self) -> Float[Tensor, " vocab"]:
        """The unembedding has no bias."""
        return torch.zeros(self.config.vocab_size, dtype=self.W_U.dtype, device=self.W_U.device)

    def __getattr__(self, name: str) -> Any:
        if part := _STACKED.get(name):  # [layer, ...] of what each layer has under that name
            of_layers = [getattr(getattr(block, part), name) for block in self.blocks]
            return torch.stack([matrix.to(self.embed.weight.device) for matrix in of_layers])
        if name in ELSEWHERE:
            raise NotHere(f"this model has no {name} of TransformerLens's: {ELSEWHERE[name]}")
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def W_E(self) -> Float[Tensor, "vocab d_model"]:
        """The embedding."""
        return self.embed.weight

    def ids_of(self, tokens: Any, prepend_bos: bool | None = None) -> Any:
        """The ids of a text or of several; what is neither comes back as it is."""
        texts = isinstance(tokens, str) or _are_texts(tokens)
        return self.to_tokens(tokens, prepend_bos) if texts else tokens

    def to_tokens(
        self, text: str | Sequence[str], prepend_bos: bool | None = None
    ) -> Int[Tensor, "batch position"]:
        """The ids of a text, or of texts with equally many tokens, on the model's device.

        BOS comes first where the tokenizer puts it there, or as `prepend_bos` says. Raises PromptError for
        others: with padding, losses and last positions would be of what nobody wrote.
        """
        rows = [self._ids(each, prepend_bos) for each in ([text] if isinstance(text, str) else text)]
        lengths = sorted({len(row) for row in rows})
        if len(lengths) != 1:
            counts = " and ".join(map(str, (lengths[0], lengths[-1]))) if lengths else "no"
            alone = "give each alone, or texts with equally many"
            raise PromptError(f"texts of {counts} tokens came; a batch has no padding: {alone}")
        return torch.tensor(rows, device=self.embed.weight.device)

    def _ids(self, text: str, prepend_bos: bool | None) -> list[int]:
        ids, bos = list(tokens_of(self._encoder, text).ids), self._encoder.bos_id
        if prepend_bos and bos is None:
            raise PromptError("prepend_bos: this model's tokenizer has no BOS")
        rest = ids[1:] if bos is not None and ids[:1] == [bos] else ids
        return ids if prepend_bos is None else [bos, *rest] if prepend_bos else rest

    def to_str_tokens(self, tokens: Any, prepend_bos: bool | None = None) -> Any:
        """The label of each token of a text or of one prompt's ids; of a list of texts a list of them."""
        if _are_texts(tokens):
            return [self.to_str_tokens(text, prepend_bos) for text in tokens]
        ids = torch.as_tensor(self.ids_of(tokens, prepend_bos))
        return list(self._encoder.pieces(tuple(ids.flatten().tolist())))

    def to_string(self, tokens: Any) -> Any:
        """The text that the ids of one prompt stand for; of a batch [batch, position] a list of them."""
        ids = torch.as_tensor(tokens)
        if ids.ndim > 1:
            return [self.to_string(row) for row in ids]
        return str(self._encoder.decode(tuple(ids.reshape(-1).tolist())))

    @property
    def _encoder(self) -> Any:
        if self.tokenizer is None:
            raise PromptError("this model came without its tokenizer; give ids")
        return self.tokenizer

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token. Raises PromptError for any other."""
        ids = self._ids(text, prepend_bos=False)
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
