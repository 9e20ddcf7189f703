"""Many interventions: each kernel and each head alone, for one answer or on a task's samples.

Owns which interventions are tried, how a set that an answer needs is searched, and measuring at a task, all
on the same samples. What one plan does is `answers.py`'s; samples are `labs.task_samples`', the table of a
task's effects and its file, which the app reads without them, `effects`'.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from statistics import fmean
from typing import Any, Literal, TypeVar

from torch import Tensor

from mta_viz.analysis.cause.answers import AnswerMeter, Board, answer_after, answer_board, first_layer, rerun
from mta_viz.analysis.cause.effects import Effect, Effects, Estimate, MedianEstimate
from mta_viz.analysis.labs.needle import gold_log_probabilities
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.config import ModelConfig, Where
from mta_viz.errors import ConfigError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import (
    AblateHead,
    Intervention,
    KernelToIdentity,
    MixingToIdentity,
    PatchHead,
)
from mta_viz.model.plans import Edit, OfMixing, Plan, every_kernel, plan_as_data
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.jobs import OfModel, spread
from mta_viz.run.scoring import Below, end_logits_from
from mta_viz.run.tracing import Progress, Prompt, activations, capture, ignore
from mta_viz.tables import Printed, Row, Table, number
from mta_viz.tasks.intervals import median_interval, paired_change_interval

FALL = math.log(10)  # nats: the answer's probability has fallen to a tenth
TRIED, MAX_SET, RANDOM_SETS = 8, 16, 20
Swept = Where | Literal["heads"]
T = TypeVar("T")


@dataclass(frozen=True)
class SweepRow:
    """One intervention alone: the answer's log-probability under it, and its change, in nats."""

    intervention: Intervention
    log_probability: float
    change: float


def place_of(intervention: Intervention) -> tuple[int, int]:
    """Layer and head of an intervention on one head or kernel."""
    return intervention.layer, vars(intervention)["head"]


def where_of(intervention: Intervention) -> Swept:
    """Which kind of kernel it changes; "heads" for a head as a whole."""
    return getattr(intervention, "where", "heads")


@dataclass(frozen=True)
class GreedySet:
    """A set of kernels, found greedily, that takes the answer to a tenth, beside random sets of its size.

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

    def table(self) -> Table:
        """A line a set: the chosen one, the random ones, all kernels at once; changes in nats."""
        sets = [("greedy", self.change), *(("random", change) for change in self.random)]
        return Table.of(("set", "change"), [*sets, ("everything", self.everything)])


def kernels_alone(config: ModelConfig) -> Plan:
    """Every key-query kernel to identity, before and after the softmax."""
    return tuple(part for part in every_kernel(config) if isinstance(part, KernelToIdentity))


def mixing_alone(config: ModelConfig) -> Plan:
    """Every target head's row of every mixing matrix to identity."""
    matrices = (part for part in every_kernel(config) if isinstance(part, MixingToIdentity))
    return tuple(replace(matrix, head=head) for matrix in matrices for head in range(config.n_heads))


def heads_alone(config: ModelConfig) -> tuple[AblateHead, ...]:
    """Every head off."""
    return tuple(AblateHead(*place) for place in product(range(config.n_layers), range(config.n_heads)))


def heads_patched(config: ModelConfig, prompt: str | tuple[int, ...]) -> Plan:
    """Every head's weighted values from the run of another prompt."""
    return tuple(PatchHead(head.layer, head.head, "z", prompt) for head in heads_alone(config))


SWEEPS: dict[str, Callable[[ModelConfig], Plan]] = {
    "kernels": kernels_alone,
    "mixing": mixing_alone,
    "heads": heads_alone,
}


def sweep(meter: AnswerMeter, tried: Plan, progress: Progress = ignore) -> tuple[SweepRow, ...]:
    """Each intervention of `tried` alone. Raise in `progress` to stop."""
    n_layers = meter.trace.model.config.n_layers
    sources = activations(meter.trace.model, tried, len(meter.trace.tokens))
    total, done, rows = sum(n_layers - part.layer for part in tried), 0, []
    for intervention in tried:
        log_probability = meter.log_probability((intervention,), sources)
        rows.append(SweepRow(intervention, log_probability, log_probability - meter.before))
        done += n_layers - intervention.layer
        progress(done / total)
    return tuple(rows)


def sweep_table(rows: Sequence[SweepRow]) -> Table:
    """A line an intervention: its words, log-probability of the answer under it, and the change (nats)."""
    lines = [(row.intervention.text(), row.log_probability, row.change) for row in rows]
    return Table.of(("intervention", "log_probability", "change"), lines)


