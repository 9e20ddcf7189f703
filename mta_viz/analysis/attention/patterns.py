"""What is gathered while a head's rows pass by, slab by slab: pattern scores, small pictures."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mta_viz.analysis.attention.changes import EMPTY_ROW
from mta_viz.analysis.attention.maps import AttentionMap, Pooler
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.run.tracing import Progress, Trace
from mta_viz.tables import Table

TARGETS = ("previous", "duplicate", "induction", "sink", "self")


def target_sets(ids: Int[Tensor, " position"], rows: range) -> Bool[Tensor, "target query key"]:
    """S_i of every row for each of `TARGETS`, over keys 0..rows.stop-1.

    previous {i-1}; duplicate {j < i: same token}; induction {j+1 < i: j has the same token};
    sink {0} for i >= 1; self {i}.
    """
    keys = torch.arange(rows.stop, device=ids.device)
    queries = torch.arange(rows.start, rows.stop, device=ids.device)[:, None]
    earlier = keys < queries
    same = ids[: rows.stop] == ids[rows.start : rows.stop, None]
    after_same = torch.nn.functional.pad(same[:, :-1], (1, 0))
    return torch.stack(
        [keys == queries - 1, earlier & same, earlier & after_same, earlier & (keys == 0), keys == queries]
    )


@dataclass
class PatternSums:
    """Sums over the rows of one layer's final weights, per head: rows in float32, over rows in float64.

    `score`, `on_size` and `chance` [target, head]: sums of sum_S w, sum_S |w| and |S| mean w;
    `variance`: of sum_S w when the keys of every row are permuted; `counted`: rows in them.
    `non_empty`: rows with a non-empty S, per target.
    """

    n_heads: int
    device: torch.device

    def __post_init__(self) -> None:
        zeros = torch.zeros(self.n_heads, dtype=torch.float64, device=self.device)
        self.score = self.on_size = self.chance = self.variance = self.counted = zeros.expand(
            len(TARGETS), -1
        )
        self.non_empty = [0] * len(TARGETS)
        self.distance = self.even = self.rows = self.left_out = self.negative = self.size = zeros

    def add(
        self, pattern: Float[Tensor, "head query key"], targets: Bool[Tensor, "target query key"]
    ) -> None:
        """Take the next rows; `targets` from `target_sets`, masked cells 0."""
        n_queries, n_keys = pattern.shape[1:]
        queries = torch.arange(n_keys - n_queries, n_keys, device=pattern.device)
        sizes = pattern.abs()
        total, sums = sizes.sum(-1).double(), pattern.sum(-1).double()
        used = ~(total < EMPTY_ROW)  # a row of NaN is used, and makes the score NaN
        safe = torch.where(used, total, 1.0)
        back = (queries[:, None] - torch.arange(n_keys, device=pattern.device)).to(pattern.dtype)
        per_row = (sizes * back).sum(-1).double() / safe
        n_eff = total.square() / torch.where(used, sizes.square().sum(-1).double(), 1.0)
        self.non_empty = [n + int(s.any(-1).sum()) for n, s in zip(self.non_empty, targets, strict=True)]
        mean = sums / safe / (queries + 1)
        spread = sizes.square().sum(-1).double() / safe.square() / (queries + 1) - mean.square()
        self._add_targets(pattern, targets, (mean, spread), safe, used)
        self.distance = self.distance + _sum(per_row, used)
        self.even = self.even + _sum(n_eff / (queries + 1), used)
        self.rows, self.left_out = self.rows + used.sum(-1), self.left_out + (~used).sum(-1)
        self.negative, self.size = self.negative + (total - sums).sum(-1) / 2, self.size + total.sum(-1)

    def _add_targets(
        self,
        pattern: Tensor,
        targets: Tensor,
        moments: tuple[Tensor, Tensor],
        total: Float[Tensor, "head query"],
        used: Bool[Tensor, "head query"],
    ) -> None:
        """`moments` [head, query]: mean and variance of each row of w over the keys it sees."""
        (mean, spread), chosen = moments, targets.to(pattern.dtype)
        on_targets, on_size = (
            torch.einsum("hqk,tqk->thq", cells, chosen).double() / total for cells in (pattern, pattern.abs())
        )
        n_chosen, n_keys = targets.sum(-1)[:, None], pattern.shape[2] - pattern.shape[1] + 1
        seen = torch.arange(n_keys, pattern.shape[2] + 1, device=pattern.device)
        permuted = n_chosen * (seen - n_chosen) / (seen - 1).clamp(min=1) * spread
        counted = used & (n_chosen > 0)
        self.score, self.on_size = (
            self.score + _sum(on_targets, counted),
            self.on_size + _sum(on_size, counted),
        )
        self.chance = self.chance + _sum(n_chosen * mean, counted)
        self.variance = self.variance + _sum(permuted, counted)
        self.counted = self.counted + counted.sum(-1)

    def results(self) -> dict[str, Float[Tensor, " head"]]:
        """By score key: a target's name, `.chance`, `.lift`, `.z`, `.positive`, `.negative`.

        NaN where no row counts; z also where no order of the keys would change anything.
        """
        score, chance, size = (total / self.counted for total in (self.score, self.chance, self.on_size))
        varies = self.variance > 1e-12 * self.counted  # less is what rounding leaves of an even row
        z = (self.score - self.chance) / torch.where(varies, self.variance, torch.nan).sqrt()
        results = {"distance": self.distance / self.rows, "even": self.even / self.rows}
        results["negative"] = self.negative / self.size
        for row, name in enumerate(TARGETS):
            results |= {
                name: score[row],
                f"{name}.chance": chance[row],
                f"{name}.lift": score[row] - chance[row],
                f"{name}.z": z[row],
                f"{name}.positive": (size[row] + score[row]) / 2,
                f"{name}.negative": (size[row] - score[row]) / 2,
            }
        return results


def effective_keys(row: Float[Tensor, "head key"]) -> Float[Tensor, " head"]:
    """(sum |P|)^2 / sum P^2: 1 for one key, n for n even ones; NaN for a row of zeros."""
    sizes = row.double().abs()
    return sizes.sum(-1).square() / sizes.square().sum(-1)


def _sum(values: Tensor, counted: Tensor) -> Tensor:
    """Over queries; where() so that a row left out may hold anything."""
    return torch.where(counted, values, 0.0).sum(-1)


CELLS = 24  # a side
MAX_CELLS = 180_000  # of all tiles together: more make a figure of over 2 MB


@dataclass(frozen=True)
class Thumbnails:
    """Pooled maps of all heads of `layers` at one stage.

    `values` [layer, head, row, column] float32 on the CPU: the causal cell of largest |x| in a
    block of `block` x `block` cells, sign kept (a NaN wins); 0 where all are masked. Row r of
    `values` is layer `layers[r]`; those without the stage are left out and stand in `lacking`.
    """

    stage: Stage
    layers: tuple[int, ...]
    lacking: tuple[int, ...]
    block: int
    distribution: bool
    values: Float[Tensor, "layer head row column"]

    @property
    def masked(self) -> Bool[Tensor, "row column"]:
        """Blocks in which every key comes after every query."""
        return torch.ones(self.values.shape[2:], dtype=torch.bool).triu(1)

    def map(self, layer: int, head: int) -> AttentionMap:
        """One of them as a map (for colour limits, which maps share)."""
        values = self.values[self.layers.index(layer), head]
        return AttentionMap(layer, head, self.stage, values, 0, 0, self.block, self.distribution)

    def maps(self) -> list[AttentionMap]:
        """All of them."""
        return [self.map(layer, head) for layer in self.layers for head in range(self.values.shape[1])]

    def table(self) -> Table:
        """One row a block with causal cells, by its first query and key."""
        rows = (
            (layer, head, self.stage.value.hook, row * self.block, column * self.block, value)
            for layer, heads in zip(self.layers, self.values.tolist(), strict=True)
            for head, cells in enumerate(heads)
            for row, values in enumerate(cells)
            for column, value in enumerate(values[: row + 1])
        )
        return Table.of(("layer", "head", "stage", "first_query", "first_key", "largest"), rows)


def layer_thumbnails(
    trace: Trace, layer: int, stage: Stage, cells: int = CELLS, *, n_tokens: int | None = None
) -> Thumbnails:
    """All heads of a layer, at most `cells` x `cells` each, of the first `n_tokens` (None: all).

    Raises PromptError for a missing stage.
    """
    n_tokens, kernels = n_tokens or len(trace.tokens), trace.model.config.kernels(layer)
    block = -(-n_tokens // cells)
    values = _pooled(trace, layer, stage, block, n_tokens, None)
    return Thumbnails(stage, (layer,), (), block, is_distribution(stage, kernels), values[None])


def all_thumbnails(
    trace: Trace, stage: Stage, cells: int = CELLS, *, progress: Progress | None = None
) -> Thumbnails:
    """All heads of all layers that have the stage; one pass a layer.

    At most `cells` x `cells` each, fewer where hundreds of heads would make too large a picture.

    `progress(share done)` is called after every slab of rows; raise `Cancelled` in it to stop.
    """
    config = trace.model.config
    block = _block(trace, min(cells, math.isqrt(MAX_CELLS // (config.n_layers * config.n_heads))))
    all_layers = range(config.n_layers)
    there = tuple(layer for layer in all_layers if stage in trace.model.blocks[layer].attn.stages)

    def pooled(place: int, layer: int) -> Tensor:
        share_done = None if progress is None else lambda share: progress((place + share) / len(there))
        return _pooled(trace, layer, stage, block, len(trace.tokens), share_done)

    parts = [pooled(place, layer) for place, layer in enumerate(there)]
    side = -(-len(trace.tokens) // block)
    values = torch.stack(parts) if parts else torch.zeros(0, config.n_heads, side, side)
    distribution = bool(there) and all(is_distribution(stage, config.kernels(layer)) for layer in there)
    lacking = tuple(layer for layer in all_layers if layer not in there)
    return Thumbnails(stage, there, lacking, block, distribution, values)


def _block(trace: Trace, cells: int) -> int:
    return -(-len(trace.tokens) // cells)


def _pooled(
    trace: Trace, layer: int, stage: Stage, block: int, n_tokens: int, progress: Progress | None
) -> Float[Tensor, "head row column"]:
    poolers = [Pooler(block, n_tokens) for _ in range(trace.model.config.n_heads)]
    for first_row, slab in trace.slabs(layer, stage, range(n_tokens)):
        for pooler, values in zip(poolers, slab.detach().cpu(), strict=True):
            pooler.add(values)
        if progress:
            progress(((first_row + slab.shape[1]) / n_tokens) ** 2)
    return torch.stack([pooler.result().values for pooler in poolers])
