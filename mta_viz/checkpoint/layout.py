"""Lingua's tensor names and layouts <-> ours: one table, and one named layout per kind.

After reading, kernels are [head, c_q, c_k] and head mixing is [group, target, source], whatever
the file holds. Checks names, shapes and dtypes against a configuration; opens no file.

What the tensors of a file say about the configuration, by majority over layers.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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


_LAYER_KEY = re.compile(r"layers\.(\d{1,6})\.(.+)")


def shape_hints(stored: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Field of params.json (or `d_mlp`) -> value the tensors call for, where they call for one."""
    shapes, n_layers = _by_kind(stored)
    embedding = stored.get(EMBEDDING)
    norms = [*shapes.get("attention_norm.weight", []), *shapes.get("ffn_norm.weight", [])]
    widths = [shape[0] for shape in norms if shape] + (
        [embedding.shape[-1]] if embedding and embedding.shape else []
    )
    found: dict[str, Any] = {
        "dim": _usual(widths),
        "n_layers": n_layers or None,
        "vocab_size": embedding.shape[0] if embedding and embedding.shape else None,
        "d_mlp": _usual(shape[0] for shape in shapes.get("feed_forward.w1.weight", []) if shape),
        **_head_hints(shapes),
        **_kernel_hints(shapes),
        **(_flag_hints(shapes, stored) if stored else {}),
    }
    return {field: value for field, value in found.items() if value is not None and _is_usable(value)}


def _is_usable(value: Any) -> bool:
    """A size of 0 (an empty tensor) describes no model, and would be divided by."""
    return type(value) is not int or value >= 1


def _by_kind(stored: Mapping[str, StoredTensor]) -> tuple[dict[str, list[Shape]], int]:
    """Shapes by key without its layer, and the number of layers named."""
    shapes: dict[str, list[Shape]] = {}
    layers: set[int] = set()
    for key, tensor in stored.items():
        if match := _LAYER_KEY.fullmatch(key):
            layers.add(int(match[1]))
            shapes.setdefault(match[2], []).append(tensor.shape)
    return shapes, len(layers)


def _head_hints(shapes: Mapping[str, list[Shape]]) -> dict[str, int | None]:
    """Head counts show in kernels, mixing and head-wide vectors; a plain model shows none."""
    rows = {
        name: _usual(s[0] for s in shapes.get(f"attention.{name}.weight", []) if s) for name in ("wq", "wk")
    }
    counts = [
        *(
            s[0]
            for name in ("mta_kernel", "mta_kernel_after_sm")
            for s in shapes.get(f"attention.{name}", [])
            if s
        ),
        *(s[0] for name in ("wpsm", "wposm") for s in shapes.get(f"attention.{name}.weight", []) if s),
        *(s[0] * s[1] for s in shapes.get("attention.head_kernel", []) if len(s) == 3),
    ]
    d_head = _usual(
        s[-1] for name in ("subln", "gate") for s in shapes.get(f"attention.{name}.weight", []) if s
    )
    n_heads = _usual(counts)
    if n_heads and not d_head and rows["wq"]:
        d_head = rows["wq"] // n_heads
    if d_head and not n_heads and rows["wq"]:
        n_heads = rows["wq"] // d_head
    n_kv_heads = rows["wk"] // d_head if rows["wk"] and d_head else None
    return {"n_heads": n_heads, "head_dim": d_head, "n_kv_heads": n_kv_heads}


def _kernel_hints(shapes: Mapping[str, list[Shape]]) -> dict[str, int | None]:
    hints: dict[str, int | None] = {}
    for prefix, name in (("", "mta_kernel"), ("after_sm_", "mta_kernel_after_sm")):
        kernels = [shape for shape in shapes.get(f"attention.{name}", []) if len(shape) == 4]
        hints[f"{prefix}query_kernel_size"] = _usual(shape[2] for shape in kernels)
        hints[f"{prefix}key_kernel_size"] = _usual(shape[3] for shape in kernels)
    groups = [shape for shape in shapes.get("attention.head_kernel", []) if len(shape) == 3]
    hints["head_kernel_size"] = _usual(shape[1] for shape in groups)
    return hints


def _flag_hints(shapes: Mapping[str, list[Shape]], stored: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Options that show by the presence of their tensors."""
    mixers = ("wpsm.weight", "wposm.weight", "head_kernel")
    kernels = [key for key in stored if key.endswith((".mta_kernel", ".mta_kernel_after_sm"))]
    layers = {int(match[1]) for key in kernels if (match := _LAYER_KEY.fullmatch(key))}
    gate = _usual(shape[0] for shape in shapes.get("attention.gate.weight", []) if shape)
    return {
        "use_mta": bool(kernels) or any(f"attention.{name}" in shapes for name in mixers),
        "mta_layers": tuple(sorted(layers)) if layers else None,
        "pre_sm_linear_head": "attention.wpsm.weight" in shapes,
        "post_sm_linear_head": "attention.wposm.weight" in shapes,
        "group_norm": "attention.subln.weight" in shapes,
        "add_gating": gate is not None,
        "gate_1d": None if gate is None else gate == 1,
        "weight_tying": "output.weight" not in stored,
    }


def _usual(values: Iterable[int]) -> int | None:
    counted = Counter(value for value in values if value >= 1).most_common(1)
    return counted[0][0] if counted else None
