"""Lingua's tensor names and layouts <-> ours: one table, and one named layout per kind.

After reading, kernels are [head, c_q, c_k] and head mixing is [group, target, source], whatever
the file holds. Checks names, shapes and dtypes against a configuration; opens no file.
What tensors say about the configuration goes by majority over layers.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.checkpoint import types
from mta_viz.config import PARAMETERS, ModelConfig
from mta_viz.errors import CheckpointError, first_problems

Shape = tuple[int, ...]
TIED_COPY = "output.tied_module.weight"
EMBEDDING = "tok_embeddings.weight"

KERNELS = tuple(PARAMETERS.values())  # what names of kernels and mixing end with


@dataclass(frozen=True)
class Layout:
    """How one kind of parameter lies in the file: its shape there, and both ways between."""

    shape: Callable[[Shape], Shape]
    read: Callable[[Tensor], Tensor]
    write: Callable[[Tensor], Tensor]


def _swapped(mixing: Float[Tensor, "group rows columns"]) -> Float[Tensor, "group columns rows"]:
    return mixing.transpose(1, 2).contiguous()


SAME = Layout(lambda shape: shape, lambda tensor: tensor, lambda tensor: tensor)
# Depthwise convolutions, [head, 1, c_q, c_k]: a channel axis more.
KERNEL = Layout(
    lambda shape: (shape[0], 1, *shape[1:]),
    lambda tensor: tensor.squeeze(1),
    lambda kernel: kernel.unsqueeze(1),
)
GROUPS = Layout(lambda shape: shape, _swapped, _swapped)  # `head_kernel` is [group, source, target]
# `wpsm` and `wposm` are linear layers over all heads, [target, source]: one group.
MATRIX = Layout(lambda shape: shape[1:], lambda tensor: tensor.unsqueeze(0), lambda mixing: mixing.squeeze(0))

MODEL_KEYS: dict[str, tuple[str, Layout]] = {
    "embed.weight": (EMBEDDING, SAME),
    "ln_final.weight": ("norm.weight", SAME),
    "unembed.weight": ("output.weight", SAME),
}
_MODULES = {
    **{"ln1": "attention_norm", "ln2": "ffn_norm", "attn.gate": "attention.gate"},
    **{f"attn.w{side}": f"attention.w{side}" for side in "qkvo"},
    **{f"mlp.w{number}": f"feed_forward.w{number}" for number in "123"},
}
BLOCK_KEYS: dict[str, tuple[str, Layout]] = {
    "attn.kernel_pre": ("attention.mta_kernel", KERNEL),
    "attn.kernel_post": ("attention.mta_kernel_after_sm", KERNEL),
    "attn.head_pre": ("attention.wpsm.weight", MATRIX),
    "attn.group_norm": ("attention.subln.weight", SAME),
    **{f"attn.{name}": (f"attention.{name}", SAME) for name in types.LAMBDAS},
    # of biases Lingua's own models have the gate's alone
    **{
        f"{ours}.{end}": (f"{theirs}.{end}", SAME)
        for ours, theirs in _MODULES.items()
        for end in ("weight", "bias")
    },
}
HEAD_GROUPS, HEAD_MATRIX = ("attention.head_kernel", GROUPS), ("attention.wposm.weight", MATRIX)


@dataclass(frozen=True)
class FileWords:
    """What a format's files call what messages speak of: files, fields and keys.

    `layer` is what keys of layers begin with; `tied_copy` may stand beside a tied `embedding`, and `untie`
    says how to make two matrices of them.
    """

    settings: str
    n_layers: str
    layer: str
    embedding: str
    tied: str
    tied_copies: tuple[str, ...]
    untie: str


LINGUA = FileWords(
    settings="params.json",
    n_layers="model.n_layers",
    layer="layers.",
    embedding=EMBEDDING,
    tied="model.weight_tying",
    tied_copies=(TIED_COPY, "output.weight"),
    untie="set weight_tying to false and name it output.weight",
)


@dataclass(frozen=True)
class Entry:
    """Where one parameter of a model lies in a file: key, shape there, layout."""

    key: str
    shape: Shape
    layout: Layout


def file_entries(config: ModelConfig) -> dict[str, Entry]:
    """Our parameter name -> its place in a Lingua file."""
    block_keys = BLOCK_KEYS | {"attn.head_post": HEAD_MATRIX if config.mta.head_post_linear else HEAD_GROUPS}
    entries = {}
    for name, shape in types.parameter_shapes(config).items():
        if name in MODEL_KEYS:
            key, layout = MODEL_KEYS[name]
        else:
            _, layer, rest = name.split(".", 2)
            suffix, layout = block_keys[rest]
            key = f"layers.{layer}.{suffix}"
        entries[name] = Entry(key, layout.shape(shape), layout)
    return entries


def kernel_entries(config: ModelConfig) -> dict[str, Entry]:
    """The same for the kernels and head-mixing matrices alone."""
    return {name: entry for name, entry in file_entries(config).items() if name.endswith(KERNELS)}


SWITCHES = {
    **dict.fromkeys(types.LAMBDAS, "differential"),
    **{"mta_kernel": "use_mta", "mta_kernel_after_sm": "after_sm_query_kernel_size", "gate": "add_gating"},
    **{"wpsm": "pre_sm_linear_head", "wposm": "post_sm_linear_head", "head_kernel": "head_kernel_size"},
    "subln": "group_norm",
}


def tensor_problems(
    config: ModelConfig,
    weights: types.StoredWeights,
    entries: Mapping[str, Entry] | None = None,
    words: FileWords = LINGUA,
) -> list[str]:
    """Everything wrong with names, shapes and dtypes; no values are read.

    `entries`: another format's (with its `words`), or not all parameters.
    """
    stored = weights.tensors
    expected = {entry.key: entry.shape for entry in (entries or file_entries(config)).values()}
    if config.tied and words.embedding in expected:
        expected |= {copy: expected[words.embedding] for copy in words.tied_copies if copy in stored}
    there = {**stored, **weights.unreadable}
    absent = {key: shape for key, shape in expected.items() if key not in there}
    if there and expected and absent == expected:
        own, wanted = (f"{len(names):,} tensors ({next(iter(names))}, ...)" for names in (there, expected))
        return [f"it holds {own}, and none of the {wanted} of {words.settings}; give that model's file"]
    present = {key: stored[key] for key in expected if key in stored}
    return [
        *first_problems(_missing(config, absent, there, words), "missing tensors"),
        *first_problems(_unknown(expected, stored, words), "tensors the model does not have"),
        *first_problems(list(dict.fromkeys(weights.unreadable.values())), "tensors of no use"),
        *first_problems(_misfits(expected, present), "tensors that do not fit"),
    ]


def _unknown(
    expected: Mapping[str, Shape], stored: Mapping[str, types.StoredTensor], words: FileWords
) -> list[str]:
    """One line per tensor that is too many, and one for all of an option that is off in the settings."""
    problems, off = list[str](), dict[str, list[str]]()
    on = {SWITCHES.get(_own_name(key)) for key in expected}
    for key in (key for key in stored if key not in expected):
        switch = SWITCHES.get(_own_name(key))
        if switch and switch not in on:
            off.setdefault(switch, []).append(key)
            continue
        known = f"{key} {list(stored[key].shape)} is a tensor the model of {words.settings} does not have"
        problems.append(f"{known}; remove it, or correct {words.settings}")
    return problems + [
        f"{min(keys)}{f' and {len(keys) - 1} more are' if keys[1:] else ' is'} of the option {switch}, which "
        f"is off in {words.settings}; set it there as the model was trained"
        for switch, keys in off.items()
    ]


def _own_name(key: str) -> str:
    """`mta_kernel` of `layers.3.attention.mta_kernel`."""
    return key.partition(".attention.")[2].partition(".")[0]


def _missing(
    config: ModelConfig, absent: Mapping[str, Shape], present: Mapping[str, object], words: FileWords
) -> list[str]:
    """One line per missing tensor, and one for all layers of which nothing is there."""

    def layer_of(key: str) -> str | None:
        return key.removeprefix(words.layer).split(".")[0] if key.startswith(words.layer) else None

    there = set(map(layer_of, present))
    wanted = {layer for key in absent if (layer := layer_of(key)) is not None}
    gone = sorted(map(int, wanted - there))
    problems = []
    if gone:
        named = ", ".join(map(str, gone[:8])) + (f" and {len(gone) - 8} more" if len(gone) > 8 else "")
        problems.append(f"every tensor of layer {named} is missing; {words.n_layers} is {config.n_layers}")
    return problems + [
        f"{key} is missing; expected a tensor of shape {list(shape)}"
        for key, shape in absent.items()
        if layer_of(key) is None or layer_of(key) in there
    ]


def _misfits(expected: Mapping[str, Shape], present: Mapping[str, types.StoredTensor]) -> list[str]:
    problems, others = [], dict[torch.dtype, list[str]]()
    for key, tensor in present.items():
        if tensor.shape != expected[key]:
            problems.append(f"{key} has shape {list(tensor.shape)}; expected {list(expected[key])}")
        if tensor.dtype not in types.FLOATS:
            others.setdefault(tensor.dtype, []).append(key)
    for dtype, keys in others.items():
        which = f"{keys[0]} is" if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1:,} more are"
        problems.append(f"{which} {types.dtype_name(dtype)}; expected bf16, fp16 or fp32: save it in one")
    return problems


def read_parameters(
    config: ModelConfig,
    stored: Mapping[str, types.StoredTensor],
    progress: Callable[[float], None] | None,
    entries: Mapping[str, Entry] | None = None,
    words: FileWords = LINGUA,
    conversion: types.Conversion | None = None,
) -> dict[str, Tensor]:
    """All parameters by our names (or those of `entries`), in memory of their own, read one after another.

    `progress` gets the fraction of bytes read. CheckpointError: damaged tensors, tied copies that differ.
    """
    entries = entries or file_entries(config)
    problems: list[str] = []
    if conversion:
        conversion.check(sum(prod(entry.shape) for entry in entries.values()))
    state_dict: dict[str, Tensor] = {}
    total, done = sum(stored[entry.key].n_bytes for entry in entries.values()), 0
    for name, entry in entries.items():
        try:
            tensor = entry.layout.read(stored[entry.key].read())
            if name == "embed.weight" and config.tied:
                for copy in words.tied_copies:
                    problems += _tied_problems(tensor, copy, stored[copy], words) if copy in stored else ()
            state_dict[name] = tensor.to(conversion.dtype) if conversion else tensor
        except CheckpointError as error:
            problems += error.problems
        done += stored[entry.key].n_bytes
        if progress:
            progress(done / total)
    if problems:
        raise CheckpointError(problems)
    return state_dict


def _tied_problems(
    embedding: Float[Tensor, "vocab d_model"], name: str, copy: types.StoredTensor, words: FileWords
) -> tuple[str, ...]:
    try:
        other = copy.read()
    except CheckpointError as error:
        return error.problems
    # Bits, not values: a NaN equals its copy.
    if torch.equal(embedding.view(torch.uint8), other.contiguous().view(torch.uint8)):
        return ()
    return (
        f"{name} differs from {words.embedding}, but {words.tied} says they are one matrix; "
        f"remove the wrong copy, or {words.untie}",
    )


def to_file(
    config: ModelConfig, state_dict: Mapping[str, Tensor], dtype: torch.dtype | None, *, tied_copy: bool
) -> dict[str, Tensor]:
    """Parameters under Lingua's keys and layouts, on the CPU, contiguous, in `dtype` (None: as they are).

    `tied_copy` adds the second name of a tied matrix. Raises CheckpointError when the parameters
    are not exactly those of `config`.
    """
    shapes = types.parameter_shapes(config)
    given = {name: tuple(tensor.shape) for name, tensor in state_dict.items()}
    problems = [
        f"parameter {name} has shape {given.get(name)}; the configuration calls for {shapes.get(name)}"
        for name in shapes | given
        if given.get(name) != shapes.get(name)
    ]
    if problems:
        raise CheckpointError(problems, "The model to write")
    tensors = {
        entry.key: entry.layout.write(state_dict[name].detach()).to("cpu", dtype).contiguous()
        for name, entry in file_entries(config).items()
    }
    if tied_copy and config.tied:
        tensors[TIED_COPY] = tensors[EMBEDDING].clone()
    return tensors


_LAYER_KEY = re.compile(r"layers\.(\d{1,6})\.(.+)")


class _Shapes:
    """Shapes of a file's tensors: by key without its layer (and `attention.`), then by layer."""

    def __init__(self, stored: Mapping[str, types.StoredTensor]) -> None:
        self.by_key: dict[str, dict[int, Shape]] = {}
        for key, tensor in stored.items():
            if match := _LAYER_KEY.fullmatch(key):
                of_layers = self.by_key.setdefault(match[2].removeprefix("attention."), {})
                of_layers[int(match[1])] = tensor.shape

    def layers(self, *keys: str) -> set[int]:
        """The layers that have a tensor of one of these keys (none given: of any)."""
        return {layer for key in keys or self.by_key for layer in self.by_key.get(key, {})}

    def sizes(self, axis: int, *keys: str, rank: int | None = None) -> list[int]:
        """Sizes along an axis of all tensors of these keys that have any (or exactly `rank`) axes."""
        shapes = (shape for key in keys for shape in self.by_key.get(key, {}).values())
        return [shape[axis] for shape in shapes if shape and rank in (None, len(shape))]


