"""How a token is written on an axis: the one rule used by every tokenizer.

A label is never blank and never holds a replacement character. Visible characters stand for
themselves; space is "␣", newline "⏎", tab "⇥"; every other character that would not be seen
(controls, format characters, other spaces, unassigned code points, variation selectors, a combining
mark without its base) is "<U+200B>"; a byte that is only part of a character is "<0xF0>". So a token
with a leading space reads "␣the". Cutting long labels is the drawing's business, not this file's.
"""

import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

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
