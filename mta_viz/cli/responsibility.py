"""`responsibility PATH --prompt TEXT [--layer L]`: the softmax cells that an answer's logit rests on."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.cause.responsibility import responsibilities
from mta_viz.cli.loading import open_prompt
from mta_viz.cli.output import check_output, write_json


def run(arguments: Namespace) -> dict[str, Any]:
    """Every layer's heads, and with `--layer` one layer's cells."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    model, tokens = open_prompt(arguments)
    found = responsibilities(
        model,
        tokens,
        answer=arguments.answer,
        position=arguments.position,
        place=arguments.answer_token,
    )
    answer = found.as_data(arguments.layer)
    if arguments.out:
        write_json(arguments.out, answer)
    return answer
