"""The header of a GGUF file: its metadata and where its tensors lie, read once and never trusted.

The `gguf` library's own reader makes an array of numpy for every entry of a vocabulary, as many as the file
claims; here every count and length is held against what the file has left before anything is made of it.
It stands here since a tokenizer comes from it as well as a model; what keys and names mean is
gguf_vocabulary.py's and checkpoint/gguf_file.py's.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import FileError
from mta_viz.printed import printable, short_repr, size_text

MOST_HEADER = 64 * door.MIB
MOST_STRINGS = 2**20  # in all lists; Llama 3 has 128,256 tokens and 280,147 merges
MOST_TENSORS, MOST_AXES = 2**14, 4
_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_ALIGNMENT = "general.alignment"
_SCALARS = dict(enumerate(("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?")))
_SCALARS |= {10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _LIST = 8, 9


@dataclass(frozen=True)
class TensorPlace:
    """One tensor: shape as torch has it (rows first), the library's type, and its bytes in the file."""

    shape: tuple[int, ...]
    kind: Any  # gguf.GGMLQuantizationType
    start: int
    n_bytes: int


@dataclass(frozen=True)
class Header:
    """Metadata by key (numbers, texts, and lists of either) and tensors by name, in the file's order."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorPlace]
    n_bytes: int


class _Damaged(Exception):
    """What is wrong with the file, to be said with its name."""


def read_header(path: Path) -> Header:
    """Raises FileError for what is no GGUF file, one cut short or damaged, and one of another version."""
    with door.opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            return _header(_Bytes(file, min(size, MOST_HEADER)), size)
        except _Damaged as error:
            raise FileError(printable(path), str(error), "copy it or convert it again") from None


class _Bytes:
    """The file from its start, at most `most` bytes of it."""

    def __init__(self, file: BufferedReader, most: int) -> None:
        self.file, self.left, self.strings_left = file, most, MOST_STRINGS

    @property
    def place(self) -> int:
        return self.file.tell()

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > self.left or len(content := self.file.read(n_bytes)) != n_bytes:
            raise self._cut_short()
        self.left -= n_bytes
        return content

    def _cut_short(self) -> _Damaged:
        return _Damaged(f"is cut short or damaged (byte {self.place:,})")

    def whole(self, n_bytes: int) -> int:
        return int.from_bytes(self.take(n_bytes), "little")

    def text(self) -> str:
        return self.take(self.whole(8)).decode("utf-8", "backslashreplace")

    def texts(self, count: int) -> tuple[str, ...]:
        self.strings_left -= count
        if self.strings_left < 0:
            raise _Damaged(f"lists more than {MOST_STRINGS:,} texts")
        texts, read = [], self.file.read  # a vocabulary has hundreds of thousands: no call more than needed
        for _ in range(count):
            n_bytes = int.from_bytes(read(8), "little")
            self.left -= 8 + n_bytes
            if self.left < 0 or len(content := read(n_bytes)) != n_bytes:
                raise self._cut_short()
            texts.append(content.decode("utf-8", "backslashreplace"))
        return tuple(texts)

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _LIST:
            return self.values(self.whole(4), self.whole(8))
        return self.values(kind, 1)[0]

    def values(self, kind: int, count: int) -> Any:
        """A list of one kind: texts as a tuple, numbers as numpy has them where there are many."""
        if kind == _STRING:
            return self.texts(count)
        if kind not in _SCALARS:
            raise _Damaged("holds lists of lists" if kind == _LIST else f"holds a value of the type {kind}")
        import numpy as np  # here: a command's help needs none of it

        dtype = np.dtype(_SCALARS[kind])
        numbers = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        return numbers.tolist() if count == 1 else numbers


def _header(content: _Bytes, size: int) -> Header:
    if content.take(4) != _MAGIC:
        raise _Damaged("is no GGUF file")
    version = content.whole(4)
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "big"), "little") in _VERSIONS
        raise _Damaged("is big-endian" if swapped else f"is of GGUF version {version}, not 2 or 3")
    n_tensors, n_keys = content.whole(8), content.whole(8)
    if n_tensors > MOST_TENSORS:
        raise _Damaged(f"claims {n_tensors:,} tensors, more than {MOST_TENSORS:,}")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):  # each takes bytes, which end
        key = content.text()
        if key in metadata:
            raise _Damaged(f"has {short_repr(key)} twice")
        metadata[key] = content.value(content.whole(4))
    named = [(printable(content.text()), *_described(content)) for _ in range(n_tensors)]
    return Header(metadata, _placed(named, content.place, metadata.get(_ALIGNMENT, 32), size), size)


def _described(content: _Bytes) -> tuple[tuple[int, ...], int, int]:
    """Shape, type and offset of a tensor."""
    if (n_axes := content.whole(4)) > MOST_AXES:
        raise _Damaged(f"has a tensor of {n_axes:,} axes")
    shape = struct.unpack(f"<{n_axes}Q", content.take(8 * n_axes))
    return shape[::-1], content.whole(4), content.whole(8)


def _placed(
    named: Sequence[tuple[str, tuple[int, ...], int, int]], header: int, alignment: Any, size: int
) -> dict[str, TensorPlace]:
    """Every tensor lies in the file, and no two on the same bytes: what they give is bounded by its size."""
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise _Damaged(f"has {_ALIGNMENT} {short_repr(alignment)}; a power of two is needed")
    start = -(-header // alignment) * alignment
    places = {name: _place(name, shape, kind, start + offset) for name, shape, kind, offset in named}
    if len(places) < len(named):
        raise _Damaged("has two tensors of one name")
    in_order = sorted(places.items(), key=lambda item: item[1].start)
    for name, place in in_order:
        if place.start + place.n_bytes > size:
            needed = size_text(place.start + place.n_bytes)
            raise _Damaged(f"is cut short: {name} ends at {needed}, the file at {size_text(size)}")
    for (first, place), (second, after) in pairwise(in_order):
        if place.start + place.n_bytes > after.start:
            raise _Damaged(f"has {first} and {second} on the same bytes")
    return places


def _place(name: str, shape: tuple[int, ...], kind: int, start: int) -> TensorPlace:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        known = GGMLQuantizationType(kind)
        block, block_bytes = GGML_QUANT_SIZES[known]
    except (KeyError, ValueError):
        raise _Damaged(f"has {name} in the type {kind}, which is unknown") from None
    if shape and shape[-1] % block:
        raise _Damaged(f"has {name} in rows of {shape[-1]:,}, no multiple of {known.name}'s {block}")
    return TensorPlace(shape, known, start, prod(shape) // block * block_bytes)
