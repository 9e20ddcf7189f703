"""What a model answers to needle samples, from one pass over prompt and gold answer; which heads find them.

Of one sample, or over many with intervals; which samples are made belongs to the callers.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mta_viz.analysis.attention.heads import SCORES
from mta_viz.analysis.labs.finder import Finder, Parts, find, sample_parts
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import multiply_adds
from mta_viz.run.scoring import end_logits
from mta_viz.run.tracing import Progress, capture, check_runs, generate, ignore
from mta_viz.tasks.facts import GoldSpan, NeedleSample, Task, answer_ids
from mta_viz.tasks.intervals import accuracy_interval, mean_interval, median_interval
from mta_viz.tokenizers.base import Tokenizer, Tokens

T = TypeVar("T")
CELLS_AT_ONCE = {"cpu": 2**11, "cuda": 2**14}  # tokens in one batch: small ones stay in a CPU's cache
Outcome = Literal["right", "needle", "other"]
BOUNDS = {score.key: score.bounds for score in SCORES}


@dataclass(frozen=True)
class NeedleScore:
    """Right greedy answers among `n` samples, with a 95 % Clopper-Pearson interval (0..1 when n is 0)."""

    right: int
    n: int
    accuracy: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Verdict:
    """A greedy answer: `right`, the number of another `needle` (its place in `named`), or some `other`.

    `log_probability`: of the whole gold answer, in nats.
    """

    outcome: Outcome
    named: int | None
    log_probability: float


def needle_score(right: Iterable[bool]) -> NeedleScore:
    """The share of `right` and its interval; the share of none is NaN."""
    verdicts = list(right)
    return counted(sum(verdicts), len(verdicts)) if verdicts else NeedleScore(0, 0, math.nan, (0.0, 1.0))


def counted(right: int, n: int) -> NeedleScore:
    """The same of a count. Raises ValueError for counts that cannot be, and for none."""
    interval = accuracy_interval(right, n)
    return NeedleScore(right, n, right / n, interval)


def check_vocabulary(model: HookedMTA, tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer a model's needle samples are made with. Raises PromptError where there can be none."""
    check_runs(model)
    if tokenizer is None:
        raise PromptError(
            "this checkpoint came without its tokenizer, and this lab's prompts are made of text; "
            "give the tokenizer's file"
        )
    if model.config.vocab_size < tokenizer.vocab_size:
        raise PromptError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, the model only {model.config.vocab_size}; "
            "choose the tokenizer the model was trained with."
        )
    return tokenizer


