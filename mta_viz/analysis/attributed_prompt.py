"""Attribution in one call: from a prompt and an answer to what the answer rests on, as values and as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mta_viz.analysis.answers import Answer, answer_after
from mta_viz.analysis.attribution import (
    MOST_TOKENS,
    Attribution,
    Baseline,
    ablate_maps,
    ablate_tokens,
    integrated_gradients,
    integrated_gradients_of_maps,
    largest_tokens,
)
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import Printed, Row, number
from mta_viz.scorers import Question
from mta_viz.tokenizers.base import Tokens
from mta_viz.tracing import Trace, capture, tokenize

Method = Literal["gradients", "ablation"]
Groups = Sequence[Sequence[int]]


@dataclass(frozen=True, repr=False)
class AttributedPrompt(Printed):
    """`found.values`: a value a token, or a group of positions, or a map cell; `of` says which."""

    tokens: Tokens
    answer: Answer
    of: Literal["tokens", "groups", "maps", "heads"]
    groups: Groups
    found: Attribution

    def _title(self) -> str:
        found = self.found
        return f"log p({self.answer.text!r}) = {found.score:.3f} nats: {found.method} of {self.of}"

    def _table(self) -> tuple[Row, list[Row]]:
        """Tokens or groups, largest |value| first; no table of maps."""
        if self.found.values.ndim != 1:
            return (), []
        places = self.groups if self.of == "groups" else [(at,) for at in range(len(self.tokens))]
        rows = sorted(zip(self.found.values.tolist(), places, strict=True), key=lambda row: -abs(row[0]))
        pieces = self.tokens.pieces
        told = [(", ".join(map(str, at)), "".join(pieces[i] for i in at), number(nats)) for nats, at in rows]
        return ("position", "token", "nats"), told

    def as_data(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        found = vars(self.found) | {"values": self.found.values.tolist()}
        return {
            "tokens": list(self.tokens.pieces),
            "answer": vars(self.answer) | {"ids": list(self.answer.ids)},
            "of": self.of,
            **({"groups": [list(group) for group in self.groups]} if self.of == "groups" else {}),
            **found,
        }


def attribute(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    *,
    answer: str | None = None,
    position: int | None = None,
    method: Method = "gradients",
    baseline: Baseline | None = None,
    groups: Groups | None = None,
    layer: int | None = None,
    stage: Stage | None = None,
    progress: Callable[[float], None] | None = None,
) -> AttributedPrompt:
    """What log p(answer) after `position` (default: the prompt's last token) rests on, in nats.

    `answer`: None is the number a needle prompt asks for, else the likeliest token. With `layer` and `stage`
    of that layer's maps, else of the tokens. `baseline`: for gradients "zero", "mean" (default) or a token's
    id, for ablation a token's id. `groups`: positions ablated together; without, the up to 64 tokens of
    largest integrated gradients. Raises PromptError for what is not there or does not go together.

    >>> mta_viz.attribute(model, trace.tokens, method="ablation", groups=[[7, 8], [9]]).found.values.shape
    torch.Size([2])
    """
    trace = capture(model, _until(tokenize(model, prompt), position))
    wanted = answer_after(trace, answer)
    question = Question(tuple(trace.tokens.ids), wanted.ids)
    if (layer is None) != (stage is None):
        raise PromptError("a layer and a stage go together; give both, or neither")
    if layer is not None and stage is not None:
        found = _of_maps(trace, layer, stage, question, method, progress)
        return AttributedPrompt(trace.tokens, wanted, "maps" if method == "gradients" else "heads", (), found)
    if method == "gradients":
        found = integrated_gradients(
            model, question, baseline="mean" if baseline is None else baseline, progress=progress
        )
        return AttributedPrompt(trace.tokens, wanted, "tokens", (), found)
    if isinstance(baseline, str):
        raise PromptError(f"ablation puts a token in place of others; {baseline!r} is no token's id")
    groups = groups or _candidates(model, question)
    ablated = ablate_tokens(model, question, groups, baseline=baseline, progress=progress)
    return AttributedPrompt(trace.tokens, wanted, "groups", groups, ablated)


def _until(tokens: Tokens, position: int | None) -> Tokens | tuple[int, ...]:
    if position is None or position == len(tokens) - 1:
        return tokens
    if not 0 <= position < len(tokens):
        raise PromptError(f"position {position} does not exist; the prompt has 0 to {len(tokens) - 1}")
    return tuple(tokens.ids[: position + 1])


def _candidates(model: HookedMTA, question: Question) -> Groups:
    """Every token where they are few; else those the integrated gradients single out."""
    if len(question.prompt) <= MOST_TOKENS:
        return tuple((position,) for position in range(len(question.prompt)))
    return largest_tokens(integrated_gradients(model, question))


def _of_maps(
    trace: Trace,
    layer: int,
    stage: Stage,
    question: Question,
    method: Method,
    progress: Callable[[float], None] | None,
) -> Attribution:
    whole = capture(trace.model, (*question.prompt, *question.before)) if question.before else trace
    if method == "gradients":
        return integrated_gradients_of_maps(whole, layer, stage, question, progress=progress)
    return ablate_maps(whole, layer, stage, question)
