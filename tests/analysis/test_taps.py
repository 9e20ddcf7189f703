"""What taps do in place: checked against the convolved map, and on kernels small enough to count."""

from dataclasses import replace

import numpy as np
import pytest

from mta_viz.analysis.attention.taps import all_tap_gains, gains_table, match_gap, operator, tap_gains
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture
from tests.tiny_models import random_weights

CONFIG = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=11,
    mta=MTAOptions(pre_kernel=(3, 5), post_kernel=(2, 3), mta_layers=(1,)),
)  # fmt: skip
IDS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)
PRE, POST = KernelId(1, 0, "pre"), KernelId(1, 1, "post")


@pytest.fixture(scope="module")
def trace():
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    model.load_state_dict(random_weights(CONFIG, seed=2))
    return capture(model, IDS)


@pytest.mark.parametrize("kernel", [PRE, POST])
@pytest.mark.parametrize("queries", [None, (4, 7, 10)])
def test_gains_sum_to_what_the_convolution_lifts_the_span_above_its_row(trace, kernel, queries):
    keys = range(2, 4)
    gains = tap_gains(trace, kernel, keys, queries)
    made = trace.map(kernel.layer, MADE_BY[kernel.where], kernel.head).double().numpy()
    rows = [made[query, : query + 1] for query in queries or [10]]
    lifted = np.mean([row[2:4].mean() - row.mean() for row in rows])
    assert gains.total == pytest.approx(lifted, abs=1e-5)
    assert abs(lifted) > 1e-3


def test_a_tap_counted_by_hand(trace):
    kernel = trace.model.blocks[1].attn.kernel_pre[0].double().numpy()
    raw = trace.map(1, READ, 0).double().numpy()
    gains = tap_gains(trace, PRE, range(2, 4))
    row, column, back, key = 1, 0, 1, gains.offsets.key[0]
    read = [raw[10 - back, j + key] if j + key >= 0 else 0.0 for j in range(11)]
    expected = kernel[row, column] * (np.mean(read[2:4]) - np.mean(read))
    assert gains.offsets.query[row] == -back
    assert gains.taps[row, column] == pytest.approx(expected, abs=1e-6)


READ = Stage.RAW


def test_the_matching_part_is_of_cells_that_repeat_a_token(trace):
    gains = tap_gains(trace, PRE, range(8, 9))  # query 10 is a 5, so is key 8
    own = gains.offsets.own
    read = trace.map(1, READ, 0).double().numpy()[10, :11]
    tap = trace.model.blocks[1].attn.kernel_pre[0].double().numpy()[own]
    assert gains.match[own] == pytest.approx(tap * (read[8] - read.mean()), abs=1e-6)
    assert gains.match[own] == pytest.approx(gains.taps[own])
    nothing = tap_gains(trace, PRE, range(5, 6))  # no 9 elsewhere, and 5 is not 9
    assert nothing.match[own] == 0 != nothing.taps[own]


def test_all_kernels_stand_in_a_table_the_largest_first(trace):
    gains = all_tap_gains(trace, range(2, 4))
    assert [gain.kernel.where for gain in gains] == ["pre", "pre", "post", "post"]
    assert abs(gains[0].total) >= abs(gains[1].total)
    (row, *_) = gains_table(gains).records()
    assert row["gain"] == pytest.approx(row["match"] + row["non_match"])
    assert row["tap_gain"] == pytest.approx(gains[0].taps.ravel()[np.abs(gains[0].taps).argmax()])


def test_of_the_match_gap_every_match_counts_alike():
    scores = np.array([[9.0, 0, 0, 0], [1, 2, 0, 0], [5, 1, 3, 0], [0, 7, 0, 1]])
    ids = (4, 8, 4, 8)  # row 2 matches key 0, row 3 key 1
    assert match_gap(scores, ids) == pytest.approx(((5 - 2) + (7 - 1 / 3)) / 2)
    assert np.isnan(match_gap(scores, (1, 2, 3, 4)))
    twice = ((5 - 2) + (0 - 4) + (0 - 4)) / 3  # key 0 and 2 of row 3, beside 7 and 1
    assert match_gap(scores, (8, 4, 8, 8)) == pytest.approx(twice)


@pytest.mark.parametrize("factor", [-2.0, -1.0, 0.25])
def test_the_operator_stays_when_sign_and_scale_move_between_queries_and_kernel(trace, factor):
    weights = {name: value.clone() for name, value in trace.model.state_dict().items()}
    weights["blocks.1.attn.wq.weight"][:8] *= factor
    weights["blocks.1.attn.kernel_pre"][0] /= factor
    other = HookedMTA(CONFIG).requires_grad_(False).eval()
    other.load_state_dict(weights)
    here, there = operator(trace, PRE), operator(capture(other, IDS), PRE)
    assert np.allclose(here.weights, there.weights, atol=1e-5)
    assert np.allclose(here.shares, there.shares, atol=1e-5)
    assert here.shares.sum() == pytest.approx(1)
    assert there.match_gap == pytest.approx(factor * here.match_gap, rel=1e-4)
    assert [row[:2] for row in here.top()] == [row[:2] for row in there.top()]


def test_a_planted_diagonal_is_the_top_of_the_operator(trace):
    weights = {name: value.clone() for name, value in trace.model.state_dict().items()}
    taps = weights["blocks.1.attn.kernel_pre"][0]
    taps.zero_()
    taps[-1, CONFIG.key_pad_left(5)], taps[-2, CONFIG.key_pad_left(5) - 1] = 1.0, 1.0
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    model.load_state_dict(weights)
    top = operator(capture(model, IDS), PRE).top(2)
    assert {row[:2] for row in top} == {(0, 0), (-1, -1)}


def test_what_is_not_there_is_refused(trace):
    with pytest.raises(MtaVizError, match="layer 0 has no key-query kernel"):
        tap_gains(trace, replace(PRE, layer=0), range(2, 4))
    with pytest.raises(PromptError, match="not all seen"):
        tap_gains(trace, PRE, range(2, 4), (2,))
    with pytest.raises(PromptError, match="head 2 does not exist"):
        operator(trace, replace(PRE, head=2))


def test_a_broken_kernel_has_no_shape_and_says_why(trace):
    weights = {name: value.clone() for name, value in trace.model.state_dict().items()}
    for taps, words in ((float("nan"), "hold NaN"), (0.0, "same value everywhere")):
        weights["blocks.1.attn.kernel_pre"][0] = taps
        model = HookedMTA(CONFIG).requires_grad_(False).eval()
        model.load_state_dict(weights)
        with pytest.raises(PromptError, match=words):
            operator(capture(model, IDS), PRE)
