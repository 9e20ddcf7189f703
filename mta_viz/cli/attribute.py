"""`attribute PATH --prompt TEXT [--answer TEXT]`: what the answer after a prompt rests on."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.attributed_prompt import attribute
from mta_viz.cli.loading import open_prompt
from mta_viz.cli.output import check_output, write_json
from mta_viz.cli.progress import ProgressLine
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage


def run(arguments: Namespace) -> dict[str, Any]:
    """The values with their tokens; integrated gradients with their completeness error."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    model, tokens = open_prompt(arguments)
    with ProgressLine("measuring") as progress:
        found = attribute(
            model,
            tokens,
            answer=arguments.answer,
            position=arguments.position,
            method=arguments.method,
            baseline=_baseline(arguments.baseline),
            groups=arguments.spans,
            layer=arguments.layer,
            stage=_stage(arguments.stage),
            progress=progress,
        )
    answer = found.as_data()
    if arguments.out:
        write_json(arguments.out, answer)
    return answer


def _baseline(text: str | None) -> Any:
    if text is None or text in ("zero", "mean"):
        return text
    if not text.isdecimal():
        raise PromptError(f"the baseline is {text!r}; expected zero, mean, or a token's id")
    return int(text)


def _stage(name: str | None) -> Stage | None:
    if name is None:
        return None
    found = next((stage for stage in Stage if name in (stage.value.hook, stage.value.key)), None)
    if found is None:
        raise PromptError(f"{name!r} is no stage; expected {', '.join(one.value.hook for one in Stage)}")
    return found
