"""How well a model answers: needles, any task's samples, and questions about a story.

What model cards and `evaluate` say. Of a question also one sample: what the model answers to it, which heads
find the facts, and the answers of many.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mta_viz.analysis.labs import needle
from mta_viz.analysis.labs.cards import trained_for
from mta_viz.analysis.labs.finder import Finder, sample_parts
from mta_viz.errors import ConfigError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import multiply_adds
from mta_viz.run.jobs import OfModel, gathered
from mta_viz.run.scoring import end_logits
from mta_viz.run.tracing import Progress, generate, ignore, progress_within
from mta_viz.tables import Table
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.intervals import median_interval
from mta_viz.tasks.needles import NeedleTask
from mta_viz.tasks.questions import QuestionSample, QuestionTask, Scored, make_question_sample, score_output
from mta_viz.tasks.words import HELD_OUT_CITIES, is_held_out
from mta_viz.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class NeedlePlan:
    """Which samples: `samples` for each (needles, length, depth) of `settings`, numbered from `seed`.

    A depth is per cent, or None for anywhere.
    """

    settings: tuple[tuple[int, int, float | int | None], ...]
    samples: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or not self.settings:
            raise ConfigError(
                [f"{self.samples} samples of {len(self.settings)} settings; expected at least 1 of each"],
                subject="The needle evaluation",
            )


@dataclass(frozen=True)
class NeedleCell:
    """The scores of one setting: all, known (city and number), held_out_city, held_out_number."""

    n_needles: int
    length: int
    depth: float | int | None
    scores: dict[str, needle.NeedleScore]


@dataclass(frozen=True)
class NeedleEvaluation:
    """One cell per setting, and the sums over all of them in `total`."""

    seed: int
    cells: tuple[NeedleCell, ...]
    total: dict[str, needle.NeedleScore]


def full_plan(samples: int, lengths: Sequence[int] = (512, 1024), seed: int = 0) -> NeedlePlan:
    """1, 2, 4, 6 needles anywhere, and 4 with the asked one at each of five depths, at every length."""
    by_number = [(n, length, None) for length in lengths for n in (1, 2, 4, 6)]
    by_depth = [(4, length, depth) for length in lengths for depth in (0, 25, 50, 75, 100)]
    return NeedlePlan((*by_number, *by_depth), samples, seed)


def evaluate_needles(
    model: HookedMTA, tokenizer: Tokenizer, plan: NeedlePlan, *, progress: Progress = ignore
) -> NeedleEvaluation:
    """Measure `model` on samples in the grammar's held-out paragraphs.

    The greedy answer up to the first non-digit must equal the number. One pass over prompt and gold
    answer decides it: while all digits so far are right, greedy decoding would feed back the same
    ids, and at the first wrong one both say "wrong". Raises `PromptError` when the task does not
    fit the model's vocabulary or the samples' length, before anything is scored. `progress` gets
    the share of the work done: a sequence twice as long is more than twice the work.
    """
    needle.check_vocabulary(model, tokenizer)
    for setting in plan.settings:
        NeedleTask(*setting).sample(tokenizer, plan.seed)
    work = [multiply_adds(model.config, length) for _, length, _ in plan.settings]
    cells, all_pairs = [], list[tuple[NeedleSample, bool]]()
    for at, setting in enumerate(plan.settings):
        seeds = range(plan.seed, plan.seed + plan.samples)
        samples = [NeedleTask(*setting).sample(tokenizer, seed) for seed in seeds]
        within = progress_within(progress, sum(work[:at]) / sum(work), work[at] / sum(work))
        right = needle.in_batches(needle.answered_right, model, tokenizer, samples, within)
        pairs = list(zip(samples, right, strict=True))
        cells.append(NeedleCell(*setting, _groups(pairs)))
        all_pairs += pairs
    return NeedleEvaluation(plan.seed, tuple(cells), _groups(all_pairs))


@dataclass(frozen=True)
class TaskScore:
    """Right answers of samples of a task, and what the wrong ones were.

    `wrong`: how many answers were the number of another needle, by how it is told from the asked one, and how
    many none of the prompt's ("other"). `log_probability_median`: of the gold answer over samples, in nats,
    with its interval, which covers it in `level` of cases.
    """

    score: needle.NeedleScore
    wrong: dict[str, int]
    log_probability_median: float
    log_probability_median_low: float
    log_probability_median_high: float
    level: float


def evaluate_task(
    model: HookedMTA,
    samples: Sequence[NeedleSample],
    apart: Callable[[str, str], str] = lambda asked, other: "needle",
    *,
    progress: Progress = ignore,
) -> TaskScore:
    """Measure `model` on samples of any lengths; `apart(asked subject, other subject)` names a wrong answer.

    Raises `PromptError` where the samples' tokenizer does not fit the model's vocabulary.
    """
    tokenizer, wrong = needle.check_vocabulary(model, model.tokenizer), Counter[str]()
    drawn = needle.in_batches(needle.answer, model, tokenizer, samples, progress)
    for sample, verdict in zip(samples, drawn, strict=True):
        if verdict.named is not None:
            wrong[apart(sample.subject, sample.needles[verdict.named].subject)] += 1
        elif verdict.outcome != "right":
            wrong["other"] += 1
    median = median_interval([verdict.log_probability for verdict in drawn])
    value, low, high = (float(end) for end in (median.value, median.low, median.high))
    score = needle.needle_score(verdict.outcome == "right" for verdict in drawn)
    return TaskScore(score, dict(wrong), value, low, high, median.level)


def _groups(pairs: list[tuple[NeedleSample, bool]]) -> dict[str, needle.NeedleScore]:
    city = [sample.subject in HELD_OUT_CITIES for sample, _ in pairs]
    number = [is_held_out(int(sample.answer)) for sample, _ in pairs]
    known = [not (c or n) for c, n in zip(city, number, strict=True)]
    right = [ok for _, ok in pairs]
    groups = {"known": known, "held_out_city": city, "held_out_number": number}
    scores = {name: needle.needle_score(itertools.compress(right, which)) for name, which in groups.items()}
    return {"all": needle.needle_score(right), **scores}


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
    begin: Callable[[str], None] = ignore,
    progress: Progress = ignore,
) -> QuestionRun:
    """Sample number `seed` of `task`. `begin(what comes)`, then `progress(share of it)`; raise to stop.

    Raises `PromptError` and `TokenizerError` as `make_question_sample` does.
    """
    tokenizer = needle.check_vocabulary(model, model.tokenizer)
    sample = make_question_sample(tokenizer, task, seed)
    finder = needle.run_finder(model, sample.tokens, sample_parts(sample), begin, progress)
    begin("Reading the answer")
    answer = greedy_answer(model, tokenizer, sample, progress=progress)
    scored = score_output(answer, sample.answer, sample.question.text, sample.labels)
    return QuestionRun(sample, finder, answer, scored, gold_probability(model, sample))


def greedy_answer(
    model: HookedMTA, tokenizer: Tokenizer, sample: QuestionSample, *, progress: Progress = ignore
) -> str:
    """The greedy continuation of a prompt, 20 tokens or up to the end token."""
    return tokenizer.decode(generate(model, sample.tokens, NEW_TOKENS, progress=progress))


def gold_probability(model: HookedMTA, sample: QuestionSample) -> float:
    """Probability 0..1 that the gold answer's tokens come next, each after the ones before it."""
    ids = torch.tensor([sample.tokens.ids + sample.answer_ids])
    logits = end_logits(model, ids, len(sample.answer_ids) + 1)
    return math.exp(needle.gold_log_probabilities(logits, [sample.answer_ids])[0])


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
    def accuracy(self) -> needle.NeedleScore:
        """The right answers, their share and its interval."""
        return needle.needle_score(answer.right for answer in self.answers)

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
    keep: Callable[[QuestionScore], None] = ignore,
    progress: Progress = ignore,
    on: str | None = None,
    kept: MutableMapping[int, QuestionAnswer] | None = None,
) -> QuestionScore:
    """Ask `model` the samples `seed` to `seed` + `n` - 1, greedily, scored by BABILong's rule.

    After each sample `keep` gets the result so far; `progress` gets the share done with every token,
    raise in it to stop. `on`, `kept`: as of `gathered`, answers by how many samples come before. Raises
    `ConfigError` for n below 1, `PromptError` and `TokenizerError` as `make_question_sample` does.
    """
    if n < 1:
        raise ConfigError([f"n is {n}; expected at least 1"], subject="The evaluation")
    asking = _Asking(model, needle.check_vocabulary(model, model.tokenizer), task)
    for answers in gathered(asking, range(seed, seed + n), on, kept=kept, progress=progress):
        score = QuestionScore(task.name, task.distraction, task.chance, tuple(answers))
        keep(score)
    return score


@dataclass(frozen=True)
class _Asking(OfModel):
    """What is done with a sample, by its number."""

    model: HookedMTA
    tokenizer: Tokenizer
    task: QuestionTask

    def __call__(self, number: int, progress: Progress = ignore, /) -> QuestionAnswer:
        sample = make_question_sample(self.tokenizer, self.task, number)
        question, gold = sample.question.text, sample.answer
        continuation = greedy_answer(self.model, self.tokenizer, sample, progress=progress)
        scored = score_output(continuation, gold, question, sample.labels)
        return QuestionAnswer(number, question, gold, scored.sentence, scored.named, scored.right)


def trained_for_questions(folder: Path | None) -> bool:
    """Whether the model card in a checkpoint's folder names this task; False without a card."""
    return trained_for(folder) == TRAINED
