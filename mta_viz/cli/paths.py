"""`paths PATH --prompt TEXT --kernel "L3 H5 pre"`: which later heads read what a kernel writes."""

from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.ablate import kernel_named
from mta_viz.cli.flags import add_answer, add_prompt, run_prompt
from mta_viz.cli.output import ProgressLine

HELP = "which later heads read what a kernel writes, and what the answer loses along each edge"


def add_flags(parser: ArgumentParser) -> None:
    add_prompt(parser)
    add_answer(parser)
    parser.add_argument("--kernel", type=kernel_named, required=True, metavar="NAME", help='"L3 H5 pre"')
    about = "what the kernel becomes: own-tap (default): its gain and sign stay; identity; zero"
    parser.add_argument("--edit", choices=("own-tap", "identity", "zero"), default="own-tap", help=about)


def run(arguments: Namespace) -> dict[str, Any]:
    """Every edge alone, and the strongest together."""
    from mta_viz.analysis.cause.answers import AnswerMeter, answer_after
    from mta_viz.analysis.cause.kernel_effect import kernel_paths

    trace = run_prompt(arguments)
    meter = AnswerMeter(trace, answer_after(trace, arguments.answer))
    with ProgressLine("measuring") as progress:
        return kernel_paths(meter, arguments.kernel, arguments.edit, progress=progress).as_data()
