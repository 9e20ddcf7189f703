"""`lens PATH --prompt TEXT [--follow TEXT]`: the next token after a position, layer by layer."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from mta_viz.cli.flags import add_model, add_out, add_prompt, open_prompt, positive, valid_text
from mta_viz.errors import PromptError

if TYPE_CHECKING:
    from mta_viz.model.transformer import HookedMTA

HELP = "the next token after a position, layer by layer (logit lens)"


def add_flags(parser: ArgumentParser) -> None:
    """A prompt, a position in it, and the tokens that are followed."""
    add_model(parser)
    add_prompt(parser)
    parser.add_argument("--position", type=int, metavar="N", help="default: the prompt's last token")
    parser.add_argument(
        "--follow", metavar="TEXT", help="its tokens at every depth (default: the likeliest ones)"
    )
    parser.add_argument("--count", type=positive, default=5, metavar="N", help="likeliest tokens (default 5)")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The likeliest tokens of every depth, and at every depth the tokens of `--follow` or the last's."""
    from mta_viz.analysis.attention.predictions import lens_over_layers
    from mta_viz.run.tracing import capture

    model, tokens = open_prompt(arguments)
    position = len(tokens) - 1 if arguments.position is None else arguments.position
    followed = () if arguments.follow is None else _ids(model, arguments.follow)
    return lens_over_layers(capture(model, tokens), position, followed, k=arguments.count).as_data()


def _ids(model: "HookedMTA", text: str) -> tuple[int, ...]:
    """The tokens of a text, without those that begin a prompt."""
    from mta_viz.tasks.haystack import encode_piece

    if model.tokenizer is None:
        raise PromptError("--follow needs the tokenizer; give it with --tokenizer FILE")
    return encode_piece(model.tokenizer, valid_text(text)).ids
