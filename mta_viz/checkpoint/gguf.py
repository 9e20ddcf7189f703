"""GGUF files of Llama-family models: what their metadata means, and one table of names for their tensors.

Tensors are dequantised one by one as they are read, by the `gguf` library, bit for bit; what is float in the
file stays as it is. A key of the architecture that is not known here is a fault: it might change the
computation. Header and vocabulary are read in tokenizers/gguf.py.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from io import BufferedReader
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.huggingface import difference, halves
from mta_viz.checkpoint.layout import SAME, Entry, FileWords
from mta_viz.checkpoint.params import MOST_LAYERS, FieldReader, Parsed
from mta_viz.checkpoint.types import StoredTensor, StoredWeights, parameter_shapes
from mta_viz.config import ModelConfig, RopeScaling
from mta_viz.errors import CheckpointError, ConfigError, FileError
from mta_viz.printed import short_repr
from mta_viz.tokenizers.gguf import Header, TensorPlace, read_header
from mta_viz.tokenizers.loading import GGUF

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

ROPE_FACTORS = "rope_freqs.weight"
EMBEDDING, UNEMBEDDING = "token_embd.weight", "output.weight"
INTERLEAVED, HALF_SPLIT = "llama", "qwen2"  # architectures, by the order of rotary pairs in their rows
_SUPPORTED = f"{INTERLEAVED} (Llama, Mistral, SmolLM and what else is written as such) and {HALF_SPLIT}"
_WITHOUT_EFFECT = frozenset(
    ("vocab_size", "tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned")
)
# Fields that leave the computation as it is at one value only, and what another would mean.
_ONLY = {
    "expert_count": (0, "a mixture of experts"),
    "expert_used_count": (0, "a mixture of experts"),
    "rope.scaling.type": ("none", "another rotary embedding"),
    "rope.scaling.factor": (1.0, "another rotary embedding"),
    "rope.scaling.attn_factor": (1.0, "another rotary embedding"),
    "rope.scale_linear": (1.0, "another rotary embedding"),
    "attention.causal": (True, "attention to later tokens"),
    "use_parallel_residual": (False, "attention and MLP side by side"),
}
_LLAMA_3 = (1.0, 4.0, 8192)  # low and high factor, length: of every Llama 3 that scales
_CLOSE = 1e-4  # relative: factors are written as float32


def parse_settings(header: Header, factors: np.ndarray | None) -> Parsed:
    """The configuration and every fault; `factors` are the values of `rope_freqs.weight`, if it is there."""
    metadata = header.metadata
    if problems := _kind_problems(metadata):
        return Parsed(None, tuple(problems))
    architecture = metadata["general.architecture"]
    keys = {key: value for key, value in metadata.items() if key.startswith(f"{architecture}.")}
    fields = {key.split(".", 1)[1]: _usual(value) for key, value in keys.items()}
    block = FieldReader(fields, architecture, {})
    sizes = _sizes(block, header)
    with np.errstate(all="ignore"):  # factors of a file may be 0 and infinite
        scaling = _scaling(block, sizes, factors)
    for name, (neutral, meaning) in _ONLY.items():
        expected = f"{short_repr(neutral)}: {meaning} is not supported"
        block.checked(name, neutral, partial(eq, neutral), expected)
    _check_window(block, sizes)
    block.refuse_unknown(_WITHOUT_EFFECT)
    if block.problems:
        return Parsed(None, tuple(block.problems))
    try:
        return Parsed(ModelConfig(**sizes, rope_scaling=scaling), (), tuple(block.notes))
    except ConfigError as error:
        return Parsed(None, error.problems)


def _kind_problems(metadata: Mapping[str, Any]) -> list[str]:
    """Why the file is no whole model of an architecture that is supported."""
    kind, architecture = metadata.get("general.type", "model"), metadata.get("general.architecture")
    if type(kind) is not str or kind != "model":  # a value may be of any kind: a list equals nothing
        return [f"it holds {short_repr(kind)}, no model"]
    if type(parts := metadata.get("split.count", 1)) is not int or parts != 1:
        remedy = "join them into one file (llama-gguf-split --merge FIRST_PART OUT)"
        return [f"it is one of {short_repr(parts)} parts of a model; {remedy}"]
    if type(architecture) is not str or architecture not in (INTERLEAVED, HALF_SPLIT):
        has = f", which has {differs}" if (differs := difference(architecture)) else ""
        return [f"its architecture is {short_repr(architecture)}{has}; supported are {_SUPPORTED}"]
    return []


def _usual(value: Any) -> Any:
    """The one number of a list with one for each layer, if all are alike; float32 as it was meant (1e-5)."""
    if isinstance(value, np.ndarray):
        alike = value.size > 0 and (value == value[0]).all()
        return value[0].item() if alike else value[:8].tolist()
    if isinstance(value, float) and math.isfinite(value):
        return float(str(np.float32(value))) if float(np.float32(value)) == value else value
    return value


def _sizes(block: FieldReader, header: Header) -> dict[str, Any]:
    d_model, n_heads = block.needed("embedding_length"), block.needed("attention.head_count")
    d_head = block.whole("attention.key_length", max(d_model // n_heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        block.checked(name, d_head, lambda value: value == d_head, f"{d_head}, the width of a head")
    embedding = header.tensors.get(EMBEDDING)
    return {
        "d_model": d_model,
        "n_layers": block.needed("block_count", MOST_LAYERS),
        "n_heads": n_heads,
        "n_kv_heads": block.whole("attention.head_count_kv", n_heads),
        "d_head": d_head,
        "d_mlp": block.needed("feed_forward_length"),
        "vocab_size": block.whole("vocab_size", embedding.shape[0] if embedding and embedding.shape else 1),
        "n_ctx": block.needed("context_length"),
        "norm_eps": block.positive("attention.layer_norm_rms_epsilon", 1e-5),
        "rope_theta": block.positive("rope.freq_base", 10000.0),
        "tied": UNEMBEDDING not in header.tensors,
        "qkv_bias": _has(header, "attn_q.bias"),
        "out_bias": _has(header, "attn_output.bias"),
        "mlp_bias": _has(header, "ffn_gate.bias"),
    }


def _has(header: Header, ending: str) -> bool:
    return any(name.startswith("blk.") and name.endswith(f".{ending}") for name in header.tensors)


def _check_window(block: FieldReader, sizes: Mapping[str, Any]) -> None:
    n_ctx, name = sizes["n_ctx"], "attention.sliding_window"
    expected = f"none, or at least {n_ctx} (the whole context): windowed attention is not supported"
    window = block.checked(name, 0, lambda size: type(size) is int and (size == 0 or size >= n_ctx), expected)
    if window:
        block.note_window(window)


def _scaling(block: FieldReader, sizes: Mapping[str, Any], factors: np.ndarray | None) -> RopeScaling | None:
    """Llama 3's rule, of which the file holds what it gives for each pair: recognised or refused."""
    if factors is None or np.allclose(factors, 1.0, rtol=_CLOSE):
        return None
    low, high, length = _LLAMA_3
    length = block.whole("rope.scaling.original_context_length", length)
    rule = RopeScaling(float(str(factors.max())), low, high, length)
    wanted = slowdowns(rule, sizes["d_head"], sizes["rope_theta"])
    if factors.shape == wanted.shape and np.allclose(factors, wanted, rtol=_CLOSE):
        return rule
    differ = "they have another number"
    if factors.shape == wanted.shape:
        pair = int(np.abs(factors / wanted - 1).argmax())
        differ = f"for pair {pair} the file has {factors[pair]:g}, the rule {wanted[pair]:g}"
    block.problems.append(
        f"{ROPE_FACTORS} is not what Llama 3's rule gives with factor {rule.factor:g}, "
        f"low_freq_factor {low:g}, high_freq_factor {high:g} and {length:,} tokens: {differ}; "
        "no other scaling is supported"
    )
    return None


