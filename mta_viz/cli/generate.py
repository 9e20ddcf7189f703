"""`generate PATH --prompt TEXT --max-new-tokens N`: a greedy continuation, up to the end token."""

from argparse import ArgumentParser, Namespace
from typing import Any, cast

from mta_viz.cli.flags import add_chat, add_model, as_chat, note_length, open_model
from mta_viz.cli.output import ProgressLine
from mta_viz.cli.values import positive
from mta_viz.tokenizers.base import Tokenizer

HELP = "continue a prompt greedily, up to the end token"


def add_flags(parser: ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--prompt", required=True, metavar="TEXT")
    add_chat(parser)
    parser.add_argument("--max-new-tokens", type=positive, required=True, metavar="N")


def run(arguments: Namespace) -> dict[str, Any]:
    """`text` and `ids` are the continuation only, without the end token."""
    from mta_viz.run.tracing import generate, tokenize

    model = open_model(arguments)
    tokens = as_chat(model, arguments.prompt) if arguments.chat else tokenize(model, arguments.prompt)
    note_length(model, len(tokens) + arguments.max_new_tokens)
    with ProgressLine("generating") as progress:
        ids = generate(model, tokens, arguments.max_new_tokens, progress=progress)
    tokenizer = cast(Tokenizer, model.tokenizer)  # open_model raises for a prompt without one
    return {"prompt": arguments.prompt, "text": tokenizer.decode(ids), "ids": list(ids)}
