"""`train RECIPE ...`: train a checkpoint; the answer is its model card.

`train blocks` on the command line: its arguments and how they reach the recipe.
`train needle` on the command line: its arguments and how they reach the recipe.
"""

import argparse
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from mta_viz.training.settings import blocks_config, needle_config


def add_blocks_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `train blocks`."""
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="what differs from the defaults")
    parser.add_argument("--variant", help="mta (default) or transformer, the plain twin")
    parser.add_argument("--seed", type=int, help="weights and data (default 0)")
    parser.add_argument("--steps", type=int, help="training steps (default 10000)")
    parser.add_argument("--out", type=Path, help="new checkpoint folder (default blocks-VARIANT-SEED)")
    parser.add_argument("--lingua", type=Path, metavar="DIR", help="new folder for a Lingua-format export")
    parser.add_argument("--device", default="cpu", help="cpu (default; slow) or cuda")
    parser.add_argument("--max-seconds", type=float, help="stop by the clock; the run can be resumed")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")


def run_blocks(args: argparse.Namespace) -> dict[str, Any]:
    """Train as the parsed arguments say, progress on stderr; returns the model card."""
    config = blocks_config(args.config, variant=args.variant, seed=args.seed, steps=args.steps)
    from mta_viz.training.blocks import train_blocks
    from mta_viz.training.running import print_evaluation, print_progress

    return train_blocks(
        config,
        args.out or Path(f"blocks-{config.variant}-{config.seed}"),
        lingua=args.lingua,
        device=args.device,
        max_seconds=args.max_seconds,
        resume=args.resume,
        report=print_progress,
        evaluation_progress=print_evaluation,
    )


def add_needle_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `train needle`."""
    parser.add_argument(
        "--corpus", type=Path, required=True, metavar="DIR", help="folder of plain-text books"
    )
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="what differs from the defaults")
    parser.add_argument("--variant", help="mta (default) or transformer, the plain twin")
    parser.add_argument("--seed", type=int, help="weights and data (default 0)")
    parser.add_argument("--steps", type=int, help="training steps (default 4000)")
    parser.add_argument("--learning-rate", type=float, help="of the matrices (default 0.001)")
    parser.add_argument("--out", type=Path, help="new checkpoint folder (default needle-VARIANT-SEED)")
    parser.add_argument("--lingua", type=Path, metavar="DIR", help="new folder for a Lingua-format export")
    parser.add_argument("--device", default="cpu", help="cpu (default; very slow) or cuda")
    parser.add_argument("--max-seconds", type=float, help="stop by the clock; the run can be resumed")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")


def run_needle(args: argparse.Namespace) -> dict[str, Any]:
    """Train as the parsed arguments say, progress on stderr; returns the model card."""
    config = needle_config(
        args.config,
        variant=args.variant,
        seed=args.seed,
        steps=args.steps,
        learning_rate=args.learning_rate,
    )
    from mta_viz.training.needle import train_needle
    from mta_viz.training.running import print_evaluation, print_progress

    return train_needle(
        config,
        args.corpus,
        args.out or Path(f"needle-{config.variant}-{config.seed}"),
        lingua=args.lingua,
        device=args.device,
        max_seconds=args.max_seconds,
        resume=args.resume,
        report=print_progress,
        stage=lambda text: print(f"{text} ...", file=sys.stderr, flush=True),
        evaluation_progress=print_evaluation,
    )


def run(arguments: Namespace) -> dict[str, Any]:
    """Hand over to the recipe, which the parser has put into `arguments.recipe`."""
    return arguments.recipe(arguments)
