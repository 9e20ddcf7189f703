"""The hooked model: embedding, blocks, unembedding, with TransformerLens hook names.

Owns the residual stream; attention.py owns what happens inside a layer's attention, lens.py TransformerLens's
other names. Differs from TransformerLens in one name of a hook: `hook_attn_scores` is taken before the mask
(theirs: after it).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mta_viz.checkpoint.types import Checkpoint, Source, dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model import ops
from mta_viz.model.attention import Attention, OnRows
from mta_viz.model.differential import DifferentialAttention
from mta_viz.model.hooking import HookedRootModule, HookPoint, hooked, listened, some_of, weights_of
from mta_viz.model.lens import LensNames, check_options, returned
from mta_viz.model.ops import Resid
from mta_viz.model.plans import Plan
from mta_viz.model.turns import TurnLock, pause
from mta_viz.tokenizers.base import Tokenizer


class RMSNorm(nn.Module):
    """RMSNorm with a weight and a constant factor; `hook_normalized` is taken before the weight."""

    def __init__(self, width: int, eps: float, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.factor = eps, factor
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
        """Normalise over the last axis, where the weight is: a model may be spread over several devices."""
        x = x.to(self.weight.device)
        if x.is_cuda and x.dtype == self.weight.dtype and not listened(self.hook_normalized):
            normed = F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
            return normed if self.factor == 1.0 else normed * self.factor
        normalized = self.hook_normalized(ops.rms_normalize(x, self.eps)) * self.weight * self.factor
        return normalized.to(x.dtype)  # trained gains are float32 whatever the model's dtype


class MLP(nn.Module):
    """w2(silu(w1 h) * w3 h), each with a bias or none."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.d_model, config.d_mlp, bias=config.mlp_bias)
        self.w3 = nn.Linear(config.d_model, config.d_mlp, bias=config.mlp_bias)
        self.w2 = nn.Linear(config.d_mlp, config.d_model, bias=config.mlp_bias)

    def forward(self, x: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """Gated feed-forward of every position."""
        return self.w2(self.neurons(x))

    def neurons(self, x: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_mlp"]:
        """What the output projection reads."""
        return F.silu(self.w1(x)) * self.w3(x)

    W_in = property(lambda self: self.w3.weight.T)  # [d_model, d_mlp], as TransformerLens has them
    W_gate = property(lambda self: self.w1.weight.T)
    W_out = property(lambda self: self.w2.weight.T)  # [d_mlp, d_model]: what each neuron adds


class Block(nn.Module):
    """One layer: attention and MLP, each normed and added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        factor = config.block_norm_scale(layer)
        self.ln1 = RMSNorm(config.d_model, config.norm_eps, factor)
        self.attn = (DifferentialAttention if config.differential else Attention)(config, layer)
        self.ln2 = RMSNorm(config.d_model, config.norm_eps, factor)
        self.mlp = MLP(config)
        self.hook_resid_pre, self.hook_attn_out = HookPoint(), HookPoint()
        self.hook_resid_mid, self.hook_mlp_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()

    def forward(self, resid: Resid, on_rows: OnRows | None = None) -> Resid:
        """Residual stream after this layer; `on_rows` as in `Attention.forward`."""
        pause()
        resid = self.hook_resid_pre(resid)
        attn_out = self.attn(self.ln1(resid), on_rows)
        pause()
        return self.finish(resid, attn_out)

    def last_rows(self, resid: Resid, n_last: int) -> Float[Tensor, "batch last d_model"]:
        """The same at the last `n_last` positions only: of the last layer no other row reaches the logits.

        The last bits may differ from a whole pass. Hooks on the maps get whole maps, so with them all rows
        are computed.
        """
        if self.attn.has_stage_hooks:
            return self(resid)[:, -n_last:]
        n_tokens, qkv = resid.shape[1], self.attn.project(self.ln1(resid))
        z = self.attn.attend_rows(qkv, self.attn.rows(n_tokens - n_last, n_tokens))
        return self.finish(resid[:, -n_last:], self.attn.output(z))

    def finish(self, resid: Resid, attn_out: Resid) -> Resid:
        """Add the attention's output, then the MLP's."""
        attn_out = self.hook_attn_out(attn_out)
        mid = self.hook_resid_mid(resid.to(attn_out.device) + attn_out)
        return self.hook_resid_post(mid + self.hook_mlp_out(self.mlp(self.ln2(mid))))


class Blocks(nn.ModuleList):
    """The layers, known to the type checker as `Block`s."""

    def __getitem__(self, layer: int) -> Block:  # type: ignore[override]
        return cast(Block, super().__getitem__(layer))

    def __iter__(self) -> Iterator[Block]:  # type: ignore[override]
        return cast(Iterator[Block], super().__iter__())


class HookedMTA(LensNames, HookedRootModule):  # type: ignore[valid-type, misc]  # mypy takes it for its module
    """A transformer with multi-token attention as a TransformerLens module.

    Works with `run_with_cache`, `run_with_hooks` and tools built on them, such as `ActivationCache`. `lock`
    is held by every function of `run`: hooks are state on the module (`turns.py`). `as_read` marks the
    weights as they came from the source. A new model has random matrices and identity kernels; parameters are
    named as in `checkpoint.types.parameter_shapes`. Copies and pickles have a lock of their own.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.lock = TurnLock()
        self.tokenizer: Tokenizer | None = None
        self.source: Source | None = None
        self.plan: Plan = ()  # the interventions that were done to the source's weights
        self.as_read: Mapping[str, str] = {}
        # Normal numbers, which nn.Embedding draws, import torch._dynamo where the device is "meta".
        uniform = torch.empty(config.vocab_size, config.d_model).uniform_(-1.0, 1.0)
        self.embed = nn.Embedding.from_pretrained(uniform, freeze=False)
        self.hook_embed = HookPoint()
        self.blocks = Blocks(Block(config, layer) for layer in range(config.n_layers))
        self.ln_final = RMSNorm(config.d_model, config.norm_eps)
        self.unembed = None if config.tied else nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.setup()

    @property
    def path(self) -> Path | None:
        """Where its checkpoint lies, a folder or a file; None for a model that is not from a file."""
        return None if self.source is None else self.source.path

    def __getstate__(self) -> dict[str, Any]:
        """All but the lock, for copies and pickles. MtaVizError under hooks, which belong to this model."""
        if names := hooked(self):
            raise MtaVizError(
                f"the model has hooks at {some_of(names)}, which a copy would not have; take them away: "
                "model.reset_hooks(including_permanent=True), or handle.remove() for torch's own"
            )
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.lock = TurnLock()

    def forward(
        self,
        tokens: object,
        return_type: str | None = "logits",
        prepend_bos: bool | None = None,
        **options: Any,
    ) -> Any:
        """Logits [batch, position, vocab] of `tokens`: a text, texts of one length, ids [batch, position].

        `return_type`: "loss" is the mean over next tokens in nats, "both" is (logits, loss), None nothing.
        PromptError for what is neither text nor ids, and for other options of TransformerLens.
        """
        check_options(return_type, options)
        ids = checked_ids(self.ids_of(tokens, prepend_bos), self.config.vocab_size)
        resid = self.embedded(ids)
        for block in self.blocks:
            resid = block(resid)
        return returned(self.logits(resid), ids, return_type)

    def embedded(self, tokens: Int[Tensor, "batch position"]) -> Resid:
        """What enters the first layer."""
        return self.hook_embed(self.embed(tokens))

    def logits(self, resid: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes vocab"]:
        """Logits read off the residual stream after the last layer (or any layer: logit lens)."""
        weight = self.embed.weight if self.unembed is None else self.unembed.weight
        return F.linear(self.ln_final(resid), weight)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.weight.device

    @property
    def kernels_only(self) -> bool:
        """Whether the model has values for its kernels alone; then it cannot run."""
        return self.embed.weight.is_meta

    @property
    def dtype(self) -> torch.dtype:
        """The dtype weights and activations have."""
        return self.embed.weight.dtype


def checked_ids(tokens: object, vocab_size: int) -> Int[Tensor, "batch position"]:
    """Ids as the model takes them. Raises PromptError saying what came instead."""
    expected = "expected ids as a tensor of whole numbers [batch, position]"
    if not isinstance(tokens, Tensor):
        raise PromptError(f"{type(tokens).__name__} came; {expected}: torch.tensor([ids])")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise PromptError(f"a tensor of {dtype_name(tokens.dtype)} came; {expected}")
    if tokens.ndim != 2:
        remedy = ": ids[None] for one prompt" if tokens.ndim == 1 else ""
        raise PromptError(f"ids of shape {list(tokens.shape)} came; {expected}{remedy}")
    if not tokens.numel():
        raise PromptError(f"no token came (ids of shape {list(tokens.shape)}); {expected}, at least one")
    if tokens.device.type == "cpu" and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        least, most = int(tokens.min()), int(tokens.max())
        raise PromptError(f"ids from {least} to {most} came; the model has 0 to {vocab_size - 1}")
    return tokens


def build_model(
    checkpoint: Checkpoint,
    *,
    device: str | torch.device | Mapping[str, torch.device] = "cpu",
    dtype: torch.dtype | None = None,
) -> HookedMTA:
    """The checkpoint's model on `device`, in `dtype` (None: the file's own), ready to run.

    `device` may be a map of names' beginnings (`embed.`, `blocks.0.` ...) to devices, see `run.placing`.
    Weights already in that dtype and place are used as they are, memory-mapped ones too. Of a checkpoint
    that is not whole, all other weights stay without values, and `tracing` refuses to run it.
    """
    if dtype is None and checkpoint.source.dtype:
        dtype = getattr(torch, checkpoint.source.dtype)  # one dtype, also for a file that mixes them
    places = device.items() if isinstance(device, Mapping) else [("", device)]
    state = {
        name: tensor.to(next(place for part, place in places if name.startswith(part)), dtype)
        for name, tensor in checkpoint.state_dict.items()
    }
    with torch.device("meta"):
        model = HookedMTA(checkpoint.config)
    model.load_state_dict(state, strict=checkpoint.is_whole, assign=True)
    model.tokenizer, model.source = checkpoint.tokenizer, checkpoint.source
    model.as_read = weights_of(model).marks
    return model.requires_grad_(False).eval()
