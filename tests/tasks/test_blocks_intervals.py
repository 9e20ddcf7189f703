"""The Wilson interval against its definition."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.tasks.intervals import Z_95, wilson_interval


def test_published_example() -> None:
    low, high = wilson_interval(10, 20)  # symmetric about one half: 0.5 -+ 0.2007
    assert (round(low, 4), round(high, 4)) == (0.2993, 0.7007)


def test_no_hits_still_leaves_a_chance() -> None:
    low, high = wilson_interval(0, 1000)
    assert low == 0.0
    assert high == pytest.approx(Z_95**2 / (1000 + Z_95**2))


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_ends_solve_the_score_equation(case: tuple[int, int]) -> None:
    hits, n = case
    share = hits / n
    for end in wilson_interval(hits, n):
        deviation = Z_95 * math.sqrt(end * (1 - end) / n)
        assert abs(share - end) == pytest.approx(deviation, abs=1e-6)


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (-1, 4), (5, 4)])
def test_impossible_counts_are_refused(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="hits of"):
        wilson_interval(hits, n)
