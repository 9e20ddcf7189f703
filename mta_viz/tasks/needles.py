"""Needles in a haystack: sentences that give cities their numbers, hidden in text, one asked for.

Owns the task, where needles go and the gold spans; haystack.py owns the text between. Usable with
any tokenizer; a sample depends on the task, the tokenizer and the seed alone.
"""

import itertools
import random
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from mta_viz.errors import PromptError
from mta_viz.tasks.cities import CITIES, NUMBERS
from mta_viz.tasks.haystack import Piece, exactly, fill, haystack_sentences, plain_ids, sentence_piece
from mta_viz.tokenizers.base import Tokenizer, Tokens

PAPER_NEEDLE = "The magic number of {city} is {value}."
RULER_NEEDLE = "One of the special magic numbers for {city} is: {value}."
RULER_QUESTION = (
    "What is the special magic number for {city} mentioned in the provided text? "
    "The special magic number for {city} mentioned in the provided text is"
)
TEMPLATES: dict[str, tuple[str, str | None]] = {  # needle and question, as in `NeedleTask`
    "the paper's": (PAPER_NEEDLE, None),
    "RULER's": (RULER_NEEDLE, RULER_QUESTION),
}
MAX_NEEDLES = 8
NEEDLES, DEPTHS = 4, (0, 25, 50, 75, 100)  # of the samples that kernels are measured on

SpanKind = Literal["needle", "asked", "question", "answer"]
Part = tuple[tuple[SpanKind, int] | None, str]  # kind and index of the fact, None for the haystack; text


@dataclass(frozen=True)
class NeedleTask:
    """What is hidden where.

    `length`: tokens of the prompt, BOS and question included, the answer not. `depth`: per cent of
    the haystack's tokens before the asked needle (0 right after BOS, 100 right before the
    question), None for anywhere. `needle` has {city} and {value}; `question` has {city} and is None
    for the needle up to its value. `haystack` is a text, None for the project's grammar.
    Raises `PromptError` listing every value out of range.
    """

    n_needles: int = 4
    length: int = 512
    depth: float | int | None = None
    needle: str = PAPER_NEEDLE
    question: str | None = None
    haystack: str | None = None
    cities: tuple[str, ...] = CITIES
    numbers: tuple[int, ...] = NUMBERS

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise PromptError("The needle task cannot be set up: " + "; ".join(problems))

    @property
    def question_template(self) -> str:
        """The question with {city}."""
        return self.needle.split("{value}")[0].rstrip() if self.question is None else self.question


@dataclass(frozen=True)
class GoldSpan:
    """Tokens `start`..`stop`-1 of prompt + answer, those that overlap `text`: decoded, they hold it.

    Where a tokenizer folds a space into the next word, the first of them holds the space before `text` too.
    """

    kind: SpanKind
    start: int
    stop: int
    text: str
    city: str
    value: int


@dataclass(frozen=True)
class NeedleSample:
    """A prompt and its answer. `spans` are in order of position; the answer follows the prompt.

    `depth` is where the asked needle really is, in per cent of the haystack's tokens (NaN without
    a haystack). `answer_ids` continue the prompt: the value with the space before it. `sentences`
    are the tokens where sentences of the haystack begin.
    """

    tokens: Tokens
    answer: str
    answer_ids: tuple[int, ...]
    city: str
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


def make_needle_sample(tokenizer: Tokenizer, task: NeedleTask, seed: int) -> NeedleSample:
    """The sample number `seed` of a task.

    Raises `PromptError` when needles and question do not fit or the haystack is too short, saying
    by how many tokens, and `TokenizerError` for a tokenizer that cannot encode the task.
    """
    name = f"needles {task.n_needles}/{task.length}/{task.depth}"
    rng = random.Random(f"{name}/{seed}")
    piece_of = cache(partial(sentence_piece, tokenizer))
    cities = rng.sample(task.cities, task.n_needles)
    facts = list(zip(cities, rng.sample(task.numbers, task.n_needles), strict=True))
    needles = [
        piece_of(task.needle.replace("{city}", city).replace("{value}", str(value))) for city, value in facts
    ]
    city, value = facts[0]  # the first is asked for
    question = task.question_template.replace("{city}", city)
    depth, before = 0.0, rng.getstate()

    def parts_of(budget: int, skipped: int) -> list[Part]:
        nonlocal depth
        rng.setstate(before)
        texts = haystack_sentences(task.haystack, rng, seed, f"{name} haystack")
        if task.haystack is not None:
            texts = (text for text in texts if not any(city in text for city in cities))
        hay = fill(map(piece_of, itertools.islice(texts, skipped, None)), budget)
        parts, depth = _spread(task, rng, hay, needles)
        return [*parts, (("question", 0), question)]

    budget = _haystack_budget(tokenizer, task, needles, question)
    tokens, placed = exactly(tokenizer, task.length, budget, parts_of)
    answer = answer_ids(tokenizer, question, value)
    placed.append((("answer", 0), len(tokens), len(tokens) + len(answer), tokenizer.decode(answer)))
    spans = [
        GoldSpan(label[0], start, stop, text, *facts[label[1]])
        for label, start, stop, text in placed
        if label
    ]
    plain = tuple(start for label, start, *_ in placed if label is None)
    return NeedleSample(tokens, str(value), answer, city, depth, tuple(spans), plain)


