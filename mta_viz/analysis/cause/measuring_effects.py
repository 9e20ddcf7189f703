"""What each kernel does for a task: one at a time to identity, all measured on the same samples.

Owns the list of plans and the measuring; samples are `labs.task_samples`', the table and its file, which the
app reads without them, `effects`'.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from mta_viz.analysis.cause.answers import first_layer
from mta_viz.analysis.cause.effects import Effect, Effects, Estimate, MedianEstimate
from mta_viz.analysis.cause.sweeps import heads_alone
from mta_viz.analysis.labs.needle import gold_log_probabilities
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.config import ModelConfig
from mta_viz.model.editing import edited
from mta_viz.model.plans import Edit, OfMixing, Plan, every_kernel
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import after_layer, embedded, end_logits_from
from mta_viz.tasks.intervals import median_interval, paired_change_interval


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
    progress: Callable[[float], None] | None = None,
) -> Effects:
    """`table` with every effect it lacks, on `batches`; `keep(table so far)` after each.

    Effects are those of `effect_plans`, with `heads` of every head off too. Layers below an edit are run
    once: for each sample the residual stream entering the layer at hand is held. Raise in `progress` or
    `keep` to stop; what was kept stays.
    """
    n_layers, off = model.config.n_layers, heads_alone(model.config) if heads else ()
    plans = [*effect_plans(model.config, table.edit), *((head_off,) for head_off in off)]
    missing = [plan for plan in plans if table.of_plan(plan) is None]
    total, done = sum(n_layers - first_layer(plan, n_layers) for plan in missing), 0
    residuals = [embedded(model, batch.ids) for batch in batches]
    before = outcome(model, residuals, 0, batches)
    table = replace(table, accuracy=_mean(before.right), log_probability=_mean(before.log_probability))
    for layer in range(n_layers):
        for plan in (plan for plan in missing if first_layer(plan, n_layers) == layer):
            after = outcome(edited(model, plan), residuals, layer, batches)
            table = replace(table, effects=(*table.effects, paired_effect(plan, before, after)))
            keep(table)
            done += n_layers - layer
            if progress is not None:
                progress(done / total)
        residuals = [after_layer(model, resid, layer) for resid in residuals]
    return table


def paired_effect(plan: Plan, before: Outcome, after: Outcome) -> Effect:
    """Accuracy and log-probability with the plan, less those without it, sample by sample."""
    changes = [new - old for new, old in zip(after.log_probability, before.log_probability, strict=True)]
    accuracy = _mean(after.right)
    gain = Estimate(accuracy - _mean(before.right), *paired_change_interval(before.right, after.right))
    middle = median_interval(changes)
    median = MedianEstimate(float(middle.value), float(middle.low), float(middle.high), middle.level)
    return Effect(plan, accuracy, gain, Estimate(_mean(changes), math.nan, math.nan), median)


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


def _mean(values: Sequence[bool] | Sequence[float]) -> float:
    return math.fsum(values) / len(values)