def slowdowns(rule: RopeScaling, d_head: int, theta: float) -> np.ndarray:
    """[pair]: by how much each pair of a head turns slower under Llama 3's rule."""
    turns = theta ** (-np.arange(0, d_head, 2) / d_head)
    rotations = rule.original_n_ctx * turns / (2 * np.pi)
    kept = np.clip((rotations - rule.low_freq_factor) / (rule.high_freq_factor - rule.low_freq_factor), 0, 1)
    return 1 / (kept + (1 - kept) / rule.factor)


_MODEL = {"embed": EMBEDDING, "ln_final": "output_norm.weight", "unembed": UNEMBEDDING}
_BLOCK = {
    **{"ln1": "attn_norm", "attn.wq": "attn_q", "attn.wk": "attn_k", "attn.wv": "attn_v"},
    **{"attn.wo": "attn_output", "ln2": "ffn_norm"},
    **{"mlp.w1": "ffn_gate", "mlp.w2": "ffn_down", "mlp.w3": "ffn_up"},
}
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
_ROTATED = re.compile(r"\.attn_[qk]\.")  # queries and keys
WORDS = FileWords(
    settings="its metadata",
    n_layers="block_count",
    layer="blk.",
    embedding=EMBEDDING,
    tied="",
    tied_copies=(),  # a file has a second matrix, or is tied
    untie="",
)
_VALUES = 2**19  # dequantised at a time: what the library needs beside the result stays small


