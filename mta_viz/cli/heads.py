"""`heads PATH --prompt TEXT [--score KEY]`: what every head does on a prompt, by scores with definitions."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.attention.heads import head_scores
from mta_viz.analysis.attention.spans import Span
from mta_viz.cli.loading import open_prompt
from mta_viz.cli.output import ProgressLine, check_output, write_json
from mta_viz.errors import PromptError
from mta_viz.run.tracing import capture


def run(arguments: Namespace) -> dict[str, Any]:
    """Every score of every head; with `--score` one, its heads ranked."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    model, tokens = open_prompt(arguments)
    span = _span(arguments.span)
    if span is not None and span.stop > len(tokens):
        raise PromptError(f"the span ends at {span.stop}, the prompt has {len(tokens)} tokens")
    with ProgressLine("scoring") as progress:
        found = head_scores(capture(model, tokens), span, arguments.query, progress=progress)
    answer = found.as_data(arguments.score)
    if arguments.out:
        write_json(arguments.out, answer)
    return answer


def _span(positions: tuple[tuple[int, ...], ...] | None) -> Span | None:
    if positions is None:
        return None
    if len(positions) != 1:
        raise PromptError("--span is one span, such as 3:8; several were given")
    (one,) = positions
    return Span(f"{one[0]}:{one[-1] + 1}", "S", one[0], one[-1] + 1)
