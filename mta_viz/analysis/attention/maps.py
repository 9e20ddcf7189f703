"""Attention maps ready to draw or save: exact crops, pooled overviews, and the limits they share.

Owns what a drawn map is. Recomputing stages is the trace's work, colours are the plots'.

Pooling of attention maps by largest size, sign kept. Only causal cells (key <= query) count.
One query's row or one key's column of a head at every stage, without a whole map.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage, Unit, is_distribution, layer_stages
from mta_viz.run.tracing import Trace


@dataclass(frozen=True)
class Pooled:
    """One value per block of `block` x `block` cells.

    `values`: the causal cell of largest |x| with its sign (a NaN wins), 0 where every cell is
    masked. `peak_query`, `peak_key`: its row and column in the unpooled map. `means`: mean over
    the block's causal cells, 0 where there are none.
    """

    values: Float[Tensor, "row column"]
    peak_query: Int[Tensor, "row column"]
    peak_key: Int[Tensor, "row column"]
    means: Float[Tensor, "row column"]


class Pooler:
    """Pools a map that arrives as row slabs, so that its T x T cells never exist at once."""

    def __init__(self, block: int, n_keys: int, query_start: int = 0, key_start: int = 0) -> None:
        self.block = block
        self.n_columns = -(-n_keys // block)
        self._offset = key_start - query_start
        self._rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self._n_rows = 0

    def add(self, values: Float[Tensor, "query key"]) -> None:
        """Take the next rows; keys beyond the slab's width are taken as masked."""
        rows = torch.arange(values.shape[0], device=values.device) + self._n_rows
        keys = torch.arange(values.shape[1], device=values.device) + self._offset
        causal = self._blocks(keys[None, :] <= rows[:, None], False)
        cells = self._blocks(values, 0.0)
        peak = _size(cells, causal).argmax(-1, keepdim=True)
        first = torch.arange(self.n_columns, device=values.device) * self.block
        total = torch.where(causal, cells, 0.0).sum(-1)
        self._rows.append((cells.gather(-1, peak)[..., 0], peak[..., 0] + first, total, causal.sum(-1)))
        self._n_rows += values.shape[0]

    def result(self) -> Pooled:
        """Pool the collected rows along the query axis."""
        values, keys, totals, counts = (torch.cat(parts) for parts in zip(*self._rows, strict=True))
        extra = -len(values) % self.block
        shape = (-1, self.block, self.n_columns)
        values, keys, totals, counts = (
            pad(part, (0, 0, 0, extra)).reshape(shape) for part in (values, keys, totals, counts)
        )
        peak = _size(values, counts > 0).argmax(1, keepdim=True)
        first = torch.arange(len(values), device=values.device)[:, None] * self.block
        some = counts.sum(1) > 0
        return Pooled(
            values=torch.where(some, values.gather(1, peak)[:, 0], 0.0),
            peak_query=peak[:, 0] + first,
            peak_key=keys.gather(1, peak)[:, 0],
            means=totals.sum(1) / counts.sum(1).clamp(min=1),
        )

    def _blocks(self, cells: Tensor, fill: float | bool) -> Tensor:
        """[query, key] -> [query, column, key in block]."""
        width = self.n_columns * self.block
        padded = pad(cells, (0, width - cells.shape[1]), value=fill)
        return padded.reshape(len(cells), self.n_columns, self.block)


def _size(values: Tensor, causal: Tensor) -> Tensor:
    """|x| with NaN above everything and masked cells below everything."""
    return torch.where(causal, values.abs().nan_to_num(nan=torch.inf), -1.0)


LIMIT_PERCENTILE = 99.5
Map = TypeVar("Map", bound="AttentionMap")


@dataclass(frozen=True)
class AttentionMap:
    """One head's map at one stage, or a part of it, float32 on the CPU.

    Row r, column c of `values` stands for queries `query_start + r*block ...` and keys
    `key_start + c*block ...` (`block` positions each; 1: exact). Masked cells (every key after
    every query) hold 0 and are told apart by `masked`. In a pooled map a value is the cell of
    largest |x| of its block, sign kept, and `pooled` says where it is and what the mean is.

    `distribution`: rows are probabilities. `n_bad`: causal cells that are NaN or infinite.
    `negative_share`: sum of max(-x, 0) over sum of |x|, finite causal cells, before pooling.
    `row_sums`: smallest and largest row sum, or None when the map does not hold whole rows.
    """

    layer: int
    head: int
    stage: Stage
    values: Float[Tensor, "row column"]
    query_start: int
    key_start: int
    block: int = 1
    distribution: bool = False
    n_bad: int = 0
    negative_share: float = 0.0
    row_sums: tuple[float, float] | None = None
    pooled: Pooled | None = None

    @property
    def queries(self) -> Int[Tensor, " row"]:
        """First query position of each row."""
        return self.query_start + self.block * torch.arange(self.values.shape[0])

    @property
    def keys(self) -> Int[Tensor, " column"]:
        """First key position of each column."""
        return self.key_start + self.block * torch.arange(self.values.shape[1])

    @property
    def masked(self) -> Bool[Tensor, "row column"]:
        """Cells in which nothing is drawn: here those of the future."""
        return self.future

    @property
    def future(self) -> Bool[Tensor, "row column"]:
        """Cells in which every key comes after every query."""
        return self.keys[None, :] > self.queries[:, None] + self.block - 1

    @property
    def bad(self) -> Bool[Tensor, "row column"]:
        """Cells that are NaN or infinite."""
        return ~self.values.isfinite() & ~self.masked


