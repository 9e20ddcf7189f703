"""Pooling of maps while their rows pass by: the largest size, sign kept, of cells with key <= query."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d, pad


@dataclass(frozen=True)
class Pooled:
    """One value per block of `block` x `block` cells, of a map or of several at once.

    `values`: the causal cell of largest |x| with its sign (a NaN wins), 0 where every cell is
    masked. `peak_query`, `peak_key`: its row and column in the unpooled map. `means`: mean over
    the block's causal cells, 0 where there are none.
    """

    values: Float[Tensor, "*head row column"]
    peak_query: Int[Tensor, "*head row column"]
    peak_key: Int[Tensor, "*head row column"]
    means: Float[Tensor, "*head row column"]


class Pooler:
    """Pools a map that arrives as row slabs, so that its T x T cells never exist at once; or several heads'.

    `n_keys` are pooled, of which the first stands `offset` after the first query. Slabs are pooled where they
    lie; nothing waits for a GPU before `result`.
    """

    def __init__(self, block: int, n_keys: int, offset: int = 0) -> None:
        self.block, self._n_keys, self._offset = block, n_keys, offset
        self._pooled: list[Pooled] = []
        self._waiting: Tensor | None = None  # rows of a block that is not complete
        self._n_pooled = 0  # rows

    def add(self, values: Float[Tensor, "*head query key"]) -> None:
        """Take the next rows; keys beyond the slab's width are taken as masked."""
        if self._waiting is not None:
            missing = values.shape[-1] - self._waiting.shape[-1]
            values = torch.cat([pad(self._waiting.to(values), (0, missing)), values], dim=-2)
        complete = values.shape[-2] - values.shape[-2] % self.block
        self._pool(values[..., :complete, :])
        self._waiting = values[..., complete:, :] if complete < values.shape[-2] else None

    def result(self) -> Pooled:
        """The pooled map of all rows, on the CPU."""
        if self._waiting is not None:
            self._pool(self._waiting)
        parts = [[getattr(part, field.name) for part in self._pooled] for field in fields(Pooled)]
        return Pooled(*(torch.cat(part, dim=-2).cpu() for part in parts))

    def _pool(self, values: Float[Tensor, "*head query key"]) -> None:
        """Pool rows that begin a block. A NaN is larger than everything, a masked cell smaller."""
        (n_rows, n_keys), block, first = values.shape[-2:], self.block, self._n_pooled
        if not n_rows:
            return
        cells = pad(values, (0, -n_keys % block, 0, -n_rows % block))  # a copy
        cells = cells.reshape(-1, *cells.shape[-2:])
        start, future = future_band(cells, first, self._offset, n_keys)
        cells[..., start:].masked_fill_(future, 0.0)
        size = cells.abs()
        size[..., start:].masked_fill_(future, -1.0)
        peak, total = peaks_and_sums(size, cells, block, apart=cells.device.type != "cpu")
        largest = cells.flatten(1).gather(1, peak.flatten(1)).view_as(peak)
        count, wide = self._counts(n_rows, peak.shape[-1], cells.device), cells.shape[-1]
        places = (peak // wide + first).int(), (peak % wide).int()
        parts = torch.where(count > 0, largest, 0.0), *places, total / count.clamp(min=1)
        missing = -(-self._n_keys // block) - peak.shape[-1]
        shape = (*values.shape[:-2], -1, peak.shape[-1] + missing)
        self._pooled.append(Pooled(*(pad(part, (0, missing)).view(shape) for part in parts)))
        self._n_pooled += n_rows

    def _counts(self, n_rows: int, columns: int, device: torch.device) -> Int[Tensor, "row column"]:
        """How many causal cells each block of the next rows has."""
        rows, keys = (torch.arange(n, device=device) for n in (n_rows, columns))
        seen = (rows + self._n_pooled - self._offset + 1).clamp(max=self._n_keys)
        of_rows = (seen[:, None] - self.block * keys).clamp(0, self.block)
        return pad(of_rows, (0, 0, 0, -n_rows % self.block)).unflatten(0, (-1, self.block)).sum(1)


Peaks = Int[Tensor, "head row column"]
Sums = Float[Tensor, "head row column"]


def peaks_and_sums(
    size: Float[Tensor, "head query key"], cells: Float[Tensor, "head query key"], block: int, *, apart: bool
) -> tuple[Peaks, Sums]:
    """Where in its map each block's largest size is, and the sum of its cells.

    `apart`: keys first, then queries. A GPU pools one block a thread, and has too few of large blocks.
    """
    side = 1 if apart else block
    rows, peak = max_pool2d(size, (side, block), return_indices=True)
    total = avg_pool2d(cells, (side, block), divisor_override=1)  # sums, not means
    if apart:
        _, among = max_pool2d(rows, (block, 1), return_indices=True)
        peak = peak.flatten(1).gather(1, among.flatten(1)).view_as(among)
        total = avg_pool2d(total, (block, 1), divisor_override=1)
    return peak, total


def future_band(
    cells: Float[Tensor, "*head query key"], first_query: int, first_key: int, n_keys: int
) -> tuple[int, Bool[Tensor, "query _key"]]:
    """The first column some row does not see; from there on, which cells are of no key that the row sees."""
    start = min(max(first_query - first_key + 1, 0), n_keys)
    queries = torch.arange(cells.shape[-2], device=cells.device)[:, None] + first_query
    keys = torch.arange(start, cells.shape[-1], device=cells.device)
    return start, (keys + first_key > queries) | (keys >= n_keys)
