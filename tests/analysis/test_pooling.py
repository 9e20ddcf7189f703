"""Pooling against a cell-by-cell search, and the facts a pooled map must keep."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.analysis.attention.pooling import Pooled, Pooler, peaks_and_sums


def pool(values: torch.Tensor, block: int, slab: int = 3) -> Pooled:
    """Rows in slabs, each only as wide as its last query sees, as a trace gives them."""
    pooler = Pooler(block, values.shape[1])
    for start in range(0, len(values), slab):
        stop = min(start + slab, len(values))
        pooler.add(values[start:stop, :stop])
    return pooler.result()


def causal_cells(values: torch.Tensor, block: int, row: int, column: int) -> list[tuple[float, int, int]]:
    return [
        (float(values[i, j]), i, j)
        for i in range(row * block, min((row + 1) * block, len(values)))
        for j in range(column * block, min((column + 1) * block, len(values)))
        if j <= i
    ]


@settings(max_examples=60)
@given(st.integers(1, 13), st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
def test_pooling_equals_a_search_of_every_block(n_tokens: int, block: int, slab: int, seed: int) -> None:
    values = torch.randn(n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed))
    # Masked cells hold something huge: they must never win.
    values = torch.where(torch.ones(n_tokens, n_tokens).tril() > 0, values, 1e6)
    pooled = pool(values, block, slab)
    side = math.ceil(n_tokens / block)
    assert pooled.values.shape == (side, side)
    for row in range(side):
        for column in range(side):
            cells = causal_cells(values, block, row, column)
            if not cells:
                assert pooled.values[row, column] == 0 and pooled.means[row, column] == 0
                continue
            value, i, j = max(cells, key=lambda cell: abs(cell[0]))
            assert float(pooled.values[row, column]) == value
            assert (int(pooled.peak_query[row, column]), int(pooled.peak_key[row, column])) == (i, j)
            mean = sum(cell[0] for cell in cells) / len(cells)
            assert float(pooled.means[row, column]) == pytest.approx(mean, abs=1e-5)


def test_the_sign_of_the_largest_size_is_kept() -> None:
    values = torch.tensor([[1.0, 0.0], [-3.0, 2.0]])
    assert pool(values, 2).values.tolist() == [[-3.0]]


def test_a_nan_is_not_pooled_away() -> None:
    values = torch.tensor([[1.0, 0.0], [float("nan"), 2.0]])
    assert pool(values, 2).values.isnan().all()


def test_a_block_of_zeros_points_at_a_causal_cell() -> None:
    pooled = pool(torch.zeros(4, 4), 2)
    assert (pooled.peak_key <= pooled.peak_query)[~torch.tensor([[False, True], [False, False]])].all()


def test_crops_are_causal_in_positions_not_in_indices() -> None:
    pooler = Pooler(2, 2, offset=1)
    pooler.add(torch.tensor([[9.0, 9.0], [1.0, 9.0]]))
    assert pooler.result().values.tolist() == [[1.0]]


def test_keys_then_queries_give_the_places_and_sums_of_whole_blocks():
    cells = torch.randn(2, 35, 42, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    cells[0, 3, 5], cells[0, 4, 2], cells[1, 20, 9] = torch.nan, torch.nan, torch.inf
    (peak, total), (want, sums) = (
        peaks_and_sums(cells.abs(), cells, 7, apart=apart) for apart in (True, False)
    )
    assert torch.equal(peak, want)
    torch.testing.assert_close(total, sums, equal_nan=True, rtol=1e-5, atol=1e-5)
