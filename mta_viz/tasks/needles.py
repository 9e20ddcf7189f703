"""Needles in a haystack: sentences that give cities their numbers, hidden in text, one asked for.

Owns the task's wording and its facts; facts.py owns where they go and the gold spans. Usable with any
tokenizer; a sample depends on the task, the tokenizer and the seed alone.
"""

import random
from dataclasses import dataclass

from mta_viz.errors import PromptError
from mta_viz.tasks.cities import CITIES, NUMBERS
from mta_viz.tasks.facts import (
    Depth,
    Fact,
    Hidden,
    NeedleSample,
    choice_problems,
    hide,
    place_problems,
)
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
    cities: tuple[str, ...] = CITIES
    numbers: tuple[int, ...] = NUMBERS

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise PromptError("The needle task cannot be set up: " + "; ".join(problems))

    @property
    def question_template(self) -> str:
        """The question with {city}."""
        return self.needle.split("{value}")[0].rstrip() if self.question is None else self.question

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        """As `make_needle_sample`."""
        return make_needle_sample(tokenizer, self, seed)


def make_needle_sample(tokenizer: Tokenizer, task: NeedleTask, seed: int) -> NeedleSample:
    """The sample number `seed` of a task. Raises as `facts.hide` does."""
    name = f"needles {task.n_needles}/{task.length}/{task.depth}"
    rng = random.Random(f"{name}/{seed}")
    cities = rng.sample(task.cities, task.n_needles)
    numbers = rng.sample(task.numbers, task.n_needles)
    facts = [
        Fact(city, str(value), task.needle.replace("{city}", city).replace("{value}", str(value)))
        for city, value in zip(cities, numbers, strict=True)
    ]
    question = task.question_template.replace("{city}", cities[0])
    hidden = Hidden(facts, question, task.length, task.depth, task.haystack, cities)
    return hide(tokenizer, hidden, rng, seed, f"{name} haystack")


def _problems(task: NeedleTask) -> list[str]:
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
