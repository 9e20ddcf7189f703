"""Numbers hidden in a haystack, one asked for: of cities (needles), or of a person in a city (pairs).

Of pairs every person has a number in every city, so each word of the question stands in as many wrong
sentences as the other has values less one: who reads one word alone is right once in so many.

Owns the tasks' wording, their facts and which names training never sees; facts.py owns where they go and
the gold spans. Usable with any tokenizer; a sample depends on the task, the tokenizer and the seed alone.
"""

import itertools
import random
from dataclasses import dataclass
from typing import Any, Literal

from mta_viz.errors import PromptError
from mta_viz.tasks import words
from mta_viz.tasks.facts import Depth, Fact, Hidden, NeedleSample, choice_problems, hide, place_problems
from mta_viz.tokenizers.base import Tokenizer

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
NEEDLES = 4  # of the samples that kernels are measured on


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
    depth: Depth = None
    needle: str = PAPER_NEEDLE
    question: str | None = None
    haystack: str | None = None
    cities: tuple[str, ...] = words.CITIES
    numbers: tuple[int, ...] = words.NUMBERS

    def __post_init__(self) -> None:
        if problems := _needle_problems(self):
            raise PromptError("The needle task cannot be set up: " + "; ".join(problems))

    @property
    def question_template(self) -> str:
        """The question with {city}."""
        return self.needle.split("{value}")[0].rstrip() if self.question is None else self.question

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        """The sample number `seed`. Raises as `facts.hide` does."""
        name = f"needles {self.n_needles}/{self.length}/{self.depth}"
        rng = random.Random(f"{name}/{seed}")
        cities = rng.sample(self.cities, self.n_needles)
        numbers = rng.sample(self.numbers, self.n_needles)
        facts = [
            Fact(city, str(value), self.needle.replace("{city}", city).replace("{value}", str(value)))
            for city, value in zip(cities, numbers, strict=True)
        ]
        question = self.question_template.replace("{city}", cities[0])
        hidden = Hidden(facts, question, self.length, self.depth, self.haystack, cities)
        return hide(tokenizer, hidden, rng, seed, f"{name} haystack")


def _needle_problems(task: NeedleTask) -> list[str]:
    problems = []
    if not 1 <= task.n_needles <= MAX_NEEDLES:
        problems.append(f"{task.n_needles} needles; expected 1 to {MAX_NEEDLES}")
    missing = [slot for slot in ("{city}", "{value}") if slot not in task.needle]
    problems += [f"the needle {task.needle!r} lacks {slot}" for slot in missing]
    if "{city}" not in task.question_template:
        problem = f"the question {task.question_template!r} lacks {{city}}"
        hint = "; give one, since the needle has its value first" if task.question is None else ""
        problems.append(problem + hint)
    for name, choices in (("cities", task.cities), ("numbers", task.numbers)):
        problems += choice_problems(name, choices, task.n_needles, "needles")
    return problems + place_problems(task.depth, task.haystack)


SENTENCE = "The number that {name} has in {city} is {value}."
QUESTION = SENTENCE.split(" {value}", maxsplit=1)[0]
MAX_SIDE = 5  # names, and cities
MAX_PAIRS = MAX_SIDE**2


@dataclass(frozen=True)
class Words:
    """What samples are drawn from."""

    names: tuple[str, ...]
    cities: tuple[str, ...]
    numbers: tuple[int, ...]


KNOWN = Words(words.word_lists("names")["names"]["known"], words.KNOWN_CITIES, words.KNOWN_NUMBERS)
HELD_OUT = Words(
    words.word_lists("names")["names"]["held_out"], words.HELD_OUT_CITIES, words.HELD_OUT_NUMBERS
)
NAMES = KNOWN.names + HELD_OUT.names
WordsName = Literal["all", "known", "held out"]
WORDS: dict[WordsName, dict[str, Any]] = {"all": {}, "known": vars(KNOWN), "held out": vars(HELD_OUT)}


@dataclass(frozen=True)
class PairsTask:
    """What is hidden where: a sentence for each of `n_names` x `n_cities`, all numbers different.

    `length`, `depth` and `haystack` as in `NeedleTask`. Raises `PromptError` listing every value out of
    range.
    """

    n_names: int = 3
    n_cities: int = 3
    length: int = 256
    depth: Depth = None
    haystack: str | None = None
    names: tuple[str, ...] = NAMES
    cities: tuple[str, ...] = words.CITIES
    numbers: tuple[int, ...] = words.NUMBERS

    def __post_init__(self) -> None:
        if problems := _pairs_problems(self):
            raise PromptError("The pairs task cannot be set up: " + "; ".join(problems))

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        """The sample number `seed`. Raises as `facts.hide` does."""
        stream = f"pairs {self.n_names}x{self.n_cities}/{self.length}/{self.depth}"
        rng = random.Random(f"{stream}/{seed}")
        names, cities = rng.sample(self.names, self.n_names), rng.sample(self.cities, self.n_cities)
        numbers = rng.sample(self.numbers, len(names) * len(cities))
        facts = [
            Fact(f"{name} in {city}", str(value), SENTENCE.format(name=name, city=city, value=value))
            for (name, city), value in zip(itertools.product(names, cities), numbers, strict=True)
        ]
        question = QUESTION.format(name=names[0], city=cities[0])
        hidden = Hidden(facts, question, self.length, self.depth, self.haystack, (*names, *cities))
        return hide(tokenizer, hidden, rng, seed, f"{stream} haystack")


def shared_word(asked: str, other: str) -> str:
    """What the subject of another sentence has of the asked one: `same name`, `same city` or `neither`."""
    (name, city), (other_name, other_city) = (subject.split(" in ", 1) for subject in (asked, other))
    return "same name" if name == other_name else "same city" if city == other_city else "neither"


def _pairs_problems(task: PairsTask) -> list[str]:
    problems = []
    for name, wanted, choices in (
        ("names", task.n_names, task.names),
        ("cities", task.n_cities, task.cities),
    ):
        if not 1 <= wanted <= MAX_SIDE:
            problems.append(f"{wanted} {name}; expected 1 to {MAX_SIDE}")
        problems += choice_problems(name, choices, wanted, "in a sample")
    problems += choice_problems("numbers", task.numbers, task.n_names * task.n_cities, "pairs")
    return problems + place_problems(task.depth, task.haystack)
