"""Names of kernels: planted shapes are recognised, noise is not named.

Recognised (the right name, 1,000 kernels each, own tap's sign) by the height of the taps in standard
deviations of the noise, as `measured_rates.json` has it; whenever a template named one of these kernels, the
name was right in 96 % or more:

| size          | shape         | 2 sd | 3 sd | 5 sd |
|---------------|---------------|------|------|------|
| 6 x 11        | diagonal      | 0.67 | 0.99 | 1.00 |
|               | induction     | 0.66 | 0.99 | 1.00 |
|               | anti-diagonal | 0.66 | 0.99 | 1.00 |
|               | priming       | 0.62 | 0.94 | 1.00 |
|               | smoothing 3x3 | 0.93 | 1.00 | 1.00 |
| 4 x 9         | diagonal      | 0.19 | 0.63 | 0.97 |
|               | induction     | 0.41 | 0.89 | 1.00 |
|               | priming       | 0.19 | 0.66 | 0.97 |
| 8 x 13        | diagonal      | 0.83 | 1.00 | 1.00 |
|               | priming       | 0.86 | 0.99 | 1.00 |
| 2 x 9         | smoothing 3x3 | 0.54 | 0.95 | 1.00 |
| 6 x 11 left   | diagonal      | 0.67 | 0.99 | 1.00 |
| 6 x 11 right  | anti-diagonal | 0.66 | 0.99 | 1.00 |

All templates share one threshold. Another division of the level was tried (6 x 11, taps of 2 sd, 1,000
kernels): nine tenths for the templates of the paper, the rest for diagonals at other offsets. That names 0.73
of the diagonals, 0.73 of induction and 0.69 of priming, but 0.57 instead of 0.77 of diagonals at +1, the most
frequent template of trained kernels besides those of the paper; with +1 among the nine tenths 0.72, 0.71,
0.68 and 0.82, and 0.28 instead of 0.50 at -2. At the same size in noise, kernels with the envelope of
needle-mta then get 9.6 template names instead of 7.9, for 20 found instead of 19 (p .0011 instead of .00025),
of which 10 survive as before: what is won in white noise is lost against kernels like trained ones.

A template of two taps is at the edge of what can be tested: the 1 x 3 box is found in 0.55 at 5 sd of
6 x 11 and 4 x 9, and it and induction never in 2 x 9 (two taps of 17 fall on such a pair in 1 of 136 orders).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_cases import SIZES, drawing, kernel, largest_p, offsets, planted, row

from mta_viz.analysis.kernels.measures import cannot_show, template_scores
from mta_viz.analysis.kernels.naming import (
    UNNAMED,
    KernelShape,
    at_least,
    benjamini_hochberg,
    dominant_threshold,
    name_kernels,
    size_threshold,
)

AT = offsets(6, 11)
THRESHOLDS = [0.43, 0.55, 0.7, 0.34, 0.42, 0.42]
OPPOSED = {"priming": "inhibition of return", "smoothing": "sharpening"}


def name_kernel(kernel: np.ndarray, at) -> KernelShape:
    return name_kernels(kernel[None], at)[0]


def names(kernels: np.ndarray, at) -> list[str]:
    return [found.shape for found in name_kernels(kernels, at)]


def share_named(kernels: np.ndarray, at) -> float:
    return np.mean([name not in UNNAMED for name in names(kernels, at)])


@pytest.mark.parametrize(("size", "value"), list(zip(SIZES, THRESHOLDS, strict=True)))
def test_size_thresholds_are_those_of_whole_gaussian_kernels(size, value):
    at = offsets(*size)
    assert size_threshold(at) == pytest.approx(value, abs=0.008)
    kernels = np.random.default_rng(8).standard_normal((20_000, *size[:2]))
    largest = np.abs(template_scores(kernels, at)).max(-1)
    assert np.mean(largest >= size_threshold(at)) == pytest.approx(0.005, abs=0.0015)


def test_a_dominant_tap_needs_more_where_taps_are_few():
    assert dominant_threshold(AT) == 0.5
    assert dominant_threshold(offsets(2, 9)) == pytest.approx(0.65, abs=0.01)
    assert dominant_threshold(offsets(1, 2)) == np.inf


@pytest.mark.parametrize("scale", [1, -1, 1e-6, 1e30, 1e-200])
def test_exact_kernels_get_their_names(scale):
    exact = {
        "near identity": row(AT, own=1),
        "diagonal": drawing("diagonal", AT) + row(AT, own=1),
        "negative diagonal": row(AT, own=1) - drawing("diagonal", AT),
        "induction": drawing("induction", AT) + row(AT, own=1),
        "inhibition of return": row(AT, own=2) - drawing("priming", AT),
        "edge-first": row(AT, before=-1, own=1),
        "edge-last": row(AT, own=1, after=-1),
        "sharpening": row(AT, before=-1, own=2, after=-1),
        "KV shift": row(AT, before=0.9, own=1),
        "key shift": row(AT, after2=0.9, own=1),
        "single tap": kernel(AT, {(0, 0): 1.0, (3, -2): 0.7}),
        "all zero": np.zeros((6, 11)),
    }
    found = names(np.stack(list(exact.values())) * scale, AT)
    assert found == list(exact)
    run_start = row(AT, before=-4, own=1, after=1, after2=1, after3=1)
    assert name_kernel(run_start * scale, AT).shape == "edge-first"


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_broken_kernel_is_named_as_such_and_harms_no_other(broken):
    good = drawing("diagonal", AT) + row(AT, own=1)
    bad = good.copy()
    bad[2, 3] = broken
    found, alone, beside = name_kernels(np.stack([bad, good, good]), AT)
    assert (found.shape, found.verdict) == ("not finite", "not finite")
    assert alone.verdict == beside.verdict == "diagonal +1.00, p 0.001"
    assert all(np.isnan(score) for score in found.scores.values())


def test_a_name_of_less_than_two_percent_is_faint():
    diagonal = drawing("diagonal", AT)  # five taps: energy off = 5 x^2 / (1 + 5 x^2)
    faint = name_kernel(row(AT, own=1) + 0.06 * diagonal, AT)
    assert faint.shape == "diagonal" and faint.faint
    assert faint.verdict == "near identity (faint diagonal +1.00, p 0.001)"
    clear = name_kernel(row(AT, own=1) + 0.07 * diagonal, AT)
    assert clear.shape == "diagonal" and not clear.faint and clear.verdict == "diagonal +1.00, p 0.001"


def test_verdicts_say_what_a_single_tap_is():
    assert name_kernel(row(AT, before=0.9, own=1), AT).verdict == "KV shift -1, same sign, 0.9 of own tap"
    half = name_kernel(row(AT, after2=-0.5, own=1), AT)
    assert half.verdict == "key shift +2, opposite sign, 0.5 of own tap"
    assert name_kernel(row(AT, before=1), AT).verdict == "key shift -1, no own tap"
    assert name_kernel(row(AT, before=-1, own=1), AT).verdict == "edge-first +0.91 (?)"


def test_one_big_tap_is_no_diagonal():
    taps = kernel(AT, {(0, 0): 1.0, (1, -1): 3.0, (2, -2): 0.2, (3, -3): 0.2, (4, -4): 0.2})
    assert name_kernel(taps, AT).shape == "single tap"
    mixed = kernel(AT, {(0, 0): 1.0, **{(n, -n): 1.0 for n in (1, 2, 3)}, (4, -4): -0.1, (5, -5): -0.1})
    assert name_kernel(mixed, AT).shape == "none of these"  # three of five taps have the sign


PLANTED = [
    ("diagonal", (6, 11, "both"), 0.55),
    ("induction", (6, 11, "both"), 0.6),
    ("anti-diagonal", (6, 11, "both"), 0.6),
    ("priming", (6, 11, "both"), 0.5),
    ("smoothing 3x3", (6, 11, "both"), 0.9),
    ("smoothing c_q x 5", (6, 11, "both"), 0.97),
    ("diagonal", (4, 9, "both"), 0.15),
    ("induction", (4, 9, "both"), 0.4),
    ("priming", (4, 9, "both"), 0.15),
    ("diagonal", (8, 13, "both"), 0.8),
    ("priming", (8, 13, "both"), 0.85),
    ("smoothing 3x3", (2, 9, "both"), 0.45),
    ("diagonal", (6, 11, "left"), 0.6),
    ("induction", (6, 11, "left"), 0.75),
    ("priming", (6, 11, "left"), 0.6),
    ("anti-diagonal", (6, 11, "right"), 0.6),
    ("priming", (6, 11, "right"), 0.6),
]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("shape", "size", "at_two_sd"), PLANTED)
def test_planted_shapes_are_recognised(shape, size, at_two_sd, sign):
    at, plain = offsets(*size), shape.split()[0]
    expected = plain if sign > 0 else OPPOSED.get(plain, f"negative {plain}")
    for sd, lowest in ((2, at_two_sd), (5, 0.95)):
        found = name_kernels(planted(shape, at, sd=sd, sign=sign), at)
        right = [one.shape == expected for one in found]
        by_template = [one.shape for one in found if one.evidence == "template"]
        assert np.mean(right) >= lowest
        assert np.mean([name == expected for name in by_template]) >= 0.9


def test_a_planted_edge_is_found_when_clear():
    """A difference against the previous key, in noise: seen in 0.4 at 3 sd, in all at 20."""
    noise = np.random.default_rng(0).standard_normal((200, 6, 11))
    shares = [
        np.mean([name == "edge-first" for name in names(noise + sd * row(AT, before=-1, own=1), AT)])
        for sd in (3, 20)
    ]
    assert shares[1] > 0.95 and shares[0] > 0.2


@pytest.mark.parametrize("size", SIZES)
def test_noise_is_not_named(size):
    """At most 1 % of random kernels, and of identity with 5 % noise, get any name: 10,000 of 6 x 11."""
    at, count = offsets(*size), 10_000 if size == (6, 11, "both") else 1000
    noise = np.random.default_rng(3).standard_normal((count, *size[:2]))
    assert share_named(noise, at) <= 0.01
    identity = 0.05 * noise
    identity[(slice(None), *at.own)] += 1
    assert share_named(identity, at) <= 0.01


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 2), (2, 3), (3, 3), (5, 1)])
def test_small_kernels_are_not_named_by_chance(size):
    at = offsets(*size, "left")
    noise = np.random.default_rng(4).standard_normal((2000, *size))
    assert share_named(noise, at) <= 0.012


@settings(max_examples=30)
@given(
    scale=st.floats(1e-9, 1e9),
    sign=st.sampled_from([-1, 1]),
    shape=st.sampled_from(["diagonal", "induction", "priming", "smoothing 3x3", "anti-diagonal"]),
    size=st.sampled_from([(6, 11, "both"), (4, 9, "both")]),
    seed=st.integers(0, 20),
)
def test_names_know_no_scale(scale, sign, shape, size, seed):
    at = offsets(*size)
    kernels = planted(shape, at, sd=4, count=4, seed=seed)
    assert names(kernels * scale * sign, at) == names(kernels, at)


def test_permutation_p_counts_orders_at_least_as_good():
    """Two taps in the 1 x 3 box of 4 x 9: 595 pairs of places, of which one reaches rho = 1."""
    at = offsets(4, 9)
    pair = row(at, before=1, after=1)[None]
    p = largest_p(pair, at)[0]
    assert p == pytest.approx(1 / 595, abs=0.004)
    assert largest_p(pair * 1e-6, at)[0] == p
    single = row(at, before=1)[None]  # as good at 2 of 35 places: orders as good as the kernel's count
    assert largest_p(single, at)[0] == pytest.approx(2 / 35, abs=0.03)
    uniform = largest_p(np.random.default_rng(1).laplace(size=(1000, 4, 9)), at)
    assert np.mean(uniform <= 0.05) == pytest.approx(0.05, abs=0.02)  # exact for heavy tails too


def test_many_tests_and_rare_events():
    p = np.array([0.001, 0.2, 0.012, 0.03, 0.9])
    assert benjamini_hochberg(p).tolist() == [True, False, True, True, False]
    assert not benjamini_hochberg(np.full(4, 0.9)).any() and len(benjamini_hochberg(np.empty(0))) == 0
    assert at_least(1, [0.5, 0.5]) == pytest.approx(0.75)
    assert at_least(2, [0.5, 0.1]) == pytest.approx(0.05)
    assert at_least(0, []) == 1


def test_a_large_score_that_chance_reaches_is_no_template_name():
    at = offsets(2, 9)
    found = name_kernel(row(at, before=-1, own=2, after=-1), at)  # 1 of 136 places of two taps
    assert found.scores["smoothing"] == pytest.approx(-1) and found.p > 0.005
    assert found.shape == "both edges"


def test_a_two_row_kernel_never_shows_a_diagonal():
    at = offsets(2, 9)
    assert "diagonal" in cannot_show(at)
    found = name_kernel(drawing("diagonal", at) + row(at, own=1), at)
    assert found.shape == "single tap" and np.isnan(found.scores["diagonal"])
