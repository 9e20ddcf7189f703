"""`attribute PATH --prompt TEXT [--answer TEXT]`: what the answer after a prompt rests on."""

from argparse import Namespace
from typing import Any

from mta_viz.analysis.cause.attributed_prompt import (
    AttributedHeads,
    AttributedPrompt,
    attribute,
    attribute_heads,
)
from mta_viz.cli.loading import open_prompt, stage_named
from mta_viz.cli.output import ProgressLine, check_output, note, write_json
from mta_viz.errors import PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.base import Tokens

MAX_DIGITS = 18  # of a token's id; Python refuses to read thousands


def run(arguments: Namespace) -> dict[str, Any]:
    """The values with their tokens; integrated gradients with their completeness error."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    model, tokens = open_prompt(arguments)
    with ProgressLine("measuring") as progress:
        asked = {
            "answer": arguments.answer,
            "position": arguments.position,
            "max_seconds": float(arguments.seconds),
            "progress": progress,
        }
        found = (_heads if arguments.heads else _one)(model, tokens, arguments, asked)
    answer = found.as_data()
    reached = found.reached if isinstance(found, AttributedHeads) else found.found.reached
    if reached is False:
        note("not complete: the error of the gradients is above 1 %, values are rough; allow more --seconds")
    if arguments.out:
        write_json(arguments.out, answer)
    return answer


def _one(model: HookedMTA, tokens: Tokens, arguments: Namespace, asked: dict[str, Any]) -> AttributedPrompt:
    return attribute(
        model,
        tokens,
        method=arguments.method,
        baseline=_baseline(arguments.baseline),
        groups=arguments.spans,
        layer=arguments.layer,
        stage=None if arguments.stage is None else stage_named(arguments.stage),
        **asked,
    )


def _heads(model: HookedMTA, tokens: Tokens, arguments: Namespace, asked: dict[str, Any]) -> AttributedHeads:
    """Both methods are measured, from maps of zeros: what chooses otherwise is refused."""
    if arguments.stage is None:
        raise PromptError("--heads needs the maps' stage, for example --stage hook_scores_kq")
    if arguments.spans or arguments.baseline or arguments.method == "ablation":
        raise PromptError(
            "--heads measures whole maps by both methods; leave out --method, --baseline, --spans"
        )
    layers = None if arguments.layer is None else (arguments.layer,)
    return attribute_heads(model, tokens, stage_named(arguments.stage), layers=layers, **asked)


def _baseline(text: str | None) -> Any:
    if text is None or text in ("zero", "mean", "bos"):
        return text
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise PromptError(f"the baseline is {text[:40]!r}; expected zero, mean, bos, or a token's id")
    return int(text)