def gguf_entries(config: ModelConfig) -> dict[str, Entry]:
    """Our parameter name -> its place in a GGUF file."""
    entries = {}
    for name, shape in parameter_shapes(config).items():
        kind, _, end = name.rpartition(".")
        if name.startswith("blocks."):
            _, layer, kind = kind.split(".", 2)
            key = f"blk.{layer}.{_BLOCK[kind]}.{end}"
        else:
            key = _MODEL[kind]
        entries[name] = Entry(key, shape, SAME)
    return entries


def open_gguf(file: Path) -> tuple[Parsed, StoredWeights]:
    """Settings and tensors of a file, faults listed; no values are read but the rotary factors."""
    try:
        header = read_header(file)
        factors = _rope_factors(file, header)
    except (CheckpointError, FileError) as error:
        reason = error.of(file.name) if isinstance(error, FileError) else error.problems[0]
        return Parsed(None), StoredWeights({}, (reason,))
    parsed = parse_settings(header, factors)
    named = replace(
        parsed, notes=(*parsed.notes, *_notes(header)), tokenizer_name=GGUF, tokenizer_path=file.name
    )
    places = {key: place for key, place in header.tensors.items() if key != ROPE_FACTORS or factors is None}
    return named, _stored(file, header, places, parsed.config)


def _rope_factors(file: Path, header: Header) -> np.ndarray | None:
    place = header.tensors.get(ROPE_FACTORS)
    if place is None or place.kind.name != "F32" or place.n_bytes > door.MIB:
        return None  # it stays among the tensors, where it is one too many
    return _read_floats(file, place, torch.float32).numpy()


def _notes(header: Header) -> tuple[str, ...]:
    counts = Counter(place.kind.name for place in header.tensors.values())
    if counts.keys() <= _FLOATS.keys():
        return ()
    kinds = ", ".join(f"{kind} ({count:,} tensors)" for kind, count in counts.most_common())
    return (f"the file holds {kinds}; dequantised to float32 on reading",)


def _stored(
    file: Path, header: Header, places: Mapping[str, TensorPlace], config: ModelConfig | None
) -> StoredWeights:
    half_split = header.metadata.get("general.architecture") == HALF_SPLIT
    tensors, unreadable = {}, {}
    for key, place in places.items():
        dtype = _FLOATS.get(place.kind.name, torch.float32)
        read: Callable[[], Tensor] = partial(_read_floats, file, place, dtype)
        if place.kind.name not in _FLOATS:
            read = partial(_dequantized, file, place)
            if not _is_known(place.kind):
                unreadable[key] = f"{key} is stored as {place.kind.name}, which cannot be dequantised"
                continue
        if config and half_split and _ROTATED.search(key):
            read = partial(_in_pairs, read, config.d_head)
        tensors[key] = StoredTensor(place.shape, dtype, read)
    return StoredWeights(tensors, (), header.n_bytes, unreadable)


def _in_pairs(read: Callable[[], Tensor], d_head: int) -> Tensor:
    return halves(d_head).read(read())


def _read_floats(file: Path, place: TensorPlace, dtype: torch.dtype) -> Tensor:
    values = torch.empty(place.shape, dtype=dtype)
    with _bytes_of(file, place) as content:
        if content.readinto(values.flatten().view(torch.uint8).numpy().data) != place.n_bytes:
            raise CheckpointError([f"{file.name} changes while it is read; try again when it is whole"])
    return values


def _dequantized(file: Path, place: TensorPlace) -> Tensor:
    """Some blocks at a time: the library makes several arrays of the size of what it is given."""
    from gguf.constants import GGML_QUANT_SIZES
    from gguf.quants import dequantize

    block, block_bytes = GGML_QUANT_SIZES[place.kind]
    values = torch.empty(place.shape)
    flat, step = values.flatten().numpy(), max(_VALUES // block, 1)
    with _bytes_of(file, place) as content, np.errstate(all="ignore"):  # a scale may be infinite
        for start in range(0, flat.size, step * block):
            part = flat[start : start + step * block]
            raw = content.read(part.size // block * block_bytes)
            if len(raw) != part.size // block * block_bytes:
                raise CheckpointError([f"{file.name} changes while it is read; try again when it is whole"])
            part[:] = dequantize(np.frombuffer(raw, np.uint8)[None], place.kind)[0]
    return values


@contextmanager
def _bytes_of(file: Path, place: TensorPlace) -> Iterator[BufferedReader]:
    """The file at the tensor's first byte."""
    try:
        with door.opened(file) as content:
            content.seek(place.start)
            yield content
    except FileError as error:
        raise CheckpointError([error.of(file.name)]) from error
    except OSError as error:
        raise CheckpointError([f"{file.name} cannot be read: {error.strerror or error}"]) from error


@cache
def _is_known(kind: "GGMLQuantizationType") -> bool:
    """Whether the library has values for blocks of this type."""
    from gguf.constants import GGML_QUANT_SIZES
    from gguf.quants import dequantize

    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
