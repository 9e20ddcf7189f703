"""The file a sweep is kept in: one sample a line, read back so that no sample is run twice.

What the results of a sweep say: accuracies with intervals, their paired difference, bias of place.
"""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from mta_viz.analysis.labs.needle import NeedleScore, check_vocabulary, needle_score
from mta_viz.analysis.labs.sweep import SampleResult, Setting, Sweep, check_places, run_sweep, vocabulary
from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import from_text
from mta_viz.errors import PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.files import weights_digest
from mta_viz.run.named_tasks import TaskName
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tables import Table
from mta_viz.tasks.intervals import paired_change_interval
from mta_viz.tasks.needles import SENTENCE
from mta_viz.writing import write

FORMAT, OLDER = "mta_viz needle sweep 2", "mta_viz needle sweep 1"  # the older has needles alone
Text = Annotated[str, Field(max_length=10_000)]


def _each_once(samples: tuple[SampleResult, ...]) -> tuple[SampleResult, ...]:
    if len({sample.key for sample in samples}) < len(samples):
        raise ValueError("has a sample twice")
    return samples


Sample = Annotated[SampleResult, AfterValidator(check_places)]
Samples = Annotated[tuple[Sample, ...], AfterValidator(_each_once)]


@dataclass(frozen=True)
class ModelResults:
    """One checkpoint's samples. `sha256` is its weights', `vocabulary` its tokenizer's digest."""

    name: Text
    sha256: Text
    vocabulary: Text
    samples: Samples

    @property
    def digests(self) -> tuple[str, str]:
        """What tells a checkpoint from another: its weights and its tokenizer."""
        return self.sha256, self.vocabulary

    def only(self, sweep: Sweep) -> "ModelResults":
        """With the samples of one sweep alone."""
        wanted = set(sweep.keys)
        return replace(self, samples=tuple(sample for sample in self.samples if sample.key in wanted))


@dataclass(frozen=True)
class SweepResults:
    """Several checkpoints on the same samples; `wording` is a digest of templates and haystack or lines."""

    wording: Text
    needle: Text
    question: Text | None
    models: tuple[ModelResults, ...]
    kind: TaskName = "needle"  # the only one of older files, which do not say it

    def of(self, sha256: str, vocabulary: str) -> tuple[SampleResult, ...]:
        """The samples of one checkpoint, none where it has not been measured."""
        known = (model for model in self.models if model.digests == (sha256, vocabulary))
        return next((model.samples for model in known), ())

    def with_model(self, model: ModelResults) -> "SweepResults":
        """These with one checkpoint's results added or replaced."""
        models = {known.digests: known for known in self.models} | {model.digests: model}
        return replace(self, models=tuple(models.values()))


def empty_results(sweep: Sweep) -> SweepResults:
    """Results without a sample yet."""
    words = {"needle": (sweep.needle, sweep.question), "pairs": (SENTENCE, None), "file": ("", None)}
    return SweepResults(sweep.wording, *words[sweep.kind], (), sweep.kind)


def results_of(model: HookedMTA, name: str, results: SweepResults) -> ModelResults:
    """What `results` hold of a model's weights with its tokenizer, under the name `name`."""
    tokenizer = check_vocabulary(model, model.tokenizer)
    weights = "" if model.source is None else weights_digest(model)
    digest = vocabulary(tokenizer)
    return ModelResults(name, weights, digest, results.of(weights, digest))


def measure_missing(
    model: HookedMTA,
    sweep: Sweep,
    known: ModelResults,
    *,
    keep: Callable[[ModelResults], None] = ignore,
    progress: Progress = ignore,
    on: str | None = None,
) -> ModelResults:
    """`known` with the samples of `sweep` it lacks; others stay. The rest as of `run_sweep`."""
    wanted = set(sweep.keys)
    others = tuple(sample for sample in known.samples if sample.key not in wanted)

    def joined(samples: tuple[SampleResult, ...]) -> ModelResults:
        return replace(known, samples=others + samples)

    so_far = lambda samples: keep(joined(samples))  # noqa: E731
    return joined(run_sweep(model, sweep, known.samples, keep=so_far, progress=progress, on=on))


def sweep_text(results: SweepResults) -> str:
    """The file's content: JSON with one sample a line."""
    head = {
        "format": FORMAT,
        **{name: getattr(results, name) for name in ("kind", "wording", "needle", "question")},
    }
    models = []
    for model in results.models:
        names = {name: getattr(model, name) for name in ("name", "sha256", "vocabulary")}
        rows = ",".join(f"\n   {_sample_text(sample)}" for sample in model.samples)
        models.append("\n  " + json.dumps(names).removesuffix("}") + f', "samples": [{rows}\n  ]}}')
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "models": [{",".join(models)}\n ]\n}}\n'


def _sample_text(sample: SampleResult) -> str:
    """A line; a log-probability that is not finite is null."""
    finite = math.isfinite(sample.log_probability)
    return json.dumps(asdict(sample) | ({} if finite else {"log_probability": None}), allow_nan=False)


def write_sweep(file: Path, results: SweepResults) -> None:
    """Replace `file`; a reader never sees half of it. Raises MtaVizError when the disk refuses."""
    write(file, sweep_text(results))


def read_sweep(file: Path) -> SweepResults:
    """The results in a file. Raises MtaVizError listing what is wrong with it."""
    return parse_sweep(door.read_bytes(file, door.RESULTS), str(file))


