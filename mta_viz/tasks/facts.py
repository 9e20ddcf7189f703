"""Facts hidden in text, one of them asked for: the samples of every task that hides sentences.

Owns where the sentences go, the gold spans and the answer's tokens; haystack.py owns the text between,
needles.py and pairs.py what the facts are. A sample depends on the task, the tokenizer and the seed alone.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, Protocol, runtime_checkable

from mta_viz.errors import PromptError
from mta_viz.tasks.haystack import Piece, exactly, fill, haystack_sentences, plain_ids, sentence_piece
from mta_viz.tokenizers.base import Tokenizer, Tokens

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