def needle_samples(tokenizer: Tokenizer, samples: int, seed: int, length: int) -> list[NeedleSample]:
    """`samples` prompts of `length` tokens with `NEEDLES` needles, the asked one at `DEPTHS` in turn.

    Raises PromptError and TokenizerError as `make_needle_sample` does.
    """
    n_depths = len(DEPTHS)
    return [
        make_needle_sample(tokenizer, NeedleTask(NEEDLES, length, DEPTHS[i % n_depths]), seed + i // n_depths)
        for i in range(samples)
    ]


def answer_ids(tokenizer: Tokenizer, question: str, value: int | str) -> tuple[int, ...]:
    """The ids that continue the question with the value, as the tokenizer writes the two together."""
    asked, whole = plain_ids(tokenizer, question), plain_ids(tokenizer, f"{question} {value}")
    return whole[len(asked) :] if whole[: len(asked)] == asked else plain_ids(tokenizer, f" {value}")


def _haystack_budget(tokenizer: Tokenizer, task: NeedleTask, needles: list[Piece], question: str) -> int:
    fixed = sum(needle.n_tokens for needle in needles) + len(tokenizer.encode(question))
    if fixed > task.length:
        raise PromptError(
            f"{task.n_needles} needles and the question take {fixed} tokens, {fixed - task.length} more than "
            f"the length {task.length}. Use fewer needles or a larger length."
        )
    return task.length - fixed


def _spread(
    task: NeedleTask, rng: random.Random, hay: list[Piece], needles: list[Piece]
) -> tuple[list[Part], float]:
    """Parts of the prompt in order, and the asked needle's true depth.

    At the two ends the asked needle is the outermost of those at one place.
    """
    ends = list(itertools.accumulate((piece.n_tokens for piece in hay), initial=0))
    if task.depth is None:
        asked, rank = rng.randrange(len(ends)), rng.random()
    else:
        wanted = task.depth / 100 * ends[-1]
        asked = min(range(len(ends)), key=lambda i: abs(ends[i] - wanted))
        at_end = asked == len(hay) and bool(hay or task.depth >= 50)
        # of the needles in one place, the asked one comes first or last only at the ends of the haystack
        rank = 2.0 if at_end else -1.0 if asked == 0 else rng.random()
    placed = [(asked, rank, 0)]
    placed += [(rng.randrange(len(ends)), rng.random(), i) for i in range(1, task.n_needles)]
    parts: list[Part] = []
    for place in range(len(ends)):
        here = [fact for at, _, fact in sorted(placed) if at == place]
        parts += [(("needle" if fact else "asked", fact), needles[fact].text) for fact in here]
        parts += [(None, piece.text) for piece in hay[place : place + 1]]
    return parts, 100 * ends[asked] / ends[-1] if hay else float("nan")


def _problems(task: NeedleTask) -> list[str]:
    problems = []
    if not 1 <= task.n_needles <= MAX_NEEDLES:
        problems.append(f"{task.n_needles} needles; expected 1 to {MAX_NEEDLES}")
    if task.depth is not None and not 0 <= task.depth <= 100:
        problems.append(f"depth {task.depth}; expected 0 to 100 per cent")
    missing = [slot for slot in ("{city}", "{value}") if slot not in task.needle]
    problems += [f"the needle {task.needle!r} lacks {slot}" for slot in missing]
    if "{city}" not in task.question_template:
        problem = f"the question {task.question_template!r} lacks {{city}}"
        hint = "; give one, since the needle has its value first" if task.question is None else ""
        problems.append(problem + hint)
    for name, values in (("cities", task.cities), ("numbers", task.numbers)):
        distinct = len(set(values))
        if distinct != len(values):
            problems.append(f"{name} are not all distinct")
        if distinct < task.n_needles:
            problems.append(f"{distinct} {name} for {task.n_needles} needles")
    if task.haystack is not None and not task.haystack.strip():
        problems.append("the haystack text is empty")
    return problems
