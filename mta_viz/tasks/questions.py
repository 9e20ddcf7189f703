"""Questions about a small story whose facts are spread through distracting text, after BABILong.

Owns where facts go, the gold spans, the token budget and the scoring of answers; stories.py makes up
facts and questions, facts.py owns the text between. Usable with any tokenizer; a sample depends on
the task, the tokenizer and the seed alone, and its story on the task's name and the seed.
"""

import itertools
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from mta_viz.errors import PromptError
from mta_viz.tasks.facts import Piece, answer_ids, exactly, fill, haystack_sentences, lay_out, sentence_piece
from mta_viz.tasks.stories import LABELS, OBJECTS, PEOPLE, PLACES, TASKS, Story, make_story
from mta_viz.tasks.words import stream_seed
from mta_viz.tokenizers.base import Tokenizer, Tokens

CUE = " Answer:"  # the question ends with it: the answer comes next
_NAMES = re.compile("|".join((*PEOPLE, *PLACES, *OBJECTS)), re.IGNORECASE)

Role = Literal["support", "distractor", "question", "answer"]
Part = tuple[Role | None, str]  # None for the distraction


@dataclass(frozen=True)
class QuestionTask:
    """Which questions, and how much text is between the facts.

    `name`: one of `TASKS`. `distraction`: tokens of text that is no fact, 0 for none. `haystack`:
    a text to take it from, None for the project's grammar; sentences with a name, place or thing of
    the stories are left out. Raises `PromptError` listing every value out of range.
    """

    name: str = "qa1"
    distraction: int = 512
    haystack: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.name not in TASKS:
            problems.append(f"there is no task {self.name!r}; expected one of {', '.join(TASKS)}")
        if self.distraction < 0:
            problems.append(f"{self.distraction} tokens of distraction; expected 0 or more")
        if self.haystack is not None and not self.haystack.strip():
            problems.append("the haystack text is empty")
        if problems:
            raise PromptError("The questions cannot be set up: " + "; ".join(problems))

    @property
    def labels(self) -> tuple[str, ...]:
        """All that a question of this task can have as its answer."""
        return LABELS[self.name]

    @property
    def chance(self) -> float:
        """What naming one of the task's labels at random gets: 1 / number of labels.

        Naming the same label every time gets as much, since each is the answer equally often.
        """
        return 1 / len(self.labels)


@dataclass(frozen=True)
class RoleSpan:
    """Tokens `start`..`stop`-1 of prompt + answer, those that overlap `text`: decoded, they hold it."""

    role: Role
    start: int
    stop: int
    text: str


@dataclass(frozen=True)
class QuestionSample:
    """A prompt and its answer. `spans` are in order of position; the answer follows the prompt.

    `answer_ids` continue the prompt: the answer with the space before it. `labels` are the task's.
    `sentences`: the tokens where sentences of the distraction begin.
    """

    tokens: Tokens
    answer: str
    answer_ids: tuple[int, ...]
    labels: tuple[str, ...]
    spans: tuple[RoleSpan, ...]
    sentences: tuple[int, ...]

    @property
    def facts(self) -> tuple[RoleSpan, ...]:
        """The spans of all facts, those that support the answer among them."""
        return tuple(span for span in self.spans if span.role in ("support", "distractor"))

    @property
    def question(self) -> RoleSpan:
        """The span of the question, the prompt's end."""
        return next(span for span in self.spans if span.role == "question")


def make_question_sample(tokenizer: Tokenizer, task: QuestionTask, seed: int) -> QuestionSample:
    """The sample number `seed` of a task. The prompt has BOS, facts, question and the distraction.

    Every sentence but the first has the tokens of a space before it; those of the distraction count
    as part of it. Raises `PromptError` when the haystack is too short or the distraction too little
    for a word, saying by how many tokens, and `TokenizerError` for a tokenizer that cannot encode
    the task.
    """
    story = make_story(task.name, seed)
    rng = random.Random(stream_seed(f"questions {task.name}/{task.distraction}", seed))
    piece_of = cache(partial(sentence_piece, tokenizer))
    question, before = story.query.text + CUE, rng.getstate()

    def parts_of(budget: int, skipped: int) -> list[Part]:
        rng.setstate(before)
        source = haystack_sentences(task.haystack, rng, seed, f"questions {task.name} haystack")
        texts = (text for text in source if not _NAMES.search(text))
        hay = fill(map(piece_of, itertools.islice(texts, skipped, None)), budget) if budget else []
        return [*_spread(story, hay, rng), ("question", question)]

    if task.distraction:
        facts = sum(piece_of(fact.text).n_tokens for fact in story.facts)
        length = facts + len(tokenizer.encode(question)) + task.distraction
        tokens, placed = exactly(tokenizer, length, task.distraction, parts_of)
    else:
        tokens, placed = lay_out(tokenizer, parts_of(0, 0))
    answer = answer_ids(tokenizer, question, story.answer)
    placed.append(("answer", len(tokens), len(tokens) + len(answer), tokenizer.decode(answer)))
    spans = tuple(RoleSpan(role, start, stop, text) for role, start, stop, text in placed if role)
    plain = tuple(start for role, start, *_ in placed if role is None)
    return QuestionSample(tokens, story.answer, answer, task.labels, spans, plain)


def _spread(story: Story, hay: list[Piece], rng: random.Random) -> list[Part]:
    """The facts in their order, each at a random sentence end of the distraction (None: no fact)."""
    places = sorted(rng.randrange(len(hay) + 1) for _ in story.facts)
    parts: list[Part] = []
    for place in range(len(hay) + 1):
        for at, fact in enumerate(story.facts):
            if places[at] == place:
                parts.append(("support" if at in story.supports else "distractor", fact.text))
        parts += [(None, piece.text) for piece in hay[place : place + 1]]
    return parts


@dataclass(frozen=True)
class Scored:
    """`sentence`: the output's first, as written. `named`: the labels that count, in the task's order."""

    sentence: str
    named: tuple[str, ...]
    right: bool


def score_output(output: str, target: str, question: str, labels: Iterable[str]) -> Scored:
    """Whether a model's output answers the question by `target`, one of `labels`: BABILong's rule.

    The output is lower-cased and cut before its first full stop; what was generated without one
    counts whole. A label is named when its lower-cased letters occur there, within a longer word
    too. Labels whose letters occur in the question do not count, whatever the output says of them:
    the question's labels are never the answer. The output is right when the labels left are the
    target and no other. (BABILong cuts at the marks of its own few-shot prompt as well, which these
    prompts lack.)
    """
    sentence = output.partition(".")[0]
    lowered, asked = sentence.lower(), question.lower()
    named = tuple(label for label in labels if label.lower() in lowered and label.lower() not in asked)
    return Scored(sentence.strip(), named, named == (target,))
