"""`responsibility PATH --prompt TEXT [--layer L]`: the softmax cells that an answer's logit rests on."""

from argparse import ArgumentParser, Namespace
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_out, add_question, open_prompt

HELP = "the softmax cells an answer's logit rests on"


def add_flags(parser: ArgumentParser) -> None:
    """An answer to a prompt, and which of its tokens and layers."""
    add_question(parser)
    about = "which token of the answer, from 0 (default: the first that is not only white space)"
    parser.add_argument("--answer-token", type=int, metavar="N", help=about)
    parser.add_argument("--layer", type=int, metavar="L", help="also this layer's cells")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """Every layer's heads, and with `--layer` one layer's cells."""
    model, tokens = open_prompt(arguments)
    return mta_viz.responsibilities(
        model, tokens, answer=arguments.answer, position=arguments.position, place=arguments.answer_token
    ).as_data(arguments.layer)
