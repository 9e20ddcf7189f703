"""Responsibility in one call: from a prompt and an answer to the softmax cells of every layer it rests on.

Owns which logit is asked about, and the cells in order; the arithmetic is `responsibility`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mta_viz.analysis.answers import Answer
from mta_viz.analysis.attributed_prompt import ask
from mta_viz.analysis.responsibility import Responsibility, responsibility
from mta_viz.errors import PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import Printed, Row, number
from mta_viz.tokenizers.base import Tokens
from mta_viz.tracing import Trace

CELLS = 20
FIXED = "group norm, gate and final norm held as the run left them"


@dataclass(frozen=True)
class ResponsibleCell:
    """A softmax cell of a source head, its weight, and what it adds to the logit."""

    head: int
    query: int
    key: int
    softmax: float
    value: float


@dataclass(frozen=True, repr=False)
class ResponsiblePrompt(Printed):
    """Every layer's responsibility map for the logit of the answer's token number `place`.

    The answer's tokens before that one are read: `trace` has them after the prompt. `logit`: the model's.
    """

    trace: Trace
    answer: Answer
    place: int
    logit: float
    layers: tuple[Responsibility, ...]

    def _title(self) -> str:
        return f"Logit of token {self.place} of the answer {self.answer.text!r}: {number(self.logit)}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Heads by the size of what they add."""
        found = [(one.layer, *pair) for one in self.layers for pair in enumerate(one.heads.tolist())]
        found.sort(key=lambda row: -abs(row[2]))
        return ("head", "adds"), [(f"L{layer} H{head}", number(added)) for layer, head, added in found]

    @property
    def tokens(self) -> Tokens:
        """The prompt's, and the answer's that are read."""
        return self.trace.tokens

    @property
    def token(self) -> int:
        """The id of the token whose logit it is."""
        return self.answer.ids[self.place]

    def as_data(self, layer: int | None = None) -> dict[str, Any]:
        """Plain values, as the command prints them; with `layer` also that layer's cells.

        Raises PromptError for a layer that is not there.
        """
        if layer is not None and not 0 <= layer < len(self.layers):
            raise PromptError(f"layer {layer} does not exist; expected 0 to {len(self.layers) - 1}")
        return {
            "tokens": list(self.tokens.pieces),
            "answer": vars(self.answer) | {"ids": list(self.answer.ids)},
            "token": self.token,
            "position": self.layers[0].position,
            "logit": self.logit,
            "held_fixed": FIXED,
            "layers": [_summary(one) for one in self.layers],
            **({} if layer is None else _cells(self.layers[layer])),
        }


def responsibilities(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    *,
    answer: str | None = None,
    position: int | None = None,
    place: int = 0,
) -> ResponsiblePrompt:
    """Which softmax cells the logit of the answer's token number `place` rests on, in every layer.

    `answer` and `position` as in `attribute`: None is the number a needle prompt asks for, else the
    likeliest token, after the prompt's last token. Exact, without gradients; held fixed are each head's
    group norm, its gate and the final norm's scale. Raises PromptError for what is not there.

    >>> mta_viz.responsibilities(model, trace.tokens).layers[3].values.shape
    torch.Size([2, 1, 21])
    """
    asked = ask(model, prompt, answer, position)
    ids = asked.answer.ids
    if not 0 <= place < len(ids):
        raise PromptError(f"the answer has no token {place}; expected 0 to {len(ids) - 1}")
    trace = asked.whole()
    at = len(asked.trace.tokens) - 1 + place
    layers = tuple(responsibility(trace, layer, at, ids[place]) for layer in range(model.config.n_layers))
    logit = float(trace.logits(slice(at, at + 1))[0, ids[place]])
    return ResponsiblePrompt(trace, asked.answer, place, logit, layers)


def largest_cells(found: Responsibility, count: int = CELLS) -> tuple[ResponsibleCell, ...]:
    """The cells of largest |contribution| of a layer, largest first."""
    flat = found.values.flatten()
    chosen = flat.abs().topk(min(count, len(flat))).indices.tolist()
    _, n_queries, n_keys = found.values.shape
    weights = found.softmax.flatten()
    return tuple(
        ResponsibleCell(
            at // (n_queries * n_keys),
            found.first_query + at // n_keys % n_queries,
            at % n_keys,
            float(weights[at]),
            float(flat[at]),
        )
        for at in chosen
    )


def _summary(one: Responsibility) -> dict[str, Any]:
    return {
        "layer": one.layer,
        "total": one.total,
        "error": one.error,
        "sources": one.sources.tolist(),
        "targets": one.heads.tolist(),
    }


def _cells(one: Responsibility) -> dict[str, Any]:
    return {
        "layer": one.layer,
        "first_query": one.first_query,
        "cells": [vars(cell) for cell in largest_cells(one)],
        "values": one.values.tolist(),
    }
