"""Text between needles or facts: whole sentences that fill a token budget exactly.

A prompt is one text, encoded whole, as anybody would type it: no tokenizer is asked to join pieces. Owns
splitting a text into sentences, filling, and which tokens hold which sentence; needles.py and questions.py
own what goes where.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mta_viz.errors import PromptError
from mta_viz.tasks import grammar
from mta_viz.tokenizers.base import Tokenizer, Tokens

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)|(?<=[.!?][\"')]))\s+")
TAIL_TOKENS = 120  # the end of a haystack, where sentences are chosen to fit
TAIL_SENTENCES = 64
MOST_ATTEMPTS, NEAR = 8, 12  # budgets tried one after another, and around the first one
_BEFORE = "One."
Parts = Sequence[tuple[Any, str]]  # label and text
Placed = list[tuple[Any, int, int, str]]  # label, first token, one after the last, text


@dataclass(frozen=True)
class Piece:
    """A sentence and how many tokens it takes after another one, the space between them included."""

    text: str
    n_tokens: int
    starts: tuple[int, ...]  # the characters at which its tokens begin when it stands by itself


def sentence_piece(tokenizer: Tokenizer, text: str) -> Piece:
    """A sentence as it stands inside a prompt. Raises TokenizerError when it cannot be encoded."""
    alone, before = tokenizer.encode(text), tokenizer.encode(_BEFORE)
    n_tokens = len(tokenizer.encode(f"{_BEFORE} {text}")) - len(before)
    first = _n_bos(tokenizer, alone)
    return Piece(text, n_tokens, tuple(start for start, _ in alone.spans[first:]))


def plain_ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The ids of `text` by itself, BOS left out. Raises TokenizerError when it cannot be encoded."""
    tokens = tokenizer.encode(text)
    return tokens.ids[_n_bos(tokenizer, tokens) :]


def lay_out(tokenizer: Tokenizer, parts: Parts) -> tuple[Tokens, Placed]:
    """The parts as one prompt, a space between each two, encoded whole; and the tokens that overlap each.

    A token that folds the space before a part into its first word belongs to the part, as does one of a part
    of a character. Raises TokenizerError when the prompt cannot be encoded.
    """
    tokens = tokenizer.encode(" ".join(text for _, text in parts))
    begin, placed = 0, []
    for label, text in parts:
        inside = tokens_between(tokenizer, tokens, begin, begin + len(text))
        placed.append((label, inside.start, inside.stop, text))
        begin += len(text) + 1
    return tokens, placed


def tokens_between(tokenizer: Tokenizer, tokens: Tokens, begin: int, end: int) -> range:
    """Those that overlap the characters `begin` to `end` - 1 of their text, BOS never among them."""
    first = _n_bos(tokenizer, tokens)
    inside = [
        place
        for place, (a, b) in enumerate(tokens.spans[first:], first)
        if (a < end and b > begin) or begin <= a == b < end
    ] or [first, first - 1]
    return range(inside[0], inside[-1] + 1)


def exactly(
    tokenizer: Tokenizer, length: int, budget: int, parts_of: Callable[[int, int], Parts]
) -> tuple[Tokens, Placed]:
    """What `lay_out` makes of `parts_of(budget, 0)`, of the budget that gives a prompt of `length` tokens.

    Sentences side by side may take another number of tokens than each after a plain one, so the budget
    follows what the prompt took. Where none near it gives the length, the text starts some sentences later,
    as the second argument of `parts_of` says. Raises PromptError where that does not help either.
    """
    tried: set[int] = set()
    wanted = budget
    while wanted not in tried and len(tried) < MOST_ATTEMPTS:
        tokens, placed = lay_out(tokenizer, parts_of(wanted, 0))
        if len(tokens) == length:
            return tokens, placed
        tried.add(wanted)
        wanted += length - len(tokens)
    for skipped, wanted in itertools.product(range(NEAR), range(max(budget - NEAR, 1), budget + NEAR)):
        with suppress(PromptError):  # too little for a word
            tokens, placed = lay_out(tokenizer, parts_of(wanted, skipped))
            if len(tokens) == length:
                return tokens, placed
    raise PromptError(
        f"With this tokenizer no choice of sentences gives a prompt of exactly {length} tokens. Make it a "
        "few tokens shorter or longer."
    )