def greedy_set(
    meter: AnswerMeter, alone: Sequence[SweepRow], *, fall: float = FALL, progress: Progress = ignore
) -> GreedySet:
    """A set of `alone`'s kernels whose going to identity takes the answer down, found greedily.

    At each step the `TRIED` kernels most harmful alone that are not yet in the set are tried with it,
    and the worst joins; then whatever the set can do without is taken out. There may be smaller sets, and a
    kernel that matters only together with another can be missed. Random sets are of the same size, from the
    same kernels.
    """
    candidates = [row.intervention for row in sorted(alone, key=lambda row: harm(row.change))]
    change_by = _each_set_once(meter, progress)
    everything = change_by(candidates)
    chosen: list[Intervention] = []
    while change_by(chosen) > -fall and len(chosen) < MAX_SET:
        rest = [kernel for kernel in candidates if kernel not in chosen][:TRIED]
        if not rest:
            break
        chosen.append(min(rest, key=lambda kernel: harm(change_by([*chosen, kernel]))))
    for kernel in list(chosen):
        without = [other for other in chosen if other != kernel]
        if change_by(chosen) <= -fall and change_by(without) <= -fall:
            chosen = without
    change = change_by(chosen)
    randoms = tuple(map(change_by, random_sets(candidates, chosen, seed=0)))
    reached = bool(chosen) and change <= -fall
    return GreedySet(tuple(chosen), reached, fall, change, everything, randoms, len(candidates))


def _each_set_once(meter: AnswerMeter, progress: Progress) -> Callable[[Sequence[Intervention]], float]:
    """What a set adds to the answer's log-probability, in nats, each measured once; NaN counts as gone."""
    known: dict[frozenset[Intervention], float] = {frozenset(): 0.0}
    expected = 1 + 3 * TRIED + RANDOM_SETS  # a set of three

    def change(plan: Sequence[Intervention]) -> float:
        key = frozenset(plan)
        if key not in known:
            known[key] = harm(meter.log_probability(tuple(plan)) - meter.before)
            n = len(known) - 1
            progress(n / max(expected, n + RANDOM_SETS / 2))
        return known[key]

    return change


def harm(change: float) -> float:
    """What sweeps are sorted by, the worst first: the change, and what is not a number before all."""
    return change if not math.isnan(change) else -math.inf


def random_sets(candidates: Sequence[T], chosen: Sequence[T], seed: int) -> list[tuple[T, ...]]:
    """Up to `RANDOM_SETS` different sets of the chosen one's size, itself left out."""
    size, pool = len(chosen), sorted(candidates, key=repr)
    if not size:
        return []
    rng, wanted = random.Random(seed), frozenset(chosen)
    if math.comb(len(pool), size) <= 4 * RANDOM_SETS:
        sets = [drawn for drawn in combinations(pool, size) if frozenset(drawn) != wanted]
        return rng.sample(sets, min(RANDOM_SETS, len(sets)))
    different: dict[frozenset[T], tuple[T, ...]] = {}
    while len(different) < RANDOM_SETS:
        drawn = tuple(rng.sample(pool, size))
        if frozenset(drawn) != wanted:
            different.setdefault(frozenset(drawn), drawn)
    return list(different.values())


@dataclass(frozen=True, repr=False)
class Ablation(Printed):
    """The board of a plan; the rows of a sweep, the most harmful first; the kernels the answer needs."""

    board: Board
    sweep: tuple[SweepRow, ...] = ()
    needed: GreedySet | None = None

    def _title(self) -> str:
        board = self.board
        plan = ", ".join(part.text() for part in board.plan) or "no intervention"
        change = f"{board.before:.3f} -> {board.after:.3f} nats ({number(board.change)})"
        return f"{plan}: log p({board.answer.text!r}) {change}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """The likeliest tokens or, after a sweep, what each intervention alone changes."""
        if self.sweep:
            rows = [(row.intervention.text(), number(row.change)) for row in self.sweep]
            return ("alone", "change (nats)"), rows
        tokens = [(token.piece, f"{token.before:.2%}", f"{token.after:.2%}") for token in self.board.top]
        return ("token", "before", "after"), tokens

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
            "top": [asdict(token) for token in board.top],
        }
        if self.sweep:
            entries = zip(plan_as_data([row.intervention for row in self.sweep]), self.sweep, strict=True)
            data["sweep"] = [
                entry | {"log_probability": row.log_probability, "change": row.change}
                for entry, row in entries
            ]
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
    progress: Progress = ignore,
) -> Ablation:
    """What `plan` does to the answer after `prompt`; `sweeps` names kernels, mixing and heads.

    `answer`: None is the number or block asked for, else the likeliest next token. `needed` asks for
    a set of kernels the answer needs, found greedily. Changes are in nats. Raises ConfigError for what the
    model lacks, PromptError for a prompt or an answer that cannot be run.

    >>> from mta_viz.model.interventions import KernelToIdentity
    >>> found = mta_viz.ablate(model, trace.tokens, [KernelToIdentity(2, 0, "pre")])
    >>> found.board.change < 0
    True
    """
    problems = [f"no sweep over {name}" for name in sweeps if name not in SWEEPS]
    if problems:
        raise ConfigError(problems, subject=f"Sweeps ({', '.join(SWEEPS)})")
    trace = capture(model, prompt)
    meter = AnswerMeter(trace, answer_after(trace, answer))
    board = answer_board(meter, rerun(trace, plan), plan)
    tried = tuple(part for name in sweeps for part in SWEEPS[name](model.config))
    rows = sweep(meter, tried, progress) if tried else ()
    greedy = None
    if needed:
        kernels = kernels_alone(model.config)
        alone = [row for row in rows if row.intervention in kernels]
        greedy = greedy_set(meter, alone or sweep(meter, kernels, progress), progress=progress)
    return Ablation(board, tuple(sorted(rows, key=lambda row: harm(row.change))), greedy)


@dataclass(frozen=True)
class Outcome:
    """Each sample's verdict, and the log-probability of its whole gold answer in nats."""

    right: tuple[bool, ...]
    log_probability: tuple[float, ...]


