"""`story PATH --prompt TEXT`: one head and kernel of a prompt, and what they do there."""

from argparse import ArgumentParser, Namespace
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_answer, add_out, add_prompt, open_prompt
from mta_viz.cli.output import ProgressLine

HELP = "a prompt's story: one head and kernel, how chosen, what they do, what the answer loses without"


def add_flags(parser: ArgumentParser) -> None:
    add_prompt(parser)
    add_answer(parser)
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The sentence and every number in it."""
    model, tokens = open_prompt(arguments)
    with ProgressLine("measuring") as progress:
        return mta_viz.story(model, tokens, answer=arguments.answer, progress=progress).as_data()