def shape_hints(stored: Mapping[str, types.StoredTensor]) -> dict[str, Any]:
    """Field of params.json (or `d_mlp`) -> value the tensors call for, where they call for one."""
    shapes = _Shapes(stored)
    embedding = stored[EMBEDDING].shape if EMBEDDING in stored else ()
    widths = shapes.sizes(0, "attention_norm.weight", "ffn_norm.weight")
    hints: dict[str, Any] = {
        "dim": _usual([*widths, *embedding[-1:]]),
        "n_layers": len(shapes.layers()),
        "vocab_size": embedding[0] if embedding else None,
        "d_mlp": _usual(shapes.sizes(0, "feed_forward.w1.weight")),
        "head_kernel_size": _usual(shapes.sizes(1, "head_kernel", rank=3)),
        **_head_hints(shapes),
        **(_flag_hints(shapes, stored) if stored else {}),
    }
    for prefix, key in (("", "mta_kernel"), ("after_sm_", "mta_kernel_after_sm")):
        hints[f"{prefix}query_kernel_size"] = _usual(shapes.sizes(2, key, rank=4))
        hints[f"{prefix}key_kernel_size"] = _usual(shapes.sizes(3, key, rank=4))
    # A size of 0 (an empty tensor) describes no model, and would be divided by.
    usable = {name: value for name, value in hints.items() if type(value) is not int or value >= 1}
    return {name: value for name, value in usable.items() if value is not None}


