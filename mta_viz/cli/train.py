"""`train {blocks,needle} ...`: train a checkpoint like the shipped ones; the answer is its model card."""

import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import Any

from mta_viz.cli.output import evaluation_line
from mta_viz.cli.values import output_path
from mta_viz.errors import refuse_all
from mta_viz.training.settings import BlocksConfig, NeedleConfig, Settings, recipe_config

HELP = "train a checkpoint like the shipped ones"


def add_flags(parser: ArgumentParser) -> None:
    recipes = parser.add_subparsers(dest="recipe", metavar="RECIPE", required=True)
    blocks = recipes.add_parser("blocks", help="block finding, the paper's toy task")
    _add_run(blocks, "blocks", steps=10_000, on_cpu="slow")
    needle = recipes.add_parser("needle", help="the needle language model, or its plain twin")
    needle.add_argument(
        "--corpus", type=Path, required=True, metavar="DIR", help="folder of plain-text books"
    )
    needle.add_argument("--learning-rate", type=float, help="of the matrices (default 0.001)")
    _add_run(needle, "needle", steps=4000, on_cpu="very slow")


def _add_run(parser: ArgumentParser, name: str, *, steps: int, on_cpu: str) -> None:
    """What both recipes take."""
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="what differs from the defaults")
    parser.add_argument("--variant", help="mta (default), transformer (the plain twin) or differential")
    parser.add_argument("--seed", type=int, help="weights and data (default 0)")
    parser.add_argument("--steps", type=int, help=f"training steps (default {steps})")
    parser.add_argument(
        "--out", type=output_path, help=f"new checkpoint folder (default {name}-VARIANT-SEED)"
    )
    parser.add_argument(
        "--lingua", type=output_path, metavar="DIR", help="new folder for a Lingua-format export"
    )
    parser.add_argument("--device", default="cpu", help=f"cpu (default; {on_cpu}) or cuda")
    parser.add_argument("--max-seconds", type=float, help="stop by the clock; the run can be resumed")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")


def run(arguments: Namespace) -> dict[str, Any]:
    """Train by the recipe, progress on stderr; returns the model card."""
    of_needle = arguments.recipe == "needle"
    names = ("variant", "seed", "steps", *(["learning_rate"] if of_needle else []))
    changes = {name: getattr(arguments, name) for name in names}  # of the defaults; None changes nothing
    config: Any = _settings(NeedleConfig if of_needle else BlocksConfig, arguments, **changes)
    from mta_viz.training.from_scratch import train_blocks, train_needle

    out = arguments.out or Path(f"{arguments.recipe}-{config.variant}-{config.seed}")
    running = _running(arguments)
    if not of_needle:
        return train_blocks(config, out, **running)
    running["stage"] = lambda text: print(f"{text} ...", file=sys.stderr, flush=True)
    return train_needle(config, arguments.corpus, out, **running)


def _settings(kind: type[Settings], arguments: Namespace, **changes: Any) -> Settings:
    """The recipe's settings. What is wrong with them, the device and the folders is told at once."""
    from mta_viz.training.checks import export_checks, run_checks

    read = partial(recipe_config, kind, arguments.config, **changes)
    run = run_checks(arguments.out, arguments.device, arguments.max_seconds, arguments.resume)
    refuse_all([read, *run, *export_checks(arguments.lingua, arguments.out, arguments.resume)], "The run")
    return read()


def _running(arguments: Namespace) -> dict[str, Any]:
    """How any recipe is run."""
    from mta_viz.training.recipe import print_progress

    same = {name: getattr(arguments, name) for name in ("lingua", "device", "max_seconds", "resume")}
    return {
        **same,
        "report": partial(print_progress, left="left to train"),
        "evaluation_progress": evaluation_line(),
    }
