"""What a step changed: the map after it minus the map before it, ready to draw.

Only steps within one unit have a difference: the softmax turns scores into weights, and its
input and output cannot be subtracted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mta_viz.analysis.maps import AttentionMap, Facts, exact_map, head_maps
from mta_viz.analysis.pooling import Pooler
from mta_viz.analysis.steps import difference_steps
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.tracing import Trace


@dataclass(frozen=True, kw_only=True)
class DifferenceMap(AttentionMap):
    """`values` = stage `stage` minus stage `before` of the same head, in the unit of both.

    Where both are the same stage, an edited run's minus the original one's.

    Otherwise an `AttentionMap`: pooled by largest |change|, masked cells 0, limits by
    `shared_limit`. `negative_share`: share of all change that lowers. Row sums are not given.
    """

    before: Stage


def subtract(after: AttentionMap, before: AttentionMap) -> DifferenceMap:
    """Difference of two exact maps of the same cells. Raises PromptError for others."""
    if max(after.block, before.block) > 1 or _place(after) != _place(before):
        raise PromptError("maps can be subtracted cell by cell only where both show the same exact cells")
    values, facts = after.values - before.values, Facts()
    facts.add(values, after.query_start, after.key_start)
    whole = DifferenceMap(
        after.layer,
        after.head,
        after.stage,
        values,
        after.query_start,
        after.key_start,
        before=before.stage,
    )
    return facts.on(whole, whole_rows=False)


def exact_difference(
    trace: Trace,
    layer: int,
    stage: Stage,
    head: int,
    queries: slice = slice(None),
    keys: slice = slice(None),
) -> DifferenceMap:
    """Every cell of a crop of `stage` minus the stage before it.

    Raises PromptError where the layer has no such step, or one that changes the unit.
    """
    befores = {after: before for before, after in difference_steps(trace.model.config.kernels(layer))}
    if stage not in befores:
        there = ", ".join(after.value.hook for after in befores) or "none"
        raise PromptError(
            f"layer {layer} has no convolution or head mixing that makes {stage.value.hook}; "
            f"its stages with a difference: {there}"
        )
    after, before = (exact_map(trace, layer, at, head, queries, keys) for at in (stage, befores[stage]))
    return subtract(after, before)


def differences(trace: Trace, layer: int, head: int, max_cells: int = 512) -> dict[Stage, DifferenceMap]:
    """Every difference of a layer by its later stage, in one pass.

    Exact when the prompt fits `max_cells`, else pooled slab by slab: memory grows with T.
    """
    steps = difference_steps(trace.model.config.kernels(layer))
    block = -(-len(trace.tokens) // max_cells)
    if block > 1:
        return _pooled(trace, layer, head, steps, block)
    maps = head_maps(trace, layer, head, max_cells)
    return {after: subtract(maps[after], maps[before]) for before, after in steps}


def changed_map(
    before: Trace, after: Trace, layer: int, stage: Stage, head: int, max_cells: int = 512
) -> DifferenceMap:
    """A head's map in the run `after` minus that in `before`, runs of one prompt by two models.

    Exact when the prompt fits `max_cells`, else pooled slab by slab.
    """
    block = -(-len(before.tokens) // max_cells)
    if block <= 1:
        return subtract(exact_map(after, layer, stage, head), exact_map(before, layer, stage, head))
    pooler, facts = Pooler(block, len(before.tokens)), Facts()
    slabs = (run.slabs(layer, stage) for run in (after, before))
    for (row, edited), (_, original) in zip(*slabs, strict=True):
        values = (edited[head] - original[head]).cpu()
        pooler.add(values)
        facts.add(values, row, 0)
    return _drawn(layer, head, stage, stage, pooler, facts, block)


def _pooled(
    trace: Trace, layer: int, head: int, steps: Sequence[tuple[Stage, Stage]], block: int
) -> dict[Stage, DifferenceMap]:
    passing = {after: (before, Pooler(block, len(trace.tokens)), Facts()) for before, after in steps}
    for first_row, slabs in trace.stage_slabs(layer):
        for after, (before, pooler, facts) in passing.items():
            values = (slabs[after][head] - slabs[before][head]).cpu()
            pooler.add(values)
            facts.add(values, first_row, 0)
    return {after: _drawn(layer, head, after, *made, block) for after, made in passing.items()}


def _drawn(
    layer: int, head: int, after: Stage, before: Stage, pooler: Pooler, facts: Facts, block: int
) -> DifferenceMap:
    pooled = pooler.result()
    drawn = DifferenceMap(layer, head, after, pooled.values, 0, 0, block, pooled=pooled, before=before)
    return facts.on(drawn, whole_rows=False)


def _place(attention: AttentionMap) -> tuple[object, ...]:
    shape = tuple(attention.values.shape)
    return attention.layer, attention.head, attention.query_start, attention.key_start, shape
