"""How well a model finds needles, and its perplexity: what model cards and `evaluate` say."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from mta_viz.analysis.labs.blocks import LogitsOf
from mta_viz.analysis.labs.needle import (
    NeedleScore,
    answer,
    batched,
    check_vocabulary,
    judge,
    needle_score,
    with_answers,
)
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.run.devices import multiply_adds
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.intervals import median_interval
from mta_viz.tasks.needles import NeedleTask, make_needle_sample
from mta_viz.tasks.words import HELD_OUT_CITIES, is_held_out
from mta_viz.tokenizers.base import Tokenizer

CELLS_AT_ONCE = 2**14  # tokens scored in one go, so that logits stay below about 256 MB


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
    scores: dict[str, NeedleScore]


@dataclass(frozen=True)
class NeedleEvaluation:
    """One cell per setting, and the sums over all of them in `total`."""

    seed: int
    cells: tuple[NeedleCell, ...]
    total: dict[str, NeedleScore]


def full_plan(samples: int, lengths: Sequence[int] = (512, 1024), seed: int = 0) -> NeedlePlan:
    """1, 2, 4, 6 needles anywhere, and 4 with the asked one at each of five depths, at every length."""
    by_number = [(n, length, None) for length in lengths for n in (1, 2, 4, 6)]
    by_depth = [(4, length, depth) for length in lengths for depth in (0, 25, 50, 75, 100)]
    return NeedlePlan((*by_number, *by_depth), samples, seed)


def evaluate_needles(
    model: HookedMTA | LogitsOf,
    tokenizer: Tokenizer,
    plan: NeedlePlan,
    *,
    progress: tracing.Progress = lambda share: None,
) -> NeedleEvaluation:
    """Measure `model` on samples in the grammar's held-out paragraphs.

    The greedy answer up to the first non-digit must equal the number. One pass over prompt and gold
    answer decides it: while all digits so far are right, greedy decoding would feed back the same
    ids, and at the first wrong one both say "wrong". Raises `PromptError` when the task does not
    fit the model's vocabulary or the samples' length, before anything is scored. `progress` gets
    the share of the work done: a sequence twice as long is more than twice the work.
    """
    logits_of = _scorer(model, tokenizer)
    for setting in plan.settings:
        make_needle_sample(tokenizer, NeedleTask(*setting), plan.seed)
    total = plan.samples * sum(_work(model, length) for _, length, _ in plan.settings)
    cells, all_pairs, done = [], list[tuple[NeedleSample, bool]](), 0.0
    for setting in plan.settings:
        pairs: list[tuple[NeedleSample, bool]] = []
        size = max(1, CELLS_AT_ONCE // setting[1])
        for start in range(0, plan.samples, size):
            seeds = range(plan.seed + start, plan.seed + min(start + size, plan.samples))
            samples = [make_needle_sample(tokenizer, NeedleTask(*setting), seed) for seed in seeds]
            pairs += zip(samples, right_answers(logits_of, tokenizer, samples), strict=True)
            done += len(samples) * _work(model, setting[1])
            progress(done / total)
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

    score: NeedleScore
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
    progress: tracing.Progress = lambda share: None,
) -> TaskScore:
    """Measure `model` on samples of any lengths; `apart(asked subject, other subject)` names a wrong answer.

    Raises `PromptError` where the samples' tokenizer does not fit the model's vocabulary.
    """
    tokenizer = check_vocabulary(model, model.tokenizer)
    right, logs, wrong, done = list[bool](), list[float](), Counter[str](), 0
    for batch in batched(model, samples):
        for sample, verdict in zip(batch, answer(model, tokenizer, batch), strict=True):
            right.append(verdict.outcome == "right")
            logs.append(verdict.log_probability)
            if verdict.named is not None:
                wrong[apart(sample.subject, sample.needles[verdict.named].subject)] += 1
            elif not right[-1]:
                wrong["other"] += 1
        done += len(batch)
        progress(done / len(samples))
    median = median_interval(logs)
    value, low, high = (float(end) for end in (median.value, median.low, median.high))
    return TaskScore(needle_score(right), dict(wrong), value, low, high, median.level)


def right_answers(logits_of: LogitsOf, tokenizer: Tokenizer, samples: Sequence[NeedleSample]) -> list[bool]:
    """Whether each sample is answered right. The prompts of all samples have one length."""
    ids = with_answers(samples)
    greedy = logits_of(ids)[:, len(samples[0].tokens) - 1 :].argmax(-1)
    return judge(greedy, tokenizer, samples)


def perplexity(
    model: HookedMTA | LogitsOf,
    tokenizer: Tokenizer,
    text: str,
    *,
    window: int = 512,
    progress: tracing.Progress = lambda share: None,
) -> float:
    """exp of the mean loss per token of `text`, cut into windows of `window` tokens that share no context.

    Every window begins with BOS where the tokenizer has one. Raises `PromptError` for less than
    one window of text.
    """
    logits_of = _scorer(model, tokenizer)
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    ids = torch.tensor(tokenizer.encode(text).ids[len(bos) :])
    size = window - len(bos)
    n_windows = len(ids) // size
    if n_windows == 0:
        raise PromptError(
            f"The text has {len(ids)} tokens; perplexity needs at least {size}. Give a longer text."
        )
    starts = torch.tensor(bos).long().expand(n_windows, -1)
    windows = torch.cat([starts, ids[: n_windows * size].unflatten(0, (-1, size))], dim=1)
    total, batch = 0.0, max(1, CELLS_AT_ONCE // window)
    for start in range(0, n_windows, batch):
        chunk = windows[start : start + batch]
        logits = logits_of(chunk)[:, :-1].float()
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), chunk[:, 1:].flatten().to(logits.device), reduction="sum"
        )
        total += float(losses)
        progress(min(start + batch, n_windows) / n_windows)
    return math.exp(total / (n_windows * (window - 1)))


def _scorer(model: HookedMTA | LogitsOf, tokenizer: Tokenizer) -> LogitsOf:
    if not isinstance(model, HookedMTA):
        return model
    check_vocabulary(model, tokenizer)
    return partial(tracing.score, model)


def _work(model: HookedMTA | LogitsOf, length: int) -> float:
    return multiply_adds(model.config, length) if isinstance(model, HookedMTA) else float(length)


def _groups(pairs: list[tuple[NeedleSample, bool]]) -> dict[str, NeedleScore]:
    city = [sample.subject in HELD_OUT_CITIES for sample, _ in pairs]
    number = [is_held_out(int(sample.answer)) for sample, _ in pairs]
    known = [not (c or n) for c, n in zip(city, number, strict=True)]
    right = [ok for _, ok in pairs]
    groups = {"known": known, "held_out_city": city, "held_out_number": number}
    scores = {name: needle_score(itertools.compress(right, which)) for name, which in groups.items()}
    return {"all": needle_score(right), **scores}
