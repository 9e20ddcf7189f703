"""`ablate PATH --prompt TEXT --kernel "L3 H5 pre"`: what changed kernels and heads do to the answer."""

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from mta_viz.analysis.cause.effects import to_identity
from mta_viz.analysis.cause.sweeps import SWEEPS, ablate
from mta_viz.analysis.kernels.kernels import WHERE, KernelId
from mta_viz.cli.loading import open_prompt
from mta_viz.cli.output import ProgressLine, check_output, write_json
from mta_viz.errors import MtaVizError
from mta_viz.model.interventions import AblateHead, Intervention
from mta_viz.model.plans import Plan, plan_from_text

_PLACE = re.compile(r"\s*L(\d{1,4})\s+H(\d{1,4})(?:\s+(\w+))?\s*", re.IGNORECASE)


def run(arguments: Namespace) -> dict[str, Any]:
    """The board of the plan, and the sweeps that are asked for."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    plan = read_plan(arguments)
    model, tokens = open_prompt(arguments)
    with ProgressLine("measuring") as progress:
        found = ablate(
            model,
            tokens,
            plan,
            answer=arguments.answer,
            sweeps=tuple(SWEEPS) if arguments.sweep else (),
            needed=arguments.needed,
            progress=progress,
        )
    answer = found.as_data()
    if arguments.out:
        write_json(arguments.out, answer)
    return answer


def read_plan(arguments: Namespace) -> Plan:
    """The file's interventions, then the kernels and heads named. Raises MtaVizError for what is none."""
    plan: list[Intervention] = [*plan_of_file(arguments.plan)] if arguments.plan else []
    plan += [to_identity(_kernel(text)) for text in arguments.kernel]
    return (*plan, *(_head(text) for text in arguments.head))


def plan_of_file(path: Path) -> Plan:
    """A file's interventions. Raises MtaVizError for what is none."""
    try:
        return plan_from_text(path.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise MtaVizError(f"{path} is no text; expected a JSON list of interventions") from error


def _kernel(text: str) -> KernelId:
    found = _PLACE.fullmatch(text)
    if found is None or found[3] not in WHERE:
        raise MtaVizError(f'{text!r} names no kernel; write "L3 H5 pre": {", ".join(WHERE)}')
    return KernelId(int(found[1]), int(found[2]), found[3])


def _head(text: str) -> AblateHead:
    found = _PLACE.fullmatch(text)
    if found is None or found[3] is not None:
        raise MtaVizError(f'{text!r} names no head; write "L3 H5"')
    return AblateHead(int(found[1]), int(found[2]))
