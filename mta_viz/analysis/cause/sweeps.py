"""Many interventions, one answer: each kernel and each head alone, and the smallest set it needs.

Owns which interventions are tried and how sets are searched; what one does is `answers.py`'s.

Surgery in one call: what a plan does to a prompt's answer, and sweeps over kernels and heads.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

from mta_viz.analysis.cause.answers import AnswerMeter, Board, answer_after, answer_board, rerun
from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model.interventions import (
    AblateHead,
    Intervention,
    KernelToIdentity,
    MixingToIdentity,
    PatchHead,
)
from mta_viz.model.plans import Plan, everything_to_identity, plan_as_data
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import Printed, Row, number
from mta_viz.run.tracing import Progress as ReportProgress
from mta_viz.run.tracing import Prompt, activations, capture

Progress = Callable[[float], None]
FALL = math.log(10)  # nats: the answer's probability has fallen to a tenth
TRIED, MAX_SET, RANDOM_SETS = 8, 16, 20


@dataclass(frozen=True)
class SweepRow:
    """One intervention alone: the answer's log-probability under it, and its change, in nats."""

    intervention: Intervention
    log_probability: float
    change: float


@dataclass(frozen=True)
class Needed:
    """A small set of kernels without which the answer is gone, beside random sets of the same size.

    `fall`: the set counts when it lowers the answer's log-probability by so much (nats). `change`, of
    the set; `random`, of the random sets; `everything`, of all candidates at once. `reached` is False
    where the search ended without a set that counts.
    """

    plan: Plan
    reached: bool
    fall: float
    change: float
    everything: float
    random: tuple[float, ...]
    n_candidates: int


def kernels_alone(config: ModelConfig) -> Plan:
    """Every key-query kernel to identity, before and after the softmax."""
    return tuple(one for one in everything_to_identity(config) if isinstance(one, KernelToIdentity))


def mixing_alone(config: ModelConfig) -> Plan:
    """Every target head's row of every mixing matrix to identity."""
    matrices = (one for one in everything_to_identity(config) if isinstance(one, MixingToIdentity))
    return tuple(replace(one, head=head) for one in matrices for head in range(config.n_heads))


def heads_alone(config: ModelConfig) -> tuple[AblateHead, ...]:
    """Every head off."""
    return tuple(
        AblateHead(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)
    )


def heads_patched(config: ModelConfig, prompt: str | tuple[int, ...]) -> Plan:
    """Every head's weighted values from the run of another prompt."""
    return tuple(PatchHead(one.layer, one.head, "z", prompt) for one in heads_alone(config))


SWEEPS: dict[str, Callable[[ModelConfig], Plan]] = {
    "kernels": kernels_alone,
    "mixing": mixing_alone,
    "heads": heads_alone,
}


def sweep(meter: AnswerMeter, tried: Plan, progress: Progress | None = None) -> tuple[SweepRow, ...]:
    """Each intervention of `tried` alone. Raise in `progress` to stop."""
    n_layers = meter.trace.model.config.n_layers
    sources = activations(meter.trace.model, tried, len(meter.trace.tokens))
    total, done, rows = sum(n_layers - one.layer for one in tried), 0, []
    for one in tried:
        found = meter.log_probability((one,), sources)
        rows.append(SweepRow(one, found, found - meter.before))
        done += n_layers - one.layer
        if progress is not None:
            progress(done / total)
    return tuple(rows)


def needed_kernels(
    meter: AnswerMeter,
    alone: Sequence[SweepRow],
    *,
    fall: float = FALL,
    seed: int = 0,
    progress: Progress | None = None,
) -> Needed:
    """Greedily the smallest set of `alone`'s kernels whose going to identity takes the answer down.

    At each step the `TRIED` kernels most harmful alone that are not yet in the set are tried with it,
    and the worst joins; then whatever the set can do without is taken out. A kernel that matters only
    together with another can so be missed. Random sets are of the same size, from the same kernels.
    """
    candidates = [row.intervention for row in sorted(alone, key=lambda row: harm(row.change))]
    search = _Search(meter, fall, progress)
    everything = search.change(candidates)
    chosen: list[Intervention] = []
    while candidates and search.change(chosen) > -fall and len(chosen) < MAX_SET:
        open_ones = [one for one in candidates if one not in chosen][:TRIED]
        if not open_ones:
            break
        chosen.append(min(open_ones, key=lambda one: harm(search.change([*chosen, one]))))
    for one in list(chosen):
        without = [other for other in chosen if other != one]
        if search.change(chosen) <= -fall and search.change(without) <= -fall:
            chosen = without
    change = search.change(chosen)
    sets = _random_sets(candidates, chosen, seed)
    return Needed(
        tuple(chosen),
        bool(chosen) and change <= -fall,
        fall,
        change,
        everything,
        tuple(search.change(one) for one in sets),
        len(candidates),
    )


class _Search:
    """Changes by sets of kernels, each set measured once."""

    def __init__(self, meter: AnswerMeter, fall: float, progress: Progress | None) -> None:
        self._meter, self._fall, self._progress = meter, fall, progress
        self._known: dict[frozenset[Intervention], float] = {frozenset(): 0.0}
        self._expected = 1 + 3 * TRIED + RANDOM_SETS  # a set of three

    def change(self, plan: Sequence[Intervention]) -> float:
        """What a set adds to the answer's log-probability, in nats; NaN counts as gone."""
        key = frozenset(plan)
        if key not in self._known:
            found = self._meter.log_probability(tuple(plan)) - self._meter.before
            self._known[key] = found if not math.isnan(found) else -math.inf
            if self._progress is not None:
                n = len(self._known) - 1
                self._progress(n / max(self._expected, n + RANDOM_SETS / 2))
        return self._known[key]


def harm(change: float) -> float:
    """What sweeps are sorted by, the worst first: the change, and what is not a number before all."""
    return change if not math.isnan(change) else -math.inf


def _random_sets(
    candidates: Sequence[Intervention], chosen: Sequence[Intervention], seed: int
) -> list[tuple[Intervention, ...]]:
    """Up to `RANDOM_SETS` different sets of the chosen one's size, itself left out."""
    size, pool = len(chosen), sorted(candidates, key=repr)
    if not size:
        return []
    rng, wanted = random.Random(seed), frozenset(chosen)
    if math.comb(len(pool), size) <= 4 * RANDOM_SETS:
        sets = [one for one in combinations(pool, size) if frozenset(one) != wanted]
        return rng.sample(sets, min(RANDOM_SETS, len(sets)))
    found: dict[frozenset[Intervention], tuple[Intervention, ...]] = {}
    while len(found) < RANDOM_SETS:
        one = tuple(rng.sample(pool, size))
        if frozenset(one) != wanted:
            found.setdefault(frozenset(one), one)
    return list(found.values())


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
    progress: ReportProgress | None = None,
) -> Ablation:
    """What `plan` does to the answer after `prompt`; `sweeps` names kernels, mixing and heads.

    `answer`: None is the number a needle prompt asks for, else the likeliest next token. `needed` asks
    for the smallest set of kernels the answer needs. Changes are in nats. Raises ConfigError for what the
    model lacks, PromptError for a prompt or an answer that cannot be run.

    >>> from mta_viz.model.interventions import KernelToIdentity
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
