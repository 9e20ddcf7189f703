"""`finetune BASE --layers 2,6 --task TASK --out DIR`: train kernels into a model; the answer is its card."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from mta_viz.cli.flags import add_task
from mta_viz.cli.output import evaluation_line, note
from mta_viz.cli.values import layer_list, number_list, output_path, positive, sizes
from mta_viz.config import DTYPES, LARGEST_KERNEL
from mta_viz.errors import ConfigError, refuse_all
from mta_viz.tasks.needles import MAX_SIDE
from mta_viz.training.finetune_settings import KEPT, TRAINED, FinetuneConfig, finetune_config

HELP = "train kernels into a model of yours"
SETTINGS = (  # flags that are settings under the same name
    *("base", "layers", "kernel", "train", "task", "lengths", "batch_size", "corpus", "keep", "keep_weight"),
    *("steps", "max_seconds", "learning_rate", "seed", "dtype", "evaluation_samples"),
)


def add_flags(parser: ArgumentParser) -> None:
    add, usual = parser.add_argument, vars(FinetuneConfig(base="-", layers=(0,)))
    add("base", type=str, nargs="?", metavar="BASE", help="a plain model: a checkpoint, left as it is")
    about = "that get kernels, from 0 (default: every fourth from 2; of a shallow model its lower half)"
    add("--layers", type=layer_list, metavar="2,6", help=about)
    add("--kernel", type=sizes(LARGEST_KERNEL, "6x11"), metavar="6x11", help="queries x keys (default 6x11)")
    about = "kernels (default), with or without the gains before attention in these layers, or everything"
    add("--train", choices=TRAINED, help=about)
    add_task(parser, "text", about="what it learns (default pairs)")
    about = "names x cities of the task pairs (default 3x3)"
    add("--pairs", type=sizes(MAX_SIDE, "3x3"), metavar="3x3", help=about)
    add("--lengths", type=number_list, metavar="N,N", help="of the prompts in tokens, one of them a step")
    add("--batch-size", type=positive, help=f"prompts a step (default {usual['batch_size']})")
    about = "a plain-text file or a folder of such (default: the project's grammar)"
    add("--corpus", metavar="PATH", help=about)
    about = "the corpus's own words (text, default), the base's predictions on them (base), or nothing"
    add("--keep", choices=KEPT, help=f"what the model is held to beside the task: {about}")
    add("--keep-weight", type=float, help="of that loss beside the task's (default 1)")
    add("--steps", type=positive, help=f"training steps (default {usual['steps']}; with a clock: no limit)")
    add("--max-seconds", type=float, help="end by the clock, the learning rate falling to 0 until then")
    add("--learning-rate", type=float, help=f"of the kernels (default {usual['learning_rate']:g})")
    add("--seed", type=int, help="of the data and its order (default 0)")
    about = "of what is not trained (default float32; what is trained is float32 always)"
    add("--dtype", choices=DTYPES, help=about)
    add("--evaluation-samples", type=positive, help="held-out prompts (default 100)")
    add("--config", type=Path, metavar="FILE.toml", help="all settings; flags come before it")
    add("--device", default="cpu", help="cpu (default; for small models) or cuda")
    add("--out", type=output_path, required=True, help="new folder for the adapter and what belongs to it")
    add("--resume", action="store_true", help="go on with the run in --out, by the same settings")


def run(arguments: Namespace) -> dict[str, Any]:
    """Train, what is done and how far it is on stderr; returns the card."""
    from mta_viz.training.checks import run_checks
    from mta_viz.training.finetune import finetune
    from mta_viz.training.recipe import print_progress

    out, device, resume = arguments.out, arguments.device, arguments.resume
    settings = partial(finetune_config, arguments.config, **_changes(arguments))
    run = run_checks(out, device, resume=resume)
    refuse_all([partial(_check_flags, arguments), settings, *run], "The finetuning")
    said: dict[str, Any] = {"tell": _tell, "report": print_progress, "evaluation_progress": evaluation_line()}
    try:
        card = finetune(settings(), out, device=device, resume=resume, **said)
    except KeyboardInterrupt:
        _note_what_is_kept(out)
        raise
    _note_what_is_next(out, card)
    return card


def _changes(arguments: Namespace) -> dict[str, Any]:
    """What flags say of the settings."""
    changes = {name: getattr(arguments, name) for name in SETTINGS}
    if arguments.pairs is not None:
        changes |= dict(zip(("names", "cities"), arguments.pairs, strict=True))
    return changes


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _note_what_is_kept(out: Path) -> None:
    from mta_viz.training.recipe import STATE_FILE

    if (out / STATE_FILE).is_file():
        note(f"what was trained is kept in {out}; the same command with --resume goes on from there")


def _note_what_is_next(folder: Path, card: Mapping[str, Any]) -> None:
    out, most_changed = quote(str(folder)), card.get("most_changed")
    note(f"to look at it: make app MODELS={out}, or python -m mta_viz kernels {out}")
    if most_changed:
        kernel = f'--kernel "L{most_changed["layer"]} H{most_changed["head"]} pre"'
        note(f"what that kernel does to a prompt: python -m mta_viz ablate {out} {kernel} --prompt TEXT")


def _check_flags(arguments: Namespace) -> None:
    """Raises ConfigError for flags that mean nothing beside others."""
    idle = {
        "--kernel with --train norms": arguments.kernel and arguments.train == "norms",
        f"--pairs with --task {arguments.task}": arguments.pairs and arguments.task not in (None, "pairs"),
        "--keep-weight with --keep none": arguments.keep_weight is not None and arguments.keep == "none",
    }
    if problems := [
        f"{flags} means nothing; leave one of them out" for flags, given in idle.items() if given
    ]:
        raise ConfigError(problems, "The finetuning")
