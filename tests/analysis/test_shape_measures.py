"""Measures of kernels on cases small enough to redo by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_cases import SIZES, kernel, offsets, row

from mta_viz.analysis.kernels.measures import (
    MEASURES,
    cannot_show,
    denoised,
    diagonal_taps,
    dominant_tap,
    edge_indices,
    library,
    own_sign,
    smoothing_index,
    template_scores,
)

AT = offsets(6, 11)
BOX = np.ones((6, 11))
DIAGONAL = kernel(AT, {(n, -n): 1.0 for n in range(6)})


def measure(name: str, taps: np.ndarray, at=AT) -> float:
    return float(MEASURES[name](taps[None], at)[0])


def edges(taps: np.ndarray, at=AT) -> tuple[float, float]:
    return tuple(edge_indices(taps[None], at)[:, 0])


def test_edge_indices_of_known_kernels():
    assert edges(row(AT, own=1)) == (0, 0)
    assert edges(row(AT, before=-1, own=1)) == pytest.approx((1 / 1.1, 0))
    assert edges(row(AT, own=1, after=-1)) == pytest.approx((0, 1 / 1.1))
    assert edges(row(AT, before=-4, own=1, after=1, after2=1, after3=1)) == pytest.approx((4 / 4.4, 0))
    assert edges(row(AT, before=-1, own=2, after=-1)) == pytest.approx((1 / 1.2, 1 / 1.2))
    assert edges(BOX) == pytest.approx((-30 / 105.3, -30 / 105.3))  # -0.28
    assert edges(row(AT, before=1))[0] == pytest.approx(-1 / 1.05)  # previous-key shift: -0.95


def test_an_edge_index_counts_all_recent_queries():
    spread = kernel(AT, {(0, 0): 0.5, (3, 0): 0.5, (1, -1): -1})
    assert edges(spread) == pytest.approx((1 / 1.1, 0))


def test_smoothing_index_of_known_kernels_and_by_a_real_transform():
    expected = {
        0.00: row(AT, own=1),
        0.12: row(AT, before=1, own=1, after=1),
        0.43: kernel(AT, {(n, d): 1 for n in range(3) for d in (-1, 0, 1)}),
        0.83: BOX,
        -0.07: row(AT, before=-1, own=1),
        0.14: DIAGONAL,
    }
    for value, taps in expected.items():
        assert measure("smoothing_index", taps) == pytest.approx(value, abs=0.006)
    taps = np.random.default_rng(0).standard_normal((6, 11))
    power = np.abs(np.fft.fft2(taps, (64, 64))) ** 2
    low = np.abs(np.fft.fftfreq(64)) <= 1 / 8
    share, area = power[np.ix_(low, low)].sum() / power.sum(), low.mean() ** 2
    assert measure("smoothing_index", taps) == pytest.approx((share - area) / (1 - area), rel=1e-12)


def test_own_tap_measures_of_a_kernel_of_three_and_four():
    taps = kernel(AT, {(0, 0): -3.0, (2, 1): 4.0})
    assert measure("own_tap", taps) == -3
    assert measure("identity_cosine", taps) == pytest.approx(0.6)
    assert measure("energy_off_identity", taps) == pytest.approx(0.64)
    assert measure("distance_from_identity", taps) == pytest.approx(np.sqrt(32))
    assert measure("sum_of_taps", taps) == 1
    assert measure("dc_cosine", taps) == pytest.approx(1 / (5 * np.sqrt(66)))
    assert measure("query_centroid", taps) == pytest.approx(-2 * 16 / 25)
    assert measure("key_centroid", taps) == pytest.approx(16 / 25)
    assert measure("key_symmetry", taps) == 0
    assert own_sign(taps[None], AT)[0] == -1


def test_rank_symmetry_and_gains():
    assert measure("effective_rank", BOX) == pytest.approx(1)
    assert measure("effective_rank", DIAGONAL) == pytest.approx(6)
    assert measure("key_symmetry", BOX) == pytest.approx(1)
    assert measure("key_symmetry", row(AT, before=1, own=5, after=-1)) == pytest.approx(-1)
    assert measure("sequence_gain", DIAGONAL) == pytest.approx(6)
    assert measure("sequence_gain", row(AT, own=-2)) == pytest.approx(-1)
    assert measure("priming_gain", kernel(AT, {(n, 0): 2.0 - n for n in range(3)})) == pytest.approx(0.5)
    assert np.isnan(measure("priming_gain", row(AT, before=1)))


def test_the_gaps_in_a_template_library():
    assert [template.name for template in library(AT)].count("smoothing") == 3
    assert cannot_show(AT) == ()
    assert cannot_show(offsets(2, 9)) == ("diagonal", "induction", "anti-diagonal", "priming")
    assert cannot_show(offsets(3, 9)) == () and cannot_show(offsets(2, 15)) == (
        "diagonal",
        *cannot_show(offsets(2, 9))[2:],
    )
    assert [template.name for template in library(AT) if " at " in template.name] == [
        f"diagonal at {shift:+d}" for shift in (-3, -2, 1, 2, 3, 4, 5)
    ]  # three taps, on half of the queries; -1 is induction
    assert [template.name for template in library(offsets(2, 9))] == ["induction", *["smoothing"] * 3]
    assert cannot_show(offsets(6, 11, "left")) == ("anti-diagonal",)
    assert cannot_show(offsets(6, 11, "right")) == ("diagonal", "induction")
    assert library(offsets(1, 1)) == library(offsets(1, 3)) == ()  # a box over the whole kernel says nothing
    assert len(library(offsets(1, 11))) == 2  # two of the boxes are the same kernel
    narrow = [template.name for template in library(offsets(6, 3))]
    assert narrow == [
        "priming",
        "smoothing",
        "smoothing",
        "diagonal at +1",
    ]  # no diagonal of two taps; the third box covers it all


def test_a_template_score_leaves_the_own_tap_out():
    at, taps = AT, DIAGONAL.copy()
    for own in (0.0, 1.0, 50.0):
        taps[at.own] = own
        scores = template_scores(taps[None], at)[0]
        assert scores[0] == pytest.approx(1) and np.abs(scores[1:3]).max() == 0
    taps[at.own] = -1
    assert template_scores(taps[None], at)[0, 0] == pytest.approx(-1)  # opposes the own tap


def test_denoising_keeps_what_stands_out_and_the_own_tap():
    taps = np.random.default_rng(1).standard_normal((1, 6, 11)).clip(-2, 2)
    row_, column = AT.own
    taps[0, row_, column - 1], taps[0, row_, column] = 20.0, 0.1
    kept = denoised(taps, AT)[0]
    assert kept[row_, column - 1] == 20 and kept[row_, column] == 0.1 and np.count_nonzero(kept) == 2


def test_the_dominant_tap_is_not_the_own_one():
    share, place = dominant_tap(kernel(AT, {(0, 0): 9.0, (2, 1): 4.0, (1, 0): 3.0})[None], AT)
    assert share[0] == pytest.approx(16 / 25)
    assert np.unravel_index(place[0], (6, 11)) == (3, 6)


@pytest.mark.parametrize("size", SIZES)
def test_diagonal_taps_meet_the_own_tap(size):
    at = offsets(*size)
    rows, columns = diagonal_taps(at)
    assert (rows[-1], columns[-1]) == at.own
    assert [at.query[i] for i in rows] == [at.key[j] for j in columns]


@settings(max_examples=30)
@given(
    scale=st.floats(1e-6, 1e6),
    seed=st.integers(0, 99),
    size=st.sampled_from(SIZES),
    sign=st.sampled_from([-1, 1]),
)
def test_relative_measures_know_no_scale(scale, seed, size, sign):
    at = offsets(*size)
    taps = np.random.default_rng(seed).standard_normal((3, *size[:2]))
    taps[(slice(None), *at.own)] = 5  # an own tap to take the sign from
    scaled = taps * scale * sign
    np.testing.assert_allclose(template_scores(scaled, at), template_scores(taps, at), atol=1e-12)
    edges_of = [edge_indices(denoised(kernels, at), at) for kernels in (scaled, taps)]
    np.testing.assert_allclose(*edges_of, atol=1e-12)
    absolute = {"own_tap", "distance_from_identity", "sum_of_taps"}
    signed = {"dc_cosine", "sequence_gain"}
    for name in set(MEASURES) - absolute - signed:
        np.testing.assert_allclose(
            MEASURES[name](scaled, at), MEASURES[name](taps, at), rtol=1e-9, atol=1e-12
        )


def test_random_kernels_are_neither_smooth_nor_sharp():
    """1 to 99 % of random 6 x 11 kernels: -0.06 to 0.11."""
    index = smoothing_index(np.random.default_rng(0).standard_normal((20_000, 6, 11)), AT)
    assert np.quantile(index, [0.01, 0.99]) == pytest.approx([-0.06, 0.11], abs=0.01)
