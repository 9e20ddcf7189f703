"""`lens PATH --prompt TEXT [--follow TEXT]`: the next token after a position, layer by layer."""

from argparse import ArgumentParser, Namespace
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_out, add_prompt, run_prompt
from mta_viz.cli.output import note
from mta_viz.cli.values import positive
from mta_viz.errors import PromptError
from mta_viz.tasks.facts import plain_ids

HELP = "the next token after a position, layer by layer (logit lens)"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_prompt(parser)
    add("--position", type=int, metavar="N", help="default: the prompt's last token")
    add("--follow", metavar="TEXT", help="its tokens at every depth (default: the likeliest ones)")
    add("--count", type=positive, default=5, metavar="N", help="likeliest tokens (default 5)")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The likeliest tokens of every depth, and at every depth the tokens of `--follow` or the last's."""
    from mta_viz.analysis.cause.answers import carrying

    trace = run_prompt(arguments)
    position = len(trace.tokens) - 1 if arguments.position is None else arguments.position
    followed: tuple[int, ...] = ()
    if arguments.follow is not None:
        if trace.model.tokenizer is None:
            raise PromptError("--follow needs the tokenizer; give it with --tokenizer FILE")
        followed = plain_ids(trace.model.tokenizer, arguments.follow)
        place = carrying(trace.model.tokenizer, trace.tokens.ids[position], followed)
        if place:  # white space of its own before a word
            trace = mta_viz.capture(trace.model, (*trace.tokens.ids[: position + 1], *followed[:place]))
            note(f"read after the white space that begins {arguments.follow!r}")
            position, followed = position + place, followed[place:]
    return mta_viz.lens_over_layers(trace, position, followed, k=arguments.count).as_data()
