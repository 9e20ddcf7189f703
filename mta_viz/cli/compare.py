"""`compare A [B] --prompt TEXT`: two models, two prompts, or a model with and without edits, side by side."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.compare.comparing import compare
from mta_viz.cli.ablate import plan_of_file
from mta_viz.cli.loading import note_length, open_model, open_prompt, valid_text
from mta_viz.cli.output import ProgressLine, check_output, write_json
from mta_viz.run.tracing import tokenize


def run(arguments: Namespace) -> dict[str, Any]:
    """Answers, likeliest tokens, pairs of heads, needle shares and kernel distances."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    plan = plan_of_file(arguments.plan) if arguments.plan else ()
    model, tokens = open_prompt(arguments)
    other, prompt_b = None, None
    if arguments.other:
        other = open_model(Namespace(**vars(arguments) | {"path": arguments.other}))
    if arguments.prompt_b is not None:
        prompt_b = tokenize(model, valid_text(arguments.prompt_b))
        note_length(model, len(prompt_b))
    with ProgressLine("comparing") as progress:
        found = compare(
            model,
            other,
            tokens if arguments.prompt is None else arguments.prompt,
            prompt_b=prompt_b,
            plan=plan,
            answer=arguments.answer,
            pair_by=arguments.pair_by,
            progress=progress,
        )
    answer = found.as_data()
    if arguments.out:
        write_json(arguments.out, answer)
    return answer
