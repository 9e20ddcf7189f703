"""What interventions do to an answer: sweeps on a prompt and at a task, patched heads, a greedy set.

What adds to an answer is `attribution`'s; the edited run's maps are `beside`'s.
"""

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.cause import sweeps
from mta_viz.analysis.cause.effects import Absent, Effect, Effects, find_effects
from mta_viz.analysis.cause.sweeps import SWEEPS, GreedySet, SweepRow, Swept, place_of, where_of
from mta_viz.config import Head, ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Measured, NamedFigure, Source, named
from mta_viz.figures.cause import worth as worth
from mta_viz.figures.cause.attribution import meter_of
from mta_viz.figures.cause.worth import TASKS as TASKS
from mta_viz.model.plans import Plan
from mta_viz.plots.cause import set_beside_random, sweep_map
from mta_viz.plots.theme import Figure
from mta_viz.run.tracing import progress_within
from mta_viz.tables import Table

Rows = tuple[SweepRow, ...]
WORDS: Mapping[Swept, str] = {
    "pre": "kernels before the softmax",
    "post": "kernels after the softmax",
    "head_pre": "mixing before the softmax",
    "head_post": "mixing after the softmax",
    "heads": "heads off",
}
KIND = {"pre": "kernels", "post": "kernels", "head_pre": "mixing", "head_post": "mixing", "heads": "heads"}
MAP_PX, LEAST = 452, 0.1  # the last: a share, the end of the smallest scale


def grid(config: ModelConfig, values: Mapping[Head, float]) -> Float[np.ndarray, "layer head"]:
    """The values in their places, NaN where there is none."""
    filled = np.full((config.n_layers, config.n_heads), np.nan)
    for place, value in values.items():
        filled[place] = value
    return filled


@dataclass(frozen=True, kw_only=True)
class OfSweep(Measured[Rows]):
    """Interventions one at a time, and what each adds to the answer's log-probability; nothing else changes.

    `answer`: None is the number or block asked for, else the likeliest token. `selected` (layer, head) is
    framed.
    """

    answer: str | None = None
    selected: Head | None = None

    @abstractmethod
    def tried(self, config: ModelConfig) -> Plan:
        """Each intervention of the sweep."""

    def measure(self, source: Source) -> Rows:
        """Each alone. Raises MtaVizError where the model has nothing to change."""
        tried = self.tried(source.model.config)
        if not tried:
            raise MtaVizError("this model has nothing of this kind; sweep over heads off instead")
        return sweeps.sweep(meter_of(source, self.answer), tried, source.progress)

    def table(self, source: Source, result: Rows) -> Table:
        return sweeps.sweep_table(result)

    def map(self, source: Source, title: str, rows: Sequence[SweepRow], limit: float | None = None) -> Figure:
        """Changes, layers down and heads across."""
        values = grid(source.model.config, {place_of(row.intervention): row.change for row in rows})
        numbering, framed = source.numbering, self.selected
        return sweep_map(title, values, limit=limit, numbering=numbering, selected=framed, width=MAP_PX)


@named("sweep", kw_only=True)
class Sweep(OfSweep):
    """Every kernel or row of head mixing of one place to identity, or every head off, one at a time."""

    where: Swept
    words = "Click a head to choose it. Hatched: there is none; ~0: under 0.5 % of the scale."

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for the places of one kind, which are swept together."""
        return "sweep", KIND[self.where], self.answer

    def tried(self, config: ModelConfig) -> Plan:
        return SWEEPS[KIND[self.where]](config)

    def own(self, rows: Rows) -> Rows:
        """Those of this place."""
        return tuple(row for row in rows if where_of(row.intervention) == self.where)

    def draw(self, source: Source, result: Rows) -> Figure:
        """The map of this place, on the scale of all of the kind."""
        sizes = [abs(row.change) for row in result if math.isfinite(row.change)]
        title, limit = f"Change on this prompt, {WORDS[self.where]}", round_up(max(sizes, default=1.0))
        return self.map(source, title, self.own(result), limit)

    def table(self, source: Source, result: Rows) -> Table:
        return sweeps.sweep_table(self.own(result))


@named("patched-heads", kw_only=True)
class PatchedHeads(OfSweep):
    """Each head's output in turn as in the run of another `prompt` of equally many tokens."""

    prompt: str | tuple[int, ...]
    hangs_on = ("prompt", "answer")
    words = (
        "Each head's output patched alone: what that adds to the log-probability of this prompt's answer. "
        "Brown: the answer loses. Click a head to choose it."
    )

    def line(self, source: Source, result: Rows) -> str:
        return "Each head's output alone. Brown: the answer loses. Click a head to choose it."

    def file_parts(self) -> tuple[object, ...]:
        return (self.name,)

    def tried(self, config: ModelConfig) -> Plan:
        return sweeps.heads_patched(config, self.prompt)

    def draw(self, source: Source, result: Rows) -> Figure:
        return self.map(source, "Change, output patched", result)


