"""Spans worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.tokenizers.base import spans_of_bytes, spans_of_offsets


def test_a_split_character_belongs_to_its_last_byte() -> None:
    # "a日b": a | first byte of 日 | last two bytes of 日 and b
    assert spans_of_bytes([1, 1, 3], "a日b".encode()) == ((0, 1), (1, 1), (1, 3))


@pytest.mark.parametrize(
    ("offsets", "length", "spans"),
    [
        ([(0, 3), (4, 7)], 7, ((0, 3), (3, 7))),  # a gap goes to the token after it
        ([(0, 3)], 5, ((0, 5),)),  # at the end to the last one
        ([(2, 3), (3, 5)], 5, ((0, 3), (3, 5))),  # at the beginning to the first one
        ([(0, 1), (0, 1), (0, 1), (1, 2)], 2, ((0, 0), (0, 0), (0, 1), (1, 2))),  # split character
        ([(0, 1), (0, 2), (1, 2)], 2, ((0, 0), (0, 1), (1, 2))),  # ends of two characters overlap
        ([], 3, ()),
    ],
)
def test_offsets_become_a_partition(
    offsets: list[tuple[int, int]], length: int, spans: tuple[tuple[int, int], ...]
) -> None:
    assert spans_of_offsets(offsets, length) == spans


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1), st.just(20))
def test_any_offsets_become_a_partition(offsets: list[tuple[int, int]], length: int) -> None:
    spans = spans_of_offsets(offsets, length)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][:-1]
    assert spans[-1][1] == length
    assert all(start <= end for start, end in spans)
