"""Intervals against their definitions: Wilson, paired changes, bootstrap."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.tasks.intervals import Z_95, bootstrap_interval, paired_change_interval, wilson_interval


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
    with pytest.raises(ValueError, match="must"):
        wilson_interval(hits, n)


def pairs(both: int, lost: int, gained: int, neither: int) -> tuple[list[bool], list[bool]]:
    """Verdicts before and after, by how often each pair comes."""
    before = [True] * (both + lost) + [False] * (gained + neither)
    return before, [True] * both + [False] * lost + [True] * gained + [False] * neither


def test_a_paired_change_without_correlation_joins_both_wilson_intervals() -> None:
    low, high = paired_change_interval(*pairs(5, 5, 5, 5))  # phi = 0, both shares 1/2 of 20
    reach = math.hypot(0.5 - 0.2993, 0.7007 - 0.5)
    assert (low, high) == (pytest.approx(-reach, abs=2e-4), pytest.approx(reach, abs=2e-4))


def test_pairing_narrows_the_interval() -> None:
    low, high = paired_change_interval(*pairs(50, 0, 0, 50))
    loose, wide = paired_change_interval(*pairs(25, 25, 25, 25))
    assert high - low < (wide - loose) / 4


def test_agreement_on_every_sample_is_no_certainty() -> None:
    low, high = paired_change_interval(*pairs(120, 0, 0, 0))
    assert (low, high) == (pytest.approx(-(1 - wilson_interval(120, 120)[0])), pytest.approx(0.031, abs=1e-3))


@given(st.tuples(*[st.integers(0, 40)] * 4).filter(lambda counts: sum(counts) > 0))
def test_a_paired_change_holds_its_estimate_and_turns_with_the_sides(counts: tuple[int, ...]) -> None:
    before, after = pairs(*counts)
    low, high = paired_change_interval(before, after)
    change = (sum(after) - sum(before)) / len(before)
    assert -1 <= low <= change + 1e-12 and change - 1e-12 <= high <= 1
    assert paired_change_interval(after, before) == (pytest.approx(-high), pytest.approx(-low))


def test_the_paired_interval_covers() -> None:
    rng = random.Random(0)
    held = 0
    for _ in range(400):  # true shares 0.9 before, 0.9 * 0.8 + 0.1 * 0.3 = 0.75 after
        before = [rng.random() < 0.9 for _ in range(60)]
        after = [rng.random() < (0.8 if right else 0.3) for right in before]
        low, high = paired_change_interval(before, after)
        held += low <= -0.15 <= high
    assert 0.92 <= held / 400 <= 0.99


def test_the_bootstrap_interval_is_repeatable_and_near_the_normal_one() -> None:
    values = [random.Random(seed).gauss(2, 1) for seed in range(200)]
    low, high = bootstrap_interval(values)
    assert bootstrap_interval(values) == (low, high)
    mean, half = statistics.fmean(values), Z_95 * statistics.stdev(values) / math.sqrt(len(values))
    assert (low, high) == (pytest.approx(mean - half, abs=0.015), pytest.approx(mean + half, abs=0.015))
    assert bootstrap_interval([3.0]) == (3.0, 3.0)


def test_nothing_measured_has_no_interval() -> None:
    with pytest.raises(ValueError, match="not less than 1"):
        paired_change_interval([], [])
    with pytest.raises(ValueError, match="at least"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="zip"):
        paired_change_interval([True], [])
