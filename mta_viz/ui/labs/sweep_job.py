"""A sweep beside the page: models one after another, results kept as they come, nothing run twice."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

from mta_viz.analysis.labs.sweep import SampleResult, Sweep, run_sweep, vocabulary
from mta_viz.analysis.labs.sweep_file import ModelResults, SweepResults, empty_results
from mta_viz.checkpoint.hashing import sha256
from mta_viz.checkpoint.locate import locate
from mta_viz.model.transformer import HookedMTA
from mta_viz.ui.cache import ModelKey, Stores
from mta_viz.ui.running import Job, model_of


@dataclass
class Kept:
    """The results of a session's sweeps, by the names the page gives its models; safe between threads."""

    results: SweepResults
    names: dict[str, ModelResults] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, name: str, model: ModelResults) -> None:
        """Take a model's results so far."""
        with self._lock:
            self.results = self.results.with_model(model)
            self.names = {**self.names, name: model}

    def samples(self, sweep: Sweep) -> dict[str, tuple[SampleResult, ...]]:
        """What there is of a sweep, by model."""
        wanted, names = set(sweep.keys), self.names
        found = {
            name: tuple(one for one in model.samples if one.key in wanted) for name, model in names.items()
        }
        return {name: samples for name, samples in found.items() if samples}


def kept_for(sweep: Sweep, before: Kept | None) -> Kept:
    """The results to go on with: those so far where the wording is the same, else none."""
    if before is not None and before.results.wording == sweep.wording:
        return before
    return Kept(empty_results(sweep))


def measure(models: dict[str, ModelKey], sweep: Sweep, kept: Kept, stores: Stores, job: Job) -> None:
    """Every model's missing samples into `kept`."""
    for at, (name, key) in enumerate(models.items()):
        model = model_of(key, stores, job)
        job.begin(f"{name}, model {at + 1} of {len(models)}" if len(models) > 1 else name)
        weights = sha256(locate(Path(key.path), key.step).folder)
        tokens = vocabulary(model.tokenizer) if model.tokenizer else ""
        known = ModelResults(name, weights, tokens, kept.results.of(weights, tokens))
        kept.put(name, known)
        _measure_one(model, sweep, known, kept, job)


def _measure_one(model: HookedMTA, sweep: Sweep, known: ModelResults, kept: Kept, job: Job) -> None:
    """One model's missing samples; samples of other sweeps stay."""
    wanted = set(sweep.keys)
    others = tuple(one for one in known.samples if one.key not in wanted)

    def keep(samples: tuple[SampleResult, ...]) -> None:
        kept.put(known.name, replace(known, samples=others + samples))

    keep(run_sweep(model, sweep, known.samples, keep=keep, progress=job.report))