def _head_hints(shapes: _Shapes) -> dict[str, int | None]:
    """Head counts show in kernels, mixing and head-wide vectors; a plain model shows none."""
    per_head = shapes.sizes(0, "mta_kernel", "mta_kernel_after_sm", "wpsm.weight", "wposm.weight")
    grouped = zip(*(shapes.sizes(axis, "head_kernel", rank=3) for axis in (0, 1)), strict=True)
    n_heads = _usual([*per_head, *(groups * size for groups, size in grouped)])
    d_head = _usual(shapes.sizes(-1, "subln.weight", "gate.weight"))
    width, kv_width = (_usual(shapes.sizes(0, f"{name}.weight")) for name in ("wq", "wk"))
    if n_heads and not d_head and width:
        d_head = width // n_heads
    if d_head and not n_heads and width:
        n_heads = width // d_head
    n_kv_heads = kv_width // d_head if kv_width and d_head else None
    return {"n_heads": n_heads, "head_dim": d_head, "n_kv_heads": n_kv_heads}


def _flag_hints(shapes: _Shapes, stored: Mapping[str, types.StoredTensor]) -> dict[str, Any]:
    with_kernels = shapes.layers("mta_kernel", "mta_kernel_after_sm")
    gate = _usual(shapes.sizes(0, "gate.weight"))
    return {
        "use_mta": bool(with_kernels or shapes.layers("wpsm.weight", "wposm.weight", "head_kernel")),
        "mta_layers": tuple(sorted(with_kernels)) or None,
        "pre_sm_linear_head": "wpsm.weight" in shapes.by_key,
        "post_sm_linear_head": "wposm.weight" in shapes.by_key,
        "group_norm": "subln.weight" in shapes.by_key,
        "add_gating": gate is not None,
        "gate_1d": None if gate is None else gate == 1,
        "weight_tying": "output.weight" not in stored,
        "qkv_bias": "wq.bias" in shapes.by_key,
        "out_bias": "wo.bias" in shapes.by_key,
        "mlp_bias": "feed_forward.w1.bias" in shapes.by_key,
        "differential": "lambda_q1" in shapes.by_key,
    }


def _usual(values: Iterable[int]) -> int | None:
    counted = Counter(value for value in values if value >= 1).most_common(1)
    return counted[0][0] if counted else None
