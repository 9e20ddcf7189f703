"""Attribution in one call: from a prompt and an answer to what the answer rests on, as values and as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.cause.answers import Answer, answer_after
from mta_viz.analysis.cause.attribution import (
    MOST_TOKENS,
    SECONDS,
    Attribution,
    Baseline,
    Keep,
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
from mta_viz.run.scoring import Question
from mta_viz.run.tracing import Trace, capture, tokenize
from mta_viz.tokenizers.base import Tokens

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

    def by_token(self) -> Float[Tensor, " token"]:
        """A value a token: its group's, whose tokens are replaced together; NaN where none was measured.

        Raises PromptError for values of maps.
        """
        if self.of == "tokens":
            return self.found.values
        if self.of != "groups":
            raise PromptError(f"these are values of {self.of}, not of tokens")
        values = torch.full((len(self.tokens),), torch.nan)
        for group, value in zip(self.groups, self.found.values, strict=True):
            values = values.index_fill(0, torch.tensor(list(group)), float(value))
        return values

    def _title(self) -> str:
        found = self.found
        return (
            f"log p({self.answer.text!r}) = {found.score:.3f} nats: {found.method} of {self.of}"
            f"{completeness(found.error, found.reached)}"
        )

    def _table(self) -> tuple[Row, Sequence[Row]]:
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
        del found["integral"]
        return {
            "tokens": list(self.tokens.pieces),
            "answer": vars(self.answer) | {"ids": list(self.answer.ids)},
            "of": self.of,
            **({"groups": [list(group) for group in self.groups]} if self.of == "groups" else {}),
            **found,
        }


def completeness(error: float | None, reached: bool | None) -> str:
    """How far gradients may be trusted, for a title; empty for other methods."""
    rough = "" if reached else ": rough, allow more seconds"
    return "" if error is None else f" (completeness error {error:.1%}{rough})"


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
    max_seconds: float = SECONDS,
    progress: Callable[[float], None] | None = None,
    keep: Callable[[AttributedPrompt], None] | None = None,
    after: AttributedPrompt | None = None,
) -> AttributedPrompt:
    """What log p(answer) after `position` (default: the prompt's last token) rests on, in nats.

    `answer`: None is the number a needle prompt asks for, else the likeliest token. With `layer` and `stage`
    of that layer's maps, else of the tokens. `baseline`: for gradients "zero", "mean" (default), "bos" or a
    token's id, for ablation a token's id. `groups`: positions ablated together; without, the up to 64 tokens
    of largest integrated gradients. Gradients take at most about `max_seconds`, and `keep` is told what they
    have found so far; those of tokens go on from `after`, an earlier result of the same question. Raises
    PromptError for what is not there or does not go together.

    >>> mta_viz.attribute(model, trace.tokens, method="ablation", groups=[[7, 8], [9]]).found.values.shape
    torch.Size([2])
    """
    _check_choices(method, baseline, groups, layer, stage)
    asked = ask(model, prompt, answer, position)
    if layer is not None and stage is not None:
        found = _of_maps(asked, layer, stage, method, max_seconds, progress)
        return asked.told("maps" if method == "gradients" else "heads", found)
    if method == "gradients":
        start = "mean" if baseline is None else baseline
        kept = None if keep is None else lambda so_far: keep(asked.told("tokens", so_far))
        earlier = None if after is None else after.found
        return asked.told("tokens", _gradients(asked, start, max_seconds, progress, kept, earlier))
    first, then = _two_parts(progress, bool(groups) or asked.is_short)
    groups = groups or _candidates(asked, max_seconds, first)
    token = None if baseline is None else int(baseline)
    ablated = ablate_tokens(model, asked.question, groups, baseline=token, progress=then)
    return asked.told("groups", ablated, groups)


def _check_choices(
    method: str, baseline: Baseline | None, groups: Groups | None, layer: int | None, stage: Stage | None
) -> None:
    """Raises PromptError for a choice that is none, or that another one would leave without effect."""
    if method not in get_args(Method):
        raise PromptError(f"there is no method {method!r}; expected {' or '.join(get_args(Method))}")
    if (layer is None) != (stage is None):
        raise PromptError("a layer and a stage go together; give both, or neither")
    if layer is not None and (baseline is not None or groups):
        raise PromptError("maps are measured against maps of zeros: leave out the baseline and the groups")
    if method == "gradients" and groups:
        raise PromptError("groups (spans) are replaced, which is ablation; choose it, or leave them out")
    if method == "ablation" and isinstance(baseline, str):
        raise PromptError(f"ablation puts a token in place of others; {baseline!r} is no token's id")


@dataclass(frozen=True)
class Asked:
    """A prompt up to the position that is asked about, and the answer after it."""

    trace: Trace
    answer: Answer

    @property
    def question(self) -> Question:
        """The same as ids."""
        return Question(tuple(self.trace.tokens.ids), self.answer.ids)

    @property
    def is_short(self) -> bool:
        """Whether every token is worth a run of its own."""
        return len(self.trace.tokens) <= MOST_TOKENS

    def whole(self) -> Trace:
        """The run of the prompt with the answer's tokens that are read after it."""
        question = self.question
        if not question.before:
            return self.trace
        return capture(self.trace.model, (*question.prompt, *question.before))

    def told(
        self, of: Literal["tokens", "groups", "maps", "heads"], found: Attribution, groups: Groups = ()
    ) -> AttributedPrompt:
        """With what it rests on."""
        return AttributedPrompt(self.trace.tokens, self.answer, of, groups, found)


def ask(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    answer: str | None = None,
    position: int | None = None,
) -> Asked:
    """The prompt's run up to `position` and the answer after it. Raises PromptError for what is not there."""
    trace = capture(model, _until(tokenize(model, prompt), position))
    return Asked(trace, answer_after(trace, answer))


def _until(tokens: Tokens, position: int | None) -> Tokens | tuple[int, ...]:
    if position is None or position == len(tokens) - 1:
        return tokens
    if not 0 <= position < len(tokens):
        raise PromptError(f"position {position} does not exist; the prompt has 0 to {len(tokens) - 1}")
    return tuple(tokens.ids[: position + 1])


def _gradients(
    asked: Asked,
    baseline: Baseline,
    max_seconds: float,
    progress: Callable[[float], None] | None,
    keep: Keep | None = None,
    after: Attribution | None = None,
) -> Attribution:
    return integrated_gradients(
        asked.trace.model, asked.question, baseline=baseline, max_seconds=max_seconds, progress=progress,
        keep=keep, after=after,
    )  # fmt: skip


def _two_parts(
    progress: Callable[[float], None] | None, only_second: bool
) -> tuple[Callable[[float], None] | None, Callable[[float], None] | None]:
    """Progress of two steps, each half of the work, or of the second alone."""
    if progress is None or only_second:
        return None, progress
    return (lambda done: progress(done / 2)), (lambda done: progress((1 + done) / 2))


def _candidates(asked: Asked, max_seconds: float, progress: Callable[[float], None] | None) -> Groups:
    """Every token where they are few; else those the integrated gradients single out."""
    if asked.is_short:
        return tuple((position,) for position in range(len(asked.trace.tokens)))
    return largest_tokens(_gradients(asked, "mean", max_seconds, progress))


def _of_maps(
    asked: Asked,
    layer: int,
    stage: Stage,
    method: Method,
    max_seconds: float,
    progress: Callable[[float], None] | None,
) -> Attribution:
    if method == "gradients":
        return integrated_gradients_of_maps(
            asked.whole(), layer, stage, asked.question, max_seconds=max_seconds, progress=progress
        )
    return ablate_maps(asked.whole(), layer, stage, asked.question)