def exact_map(
    trace: Trace,
    layer: int,
    stage: Stage,
    head: int,
    queries: slice = slice(None),
    keys: slice = slice(None),
) -> AttentionMap:
    """Every cell of a crop. `queries` and `keys` are slices of positions, step 1."""
    n_tokens = len(trace.tokens)
    query_start, key_start = queries.indices(n_tokens)[0], keys.indices(n_tokens)[0]
    values = trace.map(layer, stage, head, queries, keys).detach().float().cpu()
    drawn = AttentionMap(
        layer,
        head,
        stage,
        values,
        query_start,
        key_start,
        distribution=is_distribution(stage, trace.model.config.kernels(layer)),
    )
    facts = Facts()
    facts.add(values, query_start, key_start)
    whole = key_start == 0 and values.shape[1] >= query_start + values.shape[0]
    return facts.on(drawn, whole_rows=whole)


def pooled_map(trace: Trace, layer: int, stage: Stage, head: int, max_cells: int = 512) -> AttentionMap:
    """The whole map in at most `max_cells` x `max_cells` blocks, computed slab by slab."""
    whole = _Whole(trace, layer, stage, head, -(-len(trace.tokens) // max_cells), pooled=True)
    for first_row, slab in trace.slabs(layer, stage):
        whole.add(slab, first_row)
    return whole.result()


def head_maps(trace: Trace, layer: int, head: int, max_cells: int = 512) -> dict[Stage, AttentionMap]:
    """Every stage the layer computes, in order: exact when the prompt fits `max_cells`, else pooled."""
    block = -(-len(trace.tokens) // max_cells)
    stages = layer_stages(trace.model.config.kernels(layer))
    wholes = {stage: _Whole(trace, layer, stage, head, block, pooled=block > 1) for stage in stages}
    for first_row, slabs in trace.stage_slabs(layer):
        for stage, slab in slabs.items():
            wholes[stage].add(slab, first_row)
    return {stage: whole.result() for stage, whole in wholes.items()}


class _Whole:
    """One head's whole map while its slabs pass by: pooled, or kept as it is."""

    def __init__(
        self, trace: Trace, layer: int, stage: Stage, head: int, block: int, *, pooled: bool
    ) -> None:
        distribution = is_distribution(stage, trace.model.config.kernels(layer))
        self._empty = AttentionMap(layer, head, stage, torch.zeros(0, 0), 0, 0, block, distribution)
        self._n_tokens, self._rows = len(trace.tokens), list[Tensor]()
        self._pooler = Pooler(block, self._n_tokens) if pooled else None
        self._facts = Facts()

    def add(self, slab: Float[Tensor, "head query key"], first_row: int) -> None:
        values = slab[self._empty.head].detach().float().cpu()
        self._facts.add(values, first_row, 0)
        if self._pooler is None:
            self._rows.append(pad(values, (0, self._n_tokens - values.shape[1])))
        else:
            self._pooler.add(values)

    def result(self) -> AttentionMap:
        if self._pooler is None:
            drawn = replace(self._empty, values=torch.cat(self._rows))
        else:
            pooled = self._pooler.result()
            drawn = replace(self._empty, values=pooled.values, pooled=pooled)
        return self._facts.on(drawn, whole_rows=True)


def shrink(attention: AttentionMap, max_cells: int) -> AttentionMap:
    """The same map in at most `max_cells` blocks a side (for thumbnails); itself when it fits."""
    factor = -(-max(attention.values.shape) // max_cells)
    if factor <= 1:
        return attention
    step = attention.block
    offset = (attention.key_start - attention.query_start) // step
    pooler = Pooler(factor, attention.values.shape[1], key_start=offset)
    pooler.add(attention.values)
    return replace(attention, values=pooler.result().values, block=step * factor, pooled=None)


def shared_limit(maps: Iterable[AttentionMap], first_token: bool = False) -> float:
    """A colour limit for maps of one unit: robust, and round enough to be printed.

    The 99.5th percentile of |x| over the finite causal cells of all maps or, if that is more, the
    median of the rows' largest |x| (rows that attend to one key each would else be drawn as noise);
    rounded up to 1, 2 or 5 times a power of ten. Key 0 and query 0 are left out unless
    `first_token` (or unless nothing else is there): attention to the first token would set every
    scale. 1 if all is 0.
    """
    maps = tuple(maps)
    counted = [_counted(one, first_token) for one in maps]
    if not any(used.any() for _, used in counted):
        return 1.0 if first_token else shared_limit(maps, first_token=True)
    cells = np.concatenate([sizes[used] for sizes, used in counted])
    peaks = np.concatenate([np.where(used, sizes, -1.0).max(1)[used.any(1)] for sizes, used in counted])
    return round_up(max(float(np.percentile(cells, LIMIT_PERCENTILE)), float(np.median(peaks))))


def round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten at or above `value`; 1 for 0."""
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    # A value that is itself 1-2-5 must stay, whatever the division leaves in the last digit.
    step = next(step for step in (1.0, 2.0, 5.0, 10.0) if value <= step * power * (1 + 1e-6))
    return float(f"{step * power:.6g}")


def _counted(
    attention: AttentionMap, first_token: bool
) -> tuple[Float[np.ndarray, "query key"], Bool[np.ndarray, "query key"]]:
    """|x|, and which cells count for the limit."""
    used = attention.values.isfinite() & ~attention.masked
    if not first_token:
        used[attention.queries == 0, :] = False
        used[:, attention.keys == 0] = False
    return attention.values.abs().numpy(), used.numpy()


class Facts:
    """What is summed over all exact cells while they pass by: bad ones, signs, row sums."""

    def __init__(self) -> None:
        self.n_bad = 0
        self.negative = self.total = 0.0
        self.lowest, self.highest = float("inf"), float("-inf")

    def add(self, values: Float[Tensor, "query key"], query_start: int, key_start: int) -> None:
        """Take the next rows; cells with key > query do not count."""
        queries = torch.arange(values.shape[0])[:, None] + query_start
        causal = torch.arange(values.shape[1])[None, :] + key_start <= queries
        self.n_bad += int((causal & ~values.isfinite()).sum())
        cells = torch.where(causal & values.isfinite(), values, 0.0).double()
        self.negative += float(cells.clamp(max=0).sum().abs())
        self.total += float(cells.abs().sum())
        sums = cells.sum(1)
        if len(sums):
            self.lowest = min(self.lowest, float(sums.min()))
            self.highest = max(self.highest, float(sums.max()))

    def on(self, attention: Map, *, whole_rows: bool) -> Map:
        """The map with these facts; row sums only where it holds whole rows."""
        return replace(
            attention,
            n_bad=self.n_bad,
            negative_share=self.negative / self.total if self.total else 0.0,
            row_sums=(self.lowest, self.highest) if whole_rows else None,
        )


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


def query_row(trace: Trace, layer: int, head: int, query: int) -> CrossSection:
    """What `query` attends to, at every stage. Raises PromptError for what is not there."""
    _check(trace, layer, head, "query", query)
    ((_, slabs),) = trace.stage_slabs(layer, range(query, query + 1))
    values = {stage: slabs[stage][head, 0].detach().cpu().clone() for stage in Stage if stage in slabs}
    return CrossSection(layer, head, "keys", query, 0, values)


def key_column(trace: Trace, layer: int, head: int, key: int) -> CrossSection:
    """How all queries from `key` on attend to it, at every stage; one pass over the layer's rows."""
    _check(trace, layer, head, "key", key)
    parts: dict[Stage, list[Tensor]] = {}
    for _, slabs in trace.stage_slabs(layer, range(key, len(trace.tokens))):
        for stage, slab in slabs.items():
            column = slab[head, :, key].detach().cpu().clone()  # a view would keep the whole slab
            parts.setdefault(stage, []).append(column)
    values = {stage: torch.cat(parts[stage]) for stage in Stage if stage in parts}
    return CrossSection(layer, head, "queries", key, key, values)


def _check(trace: Trace, layer: int, head: int, name: str, position: int) -> None:
    config = trace.model.config
    counts = {"layer": (layer, config.n_layers), "head": (head, config.n_heads)}
    for word, (index, count) in (counts | {name: (position, len(trace.tokens))}).items():
        if not 0 <= index < count:
            raise PromptError(f"{word} {index} does not exist; there are {count}, counted from 0")
