"""Needle sweeps: needles x lengths x depths x samples through a model, each sample once.

Owns the plan, the running and what is kept of a sample; their file and what they say are `sweep_file`'s.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Annotated

from pydantic import AfterValidator, Field

from mta_viz.analysis.labs.needle import Outcome, answer, check_vocabulary, parts
from mta_viz.checkpoint.validate import Measured
from mta_viz.errors import ConfigError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.cost import multiply_adds
from mta_viz.tasks.needles import MAX_NEEDLES, PAPER_NEEDLE, NeedleTask, make_needle_sample
from mta_viz.tokenizers.base import Tokenizer

Setting = tuple[int, int, float | int]  # needles, length in tokens, depth in per cent
LONGEST, MOST_SAMPLES = 10**6, 10**6  # tokens of a prompt; samples of a sweep: no machine runs more
PROBE = "The magic number of San Francisco is 417. One of two, 3.5 and 60: naïve zebras!"


@dataclass(frozen=True)
class Sweep:
    """What is measured: `samples` of every combination, numbered from `seed`.

    `needle`, `question` and `haystack` are the task's (see `NeedleTask`). Raises `ConfigError`
    listing empty and repeated values, `PromptError` for a task that makes no sense.
    """

    needles: tuple[int, ...] = (4,)
    lengths: tuple[int, ...] = (512,)
    depths: tuple[float | int, ...] = (0, 25, 50, 75, 100)
    samples: int = 20
    seed: int = 0
    needle: str = PAPER_NEEDLE
    question: str | None = None
    haystack: str | None = None

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
        if problems:
            raise ConfigError(problems, subject="The sweep")
        for setting in self.settings:
            self.task(setting)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every combination."""
        return tuple(product(self.needles, self.lengths, self.depths))

    @property
    def keys(self) -> tuple[tuple[Setting, int], ...]:
        """Every sample, as `SampleResult.key` names it."""
        seeds = range(self.seed, self.seed + self.samples)
        return tuple((setting, seed) for setting in self.settings for seed in seeds)

    def task(self, setting: Setting) -> NeedleTask:
        """The task of one combination."""
        return NeedleTask(*setting, needle=self.needle, question=self.question, haystack=self.haystack)

    @property
    def wording(self) -> str:
        """A short digest of templates and haystack: results with another one are of another measurement."""
        text = repr((self.needle, self.question, self.haystack))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _at_most_0(value: float) -> float:
    if value > 0:
        raise ValueError(f"is {value:g}; expected at most 0")
    return value


@dataclass(frozen=True)
class SampleResult:
    """What a model did on one sample. Places count the prompt's needles from 0.

    `place` is the asked needle's, `named` that of the needle whose number was answered instead.
    `log_probability`: of the whole gold answer, in nats.
    """

    needles: Annotated[int, Field(ge=1, le=MAX_NEEDLES)]
    length: Annotated[int, Field(ge=1, le=10**8)]
    depth: Annotated[float, Field(ge=0, le=100)] | Annotated[int, Field(ge=0, le=100)]
    seed: int
    outcome: Outcome
    place: Annotated[int, Field(ge=0)]
    named: Annotated[int, Field(ge=0)] | None
    log_probability: Annotated[Measured, AfterValidator(_at_most_0)]

    @property
    def key(self) -> tuple[Setting, int]:
        """Which sample it is."""
        return (self.needles, self.length, self.depth), self.seed


def check_places(sample: SampleResult) -> SampleResult:
    """The sample, from a file. Raises ValueError where a place is none of its needles'."""
    if max(sample.place, sample.named or 0) >= sample.needles:
        raise ValueError(f"has places {sample.place} and {sample.named} of {sample.needles} needles")
    return sample


def run_sweep(
    model: HookedMTA,
    sweep: Sweep,
    done: Iterable[SampleResult] = (),
    *,
    keep: Callable[[tuple[SampleResult, ...]], None] = lambda result: None,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[SampleResult, ...]:
    """The results of every sample of `sweep`: those of `done`, and the missing ones measured now.

    All settings grow together, so that partial results speak of all of them. After every batch
    `keep(results so far)` is called, then `progress(share of the missing work done)`; raise in
    either to stop. Raises `PromptError` before anything is scored when a setting's needles do not
    fit, and `TokenizerError` when the tokenizer cannot encode the task.
    """
    tokenizer = check_sweep(model, sweep)
    wanted = set(sweep.keys)
    results = {sample.key: sample for sample in done if sample.key in wanted}
    batches = _missing(model, sweep, set(results))
    work = [len(seeds) * multiply_adds(model.config, setting[1]) for setting, seeds in batches]
    for at, (setting, seeds) in enumerate(batches):
        results |= {sample.key: sample for sample in _measure(model, tokenizer, sweep, setting, seeds)}
        keep(tuple(results.values()))
        progress(sum(work[: at + 1]) / sum(work))
    return tuple(results.values())


def check_sweep(model: HookedMTA, sweep: Sweep) -> Tokenizer:
    """The tokenizer the samples are made with. Raises as `run_sweep` does when one cannot be made."""
    tokenizer = check_vocabulary(model, model.tokenizer)
    for setting in sweep.settings:
        make_needle_sample(tokenizer, sweep.task(setting), sweep.seed)
    return tokenizer


def vocabulary(tokenizer: Tokenizer) -> str:
    """A short digest of how a tokenizer writes text: models with equal ones get the same samples."""
    ids = tokenizer.encode(PROBE).ids
    return hashlib.sha256(repr((ids, tokenizer.vocab_size)).encode()).hexdigest()[:16]


def _missing(
    model: HookedMTA, sweep: Sweep, done: set[tuple[Setting, int]]
) -> list[tuple[Setting, tuple[int, ...]]]:
    """Batches of one setting's samples, the settings taking turns."""
    queues = []
    for setting in sweep.settings:
        seeds = [seed for own, seed in sweep.keys if own == setting and (own, seed) not in done]
        cuts = parts(model, len(seeds), setting[1])
        queues.append([(setting, tuple(seeds[start:stop])) for start, stop in cuts])
    rounds = zip_longest(*queues)
    return [batch for turn in rounds for batch in turn if batch is not None]


def _measure(
    model: HookedMTA, tokenizer: Tokenizer, sweep: Sweep, setting: Setting, seeds: Sequence[int]
) -> list[SampleResult]:
    samples = [make_needle_sample(tokenizer, sweep.task(setting), seed) for seed in seeds]
    results = []
    for seed, sample, verdict in zip(seeds, samples, answer(model, tokenizer, samples), strict=True):
        place = [needle.kind for needle in sample.needles].index("asked")
        results.append(
            SampleResult(*setting, seed, verdict.outcome, place, verdict.named, verdict.log_probability)
        )
    return results
