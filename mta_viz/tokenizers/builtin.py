"""The tokenizers that need no file: characters of the block-finding task, and bytes."""

from collections.abc import Sequence
from string import ascii_lowercase

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers import base

ALPHABET = ascii_lowercase + ".#_"
_MAX_NAMED = 20


class CharTokenizer:
    """One id per character of `ALPHABET`; every other character is refused."""

    kind: str = "char"
    vocab_size: int = 32

    def __init__(self) -> None:
        self.bos_id: int | None = len(ALPHABET)
        self.eos_id: int | None = len(ALPHABET) + 1
        self._ids = {character: token_id for token_id, character in enumerate(ALPHABET)}
        free = range(self.vocab_size - len(ALPHABET) - 2)
        self._labels = (*map(base.label, ALPHABET), "<BOS>", "<EOS>", *map(base.reserved, free))

    def encode(self, text: str) -> base.Tokens:
        """BOS + one id per character. Raises TokenizerError naming each unknown character and its place."""
        unknown: dict[str, list[int]] = {}
        for at, character in enumerate(text):
            if character not in self._ids:
                unknown.setdefault(character, []).append(at)
        if unknown:
            raise TokenizerError(_unknown_message(unknown))
        ids = [self._ids[character] for character in text]
        return base.with_bos(self, text, ids, [(at, at + 1) for at in range(len(text))])

    def decode(self, ids: Sequence[int]) -> str:
        """The characters of the ids; BOS, EOS and the free ids have none."""
        return "".join(ALPHABET[token_id] for token_id in ids if 0 <= token_id < len(ALPHABET))

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The character, "<BOS>", "<EOS>" or "<reserved 0>" for each id."""
        return tuple(self._labels[i] if 0 <= i < self.vocab_size else base.unnamed(i) for i in ids)


def _unknown_message(places: dict[str, list[int]]) -> str:
    named = [f'"{base.label(char)}" at {_listed(at)}' for char, at in list(places.items())[:_MAX_NAMED]]
    if len(places) > _MAX_NAMED:
        named.append(f"{len(places) - _MAX_NAMED} more characters")
    return (
        f"This model's tokenizer has no token for: {'; '.join(named)} (positions count from 0). "
        'It knows the small letters a to z and ".", "#", "_" only. Remove or replace the others.'
    )


def _listed(positions: list[int]) -> str:
    first = ", ".join(map(str, positions[:5]))
    return first if len(positions) <= 5 else f"{first} and {len(positions) - 5} more places"


_N_BYTES = 256


class BytesTokenizer:
    """One id per byte; encodes every text."""

    kind: str = "bytes"
    vocab_size: int = _N_BYTES + 2

    def __init__(self) -> None:
        self.bos_id: int | None = _N_BYTES
        self.eos_id: int | None = _N_BYTES + 1
        self._labels = (*(base.label_bytes(bytes([byte])) for byte in range(_N_BYTES)), "<BOS>", "<EOS>")

    def encode(self, text: str) -> base.Tokens:
        """BOS + one id per byte. Raises TokenizerError for a lone surrogate."""
        encoded = base.utf8(text)
        return base.with_bos(self, text, tuple(encoded), base.spans_of_bytes([1] * len(encoded), encoded))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the bytes, BOS and EOS left out; broken bytes become U+FFFD."""
        return bytes(i for i in ids if 0 <= i < _N_BYTES).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The character, or "<0xC3>" for a byte that is only part of one, for each id."""
        return tuple(self._labels[i] if 0 <= i < self.vocab_size else base.unnamed(i) for i in ids)
