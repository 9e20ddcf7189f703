"""`direct-effect PATH --prompt TEXT [--layer L]`: what softmax cells add directly to an answer's logit."""

from argparse import ArgumentParser, Namespace
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_out, add_question, open_prompt
from mta_viz.cli.output import ProgressLine
from mta_viz.cli.values import whole

HELP = "what softmax cells add directly to an answer's logit, and what it loses without them"
OLDER = ("responsibility",)
WHOLE = 8  # as in `removed_cells`, which is imported later


def add_flags(parser: ArgumentParser) -> None:
    add_question(parser)
    about = "which token of the answer, from 0 (default: the first that is not only white space)"
    parser.add_argument("--answer-token", type=int, metavar="N", help=about)
    parser.add_argument("--layer", type=int, metavar="L", help="also this layer's cells")
    about = f"cells of largest direct effect that are removed, a run each (default {WHOLE}, 0: none)"
    parser.add_argument("--whole", type=whole(0), default=WHOLE, metavar="N", help=about)
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """Every layer's heads, with `--layer` one layer's cells, and the largest cells removed."""
    model, tokens = open_prompt(arguments)
    effects = mta_viz.direct_effect(
        model, tokens, answer=arguments.answer, position=arguments.position, place=arguments.answer_token
    )
    answer, count = effects.as_data(arguments.layer), arguments.whole
    with ProgressLine("removing cells") as progress:
        removed = mta_viz.whole_effects(effects, layer=arguments.layer, count=count, progress=progress)
    return answer | {"removed": removed.as_data()}
