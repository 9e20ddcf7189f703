"""Row facts and changes of a head's stages, by hand and against whole maps."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import EXAMPLES, blocks, prompts, random_case
from torch import Tensor

from mta_viz.analysis.attention.changes import HeadStatistics, head_statistics
from mta_viz.analysis.attention.maps import exact_map
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import PromptError
from mta_viz.model.attention import Attention
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture


def three_tokens(mta: MTAOptions = MTAOptions(pre_kernel=(2, 3), post_kernel=(2, 3))) -> Trace:  # noqa: B008
    config = ModelConfig(
        d_model=4, n_layers=1, n_heads=2, n_kv_heads=2, d_head=2, d_mlp=4, vocab_size=5, mta=mta
    )  # fmt: skip
    return capture(HookedMTA(config), [0, 1, 2])


def statistics_of(monkeypatch: pytest.MonkeyPatch, maps: dict[Stage, list[list[float]]]) -> HeadStatistics:
    """Of head 1 with these maps, arriving as one row and then two; head 0 holds something else."""

    def slabs(*_: object) -> list[tuple[int, dict[Stage, Tensor]]]:
        both = {stage: torch.tensor([[[9.0] * 3] * 3, rows]) for stage, rows in maps.items()}
        return [
            (0, {stage: rows[:, :1, :1] for stage, rows in both.items()}),
            (1, {stage: rows[:, 1:] for stage, rows in both.items()}),
        ]

    trace = three_tokens()
    monkeypatch.setattr(Trace, "stage_slabs", slabs)
    return head_statistics(trace, 0, 1)


RAW = [[2.0, 0, 0], [1, 3, 0], [0, 0, 0]]
KQ = [[5.0, 0, 0], [1, 3, 0], [3, 0, 0]]
SOFTMAX = [[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]
SOFTMAX_KQ = [[0.0, 0, 0], [0.75, -0.25, 0], [0.25, 0.25, 2.5]]
MAPS = {
    Stage.RAW: RAW,
    Stage.KQ: KQ,
    Stage.SOFTMAX: SOFTMAX,
    Stage.SOFTMAX_KQ: SOFTMAX_KQ,
    Stage.PATTERN: SOFTMAX_KQ,
}


def test_rows_of_weights_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = statistics_of(monkeypatch, MAPS).stages
    assert list(stages) == list(MAPS)
    soft, final = stages[Stage.SOFTMAX], stages[Stage.PATTERN]
    assert soft.row_sums.tolist() == [1, 1, 1]
    assert soft.summary()[2:8] == (1, 1, 1, 0, 0, 0)
    assert soft.effective_keys.tolist() == pytest.approx([1, 2, 8 / 3])
    assert float(soft.effective_keys.nanmedian()) == 2 and soft.summary()[8] == 1
    assert soft.entropy is not None
    assert soft.entropy.tolist() == pytest.approx([0, math.log(2), 1.5 * math.log(2)])
    assert soft.summary()[9] == round((1 + 1.5 * math.log(2) / math.log(3)) / 2, 4)  # the mean of the two
    assert final.row_sums.tolist() == [0, 0.5, 3] and final.summary()[2:5] == (0, 0.5, 3)
    assert final.effective_keys.tolist()[1:] == pytest.approx([1 / 0.625, 9 / 6.375], abs=1e-6)
    assert final.entropy is None


def test_signs_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    final = statistics_of(monkeypatch, MAPS).stages[Stage.SOFTMAX_KQ]
    assert final.negative_shares.tolist()[1:] == [0.25, 0]
    assert final.cancelled_shares.tolist()[1:] == [0.5, 0]  # 2 min(nu, 1 - nu)
    assert final.summary()[5:8] == (0.25 / 4, 1, 0.5 / 4)  # negative, in one row, cancelled
    empty = (final.negative_shares[0], final.cancelled_shares[0], final.effective_keys[0])
    assert all(math.isnan(value) for value in empty)
    assert float(final.effective_keys.nanmedian()) == pytest.approx(9 / 6.375, abs=1e-6)  # the lower of two


def test_rows_that_sum_to_less_than_zero_cancel_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = [[0.0, 0, 0], [-0.75, 0.25, 0], [0.25, 0.25, 2.5]]
    final = statistics_of(monkeypatch, MAPS | {Stage.SOFTMAX_KQ: mirrored}).stages[Stage.SOFTMAX_KQ]
    assert final.negative_shares.tolist()[1:] == [0.75, 0]
    assert final.cancelled_shares.tolist()[1:] == [0.5, 0] and final.summary()[7] == 0.5 / 4


def test_effective_keys_of_scores_are_those_of_their_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = statistics_of(monkeypatch, MAPS).stages[Stage.RAW]
    odds = math.exp(2)
    assert raw.effective_keys.tolist() == pytest.approx([1, (1 + odds) ** 2 / (1 + odds**2), 3], abs=1e-6)
    assert raw.row_sums.tolist() == [2, 4, 0]


def test_changes_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, weights = statistics_of(monkeypatch, MAPS).changes
    # Row 0 of the scores moves by a constant, which the softmax does not see; row 2 by (2, -1, -1).
    assert (scores.before, scores.after) == (Stage.RAW, Stage.KQ)
    assert scores.size == pytest.approx(math.sqrt(6) / math.sqrt(2))
    assert (scores.largest, scores.query, scores.key) == (3, 0, 0)
    assert (weights.before, weights.after) == (Stage.SOFTMAX, Stage.SOFTMAX_KQ)
    assert weights.size == pytest.approx(math.sqrt(1 + 0.0625 + 0.5625 + 4) / math.sqrt(1 + 0.5 + 0.375))
    assert (weights.largest, weights.query, weights.key) == (2, 2, 2)


def test_a_change_of_nothing_and_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    zero = [[0.0] * 3] * 3
    scores, weights = statistics_of(monkeypatch, MAPS | {Stage.KQ: RAW, Stage.SOFTMAX: zero}).changes
    assert (scores.size, scores.largest) == (0, 0) and weights.size == math.inf


def test_nan_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [[0.0, 0, 0], [0.75, math.nan, 0], [0.25, 0.25, 2.5]]
    found = statistics_of(monkeypatch, MAPS | {Stage.SOFTMAX_KQ: broken})
    stage, change = found.stages[Stage.SOFTMAX_KQ], found.changes[1]
    assert math.isnan(stage.summary()[5]) and stage.effective_keys.isnan().tolist() == [True, True, False]
    row_sum, *others = next(
        row[5:] for row in found.table(three_tokens().tokens).rows if row[2:4] == ("hook_softmax_kq", 1)
    )
    assert math.isnan(row_sum) and others == [None] * 4
    assert math.isnan(change.size) and math.isnan(change.largest) and (change.query, change.key) == (1, 1)


def test_a_cell_of_the_table_without_a_value_is_none_and_zero_has_no_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statistics = statistics_of(monkeypatch, MAPS)
    rows = statistics.table(three_tokens().tokens).rows
    facts = {(row[2], row[3]): row[5:] for row in rows}
    assert facts["hook_softmax_kq", 0] == (0, None, None, None, None)  # an empty row
    assert facts["hook_softmax_kq", 1][-1] is None and facts["hook_attn_scores", 1][-1] is None  # no entropy
    assert facts["hook_softmax", 0] == (1, 0, 0, 1, 0)
    assert [fact for row in rows for fact in row[5:] if fact == 0 and math.copysign(1, fact) < 0] == []
    summary = {row[0]: row[-1] for row in statistics.summary().rows}
    assert [stage.value.long for stage in MAPS if summary[stage.value.long] is not None] == ["softmax"]


@pytest.mark.parametrize(
    ("mta", "steps"),
    [
        (MTAOptions(), []),
        (MTAOptions(head_pre=True, head_post_group=1), [("raw", "mix"), ("sm", "final")]),
        (MTAOptions(post_kernel=(1, 1)), [("sm", "kq2")]),
        (
            MTAOptions(pre_kernel=(2, 1), post_kernel=(2, 1), head_pre=True, head_post_linear=True),
            [("raw", "kq"), ("kq", "mix"), ("sm", "kq2"), ("kq2", "final")],
        ),
    ],
)
def test_only_steps_within_a_unit_are_compared(mta: MTAOptions, steps: list[tuple[str, str]]) -> None:
    changes = head_statistics(three_tokens(mta), 0, 0).changes
    assert [(change.before.value.key, change.after.value.key) for change in changes] == steps


def test_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(PromptError, match="head 2 does not exist"):
        head_statistics(three_tokens(), 0, 2)


@settings(EXAMPLES, max_examples=20)
@given(blocks(), prompts(), st.integers(0, 2**16), st.integers(1, 5))
def test_slabs_give_the_facts_of_whole_maps(block: dict, ids: list[int], seed: int, rows: int) -> None:
    trace = capture(random_case(block, seed).build(), ids)
    layer, head = seed % block["n_layers"], seed % block["n_heads"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attention, "slab_rows", lambda *_: rows)
        found = head_statistics(trace, layer, head)
    for stage, one in found.stages.items():
        whole = exact_map(trace, layer, stage, head)
        near = 1e-5 * max(1.0, float(whole.values.abs().sum(1).max()))
        torch.testing.assert_close(one.row_sums, whole.values.sum(1), rtol=0, atol=near)
        assert one.summary()[5] == pytest.approx(whole.negative_share, abs=2e-4)  # the negative share
        assert bool((one.effective_keys <= torch.arange(1, len(ids) + 1) + 1e-3).all())
    for change in found.changes:
        before, after = (trace.map(layer, at, head) for at in (change.before, change.after))
        near = 1e-5 * max(1.0, float(before.abs().max()), float(after.abs().max()))
        assert abs(change.largest) == pytest.approx(float((after - before).abs().max()), abs=near)
