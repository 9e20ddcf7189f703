"""Maps from traces, and the colour limits, by facts small enough to redo by hand."""

from dataclasses import replace

import pytest
import torch

from mta_viz.analysis.attention import maps as pooling
from mta_viz.analysis.attention.maps import (
    NO_CELLS,
    AttentionMap,
    WholeMap,
    exact_map,
    head_map,
    head_maps,
    layer_maps,
    round_up,
    shared_limit,
    shrink,
)
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture
from tests.tiny_models import TWO_HEADS, two_head_trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return two_head_trace()


def square(values: list[list[float]], **options: object) -> AttentionMap:
    return replace(AttentionMap(0, 0, Stage.KQ, torch.tensor(values), 0, 0), **options)


def test_head_maps_has_the_layers_stages_and_the_traces_values(trace: Trace) -> None:
    maps = head_maps(trace, 0, 1)
    assert list(maps) == [Stage.RAW, Stage.KQ, Stage.SOFTMAX, Stage.PATTERN]
    for stage, one in maps.items():
        assert torch.equal(one.values, trace.map(0, stage, 1))
    assert [one.distribution for one in maps.values()] == [False, False, True, False]


@pytest.mark.parametrize("cells", [512, 4])
def test_the_maps_of_all_heads_in_one_pass_are_each_heads_own(trace: Trace, cells: int) -> None:
    together = layer_maps(trace, 0, cells)
    assert len(together) == trace.model.config.n_heads
    for head, maps in enumerate(together):
        alone = {stage: head_map(trace, 0, stage, head, cells) for stage in maps}
        for stage, one in maps.items():
            assert torch.equal(one.values, alone[stage].values)
            assert (one.head, one.row_sums) == (head, alone[stage].row_sums)
            assert one.negative_share == alone[stage].negative_share
            if one.pooled is not None:
                assert torch.equal(one.pooled.peak_key, alone[stage].pooled.peak_key)


def test_row_sums_of_a_softmax_are_one_and_of_a_crop_unknown(trace: Trace) -> None:
    assert exact_map(trace, 0, Stage.SOFTMAX, 0).row_sums == pytest.approx((1, 1), abs=1e-6)
    assert exact_map(trace, 0, Stage.SOFTMAX, 0, slice(3, 6)).row_sums == pytest.approx((1, 1), abs=1e-6)
    assert exact_map(trace, 0, Stage.SOFTMAX, 0, slice(3, 6), slice(0, 4)).row_sums is None
    assert exact_map(trace, 0, Stage.SOFTMAX, 0, slice(3, 6), slice(2, 9)).row_sums is None


def test_a_crop_knows_where_it_lies(trace: Trace) -> None:
    crop = exact_map(trace, 0, Stage.RAW, 0, slice(2, 5), slice(1, 4))
    assert crop.queries.tolist() == [2, 3, 4] and crop.keys.tolist() == [1, 2, 3]
    assert crop.masked.tolist() == [[False, False, True], [False] * 3, [False] * 3]
    whole = exact_map(trace, 0, Stage.RAW, 0).values
    torch.testing.assert_close(crop.values, whole[2:5, 1:4], atol=1e-6, rtol=0)


def test_a_head_map_is_the_exact_map_pooled(trace: Trace) -> None:
    pooled, exact = head_map(trace, 0, Stage.PATTERN, 1, 4), exact_map(trace, 0, Stage.PATTERN, 1)
    assert pooled.block == 3 and pooled.values.shape == (3, 3)
    corner = exact.values[6:9, 0:3]
    assert float(pooled.values[2, 0]) == pytest.approx(float(corner.flatten()[corner.abs().argmax()]))
    assert pooled.masked.tolist() == [[False, True, True], [False, False, True], [False] * 3]
    assert pooled.row_sums == pytest.approx(exact.row_sums, abs=1e-5)
    assert pooled.negative_share == pytest.approx(exact.negative_share, abs=1e-6)
    assert torch.equal(shrink(exact, 4).values, pooled.values) and shrink(exact, 4).block == 3
    assert shrink(exact, 9) is exact


def test_a_block_of_a_crop_is_masked_where_all_its_cells_are(trace: Trace) -> None:
    crop = exact_map(trace, 0, Stage.RAW, 0, slice(0, 8), slice(1, 9))
    blocks = crop.masked.unflatten(1, (4, 2)).unflatten(0, (4, 2))
    assert torch.equal(shrink(crop, 4).masked, blocks.all(3).all(1))


def test_bad_cells_are_counted_where_they_are_not_masked(trace: Trace) -> None:
    broken = HookedMTA(TWO_HEADS)
    with torch.no_grad():
        broken.blocks[0].attn.kernel_pre[0, 0, 0] = float("nan")
    one = exact_map(capture(broken, [1, 2, 3]), 0, Stage.KQ, 0)
    assert one.n_bad == int(one.bad.sum()) == 6
    assert head_maps(trace, 0, 0)[Stage.KQ].n_bad == 0


