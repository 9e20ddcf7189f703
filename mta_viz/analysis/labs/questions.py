"""Questions about stories through a model: what it answers and who found the facts; how many are right."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from mta_viz.analysis.labs.cards import trained_for
from mta_viz.analysis.labs.finder import Finder, find, sample_parts
from mta_viz.analysis.labs.needle import NeedleScore, check_vocabulary, gold_log_probabilities, needle_score
from mta_viz.errors import ConfigError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import end_logits
from mta_viz.run.tracing import Progress, capture, generate, progress_within
from mta_viz.tables import Table
from mta_viz.tasks.questions import QuestionSample, QuestionTask, Scored, make_question_sample, score_output
from mta_viz.tokenizers.base import Tokenizer

NEW_TOKENS = 20  # of the answer; the first sentence is judged


@dataclass(frozen=True)
class QuestionRun:
    """`scored` judges the greedy `continuation`; `probability` is that of the whole gold answer."""

    sample: QuestionSample
    finder: Finder
    continuation: str
    scored: Scored
    probability: float


def run_question(
    model: HookedMTA,
    task: QuestionTask,
    seed: int,
    *,
    begin: Callable[[str], None] = lambda words: None,
    progress: Progress = lambda share: None,
) -> QuestionRun:
    """Sample number `seed` of `task`. `begin(what comes)`, then `progress(share of it)`; raise to stop.

    Raises `PromptError` and `TokenizerError` as `make_question_sample` does.
    """
    tokenizer = check_vocabulary(model, model.tokenizer)
    sample = make_question_sample(tokenizer, task, seed)
    begin("Running the prompt")
    trace = capture(model, sample.tokens, progress=progress)
    begin("Looking where every head looks")
    finder = find(trace, sample_parts(sample), progress=progress)
    begin("Reading the answer")
    answer = greedy_answer(model, tokenizer, sample, progress=progress)
    scored = score_output(answer, sample.answer, sample.question.text, sample.labels)
    return QuestionRun(sample, finder, answer, scored, gold_probability(model, sample))


def greedy_answer(
    model: HookedMTA, tokenizer: Tokenizer, sample: QuestionSample, *, progress: Progress = lambda share: None
) -> str:
    """The greedy continuation of a prompt, 20 tokens or up to the end token."""
    return tokenizer.decode(generate(model, sample.tokens, NEW_TOKENS, progress=progress))


def gold_probability(model: HookedMTA, sample: QuestionSample) -> float:
    """Probability 0..1 that the gold answer's tokens come next, each after the ones before it."""
    ids = torch.tensor([sample.tokens.ids + sample.answer_ids])
    logits = end_logits(model, ids, len(sample.answer_ids) + 1)
    return math.exp(gold_log_probabilities(logits, [sample.answer_ids])[0])


NOT_TRAINED = "This model was not trained for this task: the score measures it, not the method."
TRAINED = "questions"  # as a card calls it
ANSWER_RUNS = 1.8  # an answer of 20 tokens takes as long as so many runs of the prompt


@dataclass(frozen=True)
class QuestionAnswer:
    """Sample number `seed`. `sentence`: the first one generated; `named`: its labels that count."""

    seed: int
    question: str
    gold: str
    sentence: str
    named: tuple[str, ...]
    right: bool


@dataclass(frozen=True)
class QuestionScore:
    """Right answers among the samples so far, with their 95 % Clopper-Pearson interval.

    `chance`: what naming one of the task's labels at random gets.
    """

    task: str
    distraction: int
    chance: float
    answers: tuple[QuestionAnswer, ...]

    @property
    def accuracy(self) -> NeedleScore:
        """The right answers, their share and its interval."""
        return needle_score(answer.right for answer in self.answers)

    @property
    def silent(self) -> int:
        """Answers whose first sentence names no label that counts."""
        return sum(not answer.named for answer in self.answers)


def answers_table(scores: Iterable[QuestionScore]) -> Table:
    """One row an answer: its sample and its first sentence; `named` are the labels that count."""
    rows = (
        (
            *(score.task, score.distraction, answer.seed, answer.question, answer.gold, answer.sentence),
            *(" ".join(answer.named), answer.right),
        )
        for score in scores
        for answer in score.answers
    )
    header = ("task", "distraction", "sample", "question", "gold", "first_sentence", "named", "right")
    return Table.of(header, rows)


def evaluate_questions(
    model: HookedMTA,
    task: QuestionTask,
    *,
    n: int = 20,
    seed: int = 0,
    keep: Callable[[QuestionScore], None] = lambda result: None,
    progress: Progress = lambda share: None,
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
        done = number - seed
        part = progress_within(progress, done / n, 1 / n)
        question, gold = sample.question.text, sample.answer
        continuation = greedy_answer(model, tokenizer, sample, progress=part)
        scored = score_output(continuation, gold, question, sample.labels)
        answer = QuestionAnswer(number, question, gold, scored.sentence, scored.named, scored.right)
        score = QuestionScore(task.name, task.distraction, task.chance, (*score.answers, answer))
        keep(score)
        progress((done + 1) / n)
    return score


def trained_for_questions(folder: Path | None) -> bool:
    """Whether the model card in a checkpoint's folder names this task; False without a card."""
    return trained_for(folder) == TRAINED
