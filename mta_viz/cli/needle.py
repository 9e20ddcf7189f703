"""`needle PATH... --out FILE`: checkpoints on the same needle samples, kept as they are measured."""

from argparse import Namespace
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.analysis.labs.sweep import SampleResult, Sweep, check_sweep, run_sweep, vocabulary
from mta_viz.analysis.labs.sweep_file import (
    ModelResults,
    SweepResults,
    by_needles,
    by_place,
    by_setting,
    empty_results,
    misses,
    paired_difference,
    read_sweep,
    write_sweep,
)
from mta_viz.checkpoint.locate import sha256
from mta_viz.cli.loading import open_model
from mta_viz.cli.output import ProgressLine, check_output, note
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.tasks.needles import TEMPLATES


def run(arguments: Namespace) -> dict[str, Any]:
    """Measure what the file does not hold yet; it is written anew after every batch."""
    sweep, file = _sweep(arguments), arguments.out
    check_output(file, force=True)
    results = _begun(file, sweep, arguments.force)
    measured: list[tuple[Path, ModelResults, int]] = []  # with how many samples were run now
    for path in arguments.paths:
        model = open_model(Namespace(**vars(arguments) | {"path": path}))
        known = _known(model, path, sweep, results)
        if known.samples:
            note(f"{len(known.samples)} samples of {known.name} are in {file} already; none is run twice")
        try:
            results = _measure(model, sweep, known, results, file)
        except KeyboardInterrupt:
            note(f"what is measured is kept in {file}; the same command goes on from there")
            raise
        done = replace(known, samples=results.of(known.sha256, known.vocabulary))
        measured.append((path, done, len(done.samples) - len(known.samples)))
    return _answer(file, sweep, measured)


def _sweep(arguments: Namespace) -> Sweep:
    needle, question = TEMPLATES[{"paper": "the paper's", "ruler": "RULER's"}[arguments.template]]
    return Sweep(
        arguments.needles,
        arguments.lengths,
        arguments.depths,
        arguments.samples,
        arguments.seed,
        arguments.needle or needle,
        arguments.question if arguments.question or arguments.needle else question,
        read_haystack(arguments.haystack) if arguments.haystack else None,
    )


def read_haystack(file: Path) -> str:
    """The text of `--haystack`. Raises MtaVizError for what is no UTF-8 text."""
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MtaVizError(f"the haystack {file} cannot be read as UTF-8 text ({error})") from error


def _begun(file: Path, sweep: Sweep, force: bool) -> SweepResults:
    """The results to go on with: the file's where its wording is this one, else none."""
    if force or not file.exists():
        return empty_results(sweep)
    there = read_sweep(file)
    if there.wording != sweep.wording:
        raise MtaVizError(
            f"{file} holds samples with another template or haystack; name another file with --out, or "
            "replace it with --force"
        )
    return there


def _known(model: HookedMTA, path: Path, sweep: Sweep, results: SweepResults) -> ModelResults:
    """What the file has of a checkpoint."""
    tokenizer = check_sweep(model, sweep)
    folder = model.source.path if model.source else path
    name, digests = folder.absolute().name, (sha256(folder), vocabulary(tokenizer))
    return ModelResults(name, *digests, results.of(*digests))


def _measure(
    model: HookedMTA, sweep: Sweep, known: ModelResults, results: SweepResults, file: Path
) -> SweepResults:
    """The results with this checkpoint's samples; samples of other sweeps in the file stay."""
    wanted = set(sweep.keys)
    others = tuple(one for one in known.samples if one.key not in wanted)

    def merged(samples: tuple[SampleResult, ...]) -> SweepResults:
        return results.with_model(replace(known, samples=others + samples))

    lengths = [setting[1] for setting, seed in wanted - {one.key for one in known.samples}]
    seconds = sum(tracing.estimate_seconds(model, n) * lengths.count(n) for n in set(lengths))
    note(f"{known.name}: {len(lengths):,} samples to run, about {max(seconds, 1):,.0f} s here")
    with ProgressLine(known.name) as progress:
        samples = run_sweep(
            model,
            sweep,
            known.samples,
            keep=lambda found: write_sweep(file, merged(found)),
            progress=progress,
        )
    write_sweep(file, merged(samples))
    return merged(samples)


def _answer(file: Path, sweep: Sweep, measured: list[tuple[Path, ModelResults, int]]) -> dict[str, Any]:
    """Every checkpoint's scores on this sweep's samples, and the difference of each two in a row."""
    wanted = set(sweep.keys)
    found = [
        (path, tuple(one for one in model.samples if one.key in wanted), new) for path, model, new in measured
    ]
    models = [{"path": str(path), "run_now": new, **_scores(samples)} for path, samples, new in found]
    differences = []
    for ((first, before, _), (second, after, _)), alike in zip(
        pairwise(found), _alike([model for _, model, _ in measured]), strict=True
    ):
        if alike:
            change = asdict(paired_difference(before, after))
            differences.append({"from": str(first), "to": str(second), **change})
    return {"out": str(file), "models": models, "differences": differences}


def _alike(models: list[ModelResults]) -> list[bool]:
    """Whether each two in a row had the same samples: the same tokenizer made them."""
    return [one.vocabulary == other.vocabulary for one, other in pairwise(models)]


def _scores(samples: tuple[SampleResult, ...]) -> dict[str, Any]:
    names = ("needles", "length", "depth")
    return {
        "settings": [
            dict(zip(names, setting, strict=True)) | asdict(score)
            for setting, score in by_setting(samples).items()
        ],
        "by_needles": _told("needles", by_needles(samples)),
        "by_place": _told("place", by_place(samples)),
        "misses": asdict(misses(samples)),
    }


def _told(name: str, scores: "dict[int, NeedleScore] | dict[str, NeedleScore]") -> list[dict[str, Any]]:
    return [{name: key, **asdict(score)} for key, score in scores.items()]