def _n_bos(tokenizer: Tokenizer, tokens: Tokens) -> int:
    return 1 if tokenizer.bos_id is not None and tokens.ids[:1] == (tokenizer.bos_id,) else 0


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, white space inside them reduced to single spaces."""
    return [" ".join(part.split()) for part in _SENTENCE_END.split(text.strip()) if part.strip()]


def sentence_starts(text: str) -> list[int]:
    """The characters at which the sentences of a text begin, at least one."""
    first = len(text) - len(text.lstrip())
    after = [match.end() for match in _SENTENCE_END.finditer(text)]
    return [first, *(start for start in after if first < start < len(text))]


def haystack_sentences(text: str | None, rng: random.Random, seed: int, stream: str) -> Iterator[str]:
    """Those of the grammar's `stream`, or of a text once each, from a random one on, those before it last."""
    if text is None:
        return grammar.sentences(seed, stream)
    sentences = split_sentences(text)
    start = rng.randrange(max(len(sentences), 1))
    return itertools.chain(sentences[start:], sentences[:start])


def fill(pieces: Iterable[Piece], budget: int) -> list[Piece]:
    """Pieces, in order, whose tokens sum to `budget`.

    Whole sentences where any choice of the last ones fits; otherwise the first pieces lose leading
    tokens. Raises PromptError saying how many tokens are missing.
    """
    source = iter(pieces)
    taken, left = [], budget
    while left > TAIL_TOKENS and (piece := next(source, None)) is not None:
        if piece.n_tokens <= left:
            taken.append(piece)
            left -= piece.n_tokens
    if left == 0:
        return taken
    seen: list[Piece] = []
    chosen = _exact_choice(itertools.islice(source, TAIL_SENTENCES), left, seen)
    if chosen is not None:
        return taken + [seen[i] for i in chosen]
    for piece in seen:
        if left <= 0:
            break
        taken.append(piece)
        left -= piece.n_tokens
    return _cut(taken, budget)


def _exact_choice(pieces: Iterable[Piece], total: int, seen: list[Piece]) -> tuple[int, ...] | None:
    """Increasing indices of pieces whose costs sum to `total`, as early as any; None if there are none.

    `seen` gets the pieces looked at, no more than needed: encoding them is the slow part.
    """
    choices: dict[int, tuple[int, ...]] = {0: ()}
    for index, piece in enumerate(pieces):
        seen.append(piece)
        for reached, chosen in list(choices.items()):
            if reached + piece.n_tokens <= total:
                choices.setdefault(reached + piece.n_tokens, (*chosen, index))
        if total in choices:
            return choices[total]
    return None


def _cut(pieces: list[Piece], budget: int) -> list[Piece]:
    excess = sum(piece.n_tokens for piece in pieces) - budget
    if excess < 0:
        raise PromptError(
            f"The haystack is {-excess} tokens too short: {budget} are to be filled. "
            "Give a longer text or a smaller length."
        )
    cut = []
    for piece in pieces:
        drop = min(excess, len(piece.starts) - 1)
        start = piece.starts[drop] if drop else 0
        starts = tuple(at - start for at in piece.starts[drop:])
        cut.append(Piece(piece.text[start:], piece.n_tokens - drop, starts))
        excess -= drop
    if excess:
        raise PromptError(
            f"{budget} tokens are left for the haystack, {excess} too few for a word of it. "
            f"Make the length {budget} tokens smaller or at least {excess} larger."
        )
    return cut
