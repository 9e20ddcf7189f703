"""Many interventions, one answer: each kernel and each head alone, and the smallest set it needs.

Owns which interventions are tried and how sets are searched; what one does is `answers.py`'s.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from mta_viz.analysis.answers import AnswerMeter
from mta_viz.analysis.patching import activations
from mta_viz.config import ModelConfig
from mta_viz.interventions.kinds import AblateHead, Intervention, KernelToIdentity, MixingToIdentity
from mta_viz.interventions.patches import PatchHead
from mta_viz.interventions.plans import Plan, everything_to_identity

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
