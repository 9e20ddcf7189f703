"""What each kernel does for a task: one at a time to identity, all measured on the same samples.

Owns the samples, the list of plans and the measuring, which need the tasks; the table and its file,
which the app reads without them, are `mta_viz.analysis.cause.effects`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Int
from torch import Tensor

from mta_viz.analysis.cause.answers import first_layer
from mta_viz.analysis.cause.effects import Effect, Effects, Estimate, MedianEstimate
from mta_viz.analysis.cause.sweeps import heads_alone
from mta_viz.analysis.labs.blocks import check_characters
from mta_viz.analysis.labs.needle import (
    batched,
    check_vocabulary,
    gold_log_probabilities,
    judge,
    parts,
    with_answers,
)
from mta_viz.config import ModelConfig
from mta_viz.model.editing import edited
from mta_viz.model.plans import Edit, OfMixing, Plan, every_kernel
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.named_tasks import Series
from mta_viz.run.scoring import after_layer, embedded, last_logits
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.intervals import median_interval, paired_change_interval
from mta_viz.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class GoldBatch:
    """Samples with their gold answers in them, of one length.

    The logits of the last `n_last` positions predict the answer's tokens in order (and what comes
    after). `right` says of the likeliest tokens there which samples are answered right.
    """

    ids: Int[Tensor, "sample position"]
    n_last: int
    answers: tuple[tuple[int, ...], ...]
    right: Callable[[Int[Tensor, "sample position"]], list[bool]]


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


def series_batches(
    model: HookedMTA, tokenizer: Tokenizer, series: Series, samples: int, seed: int
) -> list[GoldBatch]:
    """Samples of a task, those of one length together. Raises PromptError as the task does."""
    check_vocabulary(model, tokenizer)
    batches = []
    for part in batched(model, series.samples(tokenizer, samples, seed)):
        answers = tuple(sample.answer_ids for sample in part)

        def right(greedy: Tensor, part: Sequence[NeedleSample] = part) -> list[bool]:
            return judge(greedy, tokenizer, part)

        batches.append(GoldBatch(with_answers(part), max(map(len, answers)) + 1, answers, right))
    return batches


def blocks_batches(model: HookedMTA, task: BlockTask, samples: int, seed: int) -> list[GoldBatch]:
    """Full-length sequences of the evaluation stream `seed`. Raises PromptError for another vocabulary."""
    check_characters(model)
    batches = []
    for start, stop in parts(model, samples, task.n_tokens):
        ids = task.sample_range(start, stop, seed).tokens
        gold = ids[:, -task.n_answer :]

        def right(greedy: Tensor, gold: Tensor = gold) -> list[bool]:
            return (greedy[:, : gold.shape[1]].cpu() == gold).all(1).tolist()

        batches.append(GoldBatch(ids, task.n_answer + 1, tuple(map(tuple, gold.tolist())), right))
    return batches


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
        logits = last_logits(model, resid, layer, batch.n_last)
        right += batch.right(logits.argmax(-1))
        log_probability += gold_log_probabilities(logits, batch.answers)
    return Outcome(tuple(right), tuple(log_probability))


def _mean(values: Sequence[bool] | Sequence[float]) -> float:
    return math.fsum(values) / len(values)
