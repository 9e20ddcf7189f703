"""Text between needles or facts: whole sentences that fill a token budget exactly.

Owns pieces (a sentence with its ids), splitting a text into sentences, filling, and joining pieces
to a prompt; needles.py and questions.py own what goes where.
"""

import itertools
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from mta_viz.errors import PromptError, TokenizerError
from mta_viz.tokenizers.base import Tokenizer, Tokens

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)|(?<=[.!?][\"')]))\s+")
TAIL_TOKENS = 120  # the end of a haystack, where sentences are chosen to fit
TAIL_SENTENCES = 64
Label = TypeVar("Label")


@dataclass(frozen=True)
class Piece:
    """A text with its token ids (no BOS) and the characters each token stands for."""

    text: str
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, n_tokens: int) -> "Piece":
        """The piece without its first `n_tokens` tokens."""
        start = self.spans[n_tokens][0]
        spans = tuple((a - start, b - start) for a, b in self.spans[n_tokens:])
        return Piece(self.text[start:], self.ids[n_tokens:], spans)


def encode_piece(tokenizer: Tokenizer, text: str) -> Piece:
    """`text` encoded by itself, BOS left out. Raises TokenizerError when it cannot be encoded."""
    tokens = tokenizer.encode(text)
    first = 1 if tokenizer.bos_id is not None and tokens.ids[:1] == (tokenizer.bos_id,) else 0
    return Piece(text, tokens.ids[first:], tokens.spans[first:])


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, white space inside them reduced to single spaces."""
    return [" ".join(part.split()) for part in _SENTENCE_END.split(text.strip()) if part.strip()]


def text_sentences(text: str, rng: random.Random) -> Iterator[str]:
    """The sentences of a text once each, from a random one on; those before it come last."""
    sentences = split_sentences(text)
    start = rng.randrange(max(len(sentences), 1))
    return itertools.chain(sentences[start:], sentences[:start])


def fill(pieces: Iterable[Piece], budget: int, separator: int) -> list[Piece]:
    """Pieces, in order, whose lengths with a separator of `separator` tokens each sum to `budget`.

    Whole sentences where any choice of the last ones fits; otherwise the first pieces lose leading
    tokens. Raises PromptError saying how many tokens are missing.
    """
    source = iter(pieces)
    taken, left = [], budget
    while left > TAIL_TOKENS and (piece := next(source, None)) is not None:
        if len(piece) + separator <= left:
            taken.append(piece)
            left -= len(piece) + separator
    if left == 0:
        return taken
    seen: list[Piece] = []
    chosen = _exact_choice(itertools.islice(source, TAIL_SENTENCES), left, separator, seen)
    if chosen is not None:
        return taken + [seen[i] for i in chosen]
    for piece in seen:
        if left <= 0:
            break
        taken.append(piece)
        left -= len(piece) + separator
    return _cut(taken, budget, separator)


def _exact_choice(
    pieces: Iterable[Piece], total: int, separator: int, seen: list[Piece]
) -> tuple[int, ...] | None:
    """Increasing indices of pieces whose costs sum to `total`, as early as any; None if there are none.

    `seen` gets the pieces looked at, no more than needed: encoding them is the slow part.
    """
    choices: dict[int, tuple[int, ...]] = {0: ()}
    for index, piece in enumerate(pieces):
        seen.append(piece)
        for reached, chosen in list(choices.items()):
            if reached + len(piece) + separator <= total:
                choices.setdefault(reached + len(piece) + separator, (*chosen, index))
        if total in choices:
            return choices[total]
    return None


def _cut(pieces: list[Piece], budget: int, separator: int) -> list[Piece]:
    excess = sum(len(piece) + separator for piece in pieces) - budget
    if excess < 0:
        raise PromptError(
            f"The haystack is {-excess} tokens too short: {budget} are to be filled. "
            "Give a longer text or a smaller length."
        )
    cut = []
    for piece in pieces:
        drop = min(excess, len(piece) - 1)
        cut.append(piece.without(drop) if drop else piece)
        excess -= drop
    if excess:
        raise PromptError(
            f"{budget} tokens are left for the haystack, {excess} too few for a word of it. "
            f"Make the length {budget} tokens smaller or at least {excess} larger."
        )
    return cut


def joint_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids between two sentences encoded by themselves, so that the whole decodes with a space.

    A space for byte-level tokenizers; nothing where words carry their space (SentencePiece).
    """
    sentence = encode_piece(tokenizer, "One.").ids
    for between in (encode_piece(tokenizer, " ").ids, ()):
        if tokenizer.decode((*sentence, *between, *sentence)) == "One. One.":
            return between
    raise TokenizerError(
        f"This tokenizer ({tokenizer.kind}) cannot join two sentences with a space; "
        "prompts made of sentences need that."
    )


def join_pieces(
    tokenizer: Tokenizer, parts: Iterable[tuple[Label | None, Piece]], joint: tuple[int, ...]
) -> tuple[Tokens, list[tuple[Label, int, int, str]], tuple[int, ...]]:
    """BOS and the parts with a space between; (label, start, stop, text) of the parts that have one.

    Last come the tokens at which the other parts begin.
    The space's characters go to the joint or, without one, to the next token.
    """
    text = ""
    ids = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    spans = [(0, 0)] * len(ids)
    labelled: list[tuple[Label, int, int, str]] = []
    plain: list[int] = []
    for label, piece in parts:
        offset = len(text) + 1 if labelled or plain else 0
        moved = [(a + offset, b + offset) for a, b in piece.spans]
        if offset and joint:
            ids += joint
            spans += [(offset - 1, offset), *[(offset, offset)] * (len(joint) - 1)]
        elif offset:
            moved[0] = (offset - 1, moved[0][1])
        if label is None:
            plain.append(len(ids))
        else:
            labelled.append((label, len(ids), len(ids) + len(piece), piece.text))
        ids += piece.ids
        spans += moved
        text += f" {piece.text}" if offset else piece.text
    return Tokens(tuple(ids), tokenizer.pieces(tuple(ids)), tuple(spans), text), labelled, tuple(plain)
