"""`attribute PATH --prompt TEXT [--answer TEXT]`: what tokens or maps bring to the answer after a prompt."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

import mta_viz
from mta_viz.cli.flags import add_out, add_question, open_prompt
from mta_viz.cli.output import ProgressLine, note
from mta_viz.cli.values import positive, span_list, stage_named
from mta_viz.errors import PromptError
from mta_viz.tokenizers.base import Tokens

if TYPE_CHECKING:
    from mta_viz.model.transformer import HookedMTA

HELP = "what tokens or maps bring to the answer after a prompt"
MAX_DIGITS = 18  # of a token's id; Python refuses to read thousands


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_question(parser)
    add("--method", choices=("gradients", "ablation"), default="gradients")
    about = "mean (default), bos, a token's id, or zero, which norms refuse"
    add("--baseline", type=baseline, metavar="B", help=about)
    add("--spans", type=span_list, metavar="3:8,20:25", help="positions ablated together")
    add("--layer", type=int, metavar="L", help="of this layer's maps, not of the tokens")
    add("--stage", type=stage_named, metavar="NAME", help="for example hook_scores_kq")
    add("--heads", action="store_true", help="of every head's map at --stage: gradients and ablation")
    add("--seconds", type=positive, default=300, metavar="S", help="most time for gradients (default 300)")
    add_out(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The values with their tokens; integrated gradients with their completeness error."""
    model, tokens = open_prompt(arguments)
    measure = _every_head if arguments.heads else _prompt
    with ProgressLine("measuring") as progress:
        question = {
            "answer": arguments.answer,
            "position": arguments.position,
            "max_seconds": float(arguments.seconds),
            "progress": progress,
        }
        answer, rough = measure(model, tokens, arguments, question)
    if rough:
        note(f"not complete: the error of the gradients is above 1 %, values are rough; {rough}")
    return answer


def _prompt(
    model: "HookedMTA", tokens: Tokens, arguments: Namespace, question: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Of tokens, or of the cells of a layer's maps; with what to do where the gradients are not complete."""
    named = {name: getattr(arguments, name) for name in ("method", "baseline", "layer", "stage")}
    result = mta_viz.attribute(model, tokens, groups=arguments.spans, **named, **question)
    return result.as_data(), _advice(result.found.reached, result.found.jumps)


def _every_head(
    model: "HookedMTA", tokens: Tokens, arguments: Namespace, question: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Both methods are measured, from the maps' own baseline: what chooses otherwise is refused."""
    if arguments.stage is None:
        raise PromptError("--heads needs the maps' stage, for example --stage hook_scores_kq")
    if arguments.spans or arguments.baseline is not None or arguments.method == "ablation":
        raise PromptError(
            "--heads measures whole maps by both methods; leave out --method, --baseline, --spans"
        )
    layers = None if arguments.layer is None else (arguments.layer,)
    result = mta_viz.attribute_heads(model, tokens, arguments.stage, layers=layers, **question)
    return result.as_data(), _advice(result.reached, result.jumps)


def _advice(reached: bool | None, jumps: bool) -> str:
    """Empty where gradients are complete, and for ablation."""
    if reached is not False:
        return ""
    from mta_viz.analysis.cause.attributed_prompt import OTHER_BASELINE

    return OTHER_BASELINE if jumps else "allow more --seconds"


def baseline(text: str) -> str | int:
    """A baseline's name, or a token's id. Raises PromptError for anything else."""
    if text in ("zero", "mean", "bos"):
        return text
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise PromptError(f"the baseline is {text[:40]!r}; expected zero, mean, bos, or a token's id")
    return int(text)
