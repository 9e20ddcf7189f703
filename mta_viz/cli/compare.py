"""`compare A [B] --prompt TEXT`: two models, two prompts, or a model with and without edits, side by side."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import mta_viz
from mta_viz.cli.ablate import plan_of_file
from mta_viz.cli.flags import add_answer, add_out, add_prompt, encode, open_model, open_prompt
from mta_viz.cli.output import ProgressLine

HELP = "two models, two prompts, or with and without edits"


def add_flags(parser: ArgumentParser) -> None:
    add_prompt(parser, chat=False)  # two models have two templates
    add = parser.add_argument
    about = "a second checkpoint; without B, --prompt-b and --plan: PATH with its kernels at the identity"
    add("other", type=Path, nargs="?", metavar="B", help=about)
    add("--prompt-b", metavar="TEXT", help="another prompt for the same model")
    add("--plan", type=Path, metavar="FILE", help="a JSON list of interventions that make B of the model")
    add_answer(parser)
    about = "which heads are compared (default: by index where the models are related, else by their maps)"
    add("--pair-by", choices=("index", "similarity", "needle"), help=about)
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """Answers, likeliest tokens, pairs of heads, needle shares and kernel distances."""
    plan = plan_of_file(arguments.plan)
    model, tokens = open_prompt(arguments)
    other = open_model(arguments, arguments.other) if arguments.other else None
    prompt_b = None if arguments.prompt_b is None else encode(model, arguments.prompt_b)
    with ProgressLine("comparing") as progress:
        prompt = tokens.text or tokens  # as text: another model has other tokens
        how: dict[str, Any] = {"answer": arguments.answer, "pair_by": arguments.pair_by, "progress": progress}
        return mta_viz.compare(model, other, prompt, prompt_b=prompt_b, plan=plan, **how).as_data()
