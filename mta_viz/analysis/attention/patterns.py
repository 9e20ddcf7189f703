"""What is gathered while a head's rows pass by, slab by slab: pattern scores, small pictures."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mta_viz.analysis.attention.changes import EMPTY_ROW
from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.pooling import Pooler
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.run.tracing import Progress, Trace, ignore, progress_within
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


class PatternSums:
    """Sums over the rows of one layer's final weights, per head: rows in float32, over rows in float64.

    `totals`: `score`, `on_size` and `chance` [target, head] of sum_S w, sum_S |w| and |S| mean w; `variance`
    of sum_S w when the keys of every row are permuted; `n_rows`: how many rows are in them. `non_empty`:
    rows with a non-empty S, per target.
    """

    def __init__(self) -> None:
        self.totals: dict[str, Tensor] = {}
        self.non_empty = [0] * len(TARGETS)

    def add(
        self, pattern: Float[Tensor, "head query key"], targets: Bool[Tensor, "target query key"]
    ) -> None:
        """Take the next rows; `targets` from `target_sets`, masked cells 0."""
        n_queries, n_keys = pattern.shape[1:]
        queries = torch.arange(n_keys - n_queries, n_keys, device=pattern.device)
        sizes, seen = pattern.abs(), queries + 1
        total, sums, squares = (cells.sum(-1).double() for cells in (sizes, pattern, sizes.square()))
        used = ~(total < EMPTY_ROW)  # a row of NaN is used, and makes the score NaN
        safe = torch.where(used, total, 1.0)
        back = (queries[:, None] - torch.arange(n_keys, device=pattern.device)).to(pattern.dtype)
        even = total.square() / torch.where(used, squares, 1.0) / seen
        self._count(used, distance=(sizes * back).sum(-1).double() / safe, even=even, rows=used)
        self._count(~used, left_out=~used)
        self._count(torch.ones_like(used), negative=(total - sums) / 2, size=total)
        mean = sums / safe / seen
        spread = squares / safe.square() / seen - mean.square()
        chosen, n_chosen = targets.to(pattern.dtype), targets.sum(-1)[:, None]
        score, on_size = (
            torch.einsum("hqk,tqk->thq", cells, chosen).double() / safe for cells in (pattern, sizes)
        )
        variance = n_chosen * (seen - n_chosen) / (seen - 1).clamp(min=1) * spread
        counted = used & (n_chosen > 0)
        self._count(counted, score=score, on_size=on_size, chance=n_chosen * mean, variance=variance)
        self._count(counted, n_rows=counted)
        self.non_empty = [n + int(s.any(-1).sum()) for n, s in zip(self.non_empty, targets, strict=True)]

    def _count(self, counted: Bool[Tensor, "*target head query"], **values: Tensor) -> None:
        """Over queries; where() so that a row left out may hold anything."""
        for name, of_rows in values.items():
            total = torch.where(counted, of_rows, 0.0).sum(-1).double()
            self.totals[name] = self.totals[name] + total if name in self.totals else total

    def results(self) -> dict[str, Float[Tensor, " head"]]:
        """By score key: a target's name, `.chance`, `.lift`, `.z`, `.positive`, `.negative`.

        NaN where no row counts; z also where no order of the keys would change anything.
        """
        totals, counted, variance = self.totals, self.totals["n_rows"], self.totals["variance"]
        score, chance, size = (totals[name] / counted for name in ("score", "chance", "on_size"))
        varies = variance > 1e-12 * counted  # less is what rounding leaves of an even row
        z = (totals["score"] - totals["chance"]) / torch.where(varies, variance, torch.nan).sqrt()
        results = {name: totals[name] / totals["rows"] for name in ("distance", "even")}
        results["negative"] = totals["negative"] / totals["size"]
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
    values = _pooled(trace, layer, stage, block, n_tokens, ignore)
    return Thumbnails(stage, (layer,), (), block, is_distribution(stage, kernels), values[None])


def all_thumbnails(
    trace: Trace, stage: Stage, cells: int = CELLS, *, progress: Progress = ignore
) -> Thumbnails:
    """All heads of all layers that have the stage; one pass a layer.

    At most `cells` x `cells` each, fewer where hundreds of heads would make too large a picture.

    `progress(share done)` is called after every slab of rows; raise `Cancelled` in it to stop.
    """
    config = trace.model.config
    most = min(cells, math.isqrt(MAX_CELLS // (config.n_layers * config.n_heads)))
    n_tokens, all_layers = len(trace.tokens), range(config.n_layers)
    block = -(-n_tokens // most)
    there = tuple(layer for layer in all_layers if stage in trace.model.blocks[layer].attn.stages)
    shares = [progress_within(progress, place / len(there), 1 / len(there)) for place in range(len(there))]
    parts = [
        _pooled(trace, layer, stage, block, n_tokens, share)
        for layer, share in zip(there, shares, strict=True)
    ]
    side = -(-n_tokens // block)
    values = torch.stack(parts) if parts else torch.zeros(0, config.n_heads, side, side)
    distribution = bool(there) and all(is_distribution(stage, config.kernels(layer)) for layer in there)
    lacking = tuple(layer for layer in all_layers if layer not in there)
    return Thumbnails(stage, there, lacking, block, distribution, values)


def _pooled(
    trace: Trace, layer: int, stage: Stage, block: int, n_tokens: int, progress: Progress
) -> Float[Tensor, "head row column"]:
    poolers = [Pooler(block, n_tokens) for _ in range(trace.model.config.n_heads)]
    for first_row, slab in trace.slabs(layer, stage, range(n_tokens)):
        for pooler, values in zip(poolers, slab.detach().cpu(), strict=True):
            pooler.add(values)
        progress(((first_row + slab.shape[1]) / n_tokens) ** 2)
    return torch.stack([pooler.result().values for pooler in poolers])
