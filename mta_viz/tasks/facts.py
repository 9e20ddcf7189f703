"""Sentences hidden in text that fills a token budget exactly, one of them asked for.

A prompt is one text, encoded whole, as anybody would type it: no tokenizer is asked to join pieces. Owns
splitting a text into sentences, filling, where the sentences go, which tokens hold them, the gold spans
and the answer's tokens; needles.py, questions.py and written.py own what is hidden. A sample depends
on the task, the tokenizer and the seed alone.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, Protocol, runtime_checkable

from mta_viz.errors import PromptError
from mta_viz.tasks import grammar
from mta_viz.tokenizers.base import Tokenizer, Tokens, tokens_of

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
    """The ids of `text` by itself, BOS left out. Raises as `tokens_of`."""
    tokens = tokens_of(tokenizer, text)
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
    while wanted >= 0 and wanted not in tried and len(tried) < MOST_ATTEMPTS:
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


DEPTHS = (0, 25, 50, 75, 100)  # of the samples that kernels are measured on

Depth = float | int | None
SpanKind = Literal["needle", "asked", "question", "answer"]
Part = tuple[tuple[SpanKind, int] | None, str]  # kind and index of the fact, None for the haystack; text


@dataclass(frozen=True)
class GoldSpan:
    """Tokens `start`..`stop`-1 of prompt + answer, those that overlap `text`: decoded, they hold it.

    Where a tokenizer folds a space into the next word, the first of them holds the space before `text` too.
    `subject`: what has the `value`, a city or a name and a city.
    """

    kind: SpanKind
    start: int
    stop: int
    text: str
    subject: str
    value: str


@dataclass(frozen=True)
class NeedleSample:
    """A prompt and its answer. `spans` are in order of position; the answer follows the prompt.

    `subject`: what is asked about. `depth` is where the asked needle really is, in per cent of the
    haystack's tokens (NaN without a haystack). `answer_ids` continue the prompt: the value with the space
    before it. `sentences` are the tokens where sentences of the haystack begin.
    """

    tokens: Tokens
    answer: str
    answer_ids: tuple[int, ...]
    subject: str
    depth: float
    spans: tuple[GoldSpan, ...]
    sentences: tuple[int, ...] = ()

    @property
    def needles(self) -> tuple[GoldSpan, ...]:
        """The spans of all needles, the asked one among them."""
        return tuple(span for span in self.spans if span.kind in ("needle", "asked"))

    @property
    def question(self) -> GoldSpan:
        """The span of the question, the prompt's end."""
        return next(span for span in self.spans if span.kind == "question")


@runtime_checkable
class Task(Protocol):
    """What makes samples by number: where needles, pairs or a file's prompts are used, any of them is."""

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        """The sample number `seed`. Raises PromptError and TokenizerError where it cannot be made."""
        ...


