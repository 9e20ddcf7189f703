"""`ablate PATH --prompt TEXT --kernel "L3 H5 pre"`: what changed kernels and heads do to the answer."""

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import mta_viz
from mta_viz.checkpoint import door
from mta_viz.cli.flags import add_answer, add_out, add_prompt, open_prompt
from mta_viz.cli.output import ProgressLine
from mta_viz.config import PARAMETERS, MixingPlace
from mta_viz.errors import MtaVizError
from mta_viz.model import interventions

if TYPE_CHECKING:
    from mta_viz.analysis.kernels.kernels import KernelId

HELP = "what changed kernels and heads do to a prompt's answer"
PLACE = re.compile(r"\s*L(\d{1,4})\s+H(\d{1,4})(?:\s+(\w+))?\s*", re.IGNORECASE)


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_prompt(parser)
    about = "to the identity; pre, post, head_pre or head_post; may be repeated"
    add("--kernel", type=kernel_to_identity, action="append", default=[], metavar='"L3 H5 pre"', help=about)
    about = "switched off; may be repeated"
    add("--head", type=head_off, action="append", default=[], metavar='"L3 H5"', help=about)
    add("--plan", type=Path, metavar="FILE", help="a JSON list of interventions, acting first")
    add_answer(parser)
    add("--sweep", action="store_true", help="also each kernel, mixing row and head alone")
    about = "also a set, found greedily, that takes the answer to a tenth"
    add("--needed", action="store_true", help=about)
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The board of the plan, and the sweeps that are asked for."""
    from mta_viz.analysis.cause.sweeps import SWEEPS
    from mta_viz.model.plans import check_plan

    plan = (*plan_of_file(arguments.plan), *arguments.kernel, *arguments.head)
    model, tokens = open_prompt(arguments)
    check_plan(plan, model.config)  # before anything runs
    with ProgressLine("measuring") as progress:
        what: dict[str, Any] = {
            "sweeps": tuple(SWEEPS) if arguments.sweep else (),
            "needed": arguments.needed,
        }
        board = mta_viz.ablate(model, tokens, plan, answer=arguments.answer, **what, progress=progress)
    return board.as_data()


def plan_of_file(path: Path | None) -> tuple[interventions.Intervention, ...]:
    """A file's interventions; without a file none. Raises MtaVizError for what is no list of them."""
    from mta_viz.model.plans import plan_from_text

    return () if path is None else plan_from_text(door.read_text(path))


def kernel_named(text: str) -> "KernelId":
    """`L3 H5 pre` -> that kernel. Raises MtaVizError for a text that names no kernel."""
    from mta_viz.analysis.kernels.kernels import KernelId

    return KernelId(*_place_named(text))


def kernel_to_identity(text: str) -> interventions.Intervention:
    """`L3 H5 pre` -> that kernel to the identity. Raises MtaVizError for a text that names no kernel."""
    layer, head, where = _place_named(text)
    if where in get_args(MixingPlace):
        return interventions.MixingToIdentity(layer, where, head)
    return interventions.KernelToIdentity(layer, head, where)


def _place_named(text: str) -> tuple[int, int, Any]:
    place = PLACE.fullmatch(text)
    if place is None or place[3] not in PARAMETERS:
        raise MtaVizError(f'{text!r} names no kernel; write "L3 H5 pre": {", ".join(PARAMETERS)}')
    return int(place[1]), int(place[2]), place[3]


def head_off(text: str) -> interventions.Intervention:
    """`L3 H5` -> that head switched off. Raises MtaVizError for a text that names no head."""
    place = PLACE.fullmatch(text)
    if place is None or place[3] is not None:
        raise MtaVizError(f'{text!r} names no head; write "L3 H5"')
    return interventions.AblateHead(int(place[1]), int(place[2]))
