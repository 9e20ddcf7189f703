"""How many questions a model answers right, beside chance: the lab's and the command's measurement."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mta_viz.analysis.labs.answers import check_vocabulary
from mta_viz.analysis.labs.question_run import greedy_answer, judged
from mta_viz.errors import ConfigError
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.intervals import wilson_interval
from mta_viz.tasks.questions import QuestionTask, make_question_sample
from mta_viz.tracing import Progress

NOT_TRAINED = "This model was not trained for this task: the score measures it, not the method."
CARD = "card.json"  # beside the weights; "task" says what the model was trained for
TRAINED = "questions"
ANSWER_RUNS = 1.8  # an answer of 20 tokens takes as long as so many runs of the prompt


@dataclass(frozen=True)
class QuestionAnswer:
    """Sample number `seed`. `said`: the first sentence generated; `named`: its labels that count."""

    seed: int
    question: str
    gold: str
    said: str
    named: tuple[str, ...]
    right: bool


@dataclass(frozen=True)
class QuestionScore:
    """Right answers among the samples so far, with their 95 % Wilson interval.

    `chance`: what naming one of the task's labels at random gets.
    """

    task: str
    distraction: int
    chance: float
    answers: tuple[QuestionAnswer, ...]

    @property
    def n(self) -> int:
        """Samples."""
        return len(self.answers)

    @property
    def right(self) -> int:
        """Those answered right."""
        return sum(one.right for one in self.answers)

    @property
    def accuracy(self) -> float:
        """The share of right answers; NaN of none."""
        return self.right / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Of the accuracy."""
        return wilson_interval(self.right, self.n) if self.n else (0.0, 1.0)

    @property
    def silent(self) -> int:
        """Answers whose first sentence names no label that counts."""
        return sum(not one.named for one in self.answers)


def evaluate_questions(
    model: HookedMTA,
    task: QuestionTask,
    *,
    n: int = 20,
    seed: int = 0,
    keep: Callable[[QuestionScore], None] | None = None,
    progress: Progress | None = None,
) -> QuestionScore:
    """Ask `model` the samples `seed` to `seed` + `n` - 1, greedily, scored by BABILong's rule.

    After each sample `keep` gets the result so far; `progress` gets the share done with every token,
    raise in it to stop. Raises `ConfigError` for n below 1, `PromptError` and `TokenizerError` as
    `make_question_sample` does.
    """
    if n < 1:
        raise ConfigError([f"n is {n}; expected at least 1"], subject="The evaluation")
    tokenizer = check_vocabulary(model, model.tokenizer)
    score = QuestionScore(task.name, task.distraction, task.chance, ())
    for number in range(seed, seed + n):
        sample = make_question_sample(tokenizer, task, number)
        said = greedy_answer(model, tokenizer, sample, progress=_within(progress, score.n, n))
        found = judged(said, sample)
        answer = QuestionAnswer(
            number, sample.question.text, sample.answer, found.sentence, found.named, found.right
        )
        score = QuestionScore(task.name, task.distraction, task.chance, (*score.answers, answer))
        if keep is not None:
            keep(score)
        if progress is not None:
            progress(score.n / n)
    return score


def _within(progress: Progress | None, done: int, n: int) -> Progress | None:
    """The progress of one sample of `n` as that of all."""
    return None if progress is None else lambda share: progress((done + share) / n)


def trained_for_questions(folder: Path | None) -> bool:
    """Whether the model card in a checkpoint's folder names this task; False without a card."""
    try:
        card = json.loads((folder / CARD).read_text("utf-8")) if folder else {}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(card, dict) and card.get("task") == TRAINED
