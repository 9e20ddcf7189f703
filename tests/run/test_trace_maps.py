"""A Trace recomputes any crop of any stage as the hooks see it, in slabs of any size."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES, FIXTURES, blocks, prompts, random_case, read_case
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model import ops
from mta_viz.model.attention import Attention
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import self_check
from mta_viz.run.tracing import Trace, capture, run_hooks
from tests.tiny_models import FULL, config

IDS = [(7 * i + 3) % 29 for i in range(37)]
# Of the stage's largest value. Another slab size rounds differently: one layer's recomputation by at
# most 6e-7 over all fixtures; four layers run in other slabs than the hooked run drift apart by 9e-6.
ONE_LAYER, WHOLE_RUN = 1e-6, 2e-5


def _cached(model: HookedMTA, ids: list[int], layer: int, stage: Stage) -> Tensor:
    """The stage as a hook sees it, with the cells key > query set to 0 as in a Trace."""
    return run_hooks(model, ids, [stage.hook_name(layer)])[stage.hook_name(layer)].tril()


def _assert_same(got: Tensor, want: Tensor, atol: float) -> None:
    assert got.shape == want.shape and got.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=0, atol=atol)


def _scale(whole: Tensor) -> float:
    return max(1.0, float(whole.abs().max()))


def _stages(model: HookedMTA) -> Iterator[tuple[int, Stage]]:
    for layer, block in enumerate(model.blocks):
        for stage in block.attn.stages:
            yield layer, stage


@pytest.mark.golden
@pytest.mark.parametrize("fixture", FIXTURES)
def test_whole_maps_equal_the_hook_cache(golden: Path, fixture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_case(golden / fixture).build()
    wanted, trace = {at: _cached(model, IDS, *at) for at in _stages(model)}, capture(model, IDS)
    for rows in (37, 16, 5):
        monkeypatch.setattr(Attention, "slab_rows", lambda *_, rows=rows: rows)
        in_slabs = capture(model, IDS)
        for at, want in wanted.items():
            _assert_same(trace.maps(*at), want, ONE_LAYER * _scale(want))
            _assert_same(in_slabs.maps(*at), want, WHOLE_RUN * _scale(want))


@pytest.fixture(scope="module")
def full(golden: Path) -> HookedMTA:
    return read_case(golden / "mta_full").build()


@pytest.fixture(scope="module")
def full_trace(full: HookedMTA) -> Trace:
    return capture(full, IDS)


@pytest.fixture(scope="module")
def full_cache(full: HookedMTA) -> dict[tuple[int, Stage], Tensor]:
    return {at: _cached(full, IDS, *at) for at in _stages(full)}


@pytest.mark.golden
@EXAMPLES
@given(data=st.data())
def test_random_crops_of_the_full_method(full_trace: Trace, full_cache: dict, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from(list(full_cache)))
    head, rows = data.draw(st.integers(0, 3)), data.draw(st.sampled_from((2, 5, 40)))
    edges = st.none() | st.integers(-40, 40)
    queries, keys = (slice(data.draw(edges), data.draw(edges)) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attention, "slab_rows", lambda *_: rows)
        got = full_trace.map(*at, head, queries, keys)
    _assert_same(got, full_cache[at][head][queries, keys], ONE_LAYER * _scale(full_cache[at]))


@EXAMPLES
@given(blocks(), prompts(), st.integers(0, 2**16), st.integers(1, 6))
def test_random_models_in_small_slabs(block: dict, ids: list[int], seed: int, rows: int) -> None:
    model = random_case(block, seed).build()
    stages = list(_stages(model))
    at = stages[seed % len(stages)]
    want = _cached(model, ids, *at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attention, "slab_rows", lambda *_: rows)
        trace = capture(model, ids)
        check = self_check(trace)
        _assert_same(trace.maps(*at), want, WHOLE_RUN * _scale(want))
    assert check.residual_error <= WHOLE_RUN


@pytest.mark.golden
@pytest.mark.parametrize("row", [0, 1, 4, 5, 6, 10, 11])
def test_single_rows_where_the_halo_is_cut_by_the_start(
    full_trace: Trace, full_cache: dict, row: int
) -> None:
    """Kernels of 6 queries before and after the softmax: row 10 is the first with its whole halo."""
    for at, want in full_cache.items():
        got = full_trace.map(*at, 2, slice(row, row + 1))
        _assert_same(got, want[2, row : row + 1], ONE_LAYER * _scale(want))


@pytest.mark.golden
def test_slabs_are_small_with_and_without_gradients(
    full_trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory: no slab may be the whole map, whatever torch's gradient switch says."""
    monkeypatch.setattr("mta_viz.model.attention.SLAB_CELLS", {"cpu": 1, "cuda": 1})
    for switch in (torch.no_grad, torch.enable_grad):
        with switch():
            found = [(first, tuple(maps.shape)) for first, maps in full_trace.slabs(1, Stage.SOFTMAX_KQ)]
        assert found == [(0, (4, 16, 16)), (16, (4, 16, 32)), (32, (4, 5, 37))]


