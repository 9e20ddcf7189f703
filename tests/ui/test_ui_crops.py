"""Crops of long maps and the search for tokens."""

from hypothesis import given
from hypothesis import strategies as some

from mta_viz.ui.shell.pickers import AROUND_SIZE, CROP_SIZE, Crop, around, from_box

N = some.integers(1, 3000)


@given(N, some.data())
def test_a_crop_around_a_cell_holds_it_and_fits(n, data):
    query, key = (data.draw(some.integers(0, n - 1)) for _ in range(2))
    crop = around(query, key, n)
    assert crop.holds(query, key)
    for start, stop in (crop.queries, crop.keys):
        assert 0 <= start < stop <= n and stop - start == min(n, AROUND_SIZE)


@given(N, *[some.floats(-100, 4000)] * 4)
def test_a_crop_of_a_box_is_never_empty_nor_outside(n, a, b, c, d):
    crop = from_box((a, b), (c, d), n)
    for start, stop in (crop.queries, crop.keys):
        assert 0 <= start < stop <= n and stop - start <= CROP_SIZE


def test_a_small_box_is_taken_as_it_is():
    assert from_box((20.2, 9.8), (0.0, 4.0), 600) == Crop((10, 21), (0, 5))
