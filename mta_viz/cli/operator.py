"""`operator PATH --prompt TEXT --kernel "L3 H5 pre"`: a kernel's shape with sign and scale folded out."""

from argparse import ArgumentParser, Namespace
from typing import Any

from mta_viz.cli.ablate import kernel_named
from mta_viz.cli.flags import add_prompt, run_prompt
from mta_viz.cli.values import positive

HELP = "a kernel's shape on a prompt's scores, whatever their sign and scale"


def add_flags(parser: ArgumentParser) -> None:
    add_prompt(parser)
    parser.add_argument("--kernel", type=kernel_named, required=True, metavar="NAME", help='"L3 H5 pre"')
    parser.add_argument("--top", type=positive, default=10, metavar="N", help="taps to list (default 10)")


def run(arguments: Namespace) -> dict[str, Any]:
    """The taps of largest share of the output's variance."""
    from mta_viz.analysis.attention.taps import operator

    shape = operator(run_prompt(arguments), arguments.kernel)
    names = ("query_offset", "key_offset", "weight", "share")
    taps = [dict(zip(names, row, strict=True)) for row in shape.top(arguments.top)]
    return {"kernel": arguments.kernel.name(), "match_gap": shape.match_gap, "taps": taps}
