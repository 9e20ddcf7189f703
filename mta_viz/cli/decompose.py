"""`decompose PATH --prompt TEXT --layer L --head H --stage NAME --key K`: why a cell has its value."""

from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.flags import add_head, add_model, add_out, add_prompt, open_prompt, stage_named

HELP = "why a cell of a map has its value, as an exact sum"


def add_flags(parser: ArgumentParser) -> None:
    """A head's map, and one of its cells."""
    add_model(parser)
    add_prompt(parser)
    add_head(parser)
    parser.add_argument("--query", type=int, metavar="N", help="the cell's row (default: the prompt's last)")
    parser.add_argument("--key", type=int, required=True, metavar="N", help="the cell's column")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The value and the terms it is the sum of, largest first."""
    from mta_viz.analysis.attention.decomposition import decompose
    from mta_viz.run.tracing import capture

    stage = stage_named(arguments.stage)
    model, tokens = open_prompt(arguments)
    query = len(tokens) - 1 if arguments.query is None else arguments.query
    trace = capture(model, tokens)
    return decompose(trace, arguments.layer, stage, arguments.head, query, arguments.key).as_data()
