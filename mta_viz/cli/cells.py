"""`cells PATH --prompt TEXT --layer L --head H --stage NAME`: the cells of a head's map that stand out."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_head, add_out, run_prompt
from mta_viz.cli.values import positive

HELP = "the cells of a head's map that stand out"


def add_flags(parser: ArgumentParser) -> None:
    add_head(parser)
    about = "value (default), change by the step before, or contribution |P| ||v|| of final weights"
    parser.add_argument("--by", choices=("value", "change", "contribution"), default="value", help=about)
    parser.add_argument("--count", type=positive, default=50, metavar="N", help="how many (default 50)")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The cells, largest first, with their tokens."""
    layer, head, stage = arguments.layer, arguments.head, arguments.stage
    trace = run_prompt(arguments)
    pieces = trace.tokens.pieces
    rows = [
        asdict(cell)
        | {"change": cell.change, "query_token": pieces[cell.query], "key_token": pieces[cell.key]}
        for cell in mta_viz.top_cells(trace, layer, head, stage, arguments.count, by=arguments.by)
    ]
    return {"layer": layer, "head": head, "stage": stage.value.hook, "cells": rows}
