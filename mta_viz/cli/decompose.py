"""`decompose PATH --prompt TEXT --layer L --head H --stage NAME --key K`: why a cell has its value."""

from argparse import ArgumentParser, Namespace
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_head, add_out, run_prompt

HELP = "why a cell of a map has its value, as an exact sum"


def add_flags(parser: ArgumentParser) -> None:
    add_head(parser)
    parser.add_argument("--query", type=int, metavar="N", help="the cell's row (default: the prompt's last)")
    parser.add_argument("--key", type=int, required=True, metavar="N", help="the cell's column")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The value and the terms it is the sum of, largest first."""
    layer, head, stage = arguments.layer, arguments.head, arguments.stage
    trace = run_prompt(arguments)
    query = len(trace.tokens) - 1 if arguments.query is None else arguments.query
    return mta_viz.decompose(trace, layer, stage, head, query, arguments.key).as_data()
