"""`effects PATH --task TASK`: what the task loses when each kernel, one at a time, is taken out."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mta_viz.cli.flags import add_file, add_model, add_on, add_task, open_model, refuse_length
from mta_viz.cli.output import ProgressLine, check_output, going_on_from, note
from mta_viz.cli.values import positive
from mta_viz.errors import MtaVizError
from mta_viz.version import VERSION

if TYPE_CHECKING:
    from mta_viz.analysis.cause.effects import Effect, Effects

HELP = "what a task loses with each kernel at the identity, its own tap or zero"
SAMPLES = {"needle": 120, "pairs": 120, "file": 120, "blocks": 500}
LISTED = 5  # of the largest effects, in the answer
SAME = ("sha256", "task", "samples", "seed", "setting", "edit")


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser)
    add_on(parser)
    add_task(parser, "blocks", required=True)
    add("--samples", type=positive, metavar="N", help="blocks: 500; else 120, or all a file has")
    about = "what is made of a kernel: identity (default); own-tap: its gain and sign stay; zero"
    add("--edit", choices=("identity", "own-tap", "zero"), default="identity", help=about)
    add("--heads", action="store_true", help="measure every head switched off as well")
    add("--seed", type=int, default=0, metavar="S", help="of the samples (default 0)")
    add("--length", type=positive, metavar="T", help="tokens a prompt (default: half the trained)")
    about = "default: effects.json (effects-own-tap.json ...) beside the weights; the app reads it"
    add_file(parser, "--out", about, force="overwrite a file of another measurement", out_is="results")


def run(arguments: Namespace) -> dict[str, Any]:
    """Measure what the file does not hold yet; it is written anew after every kernel."""
    from mta_viz.analysis.cause.effects import FILES, Effects, write_effects
    from mta_viz.analysis.cause.sweeps import effect_plans, measure_effects
    from mta_viz.analysis.labs.task_samples import task_batches
    from mta_viz.checkpoint.files import beside
    from mta_viz.checkpoint.locate import sha256

    refuse_length(arguments)
    model = open_model(arguments)
    if not effect_plans(model.config, arguments.edit) and not arguments.heads:
        raise MtaVizError(
            "this checkpoint has no kernels and mixes no heads: nothing can be set to identity; "
            "measure its heads with --heads"
        )
    path = model.path or arguments.path
    file = arguments.out or beside(path) / FILES[arguments.edit]
    check_output(file, force=True)
    name, seed, edit = task_of(arguments), arguments.seed, arguments.edit
    setting, batches = task_batches(
        model, arguments.task, arguments.samples, seed, usual=SAMPLES[name], length=arguments.length
    )
    n = sum(len(batch.answers) for batch in batches)
    wanted = Effects(sha256(path), name, n, seed, setting, VERSION, 0.0, 0.0, (), edit)
    table = _begun(file, wanted, arguments.force)
    with going_on_from(file), ProgressLine("measuring") as progress:
        keep = partial(write_effects, file)
        more = {"heads": arguments.heads, "on": arguments.on}
        table = measure_effects(model, batches, table, keep=keep, progress=progress, **more)
    return _answer(file, table)


def task_of(arguments: Namespace) -> "Literal['needle', 'pairs', 'file', 'blocks']":
    """What `--task` is called in a result."""
    from mta_viz.run.named_tasks import task_name

    return "blocks" if arguments.task == "blocks" else task_name(arguments.task)


def _begun(file: Path, wanted: "Effects", force: bool) -> "Effects":
    """The table to go on with: the file's where it is of the same measurement, else an empty one."""
    from mta_viz.analysis.cause.effects import read_effects

    if force or not file.exists():
        return wanted
    there = read_effects(file)
    differing = [name for name in SAME if getattr(there, name) != getattr(wanted, name)]
    if differing:
        raise MtaVizError(
            f"{file} is of another measurement ({', '.join(differing)} differ); name another file with "
            "--out, or replace it with --force"
        )
    kept = [effect for effect in there.effects if effect.log_probability_change_median is not None]
    if len(kept) < len(there.effects):
        note(f"{len(there.effects) - len(kept)} effects in {file} have no median and are measured again")
    note(f"{len(kept)} effects are in {file} already and stay")
    return replace(there, effects=tuple(kept))


def _answer(file: Path, table: "Effects") -> dict[str, Any]:
    """The table's head, and the kernels that cost most."""
    largest = sorted(table.effects, key=lambda effect: effect.log_probability_change.value)[:LISTED]
    head = {name: value for name, value in asdict(table).items() if name != "effects"}
    return {"out": str(file), **head, "n_effects": len(table.effects), "largest": list(map(_row, largest))}


def _row(effect: "Effect") -> dict[str, Any]:
    names = [intervention.text() for intervention in effect.plan]
    change = names[0].rpartition(" -> ")[2]
    plan = names[0] if len(names) == 1 else f"all {len(names)} kernels and mixings -> {change}"
    return asdict(effect) | {"plan": plan}
