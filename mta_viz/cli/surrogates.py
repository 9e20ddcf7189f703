"""`surrogates PATH [--count N] [--seed N]`: names that kernels without shapes get, and how many survive."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import PATH, add_format
from mta_viz.cli.output import ProgressLine
from mta_viz.cli.values import positive, whole

HELP = (
    "the names that Gaussian kernels with the model's envelope get, and its own taps with random signs, "
    "and how many survive"
)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH)
    about = "surrogate models of each null (default: 200)"
    parser.add_argument("--count", type=positive, default=200, metavar="N", help=about)
    about = "of the surrogates (default: 0)"
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help=about)
    add_format(parser, _models_as_csv, "json (default): summaries and models; csv: a row a surrogate model")


def run(arguments: Namespace) -> dict[str, Any]:
    """The model's own counts, a summary of each null, and every surrogate model."""
    from mta_viz.analysis.kernels.envelope import NULLS, surrogates
    from mta_viz.analysis.kernels.kernels import kernel_stacks
    from mta_viz.checkpoint.reading import read_checkpoint

    with ProgressLine("reading") as progress:
        checkpoint = read_checkpoint(arguments.path, progress=progress)
    stacks = kernel_stacks(checkpoint.state_dict, checkpoint.config, by_place=True)
    with ProgressLine("surrogates") as progress:
        result = surrogates(stacks, arguments.count, arguments.seed, progress)
    own = {name: value for name, value in asdict(result.own).items() if name not in ("null", "model")}
    summaries = [result.summary(null) for null in NULLS]
    return {"found": own, "nulls": summaries, "models": result.table().records()}


def _models_as_csv(answer: dict[str, Any]) -> str:
    """The rows of the models."""
    from mta_viz.tables import Table

    rows = answer["models"]
    return Table.of(rows[0], (tuple(row.values()) for row in rows)).csv()
