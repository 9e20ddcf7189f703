"""What every reader returns: a checkpoint, its summary, and tensors as a file names them before any is read.

Owns the parameter names and shapes a configuration calls for; what the names in a file mean is layout.py's.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from mta_viz.checkpoint.digests import Stamps
from mta_viz.config import ModelConfig
from mta_viz.tokenizers.base import Tokenizer

Format = Literal["lingua", "dcp", "native", "kernels", "adapter", "params", "huggingface", "gguf"]
# DIFF Transformer's vectors, by the names that its public code gives them
LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Source:
    """Where a checkpoint came from: a folder, or the file of a format that is one file.

    `dtype` is the weights' dtype in the file, e.g. `float16`; of a quantised file, the values' as read.
    `path`: the folder of the weights, or the file itself. Of an adapter `base` is where its base was read;
    without one `missing_base` says which is wanted. `files`: those of the weights as they were when read.
    """

    path: Path
    format: Format
    dtype: str | None
    n_bytes: int
    step: int | None = None
    base: Path | None = None
    missing_base: str | None = None
    files: tuple[tuple[Path, Stamps], ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """The folder's name; of a repository in Hugging Face's cache the repository's."""
        folder = self.path.absolute()
        if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
            return folder.parents[1].name.rpartition("--")[2]
        return folder.name


@dataclass(frozen=True)
class Checkpoint:
    """A model as read: `state_dict` has exactly the names and shapes of `parameter_shapes(config)`.

    Of a source of the format `kernels`, or of an adapter without its base, it has fewer: see `is_whole`.
    `tokenizer` is None when its file is missing; `tokenizer_problem` then says which file is
    wanted. `tokenizer_path` is the tokenizer's file, or where params.json says it was. `notes` are
    things to tell the user that are no errors (an ignored layer index, say).
    """

    config: ModelConfig
    state_dict: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    source: Source
    tokenizer_name: str | None = None
    tokenizer_problem: str | None = None
    notes: tuple[str, ...] = ()
    tokenizer_path: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every parameter has its values, so that prompts can be run."""
        return self.source.format != "kernels" and self.source.missing_base is None


@dataclass(frozen=True)
class Summary:
    """What a checkpoint is, found without reading weights.

    `dtype` is that of most values in the file (params.json alone: the one it names). `path` is the
    folder the weights are in, or an adapter's file; `steps` are all steps of a run folder, `step` the one
    described. `base` is the name of the model that an adapter belongs to, `task` what it was trained on.
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
    base: str | None = None
    task: str | None = None


def parameter_count(config: ModelConfig) -> int:
    """Number of parameters; a tied matrix counts once."""
    return sum(prod(shape) for shape in parameter_shapes(config).values())


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter of `HookedMTA(config)`; a tied unembedding is not listed.

    Kernels are [head, c_q, c_k]; head mixing is [group, target, source] whatever the file's layout.
    """
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab_size, config.d_model)}
    for layer in range(config.n_layers):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in _block_shapes(config, layer).items()}
    shapes["ln_final.weight"] = (config.d_model,)
    if not config.tied:
        shapes["unembed.weight"] = (config.vocab_size, config.d_model)
    return shapes


def _block_shapes(config: ModelConfig, layer: int) -> dict[str, tuple[int, ...]]:
    d_model, d_mlp, width = config.d_model, config.d_mlp, config.n_heads * config.d_head
    kv_width = config.n_kv_heads * config.d_head
    kernels = config.kernels(layer)
    gate = {None: None, "1d": (1, config.d_head), "dd": (config.d_head, config.d_head)}[config.mta.gate]
    optional = {
        "attn.kernel_pre": kernels.pre,
        "attn.kernel_post": kernels.post,
        "attn.head_pre": kernels.head_pre,
        "attn.head_post": kernels.head_post,
        "attn.group_norm": (config.d_head,) if config.mta.group_norm else None,
        **dict.fromkeys(map("attn.{}".format, LAMBDAS), (config.d_rotary,) if config.differential else None),
        "attn.gate.weight": gate,
        "attn.gate.bias": gate[:1] if gate else None,
    }
    sides = {"q": width, "k": kv_width, "v": kv_width}
    optional |= {f"attn.w{side}.bias": (size,) if config.qkv_bias else None for side, size in sides.items()}
    optional["attn.wo.bias"] = (d_model,) if config.out_bias else None
    ends = {"w1": d_mlp, "w3": d_mlp, "w2": d_model}
    optional |= {f"mlp.{name}.bias": (size,) if config.mlp_bias else None for name, size in ends.items()}
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


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. `read()` gives memory of its own, or CheckpointError for damaged bytes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]

    @property
    def n_bytes(self) -> int:
        """Bytes of the values."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Conversion:
    """The dtype that each tensor is made as soon as it is read, so that the file's never lie beside it.

    `check` is called with the number of values before any is read, and may refuse them.
    """

    dtype: torch.dtype
    check: Callable[[int], None]


@dataclass(frozen=True)
class StoredWeights:
    """All model tensors of a checkpoint by Lingua's key, and what is wrong with the file itself.

    `unreadable` maps the key of a tensor that is there but of no use to the reason. `n_bytes` is the
    size of the weights' files on disk (other contents included). `notes` are to be told, and no faults;
    `tables` are what the settings give as well; `parts` counts the files of a
    tensor-parallel run, 0 of any other.
    """

    tensors: Mapping[str, StoredTensor]
    problems: tuple[str, ...] = ()
    n_bytes: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tables: Mapping[str, StoredTensor] = field(default_factory=dict)
    parts: int = 0


def has_every_value(tensor: Tensor) -> bool:
    """Whether its storage holds a value for each cell: an expanded tensor is a small file and huge memory."""
    return tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()


def stored_in_memory(tensor: Tensor) -> StoredTensor:
    """A tensor that is already there (memory-mapped, say); `read` copies it."""
    copy = partial(tensor.detach().clone, memory_format=torch.contiguous_format)
    return StoredTensor(tuple(tensor.shape), tensor.dtype, copy)


def common_dtype(weights: StoredWeights) -> str | None:
    """The dtype of most values, e.g. `float16`; None without tensors."""
    counts: Counter[torch.dtype] = Counter()
    for tensor in weights.tensors.values():
        counts[tensor.dtype] += prod(tensor.shape)
    return dtype_name(counts.most_common(1)[0][0]) if counts else None


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")