def in_turn(tokenizer: Tokenizer, tasks: Sequence[Task], samples: int, seed: int) -> list[NeedleSample]:
    """`samples` of the tasks, one of each in turn, numbered from `seed`. Raises as `Task.sample` does."""
    n = len(tasks)
    return [tasks[i % n].sample(tokenizer, seed + i // n) for i in range(samples)]


@dataclass(frozen=True)
class Fact:
    """What a sentence `text` says: the `value` of a `subject`."""

    subject: str
    value: str
    text: str


@dataclass(frozen=True)
class Hidden:
    """What is to be hidden: `facts`, the first of them asked for by `question`.

    `length`: tokens of the prompt, BOS and question included. `depth`: per cent of the haystack's tokens
    before the asked fact, None for anywhere. `haystack`: a text, None for the grammar. `words`: no sentence
    of a haystack of one's own that holds one of them is used.
    """

    facts: Sequence[Fact]
    question: str
    length: int
    depth: Depth
    haystack: str | None
    words: Sequence[str]


def hide(tokenizer: Tokenizer, hidden: Hidden, rng: random.Random, seed: int, stream: str) -> NeedleSample:
    """The facts in a haystack of the grammar's `stream` or their own, then the question.

    Raises `PromptError` when facts and question do not fit or the haystack is too short, saying by how many
    tokens, and `TokenizerError` for a tokenizer that cannot encode them.
    """
    piece_of = cache(partial(sentence_piece, tokenizer))
    needles, before = [piece_of(fact.text) for fact in hidden.facts], rng.getstate()
    depth = 0.0

    def parts_of(budget: int, skipped: int) -> list[Part]:
        nonlocal depth
        rng.setstate(before)
        texts = haystack_sentences(hidden.haystack, rng, seed, stream)
        if hidden.haystack is not None:
            texts = (text for text in texts if not any(word in text for word in hidden.words))
        hay = fill(map(piece_of, itertools.islice(texts, skipped, None)), budget)
        parts, depth = _spread(hidden.depth, rng, hay, needles)
        return [*parts, (("question", 0), hidden.question)]

    tokens, placed = exactly(tokenizer, hidden.length, _budget(tokenizer, hidden, needles), parts_of)
    asked = hidden.facts[0]
    answer = answer_ids(tokenizer, hidden.question, asked.value)
    placed.append((("answer", 0), len(tokens), len(tokens) + len(answer), tokenizer.decode(answer)))
    spans = []
    for label, start, stop, text in placed:
        if label:
            fact = hidden.facts[label[1]]
            spans.append(GoldSpan(label[0], start, stop, text, fact.subject, fact.value))
    plain = tuple(start for label, start, *_ in placed if label is None)
    return NeedleSample(tokens, asked.value, answer, asked.subject, depth, tuple(spans), plain)


def answer_ids(tokenizer: Tokenizer, question: str, value: str) -> tuple[int, ...]:
    """The ids that continue the question with the value after a space."""
    return ids_after(tokenizer, question, f" {value}")


def ids_after(tokenizer: Tokenizer, text: str, more: str) -> tuple[int, ...]:
    """The ids that continue a text with more of it, as the tokenizer writes the two together."""
    before, whole = plain_ids(tokenizer, text), plain_ids(tokenizer, text + more)
    return whole[len(before) :] if whole[: len(before)] == before else plain_ids(tokenizer, more)


def place_problems(depth: Depth, haystack: str | None) -> list[str]:
    """What is wrong with where facts are to be hidden."""
    problems = []
    if depth is not None and not 0 <= depth <= 100:
        problems.append(f"depth {depth}; expected 0 to 100 per cent")
    if haystack is not None and not haystack.strip():
        problems.append("the haystack text is empty")
    return problems


def choice_problems(name: str, choices: Sequence[object], wanted: int, of: str) -> list[str]:
    """What is wrong with the words that `wanted` ones are drawn from."""
    problems, distinct = [], len(set(choices))
    if distinct != len(choices):
        problems.append(f"{name} are not all distinct")
    if distinct < wanted:
        problems.append(f"{distinct} {name} for {wanted} {of}")
    return problems


def _budget(tokenizer: Tokenizer, hidden: Hidden, needles: list[Piece]) -> int:
    length = hidden.length
    fixed = sum(needle.n_tokens for needle in needles) + len(tokenizer.encode(hidden.question))
    if fixed > length:
        raise PromptError(
            f"{len(needles)} needles and the question take {fixed} tokens, {fixed - length} more than "
            f"the length {length}. Use fewer needles or a larger length."
        )
    return length - fixed


def _spread(
    depth: Depth, rng: random.Random, hay: list[Piece], needles: list[Piece]
) -> tuple[list[Part], float]:
    """Parts of the prompt in order, and the asked needle's true depth.

    At the two ends the asked needle is the outermost of those at one place.
    """
    ends = list(itertools.accumulate((piece.n_tokens for piece in hay), initial=0))
    if depth is None:
        asked, rank = rng.randrange(len(ends)), rng.random()
    else:
        wanted = depth / 100 * ends[-1]
        asked = min(range(len(ends)), key=lambda i: abs(ends[i] - wanted))
        at_end = asked == len(hay) and bool(hay or depth >= 50)
        # of the needles in one place, the asked one comes first or last only at the ends of the haystack
        rank = 2.0 if at_end else -1.0 if asked == 0 else rng.random()
    placed = [(asked, rank, 0)]
    placed += [(rng.randrange(len(ends)), rng.random(), i) for i in range(1, len(needles))]
    parts: list[Part] = []
    for place in range(len(ends)):
        here = [fact for at, _, fact in sorted(placed) if at == place]
        parts += [(("needle" if fact else "asked", fact), needles[fact].text) for fact in here]
        parts += [(None, piece.text) for piece in hay[place : place + 1]]
    return parts, 100 * ends[asked] / ends[-1] if hay else float("nan")
