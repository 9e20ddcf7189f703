"""The cells of one head's map that stand out: by value, by a step's change, or by what they contribute."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.changes import difference_steps
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace

By = Literal["value", "change", "contribution"]


@dataclass(frozen=True)
class TopCell:
    """A cell and its value; `before`: its value one stage earlier where the unit is the same.

    `contribution`: size of its part of the head's output at the query, |P| ||v||, where asked for.
    """

    query: int
    key: int
    value: float
    before: float | None = None
    contribution: float | None = None

    @property
    def change(self) -> float | None:
        """Value less the value one stage earlier."""
        return None if self.before is None else self.value - self.before


def stage_before(trace: Trace, layer: int, stage: Stage) -> Stage | None:
    """The stage that a convolution or head mixing of this layer makes `stage` from, else None."""
    steps = difference_steps(trace.model.config.kernels(layer))
    return next((before for before, after in steps if after is stage), None)


def top_cells(
    trace: Trace,
    layer: int,
    head: int,
    stage: Stage,
    k: int = 50,
    *,
    by: By = "value",
    first_token: bool = True,
) -> tuple[TopCell, ...]:
    """The `k` cells of largest |value|, of largest |change| by the step before, or of largest
    contribution |P_ij| ||v_j|| (final weights only), largest first.

    v_j is the value vector of key j in this head: P_ij v_j is what the key adds to the head's output
    at query i, before any norm, gate and output projection.
    Masked, NaN and infinite cells are left out, without `first_token` query 0 and key 0 too. Rows
    pass by in slabs: no whole map exists. Raises PromptError for what is not there.

    >>> largest = mta_viz.top_cells(trace, 2, 1, mta_viz.Stage.PATTERN, k=1)[0]
    >>> largest.query >= largest.key
    True
    """
    n_heads, before = trace.model.config.n_heads, stage_before(trace, layer, stage)
    if not 0 <= head < n_heads:
        raise PromptError(f"head {head} does not exist; the model has {n_heads}, counted from 0")
    if by == "change" and before is None:
        raise PromptError(
            f"{stage.value.long} of layer {layer} has no stage before it in the same unit, so no change; "
            "rank its cells by value"
        )
    if by == "contribution" and stage is not Stage.PATTERN:
        raise PromptError(
            f"only the final weights multiply the values; {stage.value.long} contributes nothing by itself. "
            "Rank the final weights, or these cells by value"
        )
    norms = value_norms(trace, layer, head) if by == "contribution" else None
    best: list[tuple[float, TopCell]] = []
    for first_row, values, earlier in _rows(trace, layer, head, stage, before):
        size = (values - earlier).abs() if earlier is not None and by == "change" else values.abs()
        if norms is not None:
            size = size * norms[: size.shape[1]]
        best += _largest(size, values, earlier, first_row, k, first_token)
        best = sorted(best, key=lambda one: (-one[0], one[1].query, one[1].key))[:k]
    if norms is None:
        return tuple(cell for _, cell in best)
    return tuple(replace(cell, contribution=size) for size, cell in best)


def value_norms(trace: Trace, layer: int, head: int) -> Float[Tensor, " key"]:
    """||v_j|| of every key j in a head (in its group's values, where heads share them), float32."""
    values = trace.project(layer).v[0]
    shared = trace.model.config.n_heads // values.shape[1]
    return values[:, head // shared].float().norm(dim=-1)


def _rows(
    trace: Trace, layer: int, head: int, stage: Stage, before: Stage | None
) -> Iterator[tuple[int, Float[Tensor, "query key"], Float[Tensor, "query key"] | None]]:
    if before is None:
        yield from ((first, slab[head], None) for first, slab in trace.slabs(layer, stage))
        return
    for first, slabs in trace.stage_slabs(layer):
        yield first, slabs[stage][head], slabs[before][head]


def _largest(
    size: Float[Tensor, "query key"],
    values: Float[Tensor, "query key"],
    before: Float[Tensor, "query key"] | None,
    first_row: int,
    k: int,
    first_token: bool,
) -> list[tuple[float, TopCell]]:
    queries = torch.arange(first_row, first_row + size.shape[0], device=size.device)[:, None]
    keys = torch.arange(size.shape[1], device=size.device)
    used = (keys <= queries) & size.isfinite()
    if not first_token:
        used &= (keys > 0) & (queries > 0)
    top, places = torch.where(used, size, -1.0).flatten().topk(min(k, size.numel()))
    flat = None if before is None else before.flatten()
    return [
        (
            largest,
            TopCell(
                first_row + place // size.shape[1],
                place % size.shape[1],
                float(values.flatten()[place]),
                None if flat is None else float(flat[place]),
            ),
        )
        for largest, place in zip(top.tolist(), places.tolist(), strict=True)
        if largest >= 0
    ]
