"""`needle PATH... --out FILE`: checkpoints on the same samples of needles or pairs, kept as measured."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint import door
from mta_viz.cli import flags, values
from mta_viz.cli.output import ProgressLine, going_on_from, note, seldom
from mta_viz.errors import MtaVizError
from mta_viz.tasks.facts import DEPTHS
from mta_viz.tasks.needles import TEMPLATES

if TYPE_CHECKING:
    from mta_viz.analysis.labs.needle import NeedleScore
    from mta_viz.analysis.labs.sweep import SampleResult, Sweep
    from mta_viz.analysis.labs.sweep_file import ModelResults, SweepResults
    from mta_viz.model.transformer import HookedMTA

HELP = "needles or pairs x lengths x depths, or a file of prompts; several checkpoints, resumable"
NOT_OF_PAIRS, NOT_OF_FILES = ("template", "needle", "question"), ("needles", "lengths", "depths", "haystack")
WORDINGS = {"paper": "the paper's", "ruler": "RULER's"}  # as TEMPLATES has them


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", type=Path, nargs="+", metavar="PATH", help=f"{flags.PATH}; several are compared")
    flags.add_base(parser)
    flags.add_running(parser)
    flags.add_on(parser)
    flags.add_task(parser, about="what is hidden (default needle)")
    about = "needle: 1 to 8 (default 4); pairs: 1, 4, 9 (default), 16 or 25, as many names as cities"
    add("--needles", type=values.number_list, metavar="2,4,6", help=about)
    add(
        "--lengths",
        type=values.number_list,
        metavar="512,1024",
        help="of the prompt, in tokens (default 512)",
    )
    about = "per cent of the haystack before the asked needle (default 0,25,50,75,100)"
    add("--depths", type=depth_list, metavar="0,50,100", help=about)
    add("--samples", type=values.positive, metavar="N", help="of each combination: 20; of a file: all it has")
    add("--seed", type=int, default=0, metavar="S", help="number of the first sample")
    add("--template", choices=tuple(WORDINGS), help="needle and question (default paper)")
    add("--needle", metavar="TEXT", help="a sentence of your own with {city} and {value}")
    add("--question", metavar="TEXT", help="with {city}; default: the needle up to its value")
    add("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    about, force = "results; what it holds is not run again", "replace a file of another measurement"
    flags.add_file(parser, "--out", about, required=True, force=force, out_is="results")


def run(arguments: Namespace) -> dict[str, Any]:
    """Measure what the file does not hold yet; it is written anew as batches end, a large one seldom."""
    from mta_viz.analysis.labs.sweep_file import results_of

    sweep, file = _sweep(arguments), arguments.out
    results = _begun(file, sweep, arguments.force)
    measured: list[tuple[Path, ModelResults, int]] = []  # with how many samples were run now
    for path in arguments.paths:
        model = flags.open_model(arguments, path)
        name = model.source.name if model.source else path.absolute().name
        known = results_of(model, name, results)
        if known.samples:
            note(f"{len(known.samples)} samples of {known.name} are in {file} already; none is run twice")
        with going_on_from(file):
            results = _measure(model, sweep, known, results, file, arguments.on)
        done = replace(known, samples=results.of(known.sha256, known.vocabulary))
        measured.append((path, done, len(done.samples) - len(known.samples)))
    return _answer(file, sweep, measured)


def _sweep(arguments: Namespace) -> "Sweep":
    from mta_viz.analysis.labs.sweep import Sweep
    from mta_viz.run.named_tasks import LIMIT, series_of, task_name

    task = arguments.task or "needle"
    kind = task_name(task)
    _refuse_what_is_not_of(kind, arguments)
    if kind == "file":
        series = series_of(task, 0)
        samples = series.count(arguments.samples, series.most or 0, arguments.seed)
        lines = door.read_text(Path(task), LIMIT)
        return Sweep(samples=samples, seed=arguments.seed, kind=kind, lines=lines)
    needle, question = TEMPLATES[WORDINGS[arguments.template or "paper"]]
    return Sweep(
        arguments.needles or ((9,) if kind == "pairs" else (4,)),
        arguments.lengths or (512,),
        arguments.depths or DEPTHS,
        arguments.samples or 20,
        arguments.seed,
        arguments.needle or needle,
        arguments.question if arguments.question or arguments.needle else question,
        door.read_text(arguments.haystack) if arguments.haystack else None,
        kind,
    )


def _refuse_what_is_not_of(kind: str, arguments: Namespace) -> None:
    """Raises MtaVizError for options that a task does not have."""
    own = {"needle": NOT_OF_PAIRS + NOT_OF_FILES, "pairs": NOT_OF_FILES, "file": ()}[kind]
    options = NOT_OF_PAIRS + NOT_OF_FILES
    foreign = [f"--{name}" for name in options if name not in own and getattr(arguments, name) is not None]
    if foreign:
        what = "a file's prompts are as they are" if kind == "file" else "the pairs task has one wording"
        raise MtaVizError(f"{', '.join(foreign)}: {what}; leave it out")


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
    model: "HookedMTA",
    sweep: "Sweep",
    known: "ModelResults",
    results: "SweepResults",
    file: Path,
    on: str | None,
) -> "SweepResults":
    """The results with this checkpoint's samples; samples of other sweeps in the file stay."""
    from mta_viz.analysis.labs.sweep import check_sweep
    from mta_viz.analysis.labs.sweep_file import measure_missing, write_sweep

    tokenizer = check_sweep(model, sweep)
    missing = set(sweep.keys) - {sample.key for sample in known.samples}
    lengths = sweep.prompt_lengths(tokenizer, missing)
    flags.note_seconds(model, f"{known.name}: {len(lengths):,} samples to run", lengths)

    def keep(so_far: "ModelResults") -> None:
        write_sweep(file, results.with_model(so_far))

    with ProgressLine(known.name) as progress:
        measured = measure_missing(model, sweep, known, keep=seldom(keep), progress=progress, on=on)
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
    from mta_viz.analysis.labs import sweep_file

    return {
        "settings": _rows(("needles", "length", "depth"), sweep_file.by_setting(samples)),
        "by_needles": _rows(("needles",), sweep_file.by_needles(samples)),
        "by_place": _rows(("place",), sweep_file.by_place(samples)),
        "misses": asdict(sweep_file.misses(samples)),
        "by_length_and_needles": _rows(("length", "needles"), sweep_file.by_length_and_needles(samples)),
    }


def _rows(names: tuple[str, ...], scores: "Mapping[Any, NeedleScore]") -> list[dict[str, Any]]:
    """A row a score, with the parts of its key by their names."""
    return [
        dict(zip(names, key if isinstance(key, tuple) else (key,), strict=True)) | asdict(score)
        for key, score in scores.items()
    ]


def depth_list(text: str) -> tuple[float | int, ...]:
    """`0,12.5` -> (0, 12.5)."""
    try:
        depths = [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a list of depths such as 0,50,100") from None
    return tuple(int(depth) if depth.is_integer() else depth for depth in depths)