def at_once(model: HookedMTA, length: int) -> int:
    """How many prompts of `length` tokens suit the model's device in one batch."""
    return max(1, CELLS_AT_ONCE.get(model.device.type, CELLS_AT_ONCE["cuda"]) // length)


def parts(model: HookedMTA, samples: int, length: int) -> list[tuple[int, int]]:
    """Where to cut `samples` prompts of `length` tokens, so that a batch suits the model's device."""
    return list(pairwise([*range(0, samples, at_once(model, length)), samples]))


def batched(model: HookedMTA, samples: Sequence[NeedleSample]) -> list[list[NeedleSample]]:
    """The samples, shorter prompts first, cut into batches of one length that suit the model's device."""
    by_length = itertools.groupby(sorted(samples, key=_length), _length)
    return [
        alike[start:stop]
        for length, group in by_length
        for alike in [list(group)]
        for start, stop in parts(model, len(alike), length)
    ]


def _length(sample: NeedleSample) -> int:
    return len(sample.tokens)


def answer(model: HookedMTA, tokenizer: Tokenizer, samples: Sequence[NeedleSample]) -> list[Verdict]:
    """The verdict on each sample; their prompts have one length.

    One pass decides right or wrong: while all digits so far are right, greedy decoding would feed
    back the same ids, and at the first wrong one both say "wrong". A second pass is needed only
    for wrong answers that so far agree with another needle's number.
    """
    logits = _answer_logits(model, samples)
    greedy = logits.argmax(-1)
    gold = gold_log_probabilities(logits, [sample.answer_ids for sample in samples])
    right = judge(greedy, tokenizer, samples)
    wrong = [
        (row, place, as_if)
        for row, sample in enumerate(samples)
        if not right[row]
        for place, as_if in _agreeing(tokenizer, sample, tuple(greedy[row].tolist()))
    ]
    others = [as_if for _, _, as_if in wrong]
    verdicts = answered_right(model, tokenizer, others) if others else []
    named = {row: place for (row, place, _), yes in zip(wrong, verdicts, strict=True) if yes}
    return [
        Verdict("right" if right[row] else "needle" if row in named else "other", named.get(row), gold[row])
        for row in range(len(samples))
    ]


def answered_right(model: HookedMTA, tokenizer: Tokenizer, samples: Sequence[NeedleSample]) -> list[bool]:
    """Whether each greedy answer is right, in one pass over prompts of one length, at least one."""
    return judge(_answer_logits(model, samples).argmax(-1), tokenizer, samples)


def in_batches(
    judged: Callable[[HookedMTA, Tokenizer, Sequence[NeedleSample]], Sequence[T]],
    model: HookedMTA,
    tokenizer: Tokenizer,
    samples: Sequence[NeedleSample],
    progress: Progress = ignore,
) -> list[T]:
    """What `answer` or `answered_right` says of each sample, in order; prompts of one length run together.

    `progress` gets the share of the work done: a prompt twice as long is more than twice the work.
    """
    given, done = dict[int, T](), 0.0
    total = sum(multiply_adds(model.config, _length(sample)) for sample in samples)
    for batch in batched(model, samples):
        given |= dict(zip(map(id, batch), judged(model, tokenizer, batch), strict=True))
        done += len(batch) * multiply_adds(model.config, _length(batch[0]))
        progress(done / total)
    return [given[id(sample)] for sample in samples]


def _agreeing(
    tokenizer: Tokenizer, sample: NeedleSample, greedy: tuple[int, ...]
) -> list[tuple[int, NeedleSample]]:
    """Other needles whose number goes on as the greedy answer does, up to and with its first wrong token."""
    gold = sample.answer_ids
    known = next((at for at in range(len(gold)) if greedy[at] != gold[at]), len(gold)) + 1
    agreeing = []
    for place, needle in enumerate(sample.needles):
        ids = answer_ids(tokenizer, sample.question.text, needle.value)
        if needle.kind == "needle" and needle.value and ids[:known] == greedy[: min(known, len(ids))]:
            agreeing.append((place, replace(sample, answer=needle.value, answer_ids=ids)))
    return agreeing


def _answer_logits(model: HookedMTA, samples: Sequence[NeedleSample]) -> Float[Tensor, "sample last vocab"]:
    """Logits from the prompt's last position on, which predict the answers and what follows them."""
    ids = with_answers(samples)
    return end_logits(model, ids, ids.shape[1] - len(samples[0].tokens) + 1)


def gold_log_probabilities(
    logits: Float[Tensor, "sample last vocab"], answers: Sequence[tuple[int, ...]]
) -> list[float]:
    """Log-probability of each answer: the sum over its tokens, in nats."""
    logs = logits.log_softmax(-1).cpu()
    return [
        float(logs[row, torch.arange(len(ids)), torch.tensor(ids)].sum()) for row, ids in enumerate(answers)
    ]


def digits(text: str) -> str:
    """The number a greedy continuation begins with, "" without one."""
    return "".join(itertools.takewhile(str.isdigit, text.lstrip()))


def with_answers(samples: Sequence[NeedleSample]) -> Int[Tensor, "sample position"]:
    """Prompts of one length and their gold answers, filled up with id 0 after the shorter ones."""
    rows = [torch.tensor(sample.tokens.ids + sample.answer_ids) for sample in samples]
    return pad_sequence(rows, batch_first=True)


def judge(
    greedy: Int[Tensor, "sample position"], tokenizer: Tokenizer, samples: Sequence[NeedleSample]
) -> list[bool]:
    """Whether the likeliest tokens from the prompt's last position on are the answer and end with it.

    A number goes on with a digit, a word with a letter.
    """
    return [
        tuple(row[: len(sample.answer_ids)]) == sample.answer_ids
        and not _goes_on(sample.answer, tokenizer.decode((row[len(sample.answer_ids)],)))
        for row, sample in zip(greedy.tolist(), samples, strict=True)
    ]


def _goes_on(answer: str, more: str) -> bool:
    last, first = answer[-1:], more[:1]
    return (last.isdigit() and first.isdigit()) or (last.isalpha() and first.isalpha())


@dataclass(frozen=True)
class NeedleRun:
    """What a model does on one sample; `finder` is None where no span is marked as asked.

    `answered`: what of the greedy `continuation` answers, "" for nothing; `named`: the other needle that has
    this value. `probability`: of the whole gold answer.
    """

    sample: NeedleSample
    finder: Finder | None
    continuation: str
    answered: str
    named: GoldSpan | None
    probability: float

    @property
    def right(self) -> bool:
        """Whether the greedy answer is the gold one."""
        return self.answered == self.sample.answer


def answered(continuation: str, gold: str) -> str:
    """The number a continuation begins with; where the answer is in words, it or else the first line."""
    if gold.isdigit():
        return digits(continuation)
    text = continuation.lstrip()
    if text.startswith(gold) and not _goes_on(gold, text[len(gold) :]):
        return gold
    return text.partition("\n")[0].strip()


def run_finder(
    model: HookedMTA, tokens: Tokens, parts: Parts, begin: Callable[[str], None], progress: Progress
) -> Finder:
    """Where every head of a run looks. `begin` and `progress` as of `run_needle`."""
    begin("Running the prompt")
    trace = capture(model, tokens, progress=progress)
    begin("Looking where every head looks")
    return find(trace, parts, progress=progress)


def run_needle(
    model: HookedMTA,
    task: Task,
    seed: int,
    *,
    begin: Callable[[str], None] = ignore,
    progress: Progress = ignore,
) -> NeedleRun:
    """Sample number `seed` of `task`. `begin(what comes)`, then `progress(share of it)`; raise to stop.

    Raises `PromptError` and `TokenizerError` as the task does.
    """
    tokenizer, finder = check_vocabulary(model, model.tokenizer), None
    sample = task.sample(tokenizer, seed)
    if any(needle.kind == "asked" for needle in sample.needles):
        finder = run_finder(model, sample.tokens, sample_parts(sample), begin, progress)
    begin("Reading the answer")
    new = max(len(sample.answer_ids), 4) + 1
    continuation = tokenizer.decode(generate(model, sample.tokens, new, progress=progress))
    verdict = answer(model, tokenizer, [sample])[0]
    text = answered(continuation, sample.answer)
    named = next((needle for needle in sample.needles if text and needle.value == text), None)
    return NeedleRun(sample, finder, continuation, text, named, math.exp(verdict.log_probability))


@dataclass(frozen=True)
class MeanScore:
    """A score over samples: its mean and its median, each with the ends of an interval.

    `low` and `high` are those of the mean, 95 %, NaN for a score without bounds; `median_low` and
    `median_high` cover the median in `level` of cases: 0.95 or more, less below 6 samples. One sample has no
    interval. NaN where a layer lacks the stage.
    """

    mean: Float[Tensor, "layer head"]
    low: Float[Tensor, "layer head"]
    high: Float[Tensor, "layer head"]
    median: Float[Tensor, "layer head"]
    median_low: Float[Tensor, "layer head"]
    median_high: Float[Tensor, "layer head"]
    level: float


@dataclass(frozen=True, eq=False)
class FinderMeans:
    """The finder's scores of the asked needle, of every sample, by the keys of `HeadScores`."""

    values: Mapping[str, Float[Tensor, "sample layer head"]]

    @property
    def n(self) -> int:
        """How many samples."""
        return len(next(iter(self.values.values())))

    def score(self, key: str) -> MeanScore:
        """One score over the samples."""
        return _score(self, key)


@lru_cache(maxsize=16)  # a page asks for one score again and again
def _score(means: FinderMeans, key: str) -> MeanScore:
    return mean_score(means.values[key], BOUNDS[key])


def finder_means(
    model: HookedMTA,
    task: Task,
    seed: int,
    n: int,
    *,
    keep: Callable[[FinderMeans], None] = ignore,
    progress: Progress = ignore,
) -> FinderMeans:
    """The samples `seed` to `seed + n - 1` of a task.

    After every sample `keep(result so far)`, then `progress(share done)`; raise in either to stop.
    Raises ConfigError for n below 1, PromptError and TokenizerError as the task does.
    """
    if n < 1:
        raise ConfigError([f"n is {n}; expected at least 1"], subject="The repetition")
    tokenizer = check_vocabulary(model, model.tokenizer)
    values: list[Mapping[str, Tensor]] = []
    for at in range(n):
        sample = task.sample(tokenizer, seed + at)
        values.append(find(capture(model, sample.tokens), sample_parts(sample)).asked.values)
        means = FinderMeans({key: torch.stack([each[key] for each in values]) for key in values[0]})
        keep(means)
        progress((at + 1) / n)
    return means


def ranked_places(score: MeanScore) -> list[tuple[int, int]]:
    """(layer, head), the largest lower end of the median first; of one sample, the largest.

    Heads without the stage are left out.
    """
    by = score.median if score.median_low.isnan().all() else score.median_low
    places = [(layer, head) for layer, head in np.argwhere(~by.isnan().numpy()).tolist()]
    return sorted(places, key=lambda place: -float(by[place]))


def mean_score(
    values: Float[Tensor, "sample layer head"], bounds: tuple[float, float] | None = None
) -> MeanScore:
    """The mean and the median over samples; the mean has an interval where the values have `bounds`."""
    nothing = np.full(values.shape[1:], np.nan)
    ends = [nothing, nothing]
    median = median_interval(values)
    of_median = [median.value, median.low, median.high]
    if len(values) < 2:
        of_median[1:] = ends
    elif bounds is not None:
        ends = list(mean_interval(values, bounds))
    parts = [torch.from_numpy(part).float() for part in (*ends, *of_median)]
    low, high, middle, median_low, median_high = parts
    return MeanScore(values.mean(0), low, high, middle, median_low, median_high, median.level)
