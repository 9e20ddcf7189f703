"""Head-mixing matrices: scores by hand, names of rows, the assignment against all permutations."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.analysis.kernels import mixing as heads
from mta_viz.analysis.kernels.mixing import best_match, name_head_rows

EYE = np.eye(8)


def shapes(mixing: np.ndarray) -> list[str]:
    return [row.shape for row in name_head_rows(mixing)]


def test_scores_of_a_matrix_of_three_by_hand():
    mixing = np.array([[2.0, -1.0, 0.0], [0.0, -1.0, 0.5], [1.0, 1.0, 1.0]])
    length = np.sqrt(4 + 1 + 1 + 0.25 + 3)
    assert heads.scaled_identity(mixing) == pytest.approx((2 - 1 + 1) / (np.sqrt(3) * length))
    assert heads.mean_diagonal(mixing) == pytest.approx(4 / 3)
    assert heads.off_diagonal_ratio(mixing) == pytest.approx((3.5 / 6) / (4 / 3))
    kappa = heads.subtracted_fraction(mixing)
    assert kappa[0, 1] == 0.5 and kappa[1, 2] == 0.5 and kappa[2, 0] == -1
    score, source = heads.contrast(mixing)
    assert score == pytest.approx([1, 1, -1 / np.sqrt(2)]) and source[:2].tolist() == [1, 2]
    assert heads.common_mode(mixing) == pytest.approx([1 / 15, 0.25 / 3.75, 1])
    assert heads.energy_off_own(mixing) == pytest.approx([0.2, 0.2, 2 / 3])


def test_identity_averaging_and_cancelling_common_mode():
    assert heads.common_mode(EYE) == pytest.approx([1 / 8] * 8)
    assert heads.common_mode(np.ones((8, 8))) == pytest.approx([1] * 8)
    assert heads.common_mode(np.array([[1.0, -1.0], [-2.0, 2.0]])).tolist() == [0, 0]
    assert heads.scaled_identity(-3 * EYE) == pytest.approx(-1)


def test_angles_of_a_pair():
    mixing = np.array([[1.0, 0.0], [-2.0, 2.0]])
    assert heads.pair_angle(mixing) == pytest.approx([0, -45])
    assert heads.pair_angle(-mixing) == pytest.approx([0, -45])
    assert heads.pair_angle(np.array([[1.0, 1.0], [1.0, 0.0]])) == pytest.approx([45, 90])
    assert np.isnan(heads.pair_angle(EYE)).all()


@pytest.mark.parametrize(("size", "value"), [(4, 0.99), (8, 0.89), (16, 0.73)])
def test_what_random_rows_reach_in_contrast(size, value):
    assert heads.random_contrast(size) == pytest.approx(value, abs=0.01)


@given(size=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_the_best_match_is_the_best_of_all_permutations(size, seed):
    gain = np.random.default_rng(seed).standard_normal((size, size))
    places = np.arange(size)
    best = max(gain[places, list(order)].sum() for order in permutations(range(size)))
    match = best_match(gain)
    assert sorted(match) == list(places)
    assert gain[places, match].sum() == pytest.approx(best)


def test_a_tie_keeps_heads_where_they_are():
    assert best_match(np.ones((6, 6))).tolist() == list(range(6))
    assert best_match(np.array([[1.0, 2.0], [1.0, 2.0]])).tolist() == [0, 1]


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-6, 1e6])
def test_rows_get_their_names(scale):
    mixing = EYE.copy()
    mixing[1, 6] = -0.62
    mixing[2] = 1
    mixing[3], mixing[4] = EYE[4], EYE[3]
    mixing[5] = 0
    found = name_head_rows(mixing * scale)
    assert [row.shape for row in found] == [
        "near identity", "contrast", "averaging", "permutation", "permutation", "all zero", "near identity",
        "near identity",
    ]  # fmt: skip
    assert found[1].source == 6
    assert found[1].verdict == "contrast: itself minus 0.62 x head {source}"
    assert found[1].scores["permutation"] > 0


def test_pairs_are_named_by_their_angle():
    found = name_head_rows(np.array([[1.0, -0.9], [0.8, 1.0]]))
    assert [row.verdict for row in found] == [
        "contrast: itself minus 0.90 x head {source}, angle -42 degrees",
        "averaging, angle +39 degrees",
    ]


def test_a_small_subtraction_is_no_contrast():
    mixing = EYE.copy()
    mixing[0, 1] = -0.15
    assert shapes(mixing)[0] == "near identity"
    mixing[1, 2], mixing[1, 1] = -0.19, 0.5
    assert shapes(mixing)[1] == "contrast"  # 0.38 of the own weight


def test_random_rows_are_rarely_named():
    random = np.random.default_rng(2)
    rows = [shape for _ in range(200) for shape in shapes(random.standard_normal((8, 8)))]
    assert np.mean([shape == "contrast" for shape in rows]) < 0.02  # each name has a bar of 1 %
    assert np.mean([shape == "averaging" for shape in rows]) < 0.02


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_matrix_is_named_as_such(broken):
    mixing = EYE.copy()
    mixing[3, 3] = broken
    assert shapes(mixing) == ["not finite"] * 8
    assert all(np.isnan(score) for row in name_head_rows(mixing) for score in row.scores.values())


def test_one_head_alone_and_a_matrix_of_zeros():
    assert shapes(np.array([[2.0]])) == ["near identity"]
    assert shapes(np.zeros((4, 4))) == ["all zero"] * 4
