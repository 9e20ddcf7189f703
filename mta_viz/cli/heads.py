"""`heads PATH --prompt TEXT [--score KEY]`: what every head does on a prompt, by scores with definitions."""

from argparse import ArgumentParser, Namespace
from typing import Any

import mta_viz
from mta_viz.cli.flags import add_out, add_prompt, run_prompt
from mta_viz.cli.output import ProgressLine
from mta_viz.cli.values import span_list
from mta_viz.errors import PromptError

HELP = "what every head does on a prompt, by its scores"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_prompt(parser)
    add("--score", metavar="KEY", help="this score alone, its heads ranked; for example induction")
    add("--span", type=one_span, metavar="3:8", help="also what each head gives these positions")
    add("--query", type=int, metavar="N", help="the row of scores of one row (default: the last)")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """Every score of every head; with `--score` one, its heads ranked."""
    from mta_viz.analysis.attention.spans import Span

    trace, span = run_prompt(arguments), None
    if arguments.span is not None:
        start, stop = arguments.span
        if stop > len(trace.tokens):
            raise PromptError(f"the span ends at {stop}, the prompt has {len(trace.tokens)} tokens")
        span = Span(f"{start}:{stop}", "S", start, stop)
    with ProgressLine("scoring") as progress:
        scores = mta_viz.head_scores(trace, span, arguments.query, progress=progress)
    return scores.as_data(arguments.score)


def one_span(text: str) -> tuple[int, int]:
    """`3:8` -> (3, 8). Raises PromptError for several spans."""
    spans = span_list(text)
    if len(spans) != 1:
        raise PromptError("--span is one span, such as 3:8; several were given")
    return spans[0][0], spans[0][-1] + 1