def parse_sweep(text: str | bytes, name: str) -> SweepResults:
    """The results in the content of the file `name`. Raises ConfigError listing what is wrong with it."""
    remedy = "Name another file, or move it away."
    return from_text(
        SweepResults, text, f"{name} as a needle sweep", file_format=FORMAT, older=(OLDER,), remedy=remedy
    )


K = TypeVar("K", bound=Hashable)
N = TypeVar("N", int, float)
Axes = tuple[tuple[int, ...], tuple[int, ...], tuple[float | int, ...]]  # needles, lengths, depths, ascending


@dataclass(frozen=True)
class Difference:
    """Accuracy of the second model minus the first's on the same `n` samples, with its 95 % interval."""

    n: int
    value: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Misses:
    """What wrong answers were: another needle's number (of the first, of the last needle), or none of them.

    Of the needles not asked for, `by_chance_first` (`_last`) would be named first (last) if all were
    alike, summed over the answers that name another one.
    """

    wrong: int
    named: int
    first: int
    last: int
    by_chance_first: float
    by_chance_last: float


def axes_of(results: Iterable[SampleResult]) -> Axes:
    """Those that some sample has."""
    settings = {sample.key[0] for sample in results}
    needles, lengths, depths = zip(*settings, strict=True)
    return known(needles), known(lengths), known(depths)


def known(values: Iterable[N | None]) -> tuple[N, ...]:
    """Those that are not None, ascending, each once."""
    return tuple(sorted({value for value in values if value is not None}))


def scores_by(results: Iterable[SampleResult], key: Callable[[SampleResult], K]) -> dict[K, NeedleScore]:
    """The accuracy of each group of samples, groups in ascending order of their first sample."""
    groups: dict[K, list[bool]] = {}
    for sample in results:
        groups.setdefault(key(sample), []).append(sample.outcome == "right")
    return {name: needle_score(right) for name, right in groups.items()}


def by_setting(results: Iterable[SampleResult]) -> dict[Setting, NeedleScore]:
    """One accuracy for each combination of needles, length and depth that has samples."""
    return dict(sorted(scores_by(results, lambda sample: sample.key[0]).items()))


def accuracy_table(models: Mapping[str, Mapping[Setting, NeedleScore]]) -> Table:
    """One row a model and setting: right answers, samples, accuracy, ends of the 95 % interval."""
    rows = (
        (model, *setting, score.right, score.n, score.accuracy, *score.interval)
        for model, settings in models.items()
        for setting, score in settings.items()
    )
    return Table.of(("model", "needles", "length", "depth", "right", "n", "accuracy", "low", "high"), rows)


def by_needles(results: Iterable[SampleResult], length: int | None = None) -> dict[int, NeedleScore]:
    """The accuracy over all depths by number of needles: of one `length`, as in the paper, or of all."""
    chosen = (sample for sample in results if sample.needles and length in (None, sample.length))
    return dict(sorted(scores_by(chosen, lambda sample: sample.needles or 0).items()))


def by_length_and_needles(results: Iterable[SampleResult]) -> dict[tuple[int, int], NeedleScore]:
    """The accuracy over all depths for each (length, number of needles)."""
    chosen = (sample for sample in results if sample.needles)
    return dict(sorted(scores_by(chosen, lambda sample: (sample.length or 0, sample.needles or 0)).items()))


def by_depth_and_length(
    results: Iterable[SampleResult], needles: int | None = None
) -> dict[tuple[float | int, int], NeedleScore]:
    """One accuracy for each (depth, length), of one number of needles or of all together."""
    chosen = (sample for sample in results if sample.needles and needles in (None, sample.needles))
    return dict(sorted(scores_by(chosen, lambda sample: (sample.depth or 0, sample.length or 0)).items()))


def by_place(results: Iterable[SampleResult]) -> dict[str, NeedleScore]:
    """Accuracy where the asked needle is the first, between others, or the last; single needles left out."""

    def place(sample: SampleResult) -> str:
        if sample.place == 0:
            return "first"
        return "last" if sample.place == sample.last else "between"

    scores = scores_by([sample for sample in results if sample.last], place)
    return {place: scores[place] for place in ("first", "between", "last") if place in scores}


def misses(results: Iterable[SampleResult]) -> Misses:
    """What the wrong answers were."""
    wrong = [sample for sample in results if sample.outcome != "right"]
    named = [sample for sample in wrong if sample.named is not None]
    return Misses(
        len(wrong),
        len(named),
        sum(sample.named == 0 for sample in named),
        sum(sample.named == sample.last for sample in named),
        math.fsum((sample.place != 0) / sample.last for sample in named),
        math.fsum((sample.place != sample.last) / sample.last for sample in named),
    )


def paired_difference(first: Sequence[SampleResult], second: Sequence[SampleResult]) -> Difference:
    """Over the samples both have. Raises PromptError when there are none."""
    known = {sample.key: sample.outcome == "right" for sample in first}
    pairs = [(known[sample.key], sample.outcome == "right") for sample in second if sample.key in known]
    if not pairs:
        raise PromptError("the two models have no sample in common yet; let the sweep go on")
    before, after = zip(*pairs, strict=True)
    change = (sum(after) - sum(before)) / len(pairs)
    return Difference(len(pairs), change, paired_change_interval(before, after))
