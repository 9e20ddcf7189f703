"""What a tokenizer is and what it returns: ids, display labels and character spans; tokens of ids alone.

The rules that every tokenizer shares. A label is never blank and never holds a replacement character:
visible characters stand for themselves; space is "␣", newline "⏎", tab "⇥"; every other character
that would not be seen (controls, format characters, other spaces, unassigned code points, variation
selectors, a combining mark without its base) is "<U+200B>"; a byte that is only part of a character is
"<0xF0>". So a token with a leading space reads "␣the". Cutting long labels is the drawing's business.

Spans are always a partition of the prompt. A character cut into several tokens belongs to the one that
holds its last byte: only there can the model know which character it is. Characters that no token covers
(a normaliser removed them) belong to the token after them, at the end of the prompt to the last token.
"""

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import index
from typing import Any, Literal, Protocol, TypeVar, get_args, runtime_checkable

from mta_viz.errors import PromptError, TokenizerError, TooLongError


@dataclass(frozen=True)
class Tokens:
    """A tokenized prompt of T tokens.

    `ids[t]` is the vocabulary index, `pieces[t]` the label shown for it (never blank, never a
    replacement character), `spans[t]` = (start, end) the characters of `text` it stands for.
    Spans are in order and `"".join(text[a:b] for a, b in spans) == text`; special tokens and all
    but the last byte of a split character have empty spans (BOS stands for the whole text where a
    tokenizer keeps nothing of it). `text` is None for pasted ids, whose spans are all empty.
    """

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    text: str | None

    def __len__(self) -> int:
        return len(self.ids)

    def named(self, position: int) -> str:
        """A token with its position, as sentences and tables name it: `299 "␣is"`."""
        return f'{position} "{self.pieces[position]}"'


