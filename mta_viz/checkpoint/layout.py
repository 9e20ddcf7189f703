"""Lingua's tensor names and layouts <-> ours: one table, and one named layout per kind.

After reading, kernels are [head, c_q, c_k] and head mixing is [group, target, source], whatever
the file holds. Checks names, shapes and dtypes against a configuration; opens no file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.checkpoint.stored import FLOATS, StoredTensor, StoredWeights, dtype_name
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, first_problems

Shape = tuple[int, ...]
TIED_COPY = "output.tied_module.weight"
EMBEDDING = "tok_embeddings.weight"

KERNELS = ("kernel_pre", "kernel_post", "head_pre", "head_post")  # what names of kernels and mixing end with


def kernel_from_file(tensor: Float[Tensor, "head 1 c_q c_k"]) -> Float[Tensor, "head c_q c_k"]:
    """Drop the channel axis of a depthwise convolution."""
    return tensor.squeeze(1)


def kernel_to_file(kernel: Float[Tensor, "head c_q c_k"]) -> Float[Tensor, "head 1 c_q c_k"]:
    """Add the channel axis of a depthwise convolution."""
    return kernel.unsqueeze(1)


def groups_from_file(
    tensor: Float[Tensor, "group source target"],
) -> Float[Tensor, "group target source"]:
    """`head_kernel` is indexed [source, target] within a group: swap."""
    return tensor.transpose(1, 2).contiguous()


def groups_to_file(mixing: Float[Tensor, "group target source"]) -> Float[Tensor, "group source target"]:
    """The inverse of `groups_from_file`."""
    return mixing.transpose(1, 2).contiguous()


def matrix_from_file(tensor: Float[Tensor, "target source"]) -> Float[Tensor, "1 target source"]:
    """`wpsm` and `wposm` are linear layers over all heads: one group."""
    return tensor.unsqueeze(0)


def matrix_to_file(mixing: Float[Tensor, "1 target source"]) -> Float[Tensor, "target source"]:
    """The inverse of `matrix_from_file`."""
    return mixing.squeeze(0)


def unchanged(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Every other parameter lies in the file as in the model."""
    return tensor


@dataclass(frozen=True)
class Layout:
    """How one kind of parameter lies in the file: its shape there, and both ways between."""

    shape: Callable[[Shape], Shape]
    read: Callable[[Tensor], Tensor]
    write: Callable[[Tensor], Tensor]


SAME = Layout(lambda shape: shape, unchanged, unchanged)
KERNEL = Layout(lambda shape: (shape[0], 1, *shape[1:]), kernel_from_file, kernel_to_file)
GROUPS = Layout(lambda shape: shape, groups_from_file, groups_to_file)
MATRIX = Layout(lambda shape: shape[1:], matrix_from_file, matrix_to_file)

MODEL_KEYS: dict[str, tuple[str, Layout]] = {
    "embed.weight": (EMBEDDING, SAME),
    "ln_final.weight": ("norm.weight", SAME),
    "unembed.weight": ("output.weight", SAME),
}
BLOCK_KEYS: dict[str, tuple[str, Layout]] = {
    "ln1.weight": ("attention_norm.weight", SAME),
    "ln2.weight": ("ffn_norm.weight", SAME),
    "attn.wq.weight": ("attention.wq.weight", SAME),
    "attn.wk.weight": ("attention.wk.weight", SAME),
    "attn.wv.weight": ("attention.wv.weight", SAME),
    "attn.wo.weight": ("attention.wo.weight", SAME),
    "attn.kernel_pre": ("attention.mta_kernel", KERNEL),
    "attn.kernel_post": ("attention.mta_kernel_after_sm", KERNEL),
    "attn.head_pre": ("attention.wpsm.weight", MATRIX),
    "attn.group_norm": ("attention.subln.weight", SAME),
    "attn.gate.weight": ("attention.gate.weight", SAME),
    "attn.gate.bias": ("attention.gate.bias", SAME),
    "mlp.w1.weight": ("feed_forward.w1.weight", SAME),
    "mlp.w2.weight": ("feed_forward.w2.weight", SAME),
    "mlp.w3.weight": ("feed_forward.w3.weight", SAME),
}
HEAD_GROUPS = ("attention.head_kernel", GROUPS)
HEAD_MATRIX = ("attention.wposm.weight", MATRIX)


@dataclass(frozen=True)
class Entry:
    """Where one parameter of a model lies in a file: key, shape there, layout."""

    key: str
    shape: Shape
    layout: Layout


def file_entries(config: ModelConfig) -> dict[str, Entry]:
    """Our parameter name -> its place in a Lingua file."""
    entries = {}
    for name, shape in parameter_shapes(config).items():
        key, layout = _place(name, config)
        entries[name] = Entry(key, layout.shape(shape), layout)
    return entries


def kernel_entries(config: ModelConfig) -> dict[str, Entry]:
    """The same for the kernels and head-mixing matrices alone."""
    return {name: entry for name, entry in file_entries(config).items() if name.endswith(KERNELS)}


def _place(name: str, config: ModelConfig) -> tuple[str, Layout]:
    if name in MODEL_KEYS:
        return MODEL_KEYS[name]
    _, layer, rest = name.split(".", 2)
    if rest == "attn.head_post":
        suffix, layout = HEAD_MATRIX if config.mta.head_post_linear else HEAD_GROUPS
    else:
        suffix, layout = BLOCK_KEYS[rest]
    return f"layers.{layer}.{suffix}", layout


