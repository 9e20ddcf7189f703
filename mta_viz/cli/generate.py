"""`generate PATH --prompt TEXT --max-new-tokens N`: a greedy continuation, up to the end token."""

from argparse import Namespace
from typing import Any

from mta_viz.cli.loading import encode_prompt, note_length, open_model
from mta_viz.cli.progress import ProgressLine
from mta_viz.tracing import generate


def run(arguments: Namespace) -> dict[str, Any]:
    """`text` and `ids` are the continuation only, without the end token."""
    model = open_model(arguments)
    tokens = encode_prompt(model.tokenizer, arguments.prompt)
    note_length(model, len(tokens) + arguments.max_new_tokens)
    with ProgressLine("generating") as progress:
        ids = generate(model, tokens, arguments.max_new_tokens, progress=progress)
    return {"prompt": arguments.prompt, "text": model.tokenizer.decode(ids), "ids": list(ids)}