@runtime_checkable
class Tokenizer(Protocol):
    """Text <-> ids. `kind` is char, bytes, tiktoken, sp, sp-plain, tokenizers or huggingface."""

    kind: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None

    def encode(self, text: str) -> Tokens:
        """BOS (if the tokenizer has one) + ids of `text`, without EOS. Raises TokenizerError."""

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of the ids, specials and unknown ids left out; broken bytes become U+FFFD."""

    def pieces(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        """One label per id: whitespace visible, split bytes as <0xF0>, specials named, others <id 4097>."""

    def __hash__(self) -> int:
        """Its own: what is made for a tokenizer is kept for it."""


class LabelledOnce(ABC):
    """`pieces` of a tokenizer whose labels cost something: each different id is labelled once."""

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """One label per id; special tokens have their name."""
        labels = {token_id: self._label(token_id) for token_id in set(ids)}
        return tuple(labels[token_id] for token_id in ids)

    @abstractmethod
    def _label(self, token_id: int) -> str:
        """."""


_WHITESPACE = {" ": "␣", "\n": "⏎", "\t": "⇥"}
# Characters which Unicode files under letters, marks or symbols though nothing (or, for FFFC and
# FFFD, only a stand-in) is drawn for them: fillers, joiners, variation selectors, the blank braille cell.
_UNSEEN = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x16FE4, 0xFFFC, 0xFFFD),
        *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    ]
)

_BYTE_OR_OTHER = re.compile(r"<0x([0-9A-F]{2})>|(.)", re.DOTALL)


@lru_cache(maxsize=1 << 17)
def label(text: str) -> str:
    """The label of a token that stands for `text`; "<empty>" for a token that stands for nothing.

    Lone surrogates U+DC80 to U+DCFF are read as undecodable bytes (Python's surrogateescape).
    """
    shown: list[str] = []
    has_base = False
    for character in text:
        category = unicodedata.category(character)[0]
        hidden = category in "CZ" or ord(character) in _UNSEEN
        has_base = not hidden and (has_base or category != "M")
        shown.append(character if has_base else _escape(character))
    return "".join(shown) or "<empty>"


def label_bytes(piece: bytes) -> str:
    """The label of a token that stands for the UTF-8 bytes `piece`, whole characters or not."""
    return label(piece.decode("utf-8", errors="surrogateescape"))


def quoted(text: str) -> str:
    """`“753”`: a text, or labels put together, as sentences quote it: without spaces around it.

    Of spaces alone the labels are quoted; what else cannot be seen stands as in labels.
    """
    shown = label(text)
    return f"“{shown.replace('␣', ' ').strip() or shown}”"


def split_characters(pieces: Sequence[str]) -> dict[int, str]:
    """Position -> "part 2 of 3 of é", for every token whose label holds bytes of a cut character.

    A token that ends one character and begins the next names both.
    """
    words: dict[int, list[str]] = {}
    content, owners = bytearray(), list[int]()
    for position, piece in enumerate(pieces):
        for byte, other in _BYTE_OR_OTHER.findall(piece):
            value = int(byte, 16) if byte else 0
            if other or value >= 0xC0:  # a character begins: what came before it is through
                content, owners = bytearray(), []
            if other:
                continue
            content.append(value)
            owners += [position] * (position not in owners)
            with suppress(UnicodeDecodeError):  # until it is complete
                character = label(content.decode())
                for part, owner in enumerate(owners if len(owners) > 1 else (), start=1):
                    words.setdefault(owner, []).append(f"part {part} of {len(owners)} of {character}")
                content, owners = bytearray(), []
    return {position: " and ".join(names) for position, names in words.items()}


def reserved(number: int) -> str:
    """The label of a special token kept free for later use."""
    return f"<reserved {number}>"


def unnamed(token_id: int) -> str:
    """The label of an id no tokenizer has a name for (a vocabulary larger than the tokenizer)."""
    return f"<id {token_id}>"


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"<0x{code - 0xDC00:02X}>"
    return _WHITESPACE.get(character) or f"<U+{code:04X}>"


Span = tuple[int, int]


def utf8(text: str) -> bytes:
    """The UTF-8 bytes of `text`. Raises TokenizerError for a lone surrogate, which has none."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"The prompt holds half a character (lone surrogate U+{ord(text[error.start]):04X}) at position "
            f"{error.start}; it is no valid text. Remove it."
        ) from error


def spans_of_bytes(lengths: Iterable[int], encoded: bytes) -> tuple[Span, ...]:
    """Character spans of tokens that are `lengths` bytes long and together make up `encoded`."""
    starts = [byte & 0xC0 != 0x80 for byte in encoded]
    # complete[p]: characters that end at or before byte p, for p = 0 .. len(encoded)
    complete = [count - 1 for count in accumulate([*starts, True])]
    edges = [complete[end] for end in accumulate(lengths, initial=0)]
    return tuple(pairwise(edges))


def spans_of_offsets(offsets: Sequence[Span], length: int) -> tuple[Span, ...]:
    """A partition of 0..length from a library's (start, end) offsets, which may overlap or leave gaps."""
    if not offsets:
        return ()
    furthest_end = accumulate((end for _, end in offsets[:-1]), max)
    next_start = list(accumulate((start for start, _ in reversed(offsets[1:])), min))[::-1]
    inner = [min(pair) for pair in zip(furthest_end, next_start, strict=True)]
    edges = [0, *inner, length]
    return tuple(pairwise(edges))


MOST_CHARACTERS = 2**20  # of a prompt: eight for each token of the longest run
CutPlace = Literal["left", "middle", "right"]
CUT_PLACES: tuple[CutPlace, ...] = get_args(CutPlace)
Cut = TypeVar("Cut", str, tuple)


def tokens_of(tokenizer: Tokenizer, text: str) -> Tokens:
    """The tokens of a text that is given as a prompt. Raises as `check_characters` and `Tokenizer.encode`."""
    check_characters(text)
    return tokenizer.encode(text)


