"""Needles in a haystack: sentences that give cities their numbers, hidden in text, one asked for.

Owns the task, where needles go and the gold spans; haystack.py owns the text between. Usable with
any tokenizer; a sample depends on the task, the tokenizer and the seed alone.
"""

import itertools
import random
from dataclasses import dataclass
from typing import Literal

from mta_viz.errors import PromptError
from mta_viz.tasks import grammar
from mta_viz.tasks.cities import CITIES, NUMBERS
from mta_viz.tasks.haystack import Piece, encode_piece, fill, join_pieces, joint_ids, text_sentences
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

SpanKind = Literal["needle", "asked", "question", "answer"]
Part = tuple[tuple[SpanKind, int] | None, Piece]  # kind and index of the fact, None for the haystack; text


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
    """Tokens `start`..`stop`-1 of prompt + answer; decoding them gives `text` exactly."""

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
    joint = joint_ids(tokenizer)
    cities = rng.sample(task.cities, task.n_needles)
    facts = list(zip(cities, rng.sample(task.numbers, task.n_needles), strict=True))
    city, value = facts[0]  # the first is asked for
    needles = [
        encode_piece(tokenizer, task.needle.replace("{city}", city).replace("{value}", str(value)))
        for city, value in facts
    ]
    question = encode_piece(tokenizer, task.question_template.replace("{city}", city))
    budget = _haystack_budget(tokenizer, task, needles, question, len(joint))
    if task.haystack is None:
        texts = grammar.sentences(seed, f"{name} haystack")
    else:
        whole = text_sentences(task.haystack, rng)
        texts = (text for text in whole if not any(city in text for city in cities))
    hay = fill((encode_piece(tokenizer, text) for text in texts), budget, len(joint))
    parts, depth = _spread(task, rng, hay, needles, len(joint))
    prompt, marked, plain = join_pieces(tokenizer, [*parts, (("question", 0), question)], joint)
    answer = answer_ids(tokenizer, question.text, value)
    end = len(prompt) + len(answer)
    marked.append((("answer", 0), len(prompt), end, tokenizer.decode(answer)))
    spans = tuple(
        GoldSpan(kind, start, stop, text, *facts[fact]) for (kind, fact), start, stop, text in marked
    )
    return NeedleSample(prompt, str(value), answer, city, depth, spans, plain)


def answer_ids(tokenizer: Tokenizer, question: str, value: int | str) -> tuple[int, ...]:
    """The ids that continue the question with the value, as the tokenizer writes the two together."""
    asked = encode_piece(tokenizer, question)
    whole = encode_piece(tokenizer, f"{question} {value}").ids
    if whole[: len(asked)] == asked.ids:
        return whole[len(asked) :]
    return encode_piece(tokenizer, f" {value}").ids


def _haystack_budget(
    tokenizer: Tokenizer, task: NeedleTask, needles: list[Piece], question: Piece, joint: int
) -> int:
    bos = 0 if tokenizer.bos_id is None else 1
    fixed = bos + sum(len(needle) + joint for needle in needles) + len(question)
    if fixed > task.length:
        raise PromptError(
            f"{task.n_needles} needles and the question take {fixed} tokens, {fixed - task.length} more than "
            f"the length {task.length}. Use fewer needles or a larger length."
        )
    return task.length - fixed


def _spread(
    task: NeedleTask, rng: random.Random, hay: list[Piece], needles: list[Piece], joint: int
) -> tuple[list[Part], float]:
    """Parts of the prompt in order, and the asked needle's true depth.

    At the two ends the asked needle is the outermost of those at one place.
    """
    ends = list(itertools.accumulate((len(piece) + joint for piece in hay), initial=0))
    if task.depth is None:
        asked, rank = rng.randrange(len(ends)), rng.random()
    else:
        wanted = task.depth / 100 * ends[-1]
        asked = min(range(len(ends)), key=lambda i: abs(ends[i] - wanted))
        last = asked == len(hay) and (hay or task.depth >= 50)
        rank = 2.0 if last else -1.0 if asked == 0 else rng.random()
    placed = [(asked, rank, 0)]
    placed += [(rng.randrange(len(ends)), rng.random(), i) for i in range(1, task.n_needles)]
    parts: list[Part] = []
    for place in range(len(ends)):
        here = [fact for at, _, fact in sorted(placed) if at == place]
        parts += [(("needle" if fact else "asked", fact), needles[fact]) for fact in here]
        parts += [(None, piece) for piece in hay[place : place + 1]]
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