def effect_plans(config: ModelConfig, edit: Edit = "identity") -> list[Plan]:
    """Every kernel alone, every mixing matrix's row alone and as a whole, then all of it at once."""
    everything = every_kernel(config, edit)
    plans: list[Plan] = []
    for intervention in everything:
        if isinstance(intervention, OfMixing):
            plans += [(replace(intervention, head=head),) for head in range(config.n_heads)]
        plans.append((intervention,))
    return [*plans, everything] if len(everything) > 1 else plans


def measure_effects(
    model: HookedMTA,
    batches: Sequence[GoldBatch],
    table: Effects,
    *,
    heads: bool = False,
    keep: Callable[[Effects], None],
    progress: Progress = ignore,
    on: str | None = None,
) -> Effects:
    """`table` with every effect it lacks, on `batches`; `keep(table so far)` after each.

    Effects are those of `effect_plans`, with `heads` of every head off too, by layer. Raise in `progress` or
    `keep` to stop; what was kept stays. `on`: where, as of `spread`.
    """
    n_layers, off = model.config.n_layers, heads_alone(model.config) if heads else ()
    plans = [*effect_plans(model.config, table.edit), *((head_off,) for head_off in off)]
    plans.sort(key=lambda plan: first_layer(plan, n_layers))
    places = {plan: at for at, plan in enumerate(plans)}
    missing = [plan for plan in plans if table.of_plan(plan) is None]
    total, done = sum(n_layers - first_layer(plan, n_layers) for plan in missing), 0
    outcomes = PlanOutcomes(model, batches)
    before = outcomes(())
    table = replace(table, accuracy=fmean(before.right), log_probability=fmean(before.log_probability))
    for at, after in spread(outcomes, missing, on):
        effects = [*table.effects, paired_effect(missing[at], before, after)]
        effects.sort(key=lambda effect: places.get(effect.plan, len(places)))
        table = replace(table, effects=tuple(effects))
        keep(table)
        done += n_layers - first_layer(missing[at], n_layers)
        progress(done / total)
    return table


class PlanOutcomes(OfModel):
    """What a model does on the samples under a plan; a plan after one of a lower layer is quick."""

    def __init__(self, model: HookedMTA, batches: Sequence[GoldBatch]) -> None:
        self.model, self.batches = model, batches
        self._below = Below(model, [batch.ids for batch in batches])

    def __call__(self, plan: Plan) -> Outcome:
        """All samples' verdicts."""
        layer = first_layer(plan, 0)
        return outcome(edited(self.model, plan), self._below.entering(layer), layer, self.batches)


def paired_effect(plan: Plan, before: Outcome, after: Outcome) -> Effect:
    """Accuracy and log-probability with the plan, less those without it, sample by sample."""
    changes = [new - old for new, old in zip(after.log_probability, before.log_probability, strict=True)]
    accuracy = fmean(after.right)
    gain = Estimate(accuracy - fmean(before.right), *paired_change_interval(before.right, after.right))
    middle = median_interval(changes)
    median = MedianEstimate(float(middle.value), float(middle.low), float(middle.high), middle.level)
    return Effect(plan, accuracy, gain, Estimate(fmean(changes), math.nan, math.nan), median)


def outcome(
    model: HookedMTA, residuals: Sequence[Tensor], layer: int, batches: Sequence[GoldBatch]
) -> Outcome:
    """Verdicts and log-probabilities of all samples, from the residual streams entering `layer`."""
    right: list[bool] = []
    log_probability: list[float] = []
    for resid, batch in zip(residuals, batches, strict=True):
        logits = end_logits_from(model, resid, layer, batch.n_last)
        right += batch.right(logits.argmax(-1))
        log_probability += gold_log_probabilities(logits, batch.answers)
    return Outcome(tuple(right), tuple(log_probability))
