"""Top cells, cross-sections, thumbnails and the logit lens: equal to what whole maps give."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from model_cases import EXAMPLES
from planted import FULL, heads, planted

from mta_viz.analysis.attention.cells import (
    TopCell,
    key_column,
    lens_over_layers,
    query_row,
    top_cells,
    top_tokens,
)
from mta_viz.analysis.attention.maps import exact_map, head_map
from mta_viz.analysis.attention.patterns import all_thumbnails, layer_thumbnails
from mta_viz.analysis.attention.pooling import Pooler
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.attention import QueryKeyValue
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture, score

HAND = [[5.0], [-4.0, 1.0], [3.0, -2.0, 6.0]]


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    shapes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "d_head": 8, "d_mlp": 16}
    mta = MTAOptions(pre_kernel=(2, 3), post_kernel=(3, 3), mta_layers=(1,), head_post_group=2)
    model = HookedMTA(ModelConfig(**shapes, vocab_size=11, mta=mta))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return capture(model, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2])


def test_top_cells_by_hand() -> None:
    made = planted([{Stage.RAW: heads([[0.0], [0.0] * 2, [0.0] * 3], HAND)}])
    found = top_cells(made, 0, 1, Stage.RAW, 3)
    assert found == (TopCell(2, 2, 6.0), TopCell(0, 0, 5.0), TopCell(1, 0, -4.0))
    assert found[0].before is None and found[0].change is None
    inner = top_cells(made, 0, 1, Stage.RAW, 9, first_token=False)
    assert [(cell.query, cell.key) for cell in inner] == [(2, 2), (2, 1), (1, 1)]


def test_top_cells_by_change() -> None:
    after = [[5.0], [-4.0, 3.5], [-1.0, -2.0, 6.5]]
    made = planted([{Stage.RAW: heads(HAND, HAND), Stage.KQ: heads(after, after)}])
    found = top_cells(made, 0, 0, Stage.KQ, 2, by="change")
    assert found == (TopCell(2, 0, -1.0, 3.0), TopCell(1, 1, 3.5, 1.0))
    assert [cell.change for cell in found] == [-4.0, 2.5]
    by_value = top_cells(made, 0, 0, Stage.KQ, 1)
    assert by_value == (TopCell(2, 2, 6.5, 6.0),)
    with pytest.raises(PromptError, match="no stage before it in the same unit"):
        top_cells(made, 0, 0, Stage.SOFTMAX, by="change")
    with pytest.raises(PromptError, match="head 2 does not exist; expected 0 to 1"):
        top_cells(made, 0, 2, Stage.RAW)


def test_top_cells_by_contribution(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [[0.5], [-0.5, 0.25], [0.25, 0.5, 0.125]]
    made = planted([{Stage.PATTERN: heads(weights, weights)}])
    values = torch.zeros(1, 3, 2, 4)
    values[0, :, 1] = torch.tensor([[0.0, 3, 4, 0], [1, 0, 0, 0], [0, 8, 0, 0]])  # lengths 5, 1, 8
    monkeypatch.setattr(type(made), "project", lambda self, layer: QueryKeyValue(values, values, values))
    found = top_cells(made, 0, 1, Stage.PATTERN, 4, by="contribution")
    assert [(one.query, one.key, one.value, one.contribution) for one in found] == [
        (0, 0, 0.5, 2.5),
        (1, 0, -0.5, 2.5),
        (2, 0, 0.25, 1.25),
        (2, 2, 0.125, 1.0),
    ]
    with pytest.raises(PromptError, match="only the final weights"):
        top_cells(made, 0, 1, Stage.SOFTMAX, by="contribution")


def test_contributions_are_the_sizes_of_what_a_key_adds(trace: Trace) -> None:
    values = trace.project(1).v[0]
    weights = trace.map(1, Stage.PATTERN, 0)
    for one in top_cells(trace, 1, 0, Stage.PATTERN, 3, by="contribution"):
        added = weights[one.query, one.key] * values[one.key, 0]
        assert one.contribution == pytest.approx(float(added.norm()), rel=1e-5)


def test_top_cells_leave_out_the_future_and_what_is_no_number() -> None:
    values = torch.full((2, 3, 3), 99.0)
    values[:, 2] = torch.tensor([math.nan, math.inf, 1.0])
    values[:, 0, 0], values[:, 1, :2] = 0.0, torch.tensor([0.5, 0.25])
    found = top_cells(planted([{Stage.RAW: values}]), 0, 0, Stage.RAW)
    assert [(cell.query, cell.key) for cell in found] == [(2, 2), (1, 0), (1, 1), (0, 0)]


@given(some.integers(1, 9), some.integers(1, 60), some.integers(0, 99))
@EXAMPLES
def test_top_cells_are_those_of_the_sorted_map(n: int, k: int, seed: int) -> None:
    values = torch.randn(2, n, n, generator=torch.Generator().manual_seed(seed)).tril()
    found = top_cells(planted([{Stage.RAW: values}]), 0, 1, Stage.RAW, k)
    cells = [(float(values[1, q, j]), q, j) for q in range(n) for j in range(q + 1)]
    want = sorted(cells, key=lambda cell: -abs(cell[0]))[:k]
    assert [(cell.value, cell.query, cell.key) for cell in found] == want


@pytest.mark.parametrize("layer", [0, 1])
def test_cross_sections_are_rows_and_columns_of_the_maps(trace: Trace, layer: int) -> None:
    row, column = query_row(trace, layer, 1, 6), key_column(trace, layer, 1, 3)
    stages = list(trace.model.blocks[layer].attn.stages)
    assert list(row.values) == list(column.values) == stages
    assert (row.start, row.stop, column.start, column.stop) == (0, 7, 3, 11)
    for stage in stages:
        whole = trace.map(layer, stage, 1)
        torch.testing.assert_close(row.values[stage], whole[6, :7], atol=1e-6, rtol=0)
        torch.testing.assert_close(column.values[stage], whole[3:, 3], atol=1e-6, rtol=0)


def test_cross_sections_of_what_is_not_there(trace: Trace) -> None:
    for layer, head, place, says in ((2, 0, 0, "layer 2"), (0, 2, 0, "head 2"), (0, 0, 11, "query 11")):
        with pytest.raises(PromptError, match=f"{says} does not exist"):
            query_row(trace, layer, head, place)
    with pytest.raises(PromptError, match="key -1 does not exist; expected 0 to 10"):
        key_column(trace, 0, 0, -1)


def test_the_largest_of_a_cross_section() -> None:
    made = planted([{Stage.RAW: heads(HAND, HAND), Stage.SOFTMAX: heads(HAND, HAND) * 2}])
    row = query_row(made, 0, 0, 1)
    assert row.largest(Stage.RAW) == 4 and row.largest(Stage.RAW, first_token=False) == 1
    assert row.largest(Stage.SOFTMAX) == 8
    assert query_row(made, 0, 0, 0).largest(Stage.RAW, first_token=False) == 5  # there is no other token


@pytest.mark.parametrize("cells", [2, 4, 24])
def test_thumbnails_are_the_head_maps(trace: Trace, cells: int) -> None:
    every = all_thumbnails(trace, Stage.PATTERN, cells)
    assert every.layers == (0, 1) and every.lacking == ()
    for layer in (0, 1):
        one = layer_thumbnails(trace, layer, Stage.PATTERN, cells)
        for head in (0, 1):
            whole = trace.map(layer, Stage.PATTERN, head)
            pooler = Pooler(every.block, len(whole))
            pooler.add(whole)
            found = every.map(layer, head).values
            torch.testing.assert_close(found, pooler.result().values, atol=1e-6, rtol=0)
            assert torch.equal(one.map(layer, head).values, every.map(layer, head).values)
            assert max(one.values.shape[2:]) <= cells
            assert one.block == head_map(trace, layer, Stage.PATTERN, head, cells).block


def test_thumbnails_of_a_long_prompt_are_max_pooled(trace: Trace) -> None:
    long = capture(trace.model, [1 + i * i % 10 for i in range(1024)])  # many slabs of rows
    found = layer_thumbnails(long, 1, Stage.KQ)
    whole = long.maps(1, Stage.KQ)
    pooled = torch.nn.functional.max_pool2d(whole.abs()[None], found.block, ceil_mode=True)[0]
    torch.testing.assert_close(found.values[0].abs(), pooled, atol=1e-6, rtol=0)
    assert found.block == 43 and bool((found.values < 0).any())


def test_thumbnails_of_many_heads_are_smaller(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mta_viz.analysis.attention.patterns.MAX_CELLS", 4 * 4 * 4)
    found = all_thumbnails(trace, Stage.RAW)
    assert found.values.shape == (2, 2, 4, 4) and found.block == 3


def test_thumbnails_at_full_size_are_the_map(trace: Trace) -> None:
    one = layer_thumbnails(trace, 1, Stage.SOFTMAX_KQ, 11)
    assert one.block == 1
    exact = exact_map(trace, 1, Stage.SOFTMAX_KQ, 0)
    assert torch.equal(one.map(1, 0).values, exact.values)
    assert torch.equal(one.map(1, 0).masked, exact.masked)


def test_thumbnails_name_the_layers_that_lack_the_stage(trace: Trace) -> None:
    seen: list[float] = []
    some_layers = all_thumbnails(trace, Stage.KQ, progress=seen.append)
    assert some_layers.layers == (1,) and some_layers.lacking == (0,) and seen[-1] == 1
    assert [one.layer for one in some_layers.maps()] == [1, 1]
    with pytest.raises(PromptError, match="layer 0 has no hook_scores_kq"):
        layer_thumbnails(trace, 0, Stage.KQ)
    none = all_thumbnails(trace, Stage.MIX)
    assert none.layers == () and none.values.shape == (0, 2, 11, 11)


def test_a_distribution_is_one_in_every_layer(trace: Trace) -> None:
    assert all_thumbnails(trace, Stage.SOFTMAX).distribution
    assert not all_thumbnails(trace, Stage.PATTERN).distribution  # layer 1 mixes heads
    assert not all_thumbnails(trace, Stage.RAW).distribution


def test_the_last_lens_is_the_models_logits(trace: Trace) -> None:
    lens = lens_over_layers(trace, 4, (3, 7))
    run = score(trace.model, torch.tensor([trace.tokens.ids]))[0, 4]
    torch.testing.assert_close(lens.logits[-1], run[[3, 7]], atol=1e-5, rtol=0)
    torch.testing.assert_close(lens.probabilities[-1], run.softmax(0)[[3, 7]], atol=1e-6, rtol=0)
    order = run.argsort(descending=True).tolist()
    assert lens.ranks[-1].tolist() == [1 + order.index(3), 1 + order.index(7)]
    assert lens.top[-1] == top_tokens(trace, 4, 5)
    assert lens.pieces == ("<3>", "<7>") and lens.logits.shape == (3, 2) and len(lens.top) == 3


def test_a_lens_in_between_reads_the_stream_that_enters_the_layer(trace: Trace) -> None:
    lens = lens_over_layers(trace, 4, (3, 7), k=2)
    model = trace.model
    for depth in range(3):
        with torch.no_grad():
            logits = model.logits(trace.residuals[depth, 4])
        torch.testing.assert_close(lens.logits[depth], logits[[3, 7]], atol=1e-5, rtol=0)
        assert [one.id for one in lens.top[depth]] == logits.topk(2).indices.tolist()


def test_without_tokens_the_lens_follows_the_models_own(trace: Trace) -> None:
    lens = lens_over_layers(trace, 10, k=3)
    assert lens.ids == tuple(one.id for one in top_tokens(trace, 10, 3))
    assert lens.ranks[-1].tolist() == [1, 2, 3]


def test_a_lens_that_cannot_be_read_says_so(trace: Trace) -> None:
    with pytest.raises(PromptError, match="0 to 10; given: 11, -1"):
        lens_over_layers(trace, 0, (11, 2, -1))
    with pytest.raises(PromptError, match="position 11 does not exist; expected 0 to 10"):
        lens_over_layers(trace, 11)
    broken = capture(trace.model, [1, 2])
    bad = Trace(broken.tokens, torch.full_like(broken.residuals, math.nan), broken.model)
    with pytest.raises(MtaVizError, match="NaN or inf"):
        lens_over_layers(bad, 0)


def test_planted_traces_have_every_stage() -> None:
    made = planted([{Stage.RAW: heads(HAND, HAND)}])
    every = [stage for stage in Stage if not stage.is_second]
    assert list(query_row(made, 0, 0, 2).values) == every and made.model.config.mta is FULL
