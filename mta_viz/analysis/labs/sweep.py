"""Sweeps of needles or pairs: needles x lengths x depths x samples through a model, each sample once.

A task from a file has one setting, which is its own.

Owns the plan, the running and what is kept of a sample; their file and what they say are `sweep_file`'s.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product, zip_longest
from math import isqrt
from typing import Annotated

from pydantic import AfterValidator, Field

from mta_viz.analysis.labs.needle import CELLS_AT_ONCE, Outcome, answer, check_vocabulary, parts
from mta_viz.checkpoint.validate import Measured
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import multiply_adds
from mta_viz.run.jobs import OfModel, spread
from mta_viz.run.named_tasks import TaskName, written_task
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tasks.facts import Task
from mta_viz.tasks.needles import MAX_PAIRS, PAPER_NEEDLE, NeedleTask, PairsTask
from mta_viz.tokenizers.base import Tokenizer

Setting = tuple[int | None, int | None, float | int | None]  # needles, tokens, per cent; None: as in the file
OF_FILE: Setting = (None, None, None)
LONGEST, MOST_SAMPLES = 10**6, 10**6  # tokens of a prompt; samples of a sweep: no machine runs more
PROBE = "The magic number of San Francisco is 417. One of two, 3.5 and 60: naïve zebras!"


@dataclass(frozen=True)
class Sweep:
    """What is measured: `samples` of every combination, numbered from `seed`.

    `needle`, `question` and `haystack` are the task's (see `NeedleTask`). Of the `kind` pairs, `needles` are
    the names times the cities, as many of each; of `file`, `lines` is what stands in it: it has one setting.
    Raises `ConfigError` listing empty and repeated values, `PromptError` for a task that makes no sense.
    """

    needles: tuple[int, ...] = (4,)
    lengths: tuple[int, ...] = (512,)
    depths: tuple[float | int, ...] = (0, 25, 50, 75, 100)
    samples: int = 20
    seed: int = 0
    needle: str = PAPER_NEEDLE
    question: str | None = None
    haystack: str | None = None
    kind: TaskName = "needle"
    lines: str | None = None

    def __post_init__(self) -> None:
        problems = [
            f"{name} are {list(values)}; expected at least one, each once"
            for name in ("needles", "lengths", "depths")
            if not (values := getattr(self, name)) or len(set(values)) < len(values)
        ]
        if self.samples < 1:
            problems.append(f"samples are {self.samples}; expected at least 1")
        if max(self.lengths, default=0) > LONGEST:
            problems.append(f"a prompt of {max(self.lengths):,} tokens; at most {LONGEST:,} are made")
        if (every := len(self.settings) * self.samples) > MOST_SAMPLES:
            problems.append(f"{every:,} samples in all; expected at most {MOST_SAMPLES:,}")
        if self.kind == "file":
            problems += self._problems_of_file()
        if problems:
            raise ConfigError(problems, subject="The sweep")
        for setting in self.settings:
            self.task(setting)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every combination; of a file its own."""
        combined = product(self.needles, self.lengths, self.depths)
        return (OF_FILE,) if self.kind == "file" else tuple(combined)

    @property
    def keys(self) -> tuple[tuple[Setting, int], ...]:
        """Every sample, as `SampleResult.key` names it."""
        seeds = range(self.seed, self.seed + self.samples)
        return tuple((setting, seed) for setting in self.settings for seed in seeds)

    def task(self, setting: Setting) -> Task:
        """The task of one combination."""
        needles, length, depth = setting
        if needles is None or length is None:
            return written_task(self.lines or "")
        if self.kind == "pairs":
            side = isqrt(needles)
            if side**2 != needles:
                raise PromptError(
                    f"{needles} pairs are not as many names as cities; expected 1, 4, 9, 16 or {MAX_PAIRS}"
                )
            return PairsTask(side, side, length, depth, self.haystack)
        return NeedleTask(needles, length, depth, self.needle, self.question, self.haystack)

    def prompt_lengths(self, tokenizer: Tokenizer, keys: Iterable[tuple[Setting, int]]) -> list[int]:
        """Tokens of these samples' prompts, of a file about as many."""
        of_file = written_task(self.lines).lengths(tokenizer) if self.lines else []
        return [of_file[seed] if length is None else length for (_, length, _), seed in keys]

    @property
    def wording(self) -> str:
        """A short digest of templates and haystack: results with another one are of another measurement."""
        words: tuple[object, ...] = (self.needle, self.question, self.haystack)
        if self.kind != "needle":
            words = (self.kind, self.lines if self.kind == "file" else self.haystack)
        text = repr(words)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _problems_of_file(self) -> list[str]:
        there = len(written_task(self.lines or "").samples)
        if self.seed >= 0 and self.seed + self.samples <= there:
            return []
        return [f"{self.samples} samples from number {self.seed} on; the file has {there}, counted from 0"]


def _at_most_0(value: float) -> float:
    if value > 0:
        raise ValueError(f"is {value:g}; expected at most 0")
    return value