@pytest.mark.golden
def test_a_later_key_than_the_rows_is_zero(full_trace: Trace) -> None:
    crop = full_trace.map(1, Stage.KQ, 0, slice(3, 5), slice(2, 9))
    assert crop.shape == (2, 7)
    assert torch.equal(crop.count_nonzero(dim=1), torch.tensor([2, 3]))


@pytest.mark.golden
def test_an_empty_crop(full_trace: Trace) -> None:
    assert full_trace.map(1, Stage.RAW, 0, slice(5, 5), slice(0, 9)).shape == (0, 9)
    assert full_trace.map(1, Stage.RAW, 0, slice(5, 7), slice(9, 9)).shape == (2, 0)
    assert full_trace.map(1, Stage.RAW, 0, slice(7, 5), slice(9, 3)).shape == (0, 0)


@pytest.mark.golden
def test_what_is_not_there_is_said(full_trace: Trace) -> None:
    with pytest.raises(PromptError, match=r"layer 0 has no hook_scores_kq; its stages are hook_attn_scores"):
        full_trace.map(0, Stage.KQ, 0)
    for layer, head, message in (
        (4, 0, "layer 4"),
        (-1, 0, "layer -1"),
        (0, 4, "head 4"),
        (0, -1, "head -1"),
    ):
        with pytest.raises(PromptError, match=message):
            full_trace.map(layer, Stage.RAW, head)


@pytest.mark.golden
@pytest.mark.parametrize("fixture", FIXTURES)
def test_residuals_logits_and_gates_are_the_models_own(golden: Path, fixture: str) -> None:
    model = read_case(golden / fixture).build()
    trace, layers = capture(model, IDS), range(model.config.n_layers)
    names = [f"blocks.{layer}.hook_resid_pre" for layer in layers]
    gates = [f"blocks.{layer}.attn.hook_gate" for layer in layers if model.config.mta.gate]
    found = run_hooks(model, IDS, [*names, *gates, f"blocks.{layers[-1]}.hook_resid_post"])
    residuals = torch.stack([found[name] for name in (*names, f"blocks.{layers[-1]}.hook_resid_post")])
    torch.testing.assert_close(trace.residuals, residuals, rtol=0, atol=1e-6 * float(residuals.abs().max()))
    torch.testing.assert_close(trace.logits(), found["logits"], rtol=0, atol=2e-6)
    torch.testing.assert_close(trace.logits(slice(4, 6)), found["logits"][4:6], rtol=0, atol=2e-6)
    for layer in layers:
        gate = trace.gate(layer)
        if not gates:
            assert gate is None
        else:
            torch.testing.assert_close(gate, found[gates[layer]], rtol=0, atol=1e-6)


@pytest.mark.golden
@pytest.mark.parametrize("fixture", FIXTURES)
def test_self_check_is_small_on_a_good_trace_and_large_on_a_bad_one(golden: Path, fixture: str) -> None:
    trace = capture(read_case(golden / fixture).build(), IDS)
    check = self_check(trace)
    assert check.residual_error < 1e-5
    assert check.logits_error < 1e-5
    everywhere, once = trace.residuals.flip(1), trace.residuals.clone()
    once[1] = once[1].flip(0)
    assert self_check(Trace(trace.tokens, everywhere, trace.model)).logits_error > 0.1
    assert self_check(Trace(trace.tokens, once, trace.model)).residual_error > 0.1


