"""Edges and shifted diagonals: what is drawn gets its name, whatever the queries' weights; noise does not.

Power of an edge on one row, own tap 3 + SNR, and of whole ones, in noise of standard deviation 1 (1,000
kernels of 6 x 11; before: the rule that wanted EF >= 0.5 of the denoised kernel, and an own tap):

| edge                        | SNR 1 | 2    | 4    | 10   |
|-----------------------------|-------|------|------|------|
| one row                     | 0.02  | 0.10 | 0.65 | 1.00 |
| one row, before             | 0.01  | 0.04 | 0.24 | 0.77 |
| own column - previous, all  | 0.15  | 0.95 | 1.00 |      |
| the same, before            | 0.03  | 0.06 | 0.01 |      |
| Sobel 3 x 3                 | 0.31  | 0.98 | 1.00 |      |
| the same, before            | 0.01  | 0.07 | 0.06 |      |
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_cases import drawing, kernel, largest_p, offsets, planted, row

from mta_viz.analysis.kernels.edges import best_edges, edge_threshold
from mta_viz.analysis.kernels.measures import LARGEST_P, run_edges
from mta_viz.analysis.kernels.naming import (
    family,
    has_name,
    name_kernels,
    names_of,
)
from mta_viz.analysis.kernels.probes import run_probe

AT = offsets(6, 11)
SOBEL = np.outer([1, 2, 1], [-1, 0, 1]).astype(float)
TALL = kernel(AT, {**{(n, 0): 1.0 for n in range(6)}, **{(n, -1): -1.0 for n in range(6)}})
OWN = row(AT, own=1)


def last_rows(taps: np.ndarray) -> np.ndarray:
    """A 3 x 3 drawing over the latest queries and the nearest keys of 6 x 11."""
    return np.pad(taps, ((3, 0), (4, 4)))


def names(taps: np.ndarray, at=AT) -> list[str]:
    (shape,) = name_kernels(taps[None], at)
    return [name.name for name in shape.fired]


def share_of_edges(taps: np.ndarray) -> float:
    return np.mean([any(family(name.name) == "edge" for name in one.fired) for one in name_kernels(taps, AT)])


CASES = {
    "own column less the previous, all rows": (TALL, ["edge-first", "priming"]),
    "own column less the next, all rows": (TALL[:, ::-1], ["edge-last", "priming"]),
    "two rows": (TALL * (np.arange(6) > 3)[:, None], ["edge-first"]),
    "one row": (row(AT, before=-1, own=1), ["edge-first", "key shift"]),
    "half as deep": (row(AT, before=-0.5, own=1), ["edge-first", "key shift"]),
    "both sides": (row(AT, before=-1, own=2, after=-1), ["sharpening", "both edges", "key shift"]),
    "Sobel along keys": (last_rows(SOBEL), ["edge"]),
    "Sobel, other sign": (-last_rows(SOBEL), ["edge"]),
    "Sobel beside an own tap": (last_rows(SOBEL) + OWN, ["edge"]),
    "Prewitt": (last_rows(np.outer([1.0, 1, 1], [-1, 0, 1])), ["edge"]),
    "a difference over queries": (last_rows(SOBEL.T), ["single tap"]),
    "the previous column alone": (OWN - kernel(AT, {(n, -1): 1.0 for n in range(6)}), []),
    "priming": (OWN + drawing("priming", AT), ["priming"]),
    "box": (OWN + drawing("smoothing c_q x 5", AT), ["smoothing"]),
}


@pytest.mark.parametrize("scale", [1.0, -3.0, 1e-6])
@pytest.mark.parametrize("case", CASES)
def test_exact_kernels_get_every_name_that_fires(case, scale):
    taps, expected = CASES[case]
    assert names(taps * scale) == expected


@pytest.mark.parametrize(("case", "claim"), [("Sobel along keys", "edge"), ("one row", "edge-first")])
def test_an_exact_edge_passes_its_probe(case, claim):
    assert run_probe(CASES[case][0], AT, claim).acts


def test_a_kernel_no_larger_than_sobel_is_an_edge():
    assert names(SOBEL, offsets(3, 3)) == ["edge"]


def test_names_stand_in_the_order_of_their_shares_with_their_scores():
    (shape,) = name_kernels(TALL[None], AT)
    assert shape.names == "edge-first +0.91; priming +0.67" and shape.shape == "edge-first"
    assert (shape.evidence, shape.score) == ("edge", pytest.approx(6 / 6.6))
    shares = [name.share for name in shape.fired]
    assert shares == [pytest.approx(1), pytest.approx(5 / 11)]
    cells = {"names": shape.names, "shape": shape.shape}
    assert names_of(cells) == ("edge-first", "priming") and has_name(cells, "edge")
    assert names_of({"names": None, "shape": "none of these"}) == ("none of these",)


@pytest.mark.parametrize("shift", [-3, -2, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("own", [0.0, 1.0])
def test_a_diagonal_elsewhere_is_one_with_that_offset(shift, own):
    taps = kernel(AT, {(n, shift - n): 1.0 for n in range(6)}) + own * OWN
    assert names(taps) == [f"diagonal at {shift:+d}"]
    opposed = names(own * OWN - kernel(AT, {(n, shift - n): 1.0 for n in range(6)}))
    assert opposed[0] == f"negative diagonal at {shift:+d}" and family(opposed[0]) == "negative diagonal"


def test_the_index_of_opposite_answers():
    """A run answered +1 at its first key, 0 in its middle, -1 at its last; and one with a middle of 1/2."""
    answers = np.array([[1.0, 1.0], [0.0, 0.5], [-1.0, -1.0]])
    assert run_edges(answers, np.array([0.1, 0.1]))[2] == pytest.approx([1 / 1.1, 0.5 / 1.6])


@settings(max_examples=40)
@given(
    weights=st.lists(st.floats(0.3, 1.0), min_size=6, max_size=6),
    depth=st.integers(1, 6),
    kind=st.sampled_from(["edge-first", "edge-last", "edge"]),
    sign=st.sampled_from([-1, 1]),
    noise=st.integers(0, 1000),
)
def test_an_edge_is_found_whatever_the_queries_weights(weights, depth, kind, sign, noise):
    differences = {"edge-first": {0: 1, -1: -1}, "edge-last": {0: 1, 1: -1}, "edge": {1: 1, -1: -1}}
    drawn = {(n, key): sign * weights[n] * to for n in range(depth) for key, to in differences[kind].items()}
    taps = kernel(AT, drawn) + 0.01 * np.random.default_rng(noise).standard_normal((6, 11))
    assert kind in names(taps)


@settings(max_examples=15)
@given(own=st.sampled_from([None, 1.0, 8.0, 40.0]), seed=st.integers(0, 10_000))
def test_one_in_two_hundred_gaussian_kernels_is_an_edge_at_most(own, seed):
    taps = np.random.default_rng(seed).standard_normal((2000, 6, 11))
    if own is not None:
        taps[(slice(None), *AT.own)] = own
    assert best_edges(taps, AT).fires.sum() <= 24  # 10 expected: beyond 24 in 1 of 30,000


def test_the_threshold_is_what_one_in_two_hundred_kernels_reach():
    taps = np.random.default_rng(9).standard_normal((20_000, 6, 11))
    taps[(slice(None), *AT.own)] = 4.0
    rare = best_edges(taps, AT).p <= edge_threshold(AT)
    assert np.mean(rare) == pytest.approx(0.005, abs=0.0015)


@pytest.mark.parametrize(("snr", "least"), [(1, 0.005), (2, 0.06), (4, 0.55), (10, 0.98)])
def test_an_edge_of_one_row_is_found_more_often_than_by_eye(snr, least):
    noise = np.random.default_rng(5).standard_normal((400, 6, 11))
    taps = noise + row(AT, own=3 + snr, before=-snr)
    assert share_of_edges(taps) >= least


def test_a_column_in_noise_is_priming_and_no_edge():
    shapes = name_kernels(planted("priming", AT, sd=4, count=400), AT)
    seconds = [has_name({"names": one.names, "shape": one.shape}, "edge") for one in shapes]
    assert np.mean(seconds) <= 0.05  # 0.034 of 12,000: neighbours in noise that happen to oppose it
    assert np.mean([one.shape == "priming" for one in shapes]) >= 0.98


@settings(max_examples=10)
@given(kind=st.sampled_from(["normal", "laplace", "positive", "t3"]), seed=st.integers(0, 10_000))
def test_permutation_p_is_uniform_for_exchangeable_taps(kind, seed):
    random = np.random.default_rng(seed)
    size = (600, 6, 11)
    draws = {
        "normal": lambda: random.standard_normal(size),
        "laplace": lambda: random.laplace(size=size),
        "positive": lambda: random.exponential(size=size),
        "t3": lambda: random.standard_t(3, size),
    }
    p = largest_p(draws[kind](), AT)
    for level, most in ((0.05, 53), (0.5, 350)):  # mean 30 and 300, four and four standard deviations
        assert (p <= level).sum() <= most
    assert (p <= 0.05).sum() >= 9


def test_a_template_name_is_as_rare_as_its_level():
    taps = np.random.default_rng(6).standard_normal((4000, 6, 11))
    named = sum(any(name.evidence == "template" for name in one.fired) for one in name_kernels(taps, AT))
    assert named / 4000 <= LARGEST_P + 3 * np.sqrt(LARGEST_P / 4000)
