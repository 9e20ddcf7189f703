"""`decompose PATH --prompt TEXT --layer L --head H --stage NAME --key K`: why a cell has its value."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.attention.decomposition import decompose
from mta_viz.cli.loading import open_prompt, stage_named
from mta_viz.cli.output import check_output, write_json
from mta_viz.run.tracing import capture


def run(arguments: Namespace) -> dict[str, Any]:
    """The value and the terms it is the sum of, largest first."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    stage = stage_named(arguments.stage)
    model, tokens = open_prompt(arguments)
    query = len(tokens) - 1 if arguments.query is None else arguments.query
    found = decompose(capture(model, tokens), arguments.layer, stage, arguments.head, query, arguments.key)
    answer = found.as_data()
    if arguments.out:
        write_json(arguments.out, answer)
    return answer
