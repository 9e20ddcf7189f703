"""`needle PATH... --out FILE`: checkpoints on the same needle samples, kept as they are measured."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint import door
from mta_viz.cli.flags import add_file, add_running, note_seconds, open_model, positive
from mta_viz.cli.output import ProgressLine, going_on_from, note
from mta_viz.errors import MtaVizError
from mta_viz.tasks.needles import TEMPLATES

if TYPE_CHECKING:
    from mta_viz.analysis.labs.needle import NeedleScore
    from mta_viz.analysis.labs.sweep import SampleResult, Sweep
    from mta_viz.analysis.labs.sweep_file import ModelResults, SweepResults
    from mta_viz.model.transformer import HookedMTA

HELP = "needles x lengths x depths, several checkpoints, resumable"
WORDINGS = {"paper": "the paper's", "ruler": "RULER's"}  # as TEMPLATES has them


def add_flags(parser: ArgumentParser) -> None:
    """Models, the settings of the sweep, and the file of its results."""
    add = parser.add_argument
    add("paths", type=Path, nargs="+", metavar="PATH", help="checkpoint folders")
    add_running(parser)
    add("--needles", type=number_list, default=(4,), metavar="2,4,6", help="1 to 8 (default 4)")
    add("--lengths", type=number_list, default=(512,), metavar="512,1024", help="of the prompt, in tokens")
    about = "per cent of the haystack before the asked needle (default 0,25,50,75,100)"
    add("--depths", type=depth_list, default=(0, 25, 50, 75, 100), metavar="0,50,100", help=about)
    add("--samples", type=positive, default=20, metavar="N", help="of each combination")
    add("--seed", type=int, default=0, metavar="S", help="number of the first sample")
    add("--template", choices=tuple(WORDINGS), default="paper", help="needle and question")
    add("--needle", metavar="TEXT", help="a sentence of your own with {city} and {value}")
    add("--question", metavar="TEXT", help="with {city}; default: the needle up to its value")
    add("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    add_file(
        parser,
        "--out",
        "results; what it holds is not run again",
        required=True,
        force="replace a file of another measurement",
        out_is="results",
    )


def run(arguments: Namespace) -> dict[str, Any]:
    """Measure what the file does not hold yet; it is written anew after every batch."""
    from mta_viz.analysis.labs.sweep import check_sweep
    from mta_viz.analysis.labs.sweep_file import results_of

    sweep, file = _sweep(arguments), arguments.out
    results = _begun(file, sweep, arguments.force)
    measured: list[tuple[Path, ModelResults, int]] = []  # with how many samples were run now
    for path in arguments.paths:
        model = open_model(arguments, path)
        check_sweep(model, sweep)
        name = model.source.name if model.source else path.absolute().name
        known = results_of(model, name, results)
        if known.samples:
            note(f"{len(known.samples)} samples of {known.name} are in {file} already; none is run twice")
        with going_on_from(file):
            results = _measure(model, sweep, known, results, file)
        done = replace(known, samples=results.of(known.sha256, known.vocabulary))
        measured.append((path, done, len(done.samples) - len(known.samples)))
    return _answer(file, sweep, measured)


def _sweep(arguments: Namespace) -> "Sweep":
    from mta_viz.analysis.labs.sweep import Sweep

    needle, question = TEMPLATES[WORDINGS[arguments.template]]
    return Sweep(
        arguments.needles,
        arguments.lengths,
        arguments.depths,
        arguments.samples,
        arguments.seed,
        arguments.needle or needle,
        arguments.question if arguments.question or arguments.needle else question,
        door.read_text(arguments.haystack) if arguments.haystack else None,
    )


def _begun(file: Path, sweep: "Sweep", force: bool) -> "SweepResults":
    """The results to go on with: the file's where its wording is this one, else none."""
    from mta_viz.analysis.labs.sweep_file import empty_results, read_sweep

    if force or not file.exists():
        return empty_results(sweep)
    there = read_sweep(file)
    if there.wording != sweep.wording:
        raise MtaVizError(
            f"{file} holds samples with another template or haystack; name another file with --out, or "
            "replace it with --force"
        )
    return there


def _measure(
    model: "HookedMTA", sweep: "Sweep", known: "ModelResults", results: "SweepResults", file: Path
) -> "SweepResults":
    """The results with this checkpoint's samples; samples of other sweeps in the file stay."""
    from mta_viz.analysis.labs.sweep_file import measure_missing, write_sweep

    missing = set(sweep.keys) - {sample.key for sample in known.samples}
    lengths = [setting[1] for setting, _ in missing]
    note_seconds(model, f"{known.name}: {len(lengths):,} samples to run", lengths)

    def keep(so_far: "ModelResults") -> None:
        write_sweep(file, results.with_model(so_far))

    with ProgressLine(known.name) as progress:
        measured = measure_missing(model, sweep, known, keep=keep, progress=progress)
    keep(measured)
    return results.with_model(measured)


def _answer(file: Path, sweep: "Sweep", measured: "list[tuple[Path, ModelResults, int]]") -> dict[str, Any]:
    """Every checkpoint's scores on this sweep's samples, and the difference of each two in a row."""
    from mta_viz.analysis.labs.sweep_file import paired_difference

    samples = [model.only(sweep).samples for _, model, _ in measured]
    models = [
        {"path": str(path), "run_now": new, **_scores(own)}
        for (path, _, new), own in zip(measured, samples, strict=True)
    ]
    differences = [
        {"from": str(first[0]), "to": str(second[0]), **asdict(paired_difference(before, after))}
        for (first, second), (before, after) in zip(pairwise(measured), pairwise(samples), strict=True)
        if first[1].vocabulary == second[1].vocabulary  # the same tokenizer made the same samples
    ]
    return {"out": str(file), "models": models, "differences": differences}


def _scores(samples: "tuple[SampleResult, ...]") -> dict[str, Any]:
    from mta_viz.analysis.labs.sweep_file import (
        by_length_and_needles,
        by_needles,
        by_place,
        by_setting,
        misses,
    )

    names = ("needles", "length", "depth")
    return {
        "settings": [
            dict(zip(names, setting, strict=True)) | asdict(score)
            for setting, score in by_setting(samples).items()
        ],
        "by_needles": _rows("needles", by_needles(samples)),
        "by_place": _rows("place", by_place(samples)),
        "misses": asdict(misses(samples)),
        "by_length_and_needles": [
            {"length": length, "needles": needles} | asdict(score)
            for (length, needles), score in by_length_and_needles(samples).items()
        ],
    }


def _rows(name: str, scores: "Mapping[Any, NeedleScore]") -> list[dict[str, Any]]:
    return [{name: key, **asdict(score)} for key, score in scores.items()]


def number_list(text: str) -> tuple[int, ...]:
    """`2,4` -> (2, 4)."""
    return tuple(positive(part.strip()) for part in text.split(","))


def depth_list(text: str) -> tuple[float | int, ...]:
    """`0,12.5` -> (0, 12.5)."""
    try:
        depths = [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a list of depths such as 0,50,100") from None
    return tuple(int(depth) if depth.is_integer() else depth for depth in depths)
