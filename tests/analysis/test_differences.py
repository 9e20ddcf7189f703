"""Difference maps: exact, cropped, pooled, and for which steps they exist."""

import pytest
import torch

from mta_viz.analysis.attention.changes import DifferenceMap, differences, exact_difference, subtract
from mta_viz.analysis.attention.maps import exact_map, head_map, shared_limit
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture
from tests.tiny_models import TWO_HEADS, two_head_trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return two_head_trace()


def after_minus_before(trace: Trace, after: Stage, before: Stage) -> torch.Tensor:
    return trace.map(0, after, 1) - trace.map(0, before, 1)


def test_every_step_within_a_unit_has_a_difference(trace: Trace) -> None:
    found = differences(trace, 0, 1)
    assert {stage: one.before for stage, one in found.items()} == {
        Stage.KQ: Stage.RAW,
        Stage.PATTERN: Stage.SOFTMAX,
    }
    for stage, one in found.items():
        assert torch.equal(one.values, after_minus_before(trace, stage, one.before))
        assert not one.distribution and one.row_sums is None
    weights = found[Stage.PATTERN].values
    lowered = float(weights.clamp(max=0).abs().sum() / weights.abs().sum())
    assert found[Stage.PATTERN].negative_share == pytest.approx(lowered, abs=1e-6)


def test_a_crop_is_a_part_of_the_whole(trace: Trace) -> None:
    crop = exact_difference(trace, 0, Stage.KQ, 1, slice(3, 7), slice(2, 6))
    assert (crop.query_start, crop.key_start, crop.before) == (3, 2, Stage.RAW)
    whole = after_minus_before(trace, Stage.KQ, Stage.RAW)
    torch.testing.assert_close(crop.values, whole[3:7, 2:6], rtol=0, atol=1e-6)


def test_a_long_prompt_is_pooled_by_the_largest_change(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mta_viz.model.attention.Attention.slab_rows", lambda *_: 2)
    found = differences(trace, 0, 1, max_cells=4)[Stage.KQ]
    assert isinstance(found, DifferenceMap) and found.block == 3 and found.pooled is not None
    corner = after_minus_before(trace, Stage.KQ, Stage.RAW)[6:9, 3:6].flatten()
    assert float(found.values[2, 1]) == pytest.approx(float(corner[corner.abs().argmax()]), abs=1e-6)
    assert found.negative_share == pytest.approx(differences(trace, 0, 1)[Stage.KQ].negative_share, abs=1e-5)


def test_limits_are_made_as_for_maps(trace: Trace) -> None:
    one = exact_difference(trace, 0, Stage.KQ, 0)
    causal = one.values[1:, 1:][torch.ones(8, 8).tril() > 0].abs()
    assert float(causal.quantile(0.995)) <= shared_limit([one]) <= 2.5 * float(causal.max())


def test_bad_cells_are_counted(trace: Trace) -> None:
    model = HookedMTA(TWO_HEADS)
    with torch.no_grad():
        model.blocks[0].attn.kernel_pre[0, 0, 0] = float("nan")
    broken = capture(model, [1, 2, 3])
    assert exact_difference(broken, 0, Stage.KQ, 0).n_bad == 6
    assert differences(broken, 0, 0, max_cells=2)[Stage.KQ].n_bad == 6


@pytest.mark.parametrize("stage", [Stage.RAW, Stage.SOFTMAX, Stage.MIX])
def test_what_has_no_difference_is_refused(trace: Trace, stage: Stage) -> None:
    there = "its stages with a difference: hook_scores_kq, hook_pattern"
    with pytest.raises(PromptError, match=f"that makes {stage.value.hook}; {there}"):
        exact_difference(trace, 0, stage, 0)


def test_only_the_same_exact_cells_can_be_subtracted(trace: Trace) -> None:
    after = exact_map(trace, 0, Stage.KQ, 0)
    for before in (
        exact_map(trace, 0, Stage.RAW, 1),
        exact_map(trace, 0, Stage.RAW, 0, slice(1, 9)),
        head_map(trace, 0, Stage.RAW, 0, 4),
    ):
        with pytest.raises(PromptError, match="only where both show the same exact cells"):
            subtract(after, before)