def tensor_problems(
    config: ModelConfig, weights: StoredWeights, entries: Mapping[str, Entry] | None = None
) -> list[str]:
    """Everything wrong with names, shapes and dtypes; no values are read. `entries`: not all parameters."""
    stored = weights.tensors
    expected = {entry.key: entry.shape for entry in (entries or file_entries(config)).values()}
    if config.tied and TIED_COPY in stored and EMBEDDING in expected:
        expected[TIED_COPY] = expected[EMBEDDING]
    there = {**stored, **weights.unreadable}
    absent = {key: shape for key, shape in expected.items() if key not in there}
    unknown = [
        f"{key} {list(tensor.shape)} is a tensor the model of params.json does not have; "
        "remove it, or correct params.json"
        for key, tensor in stored.items()
        if key not in expected
    ]
    present = {key: stored[key] for key in expected if key in stored}
    return [
        *first_problems(_missing(config, absent, there), "missing tensors"),
        *first_problems(unknown, "tensors the model does not have"),
        *first_problems(list(weights.unreadable.values()), "tensors of no use"),
        *first_problems(_misfits(expected, present), "tensors that do not fit"),
    ]


def _missing(config: ModelConfig, absent: Mapping[str, Shape], present: Mapping[str, object]) -> list[str]:
    """One line per missing tensor, and one for all layers of which nothing is there."""
    there = {key.split(".")[1] for key in present if key.startswith("layers.")}
    gone = [layer for layer in range(config.n_layers) if str(layer) not in there]
    problems = []
    if gone:
        named = ", ".join(map(str, gone[:8])) + (f" and {len(gone) - 8} more" if len(gone) > 8 else "")
        problems.append(f"every tensor of layer {named} is missing; model.n_layers is {config.n_layers}")
    for key, shape in absent.items():
        if not key.startswith("layers.") or key.split(".")[1] in there:
            problems.append(f"{key} is missing; expected a tensor of shape {list(shape)}")
    return problems


def _misfits(expected: Mapping[str, Shape], present: Mapping[str, StoredTensor]) -> list[str]:
    problems = []
    for key, tensor in present.items():
        if tensor.shape != expected[key]:
            problems.append(f"{key} has shape {list(tensor.shape)}; expected {list(expected[key])}")
        if tensor.dtype not in FLOATS:
            problems.append(f"{key} is {dtype_name(tensor.dtype)}; expected a floating-point dtype")
    return problems


def read_parameters(
    config: ModelConfig,
    stored: Mapping[str, StoredTensor],
    progress: Callable[[float], None] | None,
    entries: Mapping[str, Entry] | None = None,
) -> dict[str, Tensor]:
    """All parameters by our names (or those of `entries`), in memory of their own.

    `progress` gets the fraction of bytes read.

    Raises CheckpointError listing every damaged tensor, and tied copies that differ.
    """
    entries = entries or file_entries(config)
    problems: list[str] = []
    state_dict: dict[str, Tensor] = {}
    total, done = sum(stored[entry.key].n_bytes for entry in entries.values()), 0
    for name, entry in entries.items():
        try:
            state_dict[name] = entry.layout.read(stored[entry.key].read())
        except CheckpointError as error:
            problems += error.problems
        done += stored[entry.key].n_bytes
        if progress:
            progress(done / total)
    if "embed.weight" in state_dict and config.tied and TIED_COPY in stored:
        problems += _tied_problems(state_dict["embed.weight"], stored[TIED_COPY])
    if problems:
        raise CheckpointError(problems)
    return state_dict


def _tied_problems(embedding: Float[Tensor, "vocab d_model"], copy: StoredTensor) -> tuple[str, ...]:
    try:
        other = copy.read()
    except CheckpointError as error:
        return error.problems
    # Bits, not values: a NaN equals its copy.
    if torch.equal(embedding.view(torch.uint8), other.contiguous().view(torch.uint8)):
        return ()
    return (
        f"{TIED_COPY} differs from {EMBEDDING}, but model.weight_tying says they are one matrix; "
        "remove the wrong copy, or set weight_tying to false and name it output.weight",
    )


def to_file(
    config: ModelConfig, state_dict: Mapping[str, Tensor], dtype: torch.dtype | None, *, tied_copy: bool
) -> dict[str, Tensor]:
    """Parameters under Lingua's keys and layouts, on the CPU, contiguous, in `dtype` (None: as they are).

    `tied_copy` adds the second name of a tied matrix. Raises CheckpointError when the parameters
    are not exactly those of `config`.
    """
    _check_state_dict(config, state_dict)
    tensors = {
        entry.key: entry.layout.write(state_dict[name].detach()).to("cpu", dtype).contiguous()
        for name, entry in file_entries(config).items()
    }
    if tied_copy and config.tied:
        tensors[TIED_COPY] = tensors[EMBEDDING].clone()
    return tensors


def _check_state_dict(config: ModelConfig, state_dict: Mapping[str, Tensor]) -> None:
    shapes = parameter_shapes(config)
    given = {name: tuple(tensor.shape) for name, tensor in state_dict.items()}
    problems = [
        f"parameter {name} has shape {given.get(name)}; the configuration calls for {shapes.get(name)}"
        for name in [*shapes, *(name for name in given if name not in shapes)]
        if given.get(name) != shapes.get(name)
    ]
    if problems:
        raise CheckpointError(problems, "The model to write")