@named("task-accuracy", kw_only=True)
class TaskAccuracy(NamedFigure[Effects]):
    """What accuracy at the checkpoint's task loses without each kernel of a place, or each head; as measured.

    `selected` (layer, head) is framed.
    """

    where: Swept
    selected: Head | None = None

    def result(self, source: Source) -> Effects:
        """Raises MtaVizError where the checkpoint's effects are not measured."""
        effects = find_effects(source.model.path)
        if isinstance(effects, Absent):
            raise MtaVizError(effects.reason)
        return effects

    def draw(self, source: Source, result: Effects) -> Figure:
        """Changes of accuracy, a dot where the interval covers 0."""
        config = source.model.config
        values, hover, unsure = dict[Head, float](), dict[Head, str](), list[Head]()
        for place, effect in effects_at(config, result)[self.where].items():
            change = effect.accuracy_change
            interval = f"95 % interval {change.low:+.3f} to {change.high:+.3f}"
            values[place], hover[place] = change.value, f"accuracy {effect.accuracy:.3f}, {interval}"
            unsure += [place] if change.low <= 0 <= change.high else []
        return sweep_map(
            f"Change of accuracy, {WORDS[self.where]}", grid(config, values), unit="share", hover=hover,
            unsure=unsure, limit=round_up(max([LEAST, *map(abs, values.values())])), width=MAP_PX,
            numbering=source.numbering, selected=self.selected,
        )  # fmt: skip

    def caption(self, source: Source, result: Effects) -> str:
        return f"Without: {result.accuracy:.3f} right."

    def table(self, source: Source, result: Effects) -> Table:
        """A line a kernel; those at the own tap only in columns of their own, where both are measured."""
        other = find_effects(source.model.path, "own-tap")
        return result.table(None if isinstance(other, Absent) else other)


def effects_at(config: ModelConfig, effects: Effects) -> dict[Swept, dict[Head, Effect]]:
    """Effects of single kernels, rows of mixing and heads by their place; a place may have none."""
    tried = {part for kind in SWEEPS.values() for part in kind(config)}
    places: dict[Swept, dict[Head, Effect]] = {where: {} for where in WORDS}
    for effect in effects.effects:
        if len(effect.plan) == 1 and effect.plan[0] in tried:
            places[where_of(effect.plan[0])][place_of(effect.plan[0])] = effect
    return places


@named("greedy-set", kw_only=True)
class NeededKernels(Measured[GreedySet]):
    """A set of kernels without whose shapes the answer falls, found greedily, beside random sets."""

    answer: str | None = None
    hangs_on = ("answer",)
    words = (
        "Kernels that this answer falls with: a set counts when, with all of it at identity, the answer's "
        f"probability falls to a tenth (its log-probability by {sweeps.FALL:.2f} nats). Greedy: of the "
        f"{sweeps.TRIED} kernels most harmful alone, the worst joins the set at each step; then what the set "
        f"can do without is taken out. At most {sweeps.MAX_SET} kernels. There may be smaller sets, and "
        f"kernels that matter only together can be missed. Beside it up to {sweeps.RANDOM_SETS} random sets "
        "of its size (seed 0)."
    )

    def measure(self, source: Source) -> GreedySet:
        """From the kernels' sweep, which is made where it is not there."""
        first = replace(source, progress=lambda done: source.progress(0.5 * done))
        alone = Sweep(where="pre", answer=self.answer).result(first)
        then = progress_within(source.progress, 0.5, 0.5)
        return sweeps.greedy_set(meter_of(source, self.answer), alone, progress=then)

    def draw(self, source: Source, result: GreedySet) -> Figure:
        """The set's change on a line, those of random sets beside it."""
        return set_beside_random(result.change, result.random)
