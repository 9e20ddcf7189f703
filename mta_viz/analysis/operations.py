"""What a plan does to a run: the edited run beside the original one, and the answer under both."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mta_viz.analysis.answers import Answer, AnswerMeter, first_layer, log_odds
from mta_viz.analysis.from_layer import after_layer
from mta_viz.analysis.patching import operated
from mta_viz.analysis.predictions import top_tokens
from mta_viz.interventions.kinds import Intervention
from mta_viz.interventions.plans import Plan
from mta_viz.model.editing import edited
from mta_viz.tracing import Progress, Trace, capture

TOP = 5


@dataclass(frozen=True)
class TokenChange:
    """A next token's probability in the original run and in the edited one."""

    id: int
    piece: str
    before: float
    after: float


@dataclass(frozen=True)
class Board:
    """The answer and the likeliest next tokens, in the original run and in the edited one.

    `before`, `after`: log-probability of the answer in nats. `top`: the five likeliest tokens of the
    original run, most probable first, then those of the edited run that are not among them.
    """

    plan: Plan
    answer: Answer
    before: float
    after: float
    top: tuple[TokenChange, ...]

    @property
    def change(self) -> float:
        """What the plan adds to the answer's log-probability, in nats."""
        return self.after - self.before

    @property
    def log_odds_change(self) -> float:
        """What it adds to the answer's log-odds, in nats."""
        return log_odds(self.after) - log_odds(self.before)


def rerun(trace: Trace, plan: Sequence[Intervention], progress: Progress | None = None) -> Trace:
    """The same prompt through the edited model; layers below the first change are not run again.

    Raises ConfigError and PromptError as `operated` does; raise in `progress` to stop.
    """
    n_layers = trace.model.config.n_layers
    first, model = first_layer(plan, n_layers), operated(trace.model, plan, len(trace.tokens))
    rows, resid = list(trace.residuals[: first + 1]), trace.residuals[first][None].to(model.dtype)
    for layer in range(first, n_layers):
        resid = after_layer(model, resid, layer)
        rows.append(resid[0].float())
        if progress is not None:
            progress((layer + 1 - first) / (n_layers - first))
    return Trace(trace.tokens, torch.stack(rows), model)


def answer_board(meter: AnswerMeter, edited_run: Trace, plan: Sequence[Intervention]) -> Board:
    """Both runs' answers. Raises MtaVizError where a run's logits are NaN."""
    found = meter.log_probability(plan)
    return Board(tuple(plan), meter.answer, meter.before, found, _top(meter.trace, edited_run))


def _top(original: Trace, edited_run: Trace) -> tuple[TokenChange, ...]:
    last = len(original.tokens) - 1
    pieces: dict[int, str] = {}
    for run in (original, edited_run):
        pieces |= {one.id: one.piece for one in top_tokens(run, last, TOP) if one.id not in pieces}
    before, after = (
        run.logits(slice(last, last + 1))[0].softmax(0)[list(pieces)].tolist()
        for run in (original, edited_run)
    )
    return tuple(
        TokenChange(*pieces_of, *p) for pieces_of, *p in zip(pieces.items(), before, after, strict=True)
    )


def unchanged_without_a_plan(trace: Trace) -> bool:
    """Whether the model made with an empty plan gives this run again, bit by bit."""
    again = capture(edited(trace.model, ()), trace.tokens)
    return torch.equal(*(run.residuals.view(torch.int32) for run in (again, trace)))  # NaN equals itself