@pytest.mark.golden
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_maps_equal_the_hook_cache(golden: Path, dtype: torch.dtype) -> None:
    """Both sides round alike; a shorter slab may round a product the other way, by one unit."""
    model = read_case(golden / "mta_full").build(dtype)
    trace = capture(model, IDS)
    for layer, stage in _stages(model):
        want = _cached(model, IDS, layer, stage)
        got = trace.maps(layer, stage)
        tolerance = 4 * torch.finfo(dtype).eps * float(want.abs().max())
        torch.testing.assert_close(got, want, rtol=0, atol=tolerance)


@pytest.mark.golden
def test_self_check_is_nan_when_the_model_holds_one(golden: Path) -> None:
    model = read_case(golden / "mta_full").build()
    with torch.no_grad():
        model.blocks[1].attn.kernel_pre[0, 0, 0] = float("nan")
    check = self_check(capture(model, IDS))
    assert math.isnan(check.residual_error) and math.isnan(check.logits_error)


@pytest.mark.golden
def test_all_stages_in_one_pass_equal_each_by_itself(full_trace: Trace) -> None:
    for layer in range(full_trace.model.config.n_layers):
        for start, found in full_trace.stage_slabs(layer):
            for stage, slab in found.items():
                rows = slice(start, start + slab.shape[1])
                assert torch.equal(slab, full_trace.maps(layer, stage, rows)[:, :, : slab.shape[2]])


@pytest.mark.golden
def test_what_is_no_crop_or_depth_is_refused(full_trace: Trace) -> None:
    with pytest.raises(PromptError, match="queries goes in steps of 2"):
        full_trace.map(0, Stage.RAW, 0, slice(0, 10, 2))
    with pytest.raises(PromptError, match="keys goes in steps of -1"):
        full_trace.map(0, Stage.RAW, 0, keys=slice(None, None, -1))
    with pytest.raises(PromptError, match="depth 99 does not exist"):
        full_trace.lens(99)


def test_queries_keys_and_values_of_the_layer_asked_for_last_are_kept(monkeypatch):
    trace = capture(HookedMTA(config(FULL, 29)).requires_grad_(False), IDS)
    layers = list(trace.model.blocks)
    asked = [Mock(wraps=block.attn.project) for block in layers]
    for block, project in zip(layers, asked, strict=True):
        monkeypatch.setattr(block.attn, "project", project)
    for layer, stage in ((0, Stage.RAW), (0, Stage.PATTERN), (1, Stage.RAW), (0, Stage.RAW)):
        first, again = (trace.map(layer, stage, 1) for _ in range(2))
        assert torch.equal(first, again)
    assert [project.call_count for project in asked[:2]] == [2, 1]


@pytest.mark.parametrize("stage", [Stage.RAW, Stage.KQ, Stage.MIX])
@pytest.mark.parametrize("corner", [(0, 0), (200, 180), (200, 3), (40, 150), (279, 279), (150, 130)])
def test_a_crop_before_the_softmax_computes_its_own_keys_alone(monkeypatch, stage, corner):
    model = HookedMTA(config(replace(FULL, mta_layers=None), 29)).requires_grad_(False)
    for block in model.blocks:
        block.attn.kernel_pre.add_(torch.randn_like(block.attn.kernel_pre))
    trace = capture(model, [(7 * i + 3) % 29 for i in range(300)])
    part = tuple(slice(start, start + 20) for start in corner)
    whole = trace.maps(1, stage)[:, part[0], part[1]]
    scores = Mock(wraps=ops.attention_scores)
    monkeypatch.setattr(ops, "attention_scores", scores)
    torch.testing.assert_close(trace.maps(1, stage, *part), whole, atol=1e-6, rtol=1e-5)
    read = scores.call_args.args[1].shape[1]
    beside = 2 * model.blocks[1].attn.kernel_pre.shape[2]
    assert read <= 40 + beside
