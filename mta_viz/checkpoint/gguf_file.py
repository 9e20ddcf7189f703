"""GGUF files of Llama-family models: one table of names, tensors dequantised one by one as they are read.

Values come from the `gguf` library's `dequantize`, bit for bit; what is float in the file stays as it is. The
settings are gguf_settings.py's; header and vocabulary are read in tokenizers/.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.gguf_settings import EMBEDDING, HALF_SPLIT, ROPE_FACTORS, UNEMBEDDING, parse_settings
from mta_viz.checkpoint.huggingface import halves
from mta_viz.checkpoint.layout import SAME, Entry, FileWords
from mta_viz.checkpoint.params import Parsed
from mta_viz.checkpoint.types import StoredTensor, StoredWeights, parameter_shapes
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError
from mta_viz.tokenizers.gguf_header import Header, TensorPlace, read_header
from mta_viz.tokenizers.loading import GGUF

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

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
    tied_copy="",  # a file has a second matrix, or is tied
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
    named = replace(parsed, notes=_notes(header), tokenizer_name=GGUF, tokenizer_path=file.name)
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
