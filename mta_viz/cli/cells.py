"""`cells PATH --prompt TEXT --layer L --head H --stage NAME`: the cells of a head's map that stand out."""

from argparse import Namespace
from dataclasses import asdict
from typing import Any

from mta_viz.analysis.attention.cells import top_cells
from mta_viz.cli.loading import open_prompt, stage_named
from mta_viz.cli.output import check_output, write_json
from mta_viz.run.tracing import capture


def run(arguments: Namespace) -> dict[str, Any]:
    """The cells, largest first, with their tokens."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    stage = stage_named(arguments.stage)
    model, tokens = open_prompt(arguments)
    trace = capture(model, tokens)
    found = top_cells(trace, arguments.layer, arguments.head, stage, arguments.count, by=arguments.by)
    pieces = tokens.pieces
    words = [{"query_token": pieces[cell.query], "key_token": pieces[cell.key]} for cell in found]
    rows = [asdict(cell) | {"change": cell.change} | told for cell, told in zip(found, words, strict=True)]
    answer = {"layer": arguments.layer, "head": arguments.head, "stage": stage.value.hook, "cells": rows}
    if arguments.out:
        write_json(arguments.out, answer)
    return answer
