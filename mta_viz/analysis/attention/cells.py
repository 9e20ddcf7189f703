"""Single cells of one head: those that stand out, a query's row and a key's column at every stage.

Cells stand out by value, by a step's change, or by what they contribute; no whole map is needed for any.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.changes import difference_steps
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage, Unit
from mta_viz.run.tracing import Trace
from mta_viz.tables import Row, Table
from mta_viz.tokenizers.base import Tokens

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
        best = sorted(best, key=lambda entry: (-entry[0], entry[1].query, entry[1].key))[:k]
    if norms is None:
        return tuple(cell for _, cell in best)
    return tuple(replace(cell, contribution=size) for size, cell in best)


def cells_table(cells: Sequence[TopCell], tokens: Tokens) -> Table:
    """One row a cell, in their order."""
    pieces = tokens.pieces
    rows: list[Row] = []
    for cell in cells:
        place = (cell.query, pieces[cell.query], cell.key, pieces[cell.key])
        rows.append((*place, cell.value, cell.before, cell.contribution))
    facts = ("value", "value_before", "contribution")
    return Table.of(("query", "query_token", "key", "key_token", *facts), rows)


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
    cells = []
    for largest, place in zip(top.tolist(), places.tolist(), strict=True):
        if largest >= 0:
            query, key = divmod(place, size.shape[1])
            earlier = None if before is None else float(before[query, key])
            cells.append((largest, TopCell(first_row + query, key, float(values[query, key]), earlier)))
    return cells


Along = Literal["keys", "queries"]


@dataclass(frozen=True)
class CrossSection:
    """Values of a head along the keys of one query, or along the queries of one key.

    `position` is that query (key). Value c of a stage, float32 on the CPU, belongs to token
    `start + c`; the other tokens are masked: keys after the query, queries before the key.
    """

    layer: int
    head: int
    along: Along
    position: int
    start: int
    values: Mapping[Stage, Float[Tensor, " position"]]

    @property
    def stop(self) -> int:
        """One after the last token that has a value."""
        return self.start + len(next(iter(self.values.values())))

    def largest(self, unit: Unit, first_token: bool = True) -> float:
        """Largest finite |x| of the stages of a unit; without `first_token`, of later tokens if any."""
        skip = 1 if self.start == 0 and not first_token and self.stop > 1 else 0
        rows = [row[skip:] for stage, row in self.values.items() if stage.value.unit == unit]
        sizes = torch.cat([row[row.isfinite()].abs() for row in rows])
        return float(sizes.max()) if len(sizes) else 0.0

    def table(self, tokens: Tokens) -> Table:
        """One row a token and stage."""
        other = "query" if self.along == "keys" else "key"
        rows = (
            (self.layer, self.head, stage.value.hook, self.position, place, tokens.pieces[place], value)
            for stage, values in self.values.items()
            for place, value in enumerate(values.tolist(), start=self.start)
        )
        return Table.of(("layer", "head", "stage", other, "position", "token", "value"), rows)


def query_row(trace: Trace, layer: int, head: int, query: int) -> CrossSection:
    """What `query` attends to, at every stage. Raises PromptError for what is not there."""
    check_place(trace, layer, head, query=query)
    ((_, slabs),) = trace.stage_slabs(layer, range(query, query + 1))
    values = {stage: slabs[stage][head, 0].detach().cpu().clone() for stage in Stage if stage in slabs}
    return CrossSection(layer, head, "keys", query, 0, values)


def key_column(trace: Trace, layer: int, head: int, key: int) -> CrossSection:
    """How all queries from `key` on attend to it, at every stage; one pass over the layer's rows."""
    check_place(trace, layer, head, key=key)
    parts: dict[Stage, list[Tensor]] = {}
    for _, slabs in trace.stage_slabs(layer, range(key, len(trace.tokens))):
        for stage, slab in slabs.items():
            column = slab[head, :, key].detach().cpu().clone()  # a view would keep the whole slab
            parts.setdefault(stage, []).append(column)
    values = {stage: torch.cat(parts[stage]) for stage in Stage if stage in parts}
    return CrossSection(layer, head, "queries", key, key, values)


def check_place(trace: Trace, layer: int, head: int, **positions: int) -> None:
    """Raises PromptError for a layer, head or position, by its name, that is not there."""
    config = trace.model.config
    counts = {"layer": (layer, config.n_layers), "head": (head, config.n_heads)}
    counts |= {name: (position, len(trace.tokens)) for name, position in positions.items()}
    for name, (index, count) in counts.items():
        if not 0 <= index < count:
            raise PromptError(f"{name} {index} does not exist; there are {count}, counted from 0")
