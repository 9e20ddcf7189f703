"""Pooling of attention maps by largest size, sign kept. Only causal cells (key <= query) count.

Owns the arithmetic on plain tensors; which maps are pooled, and when, is decided in `maps.py`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


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
