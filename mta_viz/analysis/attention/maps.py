"""Attention maps ready to draw or save: exact crops, pooled overviews, their rows, the limits they share.

Owns what a drawn map is. Recomputing stages is the trace's work, pooling is `pooling.py`'s, colours are the
plots'. Only causal cells (key <= query) count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from mta_viz.analysis.attention.pooling import Pooled, Pooler, future_band
from mta_viz.errors import check_index
from mta_viz.model.stages import Stage, is_distribution, layer_stages
from mta_viz.model.turns import pause
from mta_viz.run.devices import in_turns
from mta_viz.run.tracing import Progress, Trace, ignore
from mta_viz.tables import Row, Table
from mta_viz.tokenizers.base import Tokens

LIMIT_PERCENTILE = 99.5
WAITING_CELLS = {"cpu": 0, "cuda": 2**24}  # of rows that wait to be pooled together, by device
AROUND_SIZE = 128  # tokens a side of a part around a cell: about 3 pixels a cell, enough to hit one
NO_CELLS = (torch.zeros(0, 0), 0, 0)  # of a map before its rows: values, first query and first key
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

    @property
    def title(self) -> str:
        """What a row says of the stage: its hook."""
        return self.stage.value.hook

    def table(self, tokens: Tokens) -> Table:
        """One row a cell; of a pooled map its blocks: largest |x| with sign, where it is, and the mean."""
        return stages_table({self.stage: self}, tokens)

    def rows(self, tokens: Tokens) -> Iterator[Row]:
        """The rows of `table`."""
        which, pooled = (self.layer, self.head, self.title), self.pooled
        fields: tuple[Tensor, ...] = (self.values,)
        ends: Sequence[object] = tokens.pieces
        if pooled is not None:
            fields = (pooled.values, pooled.peak_query, pooled.peak_key, pooled.means)
            ends = [min(start + self.block, len(tokens)) - 1 for start in range(len(tokens))]
        columns = zip(*(field.tolist() for field in (self.future, *fields)), strict=True)
        for query, row in zip(self.queries.tolist(), columns, strict=True):
            for key, masked, *cell in zip(self.keys.tolist(), *row, strict=True):
                values = [None] * len(cell) if masked else cell
                yield *which, query, ends[query], key, ends[key], *values, masked


_EXACT = ("query", "query_token", "key", "key_token", "value")
_POOLED = ("first_query", "last_query", "first_key", "last_key", "largest", "at_query", "at_key", "mean")


def stages_table(maps: Mapping[Stage, AttentionMap], tokens: Tokens) -> Table:
    """The rows of several stages of a head, in the order they are computed; all exact or all pooled."""
    ordered = [maps[stage] for stage in Stage if stage in maps]
    columns = _EXACT if ordered[0].pooled is None else _POOLED
    rows = (row for head_map in ordered for row in head_map.rows(tokens))
    return Table.of(("layer", "head", "stage", *columns, "masked"), rows)


def exact_map(
    trace: Trace, layer: int, stage: Stage, head: int, queries: slice = slice(None), keys: slice = slice(None)
) -> AttentionMap:
    """Every cell of a crop. `queries` and `keys` are slices of positions, step 1."""
    return exact_maps(trace, layer, {stage}, head, queries, keys)[stage]


def exact_maps(
    trace: Trace,
    layer: int,
    stages: set[Stage],
    head: int,
    queries: slice = slice(None),
    keys: slice = slice(None),
) -> dict[Stage, AttentionMap]:
    """Every cell of a crop at several stages, in one pass."""
    check_index("head", head, trace.model.config.n_heads)
    query_start, key_start = (side.indices(len(trace.tokens))[0] for side in (queries, keys))
    kernels, maps = trace.model.config.kernels(layer), dict[Stage, AttentionMap]()
    for stage, cells in trace.crops(layer, stages, queries, keys).items():
        values = cells[head].detach().float().cpu()
        place = (layer, head, stage, values, query_start, key_start)
        whole = key_start == 0 and values.shape[1] >= query_start + values.shape[0]
        exact = AttentionMap(*place, distribution=is_distribution(stage, kernels))
        maps[stage] = with_facts(exact, whole_rows=whole)
    return maps


def head_map(trace: Trace, layer: int, stage: Stage, head: int, max_cells: int = 512) -> AttentionMap:
    """The whole map: exact when the prompt fits `max_cells`, else pooled slab by slab."""
    whole = _whole(trace, layer, stage, head, max_cells)
    for first_row, slab in trace.slabs(layer, stage):
        whole.add(slab[head], first_row)
    return whole.result()


def head_maps(trace: Trace, layer: int, head: int, max_cells: int = 512) -> dict[Stage, AttentionMap]:
    """Every stage the layer computes, in order, each as in `head_map`, in one pass.

    Of a saved run without its checkpoint, the stages it holds.
    """
    return layer_maps(trace, layer, max_cells, heads=range(head, head + 1))[0]


def layer_maps(
    trace: Trace, layer: int, max_cells: int = 512, *, heads: range | None = None, progress: Progress = ignore
) -> tuple[dict[Stage, AttentionMap], ...]:
    """`head_maps` of several heads (None: all) in one pass; raise in `progress(share done)` to stop."""
    stages = layer_stages(trace.model.config.kernels(layer))
    heads = range(trace.model.config.n_heads) if heads is None else heads
    held = [stage for stage in stages if trace.has(layer, stage)]
    if len(held) < len(stages):
        return tuple(
            {stage: head_map(trace, layer, stage, head, max_cells) for stage in held} for head in heads
        )
    wholes = {stage: _whole(trace, layer, stage, heads.start, max_cells) for stage in stages}
    with in_turns(trace.model, len(trace.tokens)):
        for first_row, slabs in trace.stage_slabs(layer):
            for stage, slab in slabs.items():
                wholes[stage].add(slab[heads.start : heads.stop], first_row)
            progress(((first_row + slab.shape[1]) / len(trace.tokens)) ** 2)
            pause()
    return tuple({stage: whole.result(at) for stage, whole in wholes.items()} for at in range(len(heads)))


def _whole(trace: Trace, layer: int, stage: Stage, head: int, max_cells: int) -> "WholeMap[AttentionMap]":
    distribution = is_distribution(stage, trace.model.config.kernels(layer))
    empty = AttentionMap(layer, head, stage, *NO_CELLS, distribution=distribution)
    return WholeMap(empty, len(trace.tokens), max_cells)


class WholeMap(Generic[Map]):
    """A head's whole map while its rows pass by: pooled, or kept as they are where they fit `max_cells`.

    `empty` is the map without its cells. Maps of consecutive heads may pass by together.
    """

    def __init__(self, empty: Map, n_tokens: int, max_cells: int) -> None:
        block = -(-n_tokens // max_cells)
        self.empty, self._n_tokens = replace(empty, block=block), n_tokens
        self._pooler = Pooler(block, n_tokens) if block > 1 else None
        self._rows, self._facts = list[Tensor](), Facts()
        self._waiting: list[tuple[Tensor, int]] = []  # on a GPU, which takes few large parts sooner

    def add(self, values: Float[Tensor, "*head query key"], first_row: int) -> None:
        """Take the next rows, over keys 0..last row; they are pooled where they lie."""
        values, enough = values.detach().float(), WAITING_CELLS.get(values.device.type, WAITING_CELLS["cuda"])
        if enough:
            values = pad(values, (0, self._n_tokens - values.shape[-1]))
        self._waiting.append((values, first_row))
        if sum(part.numel() for part, _ in self._waiting) >= enough:
            self._take()

    def _take(self) -> None:
        if not self._waiting:
            return
        (values, first_row), *later = self._waiting
        values = torch.cat([values, *(part for part, _ in later)], dim=-2) if later else values
        self._waiting = []
        self._facts.add(values, first_row, 0)
        if self._pooler is None:
            self._rows.append(pad(values.cpu(), (0, self._n_tokens - values.shape[-1])))
        else:
            self._pooler.add(values)

    def result(self, at: int | None = None, *, row_sums: bool = True) -> Map:
        """The map of all rows, of several heads the one `at`; `row_sums`: whether they mean anything."""
        self._take()
        which, pooled = ... if at is None else at, self._whole
        if pooled is not None:
            pooled = Pooled(*(getattr(pooled, part.name)[which] for part in fields(Pooled)))
        values = torch.cat(self._rows, dim=-2)[which] if pooled is None else pooled.values
        filled = replace(self.empty, head=self.empty.head + (at or 0), values=values, pooled=pooled)
        return self._facts.on(filled, at, whole_rows=row_sums)

    @cached_property
    def _whole(self) -> Pooled | None:
        return self._pooler.result() if self._pooler else None


def shrink(attention: AttentionMap, max_cells: int) -> AttentionMap:
    """The same map in at most `max_cells` blocks a side (for thumbnails); itself when it fits."""
    factor = -(-max(attention.values.shape) // max_cells)
    if factor <= 1:
        return attention
    offset = (attention.key_start - attention.query_start) // attention.block
    pooler = Pooler(factor, attention.values.shape[1], offset)
    pooler.add(attention.values)
    block = attention.block * factor
    return replace(attention, values=pooler.result().values, block=block, pooled=None)


def shared_limit(maps: Iterable[AttentionMap], first_token: bool = False) -> float:
    """A colour limit for maps of one unit: robust, and round enough to be printed.

    The 99.5th percentile of |x| over the finite causal cells of all maps or, if that is more, the
    median of the rows' largest |x| (rows that attend to one key each would else be drawn as noise);
    rounded up to 1, 2 or 5 times a power of ten. Key 0 and query 0 are left out unless
    `first_token` (or unless nothing else is there): attention to the first token would set every
    scale. 1 if all is 0.
    """
    maps = tuple(maps)
    counted = [_counted(attention, first_token) for attention in maps]
    if not any(used.any() for _, used in counted):
        return 1.0 if first_token else shared_limit(maps, first_token=True)
    cells = np.concatenate([sizes[used] for sizes, used in counted])
    peaks = np.concatenate([np.where(used, sizes, -1.0).max(1)[used.any(1)] for sizes, used in counted])
    return round_up(max(float(np.percentile(cells, LIMIT_PERCENTILE)), float(np.median(peaks))))


def centred(position: int, n_tokens: int, size: int) -> tuple[int, int]:
    """The range of `size` tokens with this one in its middle, moved inside the prompt; the end excluded."""
    start = min(max(0, position - size // 2), max(0, n_tokens - size))
    return start, min(start + size, n_tokens)


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


def with_facts(exact: Map, *, whole_rows: bool) -> Map:
    """An exact map with what is summed over its cells; row sums only where it holds whole rows."""
    facts = Facts()
    facts.add(exact.values, exact.query_start, exact.key_start)
    return facts.on(exact, whole_rows=whole_rows)


class Facts:
    """What is summed over all exact cells while they pass by: bad ones, signs, row sums."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []  # of each slab

    def add(self, values: Float[Tensor, "*head query key"], query_start: int, key_start: int) -> None:
        """Take the next rows; cells with key > query do not count."""
        if not values.shape[-2]:
            return
        cells = values.clone()
        start, future = future_band(cells, query_start, key_start, values.shape[-1])
        cells[..., start:].masked_fill_(future, 0.0)
        n_bad, width = torch.zeros(cells.shape[:-2], device=cells.device), None
        # few maps hold such cells: a CPU takes long to look at each, a GPU to wait for the sum
        if cells.device.type != "cpu" or not bool(cells.sum().isfinite()):
            bad, width = ~cells.isfinite(), torch.float64
            n_bad, cells = bad.sum((-2, -1)), cells.masked_fill_(bad, 0.0)
        sums, total = (part.sum(-1, dtype=width).double() for part in (cells, cells.abs()))
        negative = cells.clamp_(max=0).sum(-1, dtype=width).double()
        sizes = -negative.sum(-1), total.sum(-1)
        self._parts.append(torch.stack([n_bad, *sizes, sums.amin(-1), sums.amax(-1)]))

    def on(self, attention: Map, at: int | None = None, *, whole_rows: bool) -> Map:
        """The map with these facts, of one head of several; row sums only where it holds whole rows."""
        if not self._parts:
            return attention
        parts = torch.stack(self._parts)[:, :, ... if at is None else at].double().cpu()
        n_bad, negative, total = parts[:, :3].sum(0).tolist()
        return replace(
            attention,
            n_bad=round(n_bad),
            negative_share=negative / total if total else 0.0,
            row_sums=(float(parts[:, 3].min()), float(parts[:, 4].max())) if whole_rows else None,
        )
