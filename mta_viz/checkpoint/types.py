"""What every reader returns, and the parameter names and shapes a configuration calls for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Literal

import torch

from mta_viz.config import ModelConfig
from mta_viz.tokenizers.base import Tokenizer

Format = Literal["lingua", "dcp", "native", "kernels", "params"]


@dataclass(frozen=True)
class Source:
    """Where a checkpoint came from. `dtype` is the weights' dtype in the file, e.g. `float16`."""

    path: Path
    format: Format
    dtype: str | None
    n_bytes: int
    step: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A model as read: `state_dict` has exactly the names and shapes of `parameter_shapes(config)`.

    Of a source of the format `kernels` it has those of the kernels and head-mixing matrices alone.
    `tokenizer` is None when its file is missing; `tokenizer_problem` then says which file is
    wanted. `tokenizer_path` is the tokenizer's file, or where params.json says it was. `notes` are
    things to tell the user that are no errors (an ignored layer index, say).
    """

    config: ModelConfig
    state_dict: Mapping[str, torch.Tensor]
    tokenizer: Tokenizer | None
    source: Source
    tokenizer_name: str | None = None
    tokenizer_problem: str | None = None
    notes: tuple[str, ...] = field(default=())
    tokenizer_path: str | None = None


@dataclass(frozen=True)
class Summary:
    """What a checkpoint is, found without reading weights.

    `dtype` is that of most values in the file (params.json alone: the one it names). `path` is the
    folder the weights are in; `steps` are all steps of a run folder, `step` the one described.
    """

    config: ModelConfig
    format: Format
    dtype: str | None
    tokenizer_name: str | None
    tokenizer_path: str | None
    n_bytes: int
    path: Path
    steps: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    step: int | None = None


def parameter_count(config: ModelConfig) -> int:
    """Number of parameters; a tied matrix counts once."""
    return sum(prod(shape) for shape in parameter_shapes(config).values())


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter of `HookedMTA(config)`; a tied unembedding is not listed.

    Kernels are [head, c_q, c_k]; head mixing is [group, target, source] whatever the file's layout.
    """
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab_size, config.d_model)}
    for layer in range(config.n_layers):
        for name, shape in _block_shapes(config, layer).items():
            shapes[f"blocks.{layer}.{name}"] = shape
    shapes["ln_final.weight"] = (config.d_model,)
    if not config.tied:
        shapes["unembed.weight"] = (config.vocab_size, config.d_model)
    return shapes


def _block_shapes(config: ModelConfig, layer: int) -> dict[str, tuple[int, ...]]:
    d_model, d_mlp, width = config.d_model, config.d_mlp, config.n_heads * config.d_head
    kv_width = config.n_kv_heads * config.d_head
    kernels, gate = config.kernels(layer), _gate_shape(config)
    optional = {
        "attn.kernel_pre": kernels.pre,
        "attn.kernel_post": kernels.post,
        "attn.head_pre": kernels.head_pre,
        "attn.head_post": kernels.head_post,
        "attn.group_norm": (config.d_head,) if config.mta.group_norm else None,
        "attn.gate.weight": gate,
        "attn.gate.bias": gate[:1] if gate else None,
    }
    fixed = {
        "ln1.weight": (d_model,),
        "attn.wq.weight": (width, d_model),
        "attn.wk.weight": (kv_width, d_model),
        "attn.wv.weight": (kv_width, d_model),
        "attn.wo.weight": (d_model, width),
        "ln2.weight": (d_model,),
        "mlp.w1.weight": (d_mlp, d_model),
        "mlp.w3.weight": (d_mlp, d_model),
        "mlp.w2.weight": (d_model, d_mlp),
    }
    return fixed | {name: shape for name, shape in optional.items() if shape}


def _gate_shape(config: ModelConfig) -> tuple[int, int] | None:
    if config.mta.gate is None:
        return None
    return (1 if config.mta.gate == "1d" else config.d_head, config.d_head)
