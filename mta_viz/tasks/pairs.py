"""Two words together: numbers that people have in cities, of which one person and one city are asked for.

Every person has a number in every city, so each word of the question stands in as many wrong sentences as
the other has values less one: who reads one word alone is right once in so many. Owns the words and which
of them training never sees; facts.py owns where the sentences go.
"""

import itertools
import random
from dataclasses import dataclass
from typing import Any, Literal

from mta_viz.errors import PromptError
from mta_viz.tasks.cities import (
    CITIES,
    HELD_OUT_CITIES,
    HELD_OUT_NUMBERS,
    KNOWN_CITIES,
    KNOWN_NUMBERS,
    NUMBERS,
)
from mta_viz.tasks.facts import (
    DEPTHS,
    Depth,
    Fact,
    Hidden,
    NeedleSample,
    choice_problems,
    hide,
    in_turn,
    place_problems,
)
from mta_viz.tasks.sources import word_lists
from mta_viz.tokenizers.base import Tokenizer

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


KNOWN = Words(word_lists("names")["names"]["known"], KNOWN_CITIES, KNOWN_NUMBERS)
HELD_OUT = Words(word_lists("names")["names"]["held_out"], HELD_OUT_CITIES, HELD_OUT_NUMBERS)
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
    cities: tuple[str, ...] = CITIES
    numbers: tuple[int, ...] = NUMBERS

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise PromptError("The pairs task cannot be set up: " + "; ".join(problems))

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        """As `make_pairs_sample`."""
        return make_pairs_sample(tokenizer, self, seed)


def make_pairs_sample(tokenizer: Tokenizer, task: PairsTask, seed: int) -> NeedleSample:
    """The sample number `seed` of a task. Raises as `facts.hide` does."""
    stream = f"pairs {task.n_names}x{task.n_cities}/{task.length}/{task.depth}"
    rng = random.Random(f"{stream}/{seed}")
    names, cities = rng.sample(task.names, task.n_names), rng.sample(task.cities, task.n_cities)
    numbers = rng.sample(task.numbers, len(names) * len(cities))
    facts = [
        Fact(f"{name} in {city}", str(value), SENTENCE.format(name=name, city=city, value=value))
        for (name, city), value in zip(itertools.product(names, cities), numbers, strict=True)
    ]
    question = QUESTION.format(name=names[0], city=cities[0])
    hidden = Hidden(facts, question, task.length, task.depth, task.haystack, (*names, *cities))
    return hide(tokenizer, hidden, rng, seed, f"{stream} haystack")


def shared_word(asked: str, other: str) -> str:
    """What the subject of another sentence has of the asked one: `same name`, `same city` or `neither`."""
    (name, city), (other_name, other_city) = (subject.split(" in ", 1) for subject in (asked, other))
    return "same name" if name == other_name else "same city" if city == other_city else "neither"


def pairs_samples(tokenizer: Tokenizer, samples: int, seed: int, length: int) -> list[NeedleSample]:
    """`samples` prompts of `length` tokens with 3 names x 3 cities, the asked sentence at `DEPTHS` in turn.

    Raises PromptError and TokenizerError as `make_pairs_sample` does.
    """
    return in_turn(tokenizer, [PairsTask(length=length, depth=depth) for depth in DEPTHS], samples, seed)


def _problems(task: PairsTask) -> list[str]:
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
