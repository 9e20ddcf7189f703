"""Surgery in one call: what a plan does to a prompt's answer, and sweeps over kernels and heads.

The command `ablate` and a notebook call the same function, so their numbers are equal.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mta_viz.analysis.answers import AnswerMeter, answer_after
from mta_viz.analysis.operations import Board, answer_board, rerun
from mta_viz.analysis.sweeps import SWEEPS, Needed, SweepRow, harm, kernels_alone, needed_kernels, sweep
from mta_viz.errors import ConfigError
from mta_viz.interventions.kinds import Intervention
from mta_viz.interventions.plans import plan_as_data
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import Printed, Row, number
from mta_viz.tracing import Progress, Prompt, capture


@dataclass(frozen=True, repr=False)
class Ablation(Printed):
    """The board of a plan; the rows of a sweep, the most harmful first; the smallest set."""

    board: Board
    sweep: tuple[SweepRow, ...] = ()
    needed: Needed | None = None

    def _title(self) -> str:
        board = self.board
        plan = ", ".join(one.text() for one in board.plan) or "no intervention"
        return (
            f"{plan}: log p({board.answer.text!r}) {board.before:.3f} -> {board.after:.3f} nats "
            f"({number(board.change)})"
        )

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """The likeliest tokens or, after a sweep, what each intervention alone changes."""
        if self.sweep:
            return ("alone", "change (nats)"), [
                (one.intervention.text(), number(one.change)) for one in self.sweep
            ]
        rows = [(one.piece, f"{one.before:.2%}", f"{one.after:.2%}") for one in self.board.top]
        return ("token", "before", "after"), rows

    def as_data(self) -> dict[str, Any]:
        """As JSON-ready values: log-probabilities in nats."""
        board = self.board
        data: dict[str, Any] = {
            "answer": asdict(board.answer),
            "plan": plan_as_data(board.plan),
            "log_probability": board.before,
            "log_probability_edited": board.after,
            "change": board.change,
            "log_odds_change": board.log_odds_change,
            "top": [asdict(one) for one in board.top],
        }
        if self.sweep:
            data["sweep"] = [_row(row) for row in self.sweep]
        if self.needed is not None:
            data["needed"] = asdict(self.needed) | {"plan": plan_as_data(self.needed.plan)}
        return data


def ablate(
    model: HookedMTA,
    prompt: Prompt,
    plan: Sequence[Intervention] = (),
    *,
    answer: str | None = None,
    sweeps: Sequence[str] = (),
    needed: bool = False,
    progress: Progress | None = None,
) -> Ablation:
    """What `plan` does to the answer after `prompt`; `sweeps` names kernels, mixing and heads.

    `answer`: None is the number a needle prompt asks for, else the likeliest next token. `needed` asks
    for the smallest set of kernels the answer needs. Changes are in nats. Raises ConfigError for what the
    model lacks, PromptError for a prompt or an answer that cannot be run.

    >>> from mta_viz.interventions.kinds import KernelToIdentity
    >>> found = mta_viz.ablate(model, trace.tokens, [KernelToIdentity(2, 0, "pre")])
    >>> found.board.change < 0
    True
    """
    unknown = [name for name in sweeps if name not in SWEEPS]
    if unknown:
        raise ConfigError(
            [f"no sweep over {name}" for name in unknown], subject=f"Sweeps ({', '.join(SWEEPS)})"
        )
    trace = capture(model, prompt)
    meter = AnswerMeter(trace, answer_after(trace, answer))
    board = answer_board(meter, rerun(trace, plan), plan)
    tried = tuple(one for name in sweeps for one in SWEEPS[name](model.config))
    rows = sweep(meter, tried, progress) if tried else ()
    found = None
    if needed:
        kernels = kernels_alone(model.config)
        known = {row.intervention: row for row in rows}
        alone = [known[one] for one in kernels if one in known]
        found = needed_kernels(meter, alone or sweep(meter, kernels, progress), progress=progress)
    return Ablation(board, tuple(sorted(rows, key=lambda row: harm(row.change))), found)


def _row(row: SweepRow) -> dict[str, Any]:
    (entry,) = plan_as_data([row.intervention])
    return entry | {"log_probability": row.log_probability, "change": row.change}
