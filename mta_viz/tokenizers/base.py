"""What a tokenizer is and what it returns: ids, display pieces and character spans."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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


class LabelledOnce:
    """`pieces` of a tokenizer whose labels cost something: each different id is labelled once."""

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """One label per id; special tokens have their name."""
        labels = {token_id: self._label(token_id) for token_id in set(ids)}
        return tuple(labels[token_id] for token_id in ids)

    def _label(self, token_id: int) -> str:
        raise NotImplementedError