def test_the_negative_share() -> None:
    torch.manual_seed(1)
    one = exact_map(capture(HookedMTA(TWO_HEADS), [1, 2]), 0, Stage.RAW, 0)
    cells = one.values[torch.ones(2, 2).tril() > 0]
    assert one.negative_share == pytest.approx(float(cells[cells < 0].abs().sum() / cells.abs().sum()))


def test_the_limit_leaves_out_the_first_token_and_the_future() -> None:
    values = [[50.0, 99.0, 99.0], [60.0, 3.0, 99.0], [70.0, -1.0, 2.0]]
    # |x| = 1, 2, 3: the 99.5th percentile is 2.99.
    assert shared_limit([square(values)]) == 5
    assert shared_limit([square(values)], first_token=True) == 100
    assert shared_limit([square(values, key_start=3, query_start=3)]) == 100


def test_the_limit_is_robust_and_shared() -> None:
    small = torch.full((60, 60), 0.015)
    small[40, 20] = 1000.0
    assert shared_limit([square(small.tolist())]) == 0.02
    assert shared_limit([square(small.tolist()), square([[0.0, 0.0], [0.0, 7.0]])]) == 0.02
    assert shared_limit([square((small * 1.4).tolist()), square((small * 0.1).tolist())]) == 0.05


def test_rows_that_attend_to_one_key_each_set_the_limit() -> None:
    """Nearly all of 400 x 400 cells are 0.0001; the largest of every row is 0.9, of a few 3."""
    sharp = torch.full((400, 400), 1e-4)
    sharp[torch.arange(400), torch.arange(400) // 2 + 1] = 0.9
    sharp[:100, 1] = 3.0
    assert shared_limit([square(sharp.tolist())]) == 1
    few = torch.full((400, 400), 1e-4)
    few[:100, 1] = 3.0
    assert shared_limit([square(few.tolist())]) == 1e-4


def test_the_limit_of_nothing_is_one() -> None:
    assert shared_limit([square([[0.0, 0.0], [0.0, 0.0]])]) == 1
    assert shared_limit([square([[float("nan"), 0.0], [float("inf"), float("nan")]])]) == 1
    assert shared_limit([]) == 1


def test_a_one_token_prompt_uses_the_only_cell() -> None:
    assert shared_limit([square([[-3.0]])]) == 5


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (0.0, 1),
        (1.0, 1),
        (1.01, 2),
        (2.0, 2),
        (4.18, 5),
        (5.0, 5),
        (5.1, 10),
        (0.02, 0.02),
        (0.3, 0.5),
        (2e-9, 2e-9),
    ],
)
def test_round_up(value: float, limit: float) -> None:
    assert round_up(value) == pytest.approx(limit, rel=1e-9)


@pytest.mark.parametrize("shape", [(16, 16), (3, 16, 16)])
def test_slabs_are_taken_without_waiting_for_their_device(shape):
    """A meta tensor has no values to wait for: reading one raises."""
    whole = WholeMap(AttentionMap(0, 0, Stage.PATTERN, *NO_CELLS), 32, 8)
    for start in (0, 16):
        whole.add(torch.zeros(*shape[:-1], start + 16, device="meta"), start)
    with pytest.raises(NotImplementedError):
        whole.result()


@pytest.mark.parametrize("block", [1, 4])
def test_rows_that_wait_for_one_another_give_the_same_map(block, monkeypatch):
    cells = torch.randn(3, 22, 22, generator=torch.Generator().manual_seed(0)).tril()
    cells[1, 9, 4] = torch.nan

    def drawn(waiting):
        monkeypatch.setitem(pooling.WAITING_CELLS, "cpu", waiting)
        whole = WholeMap(AttentionMap(0, 0, Stage.RAW, *NO_CELLS), 22, 22 // block)
        for start in range(0, 22, 5):
            stop = min(start + 5, 22)
            whole.add(cells[:, start:stop, :stop], start)
        return [whole.result(head) for head in range(3)]

    for few, one in zip(drawn(3 * 22 * 12), drawn(0), strict=True):
        torch.testing.assert_close(few.values, one.values, rtol=0, atol=0, equal_nan=True)
        assert few.n_bad == one.n_bad and few.row_sums == pytest.approx(one.row_sums)
        assert few.negative_share == pytest.approx(one.negative_share)
        if block > 1:
            assert torch.equal(few.pooled.peak_key[~few.future], one.pooled.peak_key[~one.future])
            torch.testing.assert_close(few.pooled.means, one.pooled.means, equal_nan=True)