def check_characters(text: str) -> None:
    """Raise TooLongError for a text that no run takes, before anybody makes tokens of it."""
    if len(text) > MOST_CHARACTERS:
        raise TooLongError(
            f"the prompt has {len(text):,} characters, and one may have {MOST_CHARACTERS:,}. "
            "Cut it at the left, in the middle or at the right",
            0,
        )


def cut_text(text: str, place: CutPlace) -> str:
    """What `check_characters` takes of a text."""
    return cut_to(text, MOST_CHARACTERS, place)


def cut_to(values: Cut, most: int, place: CutPlace) -> Cut:
    """At most so many of the values (characters, ids, spans), those at a place cut out."""
    left, out = {"left": 0, "middle": most // 2, "right": most}[place], max(len(values) - most, 0)
    return values[:left] + values[left + out :]


def with_bos(tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span]) -> Tokens:
    """BOS, where the tokenizer has one, and then `ids`, labelled.

    BOS has an empty span, but for a text of which the tokenizer keeps nothing (SentencePiece and a
    line of spaces): it is then the only token and stands for all of it. Raises TokenizerError when
    there is not even a BOS.
    """
    if text and not ids and tokenizer.bos_id is None:
        raise TokenizerError(f"The tokenizer makes no token of the prompt {text[:40]!r}. Type some words.")
    before = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
    all_ids = (*before, *ids)
    bos_span = (0, 0) if ids else (0, len(text))
    all_spans = (*(bos_span for _ in before), *spans)
    return Tokens(ids=all_ids, pieces=tokenizer.pieces(all_ids), spans=all_spans, text=text)


_MAX_NAMED = 5


def ids_from_text(text: str) -> tuple[int, ...]:
    """The ids in pasted text: a JSON list, or whole numbers between spaces, commas or line ends.

    Raises PromptError naming the first entry that is no whole number.
    """
    entries = re.split(r"[\s,]+", text.strip().removeprefix("[").removesuffix("]").strip(" ,\t\r\n"))
    if entries == [""]:
        raise PromptError("No token ids were given. Paste whole numbers such as: 256, 104, 105")
    for place, entry in enumerate(entries):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", entry):
            raise PromptError(
                f"Entry {place} of the token ids is {json.dumps(entry[:40])}, not a whole number. "
                "Paste whole numbers such as: 256, 104, 105"
            )
    return tuple(int(entry) for entry in entries)


def tokens_from_ids(ids: Iterable[Any], *, vocab_size: int, tokenizer: Tokenizer | None = None) -> Tokens:
    """Tokens of `ids` taken as they are (no BOS added), labelled by `tokenizer` or, without one, "<id 17>".

    `ids` may come straight from a JSON file, or be integers of numpy or torch. `vocab_size` is the
    model's. There is no text, so every span is empty. Raises PromptError for no ids, for entries that are no
    integers, and for ids outside 0 .. vocab_size - 1, naming them.
    """
    entries = tuple(ids)
    if not entries:
        raise PromptError("No token ids were given. Give at least one.")
    plain = tuple(map(_whole, entries))
    wrong = [f"{entries[at]!r} at {at}" for at, found in enumerate(plain) if not 0 <= found < vocab_size]
    if wrong:
        more = f" and {len(wrong) - _MAX_NAMED} more" if len(wrong) > _MAX_NAMED else ""
        raise PromptError(
            f"The model's token ids are whole numbers from 0 to {vocab_size - 1}; "
            f"given: {', '.join(wrong[:_MAX_NAMED])}{more} (positions count from 0). Correct them."
        )
    pieces = tuple(map(unnamed, plain)) if tokenizer is None else tokenizer.pieces(plain)
    return Tokens(ids=plain, pieces=pieces, spans=tuple((0, 0) for _ in plain), text=None)


def _whole(entry: Any) -> int:
    """Any kind of integer as an int (a bool is none, a JSON 3.0 is none); -1, never an id, for the rest."""
    try:
        return -1 if isinstance(entry, bool) else index(entry)
    except TypeError:
        return -1
