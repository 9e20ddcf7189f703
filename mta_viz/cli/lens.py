"""`lens PATH --prompt TEXT [--answer TEXT]`: the next token after a position, layer by layer."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.attention.predictions import lens_over_layers
from mta_viz.cli.loading import open_prompt, valid_text
from mta_viz.cli.output import check_output, write_json
from mta_viz.errors import PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture
from mta_viz.tasks.haystack import encode_piece


def run(arguments: Namespace) -> dict[str, Any]:
    """The likeliest tokens of every depth, and at every depth the tokens of `--follow` or the last's."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    model, tokens = open_prompt(arguments)
    position = len(tokens) - 1 if arguments.position is None else arguments.position
    followed = () if arguments.follow is None else _ids(model, arguments.follow)
    answer = lens_over_layers(capture(model, tokens), position, followed, k=arguments.count).as_data()
    if arguments.out:
        write_json(arguments.out, answer)
    return answer


def _ids(model: HookedMTA, text: str) -> tuple[int, ...]:
    """The tokens of a text, without those that begin a prompt."""
    if model.tokenizer is None:
        raise PromptError("--follow needs the tokenizer; give it with --tokenizer FILE")
    return encode_piece(model.tokenizer, valid_text(text)).ids
