"""tokenizer.json of the `tokenizers` library: any model it can hold, byte-level BPE above all."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import models

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers import base

_BOS_NAMES = ("<BOS>", "<bos>", "<s>", "<|begin_of_text|>", "<|bos|>", "<|startoftext|>", "[BOS]")
_EOS_NAMES = ("<EOS>", "<eos>", "</s>", "<|end_of_text|>", "<|eos|>", "<|endoftext|>", "[EOS]")
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")
_QUOTED = re.compile('"[^"]*"')
_NO_TOKEN = "\uffff no token"  # in no vocabulary: an error where a model without unknown token would drop
_A_TEXT = 2**32 - 2  # the id of a text in what is put around it
_PARTS = ("normalizers", "pretokenizers", "decoders")


class JsonTokenizer(base.LabelledOnce):
    """BOS and EOS are what the file's post-processor puts before and after a text.

    Where it puts none, they are looked for by their common names (`_BOS_NAMES`, `_EOS_NAMES`, first
    found wins); with neither there is no BOS or EOS. Padding, truncation and dropout asked for in the file
    are switched off, and special strings typed in a prompt are plain text.
    """

    kind: str = "tokenizers"
    _bos_names: Sequence[str] = _BOS_NAMES

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError when `data` is no tokenizer.json (loading.py adds the file's name)."""
        try:
            self._library = Library.from_str(data.decode("utf-8"))
        except Exception as error:  # the library raises Exception itself for every fault of the file
            quoted = _QUOTED.sub("...", str(error))  # what stands in the file is nobody else's
            reason = _foreign(data) or f"the tokenizers library cannot read it ({quoted[:120]})."
            raise TokenizerError(reason) from error
        _make_exact(self._library)
        vocabulary = self._library.get_vocab(with_added_tokens=True)
        self.vocab_size: int = max(vocabulary.values(), default=-1) + 1
        before, after = _around_a_text(self._library)
        self.bos_id: int | None = before if before is not None else _first(vocabulary, self._bos_names)
        self.eos_id: int | None = after if after is not None else _first(vocabulary, _EOS_NAMES)
        self._read_steps(json.loads(data), vocabulary)

    def _read_steps(self, settings: dict[str, Any], vocabulary: dict[str, int]) -> None:
        """What the tokens stand for, and how they are joined again."""
        before = [*_steps(settings.get("normalizer")), *_steps(settings.get("pre_tokenizer"))]
        byte_levels = sum(step.get("type") == "ByteLevel" for step in before)
        if byte_levels > 1:
            raise TokenizerError("it writes a text as bytes twice, which no decoder undoes.")
        subwords = isinstance(self._library.model, models.BPE | models.Unigram)
        self._joins = byte_levels == 1 or (subwords and self._library.decoder is None)
        metaspace = [step for step in before if step.get("type") == "Metaspace"]
        self._adds_space = any(step.get("prepend_scheme") != "never" for step in metaspace)
        byte_of = _byte_alphabet() if byte_levels else {}
        space = "▁" if "▁" in json.dumps([before, settings.get("decoder")], ensure_ascii=False) else " "
        self._bytes = {i: _bytes_of_piece(piece, byte_of, space) for piece, i in vocabulary.items()}
        self._special = {self.bos_id, self.eos_id}
        for token_id, token in self._library.get_added_tokens_decoder().items():
            self._bytes[token_id] = token.content.encode()
            self._special |= {token_id} if token.special else set()

    def encode(self, text: str) -> base.Tokens:
        """BOS + ids. Raises TokenizerError for a lone surrogate and for what the vocabulary lacks."""
        encoded = base.utf8(text)
        try:
            encoding = self._library.encode(text, add_special_tokens=False)
        except Exception as error:
            raise self._refusal(text, error) from error
        parts = [self._bytes[token_id] for token_id in encoding.ids]
        # The tokens' bytes, where they make up the text: the library's offsets lack trimmed spaces.
        if b"".join(parts) == encoded:
            return base.with_bos(self, text, encoding.ids, base.spans_of_bytes(map(len, parts), encoded))
        self._check_bytes(text, encoding)
        return base.with_bos(self, text, encoding.ids, base.spans_of_offsets(encoding.offsets, len(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out; broken bytes become U+FFFD."""
        known = [i for i in ids if i in self._bytes and i not in self._special]
        if not self._joins:
            return self._library.decode(known, skip_special_tokens=True)
        text = b"".join(map(self._bytes.__getitem__, known)).decode("utf-8", errors="replace")
        return text.removeprefix(" ") if self._adds_space else text

    def _label(self, token_id: int) -> str:
        return base.label_bytes(self._bytes[token_id]) if token_id in self._bytes else base.unnamed(token_id)

    def _refusal(self, text: str, error: Exception) -> TokenizerError:
        """The library would drop them in silence, and the model see another prompt."""
        lost = [char for char in dict.fromkeys(text) if not self._takes(char)]
        named = ", ".join(f'"{base.label(char)}" at {text.index(char)}' for char in lost[:20])
        places = f"{named} (first positions, counted from 0)"
        if not lost or not isinstance(self._library.model, models.BPE | models.Unigram):
            places = f"a word of the prompt ({base.label(str(error)[:120])})".replace("␣", " ")
        return TokenizerError(
            f"This model's tokenizer has no token for {places}. Remove or replace these characters."
        )

    def _takes(self, text: str) -> bool:
        try:
            return self._library.encode(text, add_special_tokens=False) is not None
        except Exception:
            return False

    def _check_bytes(self, text: str, encoding: Any) -> None:
        """A byte's name typed as text is taken for the byte itself by models that know them."""
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            name = text[start:end]
            if len(name) == 6 and self._library.id_to_token(token_id) == name and _BYTE_NAME.fullmatch(name):
                raise TokenizerError(
                    f'This model\'s tokenizer reads "{name}" at {start} as a byte, not as these characters. '
                    "Remove or replace them."
                )


class HuggingFaceTokenizer(JsonTokenizer):
    """As `transformers` reads it: BOS only where the post-processor puts it, special strings are tokens."""

    kind = "huggingface"
    _bos_names = ()

    def __init__(self, data: bytes) -> None:
        """Raises TokenizerError as `JsonTokenizer`."""
        super().__init__(data)
        self._library.encode_special_tokens = False

    def ending_with(self, token: str) -> "HuggingFaceTokenizer":
        """This one, a text ending with `token` from now on, if that is one of its tokens."""
        end = self._library.token_to_id(token)
        self.eos_id = self.eos_id if end is None else end
        self._special.add(self.eos_id)
        return self


def _foreign(data: bytes) -> str | None:
    """What a JSON file of another kind is."""
    with suppress(ValueError, RecursionError):
        settings = json.loads(data)
        if isinstance(settings, dict) and {"config", "vocab"} <= settings.keys():
            return "it is a tekken file of Mistral's, which is not read: give the model's tokenizer.json."
        if isinstance(settings, dict) and settings and all(type(i) is int for i in settings.values()):
            return "it is a vocabulary without the rest (vocab.json): give the model's tokenizer.json."
    return None


def _make_exact(library: Library) -> None:
    """A text as it is and all of it, the same ids each time; an error where a part of it has no token."""
    library.no_padding()
    library.no_truncation()
    library.encode_special_tokens = True
    if isinstance(library.model, models.BPE):
        library.model.dropout = None
        if library.model.unk_token is None:
            library.model.unk_token = _NO_TOKEN


def _around_a_text(library: Library) -> tuple[int | None, int | None]:
    """The first id the post-processor puts before a text, the last it puts after; None where none."""
    if library.post_processor is None:
        return None, None
    text = Library(models.WordLevel({"x": _A_TEXT}, "x")).encode("x")
    ids = library.post_processor.process(text).ids
    if _A_TEXT not in ids:
        return None, None
    return (ids[0] if ids[0] != _A_TEXT else None), (ids[-1] if ids[-1] != _A_TEXT else None)


def _first(vocabulary: dict[str, int], names: Sequence[str]) -> int | None:
    return next((vocabulary[name] for name in names if name in vocabulary), None)


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """A step of the file, and those in it if it is a sequence of them."""
    if isinstance(step, dict):
        yield step
        for name in _PARTS:
            for inner in step.get(name) or ():
                yield from _steps(inner)


def _byte_alphabet() -> dict[str, int]:
    """{symbol: byte} of byte-level BPE: visible Latin-1 is itself, the n-th other byte U+0100 + n."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _bytes_of_piece(piece: str, byte_of: dict[str, int], space: str) -> bytes:
    """What a vocabulary entry stands for in a text, as far as its name says; `space` is one."""
    if byte_of and byte_of.keys() >= set(piece):
        return bytes(byte_of[symbol] for symbol in piece)
    if _BYTE_NAME.fullmatch(piece):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(space, " ").encode()
