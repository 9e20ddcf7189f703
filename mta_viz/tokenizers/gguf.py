"""The header of a GGUF file, read once and never trusted, and its vocabulary as a tokenizer's file.

The `gguf` library's own reader makes an array of numpy for every entry of a vocabulary, as many as the
file claims; here every count and length is held against what the file has left before anything is made
of it. What keys and names mean for a model is checkpoint/gguf.py's.

A vocabulary becomes a file of a kind there is, tokenizer.json or SentencePiece's. `gpt2` there means
byte-level BPE, whose merges act on pieces of a text; how it is cut up the file tells by a name only,
so a name not known here makes no tokenizer. `llama` means SentencePiece with scores.
"""

import json
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import FileError, TokenizerError
from mta_viz.printed import printable, short_repr, size_text
from mta_viz.tokenizers.model_files import SPLIT_PATTERN

MOST_HEADER = 64 * door.MIB
MOST_STRINGS = 2**20  # in all lists; Llama 3 has 128,256 tokens and 280,147 merges
MOST_TENSORS, MOST_KEYS, MOST_AXES = 2**14, 2**14, 4
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
    for count, most, what in ((n_tensors, MOST_TENSORS, "tensors"), (n_keys, MOST_KEYS, "keys")):
        if count > most:
            raise _Damaged(f"claims {count:,} {what}, more than {most:,}")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
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


_PREFIX = "tokenizer.ggml."
_NO_TOKEN = "\uffff"  # no character: what SentencePiece finds no token by (an empty name means its default)
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
# `pre` -> how a text is cut; of the first two the library has the rules itself.
_GPT2 = dict.fromkeys(("gpt-2", "default"), "gpt2")
_SPLITS = {**_GPT2, "smollm": "digits"} | dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), "llama3")
_SPLITS |= dict.fromkeys(("qwen2", "deepseek-r1-qwen"), "qwen2")


@dataclass(frozen=True)
class Vocabulary:
    """What the metadata says of the tokenizer; `types` and `scores` may be empty."""

    model: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    add_bos: bool
    add_space: bool

    def typed(self, *kinds: int) -> list[int]:
        """The ids of tokens of these types."""
        return [token_id for token_id, kind in enumerate(self.types) if kind in kinds]


def vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Raises TokenizerError for a file without one, and for lists that do not fit each other."""
    fields = {key.removeprefix(_PREFIX): value for key, value in metadata.items() if key.startswith(_PREFIX)}
    model, tokens, pre = fields.get("model"), _texts(fields, "tokens"), str(fields.get("pre", ""))
    if type(model) is not str or model not in ("gpt2", "llama") or not tokens:
        raise TokenizerError(f"its tokenizer is {short_repr(model)}; gpt2 and llama can be read.")
    read = Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        types=_numbers(fields, "token_type", len(tokens)),
        scores=_numbers(fields, "scores", len(tokens)),
        merges=_texts(fields, "merges"),
        **{f"{name}_id": _token_id(fields, name, len(tokens)) for name in ("bos", "eos", "unknown")},
        add_bos=_one(fields, "add_bos_token", bool, model == "llama" or _SPLITS.get(pre) == "llama3"),
        add_space=_one(fields, "add_space_prefix", bool, True),
    )
    twice = [token for token, count in Counter(read.tokens).most_common(1) if count > 1]
    if twice:
        raise TokenizerError(f"its vocabulary has the token {short_repr(twice[0])} twice.")
    return read


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name, ())
    if not isinstance(value, tuple):
        raise TokenizerError(f"its {name} are no texts.")
    return value


def _numbers(fields: Mapping[str, Any], name: str, count: int) -> Sequence[Any]:
    values = fields.get(name, ())
    numbers = values.tolist() if hasattr(values, "tolist") else values
    if (
        not isinstance(numbers, list | tuple)
        or len(numbers) not in (0, count)
        or not all(type(number) in (int, float) for number in numbers)
    ):
        raise TokenizerError(f"its {name} do not fit its {count:,} tokens.")
    return numbers


def _token_id(fields: Mapping[str, Any], name: str, count: int) -> int | None:
    value = _one(fields, f"{name}_token_id", int, None)
    return value if value is not None and 0 <= value < count else None  # -1 and the like say that it has none


def _one(fields: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = fields.get(name, default)
    if name in fields and type(value) is not kind:
        expected = "true or false" if kind is bool else "a whole number"
        raise TokenizerError(f"its {name} is {short_repr(value)}; expected {expected}.")
    return value


def tokenizer_file(words: Vocabulary) -> tuple[str, str, bytes]:
    """Kind, file name and bytes of the tokenizer. Raises TokenizerError where the vocabulary makes none."""
    if words.model == "llama":
        return "sp" if words.add_bos else "sp-plain", "tokenizer.model", sentencepiece_file(words)
    return "huggingface", "tokenizer.json", json_file(words)


def json_file(words: Vocabulary) -> bytes:
    """tokenizer.json of a byte-level BPE."""
    split = _SPLITS.get(words.pre)
    if split is None:
        named = f"is called {short_repr(words.pre)} there" if words.pre else "does not stand there"
        raise TokenizerError(
            f"the rule that cuts a text before its merges act {named} and is not known here."
        )
    merges = [merge.split(" ") for merge in words.merges]
    if any(len(pair) != 2 for pair in merges):
        raise TokenizerError("its merges are no pairs of tokens.")
    model = {
        "type": "BPE",
        "ignore_merges": split == "llama3",
        "vocab": {token: token_id for token_id, token in enumerate(words.tokens)},
        "merges": merges,
    }
    whole = {
        "version": "1.0",
        "added_tokens": [_added(words, token_id) for token_id in words.typed(_CONTROL, _USER_DEFINED)],
        "normalizer": {"type": "NFC"} if split == "qwen2" else None,
        "pre_tokenizer": _pre_tokenizer(split),
        "post_processor": _around(words),
        "decoder": _byte_level(use_regex=True),
        "model": model,
    }
    return json.dumps(whole).encode()


def _added(words: Vocabulary, token_id: int) -> dict[str, Any]:
    special = words.types[token_id] == _CONTROL
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": words.tokens[token_id], "special": special, **plain}


def _around(words: Vocabulary) -> dict[str, Any]:
    """BOS, if the file wants it, and EOS: how a tokenizer.json tells them."""
    before, after = words.bos_id if words.add_bos else None, words.eos_id
    ids = {words.tokens[token_id]: token_id for token_id in (before, after) if token_id is not None}
    first, last = (
        [] if token_id is None else [{"SpecialToken": {"id": words.tokens[token_id], "type_id": 0}}]
        for token_id in (before, after)
    )
    single = [*first, {"Sequence": {"id": "A", "type_id": 0}}, *last]
    named = {name: {"id": name, "ids": [token_id], "tokens": [name]} for name, token_id in ids.items()}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": named}


def _pre_tokenizer(split: str) -> dict[str, Any]:
    if split == "gpt2":
        return _byte_level(use_regex=True)
    if split == "digits":
        parts = [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)]
    else:
        pattern = SPLIT_PATTERN if split == "llama3" else SPLIT_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
        cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        parts = [cut, _byte_level(use_regex=False)]
    return {"type": "Sequence", "pretokenizers": parts}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sentencepiece_file(words: Vocabulary) -> bytes:
    """SentencePiece's own file of a BPE with scores: token types are numbered there as in GGUF."""
    from sentencepiece import sentencepiece_model_pb2 as protobuf

    if not words.scores or not words.types:
        raise TokenizerError("its vocabulary has no scores or no types.")
    model = protobuf.ModelProto()  # type: ignore[attr-defined]
    for token, score, kind in zip(words.tokens, words.scores, words.types, strict=True):
        if not token or not _NORMAL <= kind <= _BYTE:
            raise TokenizerError(f"its token {short_repr(token)} is of the type {short_repr(kind)}.")
        model.pieces.add(piece=token, score=score, type=int(kind))
    if words.unknown_id is not None:
        model.pieces[words.unknown_id].type = _UNKNOWN
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.vocab_size = trainer.BPE, len(words.tokens)
    trainer.byte_fallback = bool(words.typed(_BYTE))
    ids = (words.bos_id, words.eos_id, words.unknown_id)
    names = (_NO_TOKEN if token_id is None else words.tokens[token_id] for token_id in ids)
    trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = names
    normalizer.name, normalizer.add_dummy_prefix = "identity", words.add_space
    normalizer.remove_extra_whitespaces, normalizer.escape_whitespaces = False, True
    return model.SerializeToString()