@dataclass(frozen=True)
class SampleResult:
    """What a model did on one sample. Places count the prompt's needles from 0.

    Of a prompt from a file `needles`, `length` and `depth` are None.

    `place` is the asked needle's, `named` that of the needle whose number was answered instead.
    `log_probability`: of the whole gold answer, in nats.
    """

    needles: Annotated[int, Field(ge=1, le=MAX_PAIRS)] | None
    length: Annotated[int, Field(ge=1, le=10**8)] | None
    depth: Annotated[float, Field(ge=0, le=100)] | Annotated[int, Field(ge=0, le=100)] | None
    seed: int
    outcome: Outcome
    place: Annotated[int, Field(ge=0)]
    named: Annotated[int, Field(ge=0)] | None
    log_probability: Annotated[Measured, AfterValidator(_at_most_0)]

    @property
    def key(self) -> tuple[Setting, int]:
        """Which sample it is."""
        return (self.needles, self.length, self.depth), self.seed

    @property
    def last(self) -> int:
        """The place of the prompt's last needle, 0 for a prompt from a file."""
        return (self.needles or 1) - 1


def check_places(sample: SampleResult) -> SampleResult:
    """The sample, from a file. Raises ValueError where a place is none of its needles'."""
    if sample.needles is not None and max(sample.place, sample.named or 0) > sample.last:
        raise ValueError(f"has places {sample.place} and {sample.named} of {sample.needles} needles")
    return sample


def run_sweep(
    model: HookedMTA,
    sweep: Sweep,
    done: Iterable[SampleResult] = (),
    *,
    keep: Callable[[tuple[SampleResult, ...]], None] = ignore,
    progress: Progress = ignore,
    on: str | None = None,
) -> tuple[SampleResult, ...]:
    """The results of every sample of `sweep`, in its order: those of `done`, the missing ones measured now.

    All settings grow together, so that partial results speak of all of them. After every batch
    `keep(results so far)` is called, then `progress(share of the missing work done)`; raise in
    either to stop. `on`: where, as of `spread`. Raises `PromptError` before anything is scored when a
    setting's needles do not fit, and `TokenizerError` when the tokenizer cannot encode the task.
    """
    measuring = _Measuring(model, check_sweep(model, sweep), sweep)
    places = {key: at for at, key in enumerate(sweep.keys)}
    results: list[SampleResult | None] = [None] * len(places)

    def take(samples: Iterable[SampleResult]) -> tuple[SampleResult, ...]:
        for sample in samples:
            if sample.key in places:
                results[places[sample.key]] = sample
        return tuple(result for result in results if result is not None)

    batches = _missing(model, sweep, {sample.key for sample in take(done)})
    work = [len(seeds) * multiply_adds(model.config, setting[1] or 1) for setting, seeds in batches]
    finished = 0.0
    for at, samples in spread(measuring, batches, on):
        keep(take(samples))
        finished += work[at]
        progress(finished / sum(work))
    return take(())


def check_sweep(model: HookedMTA, sweep: Sweep) -> Tokenizer:
    """The tokenizer the samples are made with. Raises as `run_sweep` does when one cannot be made."""
    tokenizer = check_vocabulary(model, model.tokenizer)
    for setting in sweep.settings:
        sweep.task(setting).sample(tokenizer, sweep.seed)
    return tokenizer


def vocabulary(tokenizer: Tokenizer) -> str:
    """A short digest of how a tokenizer writes text: models with equal ones get the same samples."""
    ids = tokenizer.encode(PROBE).ids
    return hashlib.sha256(repr((ids, tokenizer.vocab_size)).encode()).hexdigest()[:16]


Batch = tuple[Setting, tuple[int, ...]]


def _missing(model: HookedMTA, sweep: Sweep, done: set[tuple[Setting, int]]) -> list[Batch]:
    """Batches of one setting's samples, the settings taking turns; cut as if nothing had been done."""
    queues = []
    for setting in sweep.settings:
        seeds = range(sweep.seed, sweep.seed + sweep.samples)
        longest = CELLS_AT_ONCE["cuda"]  # of a file every prompt has its own length: one at a time
        cuts = parts(model, len(seeds), setting[1] or longest)
        left = [tuple(seed for seed in seeds[slice(*cut)] if (setting, seed) not in done) for cut in cuts]
        queues.append([(setting, batch) for batch in left if batch])
    rounds = zip_longest(*queues)
    return [batch for turn in rounds for batch in turn if batch is not None]


@dataclass(frozen=True)
class _Measuring(OfModel):
    """What is done with a batch."""

    model: HookedMTA
    tokenizer: Tokenizer
    sweep: Sweep

    def __call__(self, batch: Batch) -> list[SampleResult]:
        setting, seeds = batch
        task = self.sweep.task(setting)
        samples = [task.sample(self.tokenizer, seed) for seed in seeds]
        verdicts = answer(self.model, self.tokenizer, samples)
        results = []
        for seed, sample, verdict in zip(seeds, samples, verdicts, strict=True):
            kinds = [needle.kind for needle in sample.needles]
            place = kinds.index("asked") if "asked" in kinds else 0
            results.append(
                SampleResult(*setting, seed, verdict.outcome, place, verdict.named, verdict.log_probability)
            )
        return results
