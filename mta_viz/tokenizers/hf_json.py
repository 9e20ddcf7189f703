"""tokenizer.json of the `tokenizers` library: any model it can hold, byte-level BPE above all."""

import json
import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from tokenizers import Tokenizer as Library

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.base import LabelledOnce, Tokens
from mta_viz.tokenizers.beside import token_text
from mta_viz.tokenizers.labels import label, label_bytes, unnamed
from mta_viz.tokenizers.spans import spans_of_bytes, spans_of_offsets, utf8, with_bos

_BOS_NAMES = ("<BOS>", "<bos>", "<s>", "<|begin_of_text|>", "<|bos|>", "<|startoftext|>", "[BOS]")
_EOS_NAMES = ("<EOS>", "<eos>", "</s>", "<|end_of_text|>", "<|eos|>", "<|endoftext|>", "[EOS]")
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")


class JsonTokenizer(LabelledOnce):
    """BOS and EOS are what the file's post-processor puts before and after a text.

    Where it puts none, they are looked for by their common names (`_BOS_NAMES`, `_EOS_NAMES`, first
    found wins); with neither there is no BOS or EOS. Padding and truncation asked for in the file
    are switched off, and special strings typed in a prompt are plain text.
    """

    kind: str = "tokenizers"
    _bos_names: Sequence[str] = _BOS_NAMES

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError when `data` is no tokenizer.json (loading.py adds the file's name)."""
        try:
            self._library = Library.from_str(data.decode("utf-8"))
        except Exception as error:  # the library raises Exception itself for every fault of the file
            reason = f"the tokenizers library cannot read it ({str(error)[:120]})."
            raise TokenizerError(reason) from error
        self._library.no_padding()
        self._library.no_truncation()
        self._library.encode_special_tokens = True
        vocabulary = self._library.get_vocab(with_added_tokens=True)
        self.vocab_size: int = max(vocabulary.values(), default=-1) + 1
        before, after = _around_a_text(self._library)
        self.bos_id: int | None = before if before is not None else _first(vocabulary, self._bos_names)
        self.eos_id: int | None = after if after is not None else _first(vocabulary, _EOS_NAMES)
        byte_of = _byte_alphabet() if _uses_bytes(data) else {}
        self._bytes = {i: _bytes_of_piece(piece, byte_of) for piece, i in vocabulary.items()}
        for token_id, token in self._library.get_added_tokens_decoder().items():
            self._bytes[token_id] = token.content.encode()
        # The library drops a byte that has no token, and no unknown token in its place.
        unknown = getattr(self._library.model, "unk_token", None)
        lost = (byte for symbol, byte in byte_of.items() if symbol not in vocabulary and unknown is None)
        self._lost_bytes = frozenset(lost)

    def encode(self, text: str) -> Tokens:
        """BOS + ids. Raises TokenizerError for a lone surrogate and for bytes the vocabulary lacks."""
        encoded = utf8(text)
        if not self._lost_bytes.isdisjoint(encoded):
            self._refuse_lost_bytes(text)
        encoding = self._library.encode(text, add_special_tokens=False)
        parts = [self._bytes[token_id] for token_id in encoding.ids]
        # The tokens' bytes, where they make up the text: the library's offsets lack trimmed spaces.
        if b"".join(parts) == encoded:
            return with_bos(self, text, encoding.ids, spans_of_bytes(map(len, parts), encoded))
        return with_bos(self, text, encoding.ids, spans_of_offsets(encoding.offsets, len(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out; broken bytes become U+FFFD."""
        known = [i for i in ids if 0 <= i < self.vocab_size and i not in (self.bos_id, self.eos_id)]
        return self._library.decode(known, skip_special_tokens=True)

    def _label(self, token_id: int) -> str:
        return label_bytes(self._bytes[token_id]) if token_id in self._bytes else unnamed(token_id)

    def _refuse_lost_bytes(self, text: str) -> None:
        """The library would drop them in silence, and the model see another prompt."""
        lost = {char: None for char in text if not self._lost_bytes.isdisjoint(char.encode())}
        named = ", ".join(f'"{label(char)}" at {text.index(char)}' for char in list(lost)[:20])
        raise TokenizerError(
            f"This model's tokenizer has no token for {named} (first positions, counted from 0). "
            "Remove or replace these characters."
        )


class HuggingFaceTokenizer(JsonTokenizer):
    """As `transformers` reads it: BOS only where the post-processor puts it, special strings are tokens."""

    kind = "huggingface"
    _bos_names = ()

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError as `JsonTokenizer`."""
        super().__init__(data)
        self._library.encode_special_tokens = False

    def with_settings(self, settings: Mapping[str, Any]) -> "HuggingFaceTokenizer":
        """The same, a text ending where `settings` (tokenizer_config.json) say, if that is a token of it."""
        made = copy(self)
        end = self._library.token_to_id(token_text(settings.get("eos_token")) or "")
        made.eos_id = self.eos_id if end is None else end
        return made

    def encode_alone(self, text: str) -> Tokens:
        """The ids of `text` alone, without BOS before it."""
        tokens, first = self.encode(text), int(self.bos_id is not None)
        return Tokens(tokens.ids[first:], tokens.pieces[first:], tokens.spans[first:], text)


def _around_a_text(library: Library) -> tuple[int | None, int | None]:
    """The first id the post-processor puts before a text, the last it puts after; None where none."""
    plain = library.encode("a", add_special_tokens=False).ids
    if not plain:
        return None, None
    full = library.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        end = start + len(plain)
        if full[start:end] == plain:
            return (full[0] if start else None), (full[-1] if end < len(full) else None)
    return None, None


def _first(vocabulary: dict[str, int], names: Sequence[str]) -> int | None:
    return next((vocabulary[name] for name in names if name in vocabulary), None)


def _uses_bytes(data: bytes) -> bool:
    """Whether the vocabulary is written in the byte alphabet: the decoder is, or contains, ByteLevel."""
    decoder = json.loads(data).get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in [decoder, *decoder.get("decoders", [])])


def _byte_alphabet() -> dict[str, int]:
    """{symbol: byte} of byte-level BPE: visible Latin-1 is itself, the n-th other byte U+0100 + n."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _bytes_of_piece(piece: str, byte_of: dict[str, int]) -> bytes:
    """What a vocabulary entry stands for in a text, as far as its name says ("▁" is a space)."""
    if byte_of.keys() >= set(piece):
        return bytes(byte_of[symbol] for symbol in piece)
    if _BYTE_NAME.fullmatch(piece):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()
