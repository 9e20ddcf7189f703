"""`generate PATH --prompt TEXT --max-new-tokens N`: a greedy continuation, up to the end token."""

from argparse import Namespace
from typing import Any, cast

from mta_viz.cli.loading import note_length, open_model, valid_text
from mta_viz.cli.output import ProgressLine
from mta_viz.run.tracing import generate, tokenize
from mta_viz.tokenizers.base import Tokenizer


def run(arguments: Namespace) -> dict[str, Any]:
    """`text` and `ids` are the continuation only, without the end token."""
    model = open_model(arguments)
    tokens = tokenize(model, valid_text(arguments.prompt))
    note_length(model, len(tokens) + arguments.max_new_tokens)
    with ProgressLine("generating") as progress:
        ids = generate(model, tokens, arguments.max_new_tokens, progress=progress)
    tokenizer = cast(Tokenizer, model.tokenizer)  # open_model raises for a prompt without one
    return {"prompt": arguments.prompt, "text": tokenizer.decode(ids), "ids": list(ids)}
