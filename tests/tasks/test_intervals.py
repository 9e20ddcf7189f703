"""Intervals against their definitions, and how often they cover: of accuracies, bounded means, medians."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from mta_viz.tasks.intervals import (
    accuracy_interval,
    level_text,
    mean_interval,
    mean_words,
    median_interval,
    median_rank,
    median_words,
    paired_change_interval,
    widest_half,
)

LEAST = 0.93  # of cases, at nominal 0.95
SIZES = (1, 2, 5, 6, 10, 20, 50, 120)  # samples the app offers


def test_no_hits_still_leaves_a_chance() -> None:
    low, high = accuracy_interval(0, 1000)
    assert low == 0.0 and high == pytest.approx(1 - 0.025 ** (1 / 1000))


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_each_end_of_an_accuracy_leaves_a_fortieth(case: tuple[int, int]) -> None:
    hits, n = case
    low, high = accuracy_interval(hits, n)
    assert hits == 0 or binom.sf(hits - 1, n, low) == pytest.approx(0.025, rel=1e-6)
    assert hits == n or binom.cdf(hits, n, high) == pytest.approx(0.025, rel=1e-6)
    assert low <= hits / n <= high
    assert widest_half(n) >= (high - low) / 2 - 1e-9


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (-1, 4), (5, 4)])
def test_impossible_counts_are_refused(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="must"):
        accuracy_interval(hits, n)


@pytest.mark.parametrize("n", SIZES)
def test_an_accuracy_is_covered_whatever_it_is(n: int) -> None:
    shares = np.linspace(0.0005, 0.9995, 1999)
    ends = np.array([accuracy_interval(hits, n) for hits in range(n + 1)])
    held = (ends[:, :1] <= shares) & (shares <= ends[:, 1:])
    chances = binom.pmf(np.arange(n + 1)[:, None], n, shares)
    assert (chances * held).sum(0).min() >= 0.95 - 1e-9  # exact, no simulation


def test_the_mean_of_zeros_and_ones_has_the_interval_of_an_accuracy() -> None:
    for hits, n in ((0, 5), (1, 5), (7, 20), (119, 120), (60, 120)):
        found = [float(end) for end in mean_interval([1.0] * hits + [0.0] * (n - hits), (0.0, 1.0))]
        assert found == pytest.approx(accuracy_interval(hits, n), abs=0.01)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_a_bounded_mean_lies_in_its_interval_within_its_bounds_and_turns_with_the_sign(values) -> None:
    low, high = mean_interval(values, (-1.0, 1.0))
    assert -1 <= low <= np.mean(values) + 1e-9 and np.mean(values) - 1e-9 <= high <= 1
    assert mean_interval([-value for value in values], (-1.0, 1.0)) == (-high, -low)
    assert mean_interval(values[::-1], (-1.0, 1.0)) == (low, high)
    wide = mean_interval(values, (-2.0, 2.0))
    assert wide[0] <= low and high <= wide[1]


def test_every_cell_has_the_interval_it_has_alone() -> None:
    values = np.random.default_rng(0).random((7, 2, 3))
    values[3, 1, 2] = np.nan
    low, high = mean_interval(values, (0.0, 1.0))
    alone = mean_interval(values[:, 0, 1], (0.0, 1.0))
    assert (low[0, 1], high[0, 1]) == pytest.approx([float(end) for end in alone])
    assert np.isnan([low[1, 2], high[1, 2]]).all() and np.isnan(low).sum() == 1
    median = median_interval(values)
    assert float(median.low[0, 1]) == float(median_interval(values[:, 0, 1]).low)
    assert np.isnan([median.value[1, 2], median.low[1, 2], median.high[1, 2]]).all()


@pytest.mark.parametrize(
    ("n", "below", "level"),
    [(2, 0, 0.5), (5, 0, 0.9375), (6, 0, 0.96875), (10, 1, 0.978515625), (20, 5, 0.95861053)],
)
def test_the_ends_of_a_median_are_samples_in_order(n: int, below: int, level: float) -> None:
    found = median_interval(np.random.default_rng(n).permutation(n))
    assert (found.low, found.high) == (below, n - 1 - below) and found.value == (n - 1) / 2
    assert found.level == pytest.approx(level) and median_rank(n) == (below, found.level)


def test_words_say_what_stands_beside_a_number() -> None:
    assert (level_text(0.96875), level_text(0.9375), level_text(0.5)) == ("95 %", "93.7 %", "50 %")
    assert median_words(20) == "Ends beside a median: its 95 % interval over 20 samples."
    assert "range of the 5 samples, a 93.7 % interval" in median_words(5)
    assert median_words(1) == "One sample has no interval."
    assert "no interval" in mean_words(None) and "within -1 to 1" in mean_words((-1.0, 1.0))


def pairs(both: int, lost: int, gained: int, neither: int) -> tuple[list[bool], list[bool]]:
    """Verdicts before and after, by how often each pair comes."""
    before = [True] * (both + lost) + [False] * (gained + neither)
    return before, [True] * both + [False] * lost + [True] * gained + [False] * neither


def test_agreement_on_every_sample_is_no_certainty() -> None:
    low, high = paired_change_interval(*pairs(120, 0, 0, 0))
    assert high == pytest.approx(1 - 0.025 ** (1 / 120), abs=0.002) and low == -high


@given(st.tuples(*[st.integers(0, 40)] * 4).filter(lambda counts: sum(counts) > 0))
def test_a_paired_change_holds_its_estimate_and_turns_with_the_sides(counts: tuple[int, ...]) -> None:
    before, after = pairs(*counts)
    low, high = paired_change_interval(before, after)
    change = (sum(after) - sum(before)) / len(before)
    assert -1 <= low <= change + 1e-12 and change - 1e-12 <= high <= 1
    assert paired_change_interval(after, before) == (pytest.approx(-high), pytest.approx(-low))


def test_nothing_measured_has_no_interval() -> None:
    for call in (lambda: paired_change_interval([], []), lambda: mean_interval([], (0.0, 1.0))):
        with pytest.raises(ValueError, match="at least"):
            call()
    with pytest.raises(ValueError, match="at least"):
        median_interval([])
    with pytest.raises(ValueError, match="zip"):
        paired_change_interval([True], [])
    with pytest.raises(ValueError, match="outside 0 to 1"):
        mean_interval([0.5, 1.5], (0.0, 1.0))


def either(rng, shape, low, high, chance):
    """`low` with `chance`, else `high`."""
    return np.where(rng.random(shape) < chance, low, high)


# By name: what draws samples, the true mean, the bounds.
BOUNDED = {
    "one half or the other": (lambda rng, shape: either(rng, shape, 0, 1, 0.5), 0.5, (0.0, 1.0)),
    "wrong in 2 %": (lambda rng, shape: either(rng, shape, 0, 1, 0.02), 0.98, (0.0, 1.0)),
    "right in 10 %": (lambda rng, shape: either(rng, shape, 1, 0, 0.1), 0.1, (0.0, 1.0)),
    "uniform": (lambda rng, shape: rng.random(shape), 0.5, (0.0, 1.0)),
    "beta .5 .5": (lambda rng, shape: rng.beta(0.5, 0.5, shape), 0.5, (0.0, 1.0)),
    "beta .1 .9": (lambda rng, shape: rng.beta(0.1, 0.9, shape), 0.1, (0.0, 1.0)),
    "beta 8 1": (lambda rng, shape: rng.beta(8, 1, shape), 8 / 9, (0.0, 1.0)),
    "beta 2 60": (lambda rng, shape: rng.beta(2, 60, shape), 2 / 62, (0.0, 1.0)),
    "always .3": (lambda rng, shape: np.full(shape, 0.3), 0.3, (0.0, 1.0)),
    ".9, in 5 % 0": (lambda rng, shape: either(rng, shape, 0, 0.9, 0.05), 0.855, (0.0, 1.0)),
    "-.02, in 5 % -1": (lambda rng, shape: either(rng, shape, -1, -0.02, 0.05), -0.069, (-1.0, 1.0)),
    "about .3, in 5 % -1.7": (
        lambda rng, shape: either(rng, shape, -1.7, 0.2 + 0.2 * rng.random(shape), 0.05),
        0.2,
        (-2.0, 2.0),
    ),
}
# By name: what draws samples, the true median.
UNBOUNDED = {
    "normal": (lambda rng, shape: rng.normal(1, 2, shape), 1.0),
    "lognormal": (lambda rng, shape: rng.lognormal(0, 1, shape), 1.0),
    "a drop of 5 nats in 5 %": (
        lambda rng, shape: rng.normal(0, 0.1, shape) - 5 * (rng.random(shape) < 0.05),
        None,
    ),
    "Cauchy": (lambda rng, shape: rng.standard_cauchy(shape), 0.0),
    "0, in 5 % -5": (lambda rng, shape: either(rng, shape, -5, 0, 0.05), 0.0),
}
# Chances of right then wrong, wrong then right, of all samples.
PAIRED = [
    (0.02, 0),
    (0.1, 0),
    (0.3, 0),
    (0.5, 0),
    (0.9, 0),
    (0.05, 0.05),
    (0.3, 0.1),
    (0.45, 0.45),
    (0.6, 0.4),
]


def drop_median() -> float:
    """Of 5 % of cases five below: the 0.5 / 0.95 quantile from above of the rest."""
    from scipy.stats import norm

    return 0.1 * float(norm.ppf(1 - 0.5 / 0.95))


def coverage(repeats: int, n: int, rng: np.random.Generator) -> Iterator[tuple[str, str, np.ndarray]]:
    """The kind of interval, the law of the samples, and whether each of `repeats` cases was covered."""
    for law, (draw, mean, bounds) in BOUNDED.items():
        low, high = mean_interval(draw(rng, (n, repeats)), bounds)
        yield "mean", law, (low <= mean + 1e-9) & (mean - 1e-9 <= high)
    for law, (draw, median) in UNBOUNDED.items():
        found, true = median_interval(draw(rng, (n, repeats))), drop_median() if median is None else median
        yield "median", law, (found.low <= true) & (true <= found.high)
    for lost, gained in PAIRED:
        drawn = rng.random((n, repeats))
        change = np.where(drawn < lost, -1, np.where(drawn > 1 - gained, 1, 0))
        low, high = mean_interval(change, (-1.0, 1.0))
        yield "paired", f"-{lost} +{gained}", (low <= gained - lost + 1e-9) & (gained - lost - 1e-9 <= high)


def check_coverage(rounds: int, sizes: tuple[int, ...], repeats: int = 500) -> None:
    """Below 6 samples a median's interval says its own level, which it has to reach."""
    rng, short = np.random.default_rng(1), []
    for n in sizes:
        held: dict[tuple[str, str], list[np.ndarray]] = {}
        for _ in range(rounds):
            for kind, law, covered in coverage(repeats, n, rng):
                held.setdefault((kind, law), []).append(covered)
        for (kind, law), covered in held.items():
            share, total = float(np.mean(covered)), rounds * repeats
            least = median_rank(n)[1] if kind == "median" and n < 6 else LEAST
            print(f"{kind:7} {law:24} n {n:4}  {share:.3f}")
            chance = 3 * math.sqrt(least * (1 - least) / total)
            short += [(kind, law, n, share)] if share < least - chance else []
    assert not short


def test_every_interval_covers() -> None:
    check_coverage(1, (5, 20))


@pytest.mark.slow
def test_every_interval_covers_at_every_number_of_samples() -> None:
    check_coverage(6, SIZES)
