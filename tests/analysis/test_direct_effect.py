"""Direct effects sum to what a layer's heads really add to the logit; whole ones are runs without a cell."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.analysis.cause.direct_effect import direct_effect, direction, largest_cells, layer_effect
from mta_viz.analysis.cause.removed_cells import COLUMNS, whole_effects
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import PromptError
from mta_viz.model.hooking import HookPoint
from mta_viz.model.interventions import PatchHead
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import without_cell
from mta_viz.run.tracing import capture, operated, run_hooks
from tests.tiny_models import random_weights

OPTIONS = (
    MTAOptions(
        pre_kernel=(3, 5), post_kernel=(3, 5), head_pre=True, head_post_group=2, group_norm=True, gate="1d",
        depth_scale=True,
    ),
    MTAOptions(post_kernel=(2, 3)),
    MTAOptions(post_kernel=(4, 4), head_post_linear=True, group_norm=True, pad_key="left"),
    MTAOptions(head_post_group=4, gate="dd"),
    MTAOptions(),
)  # fmt: skip


def build(mta: MTAOptions, seed: int = 0, n_kv_heads: int = 4) -> HookedMTA:
    config = ModelConfig(
        d_model=32, n_layers=2, n_heads=4, n_kv_heads=n_kv_heads, d_head=8, d_mlp=16, vocab_size=17, mta=mta,
    )  # fmt: skip
    model = HookedMTA(config)
    model.load_state_dict(random_weights(config, seed))
    return model.requires_grad_(False).eval()


@settings(max_examples=25)
@given(
    mta=st.sampled_from(OPTIONS),
    seed=st.integers(0, 50),
    layer=st.integers(0, 1),
    position=st.integers(0, 11),
    kv=st.sampled_from([1, 2, 4]),
)
def test_cells_and_heads_sum_to_the_logit_contribution_of_the_layer(mta, seed, layer, position, kv):
    model = build(mta, seed, kv)
    ids = torch.randint(0, 17, (12,), generator=torch.Generator().manual_seed(seed)).tolist()
    trace = capture(model, ids)
    found = layer_effect(trace, layer, position, 3)
    hook = f"blocks.{layer}.attn.hook_z_gated"
    z = run_hooks(model, ids, [hook])[hook][position]
    onto = direction(trace, position, 3)
    wo = model.blocks[layer].attn.wo.weight.unflatten(1, (4, 8))
    by_head = torch.einsum("hd,mhd,m->h", z, wo, onto)
    scale = float(found.values.abs().sum())
    assert found.heads.tolist() == pytest.approx(by_head.tolist(), abs=1e-5 * scale)
    assert float(found.values.sum()) == pytest.approx(float(by_head.sum()), abs=1e-5 * scale)
    assert found.error <= 1e-5
    assert found.values.shape == (4, position + 1 - found.first_query, position + 1)


def test_contributions_of_layers_and_the_rest_sum_to_the_logit():
    model = build(OPTIONS[0])
    ids = list(range(10))
    trace = capture(model, ids)
    onto = direction(trace, 9, 5)
    assert float(trace.residuals[-1, 9] @ onto) == pytest.approx(float(trace.logits()[9, 5]), abs=1e-4)
    names = [f"blocks.{layer}.hook_mlp_out" for layer in range(2)]
    mlps = sum(float(out[9] @ onto) for name, out in run_hooks(model, ids, names).items() if name in names)
    heads = sum(layer_effect(trace, layer, 9, 5).total for layer in range(2))
    assert heads + mlps + float(trace.residuals[0, 9] @ onto) == pytest.approx(
        float(trace.logits()[9, 5]), abs=1e-4
    )


def test_a_cell_adds_what_its_layer_adds_less_without_it():
    """The fold is the derivative: with norm and gate absent, taking out one softmax cell loses its number."""
    model = build(OPTIONS[1])
    ids = list(range(8))
    trace = capture(model, ids)
    found = layer_effect(trace, 1, 7, 4)
    onto = direction(trace, 7, 4)
    name, out = f"blocks.1.attn.{Stage.SOFTMAX.value.hook}", "blocks.1.hook_attn_out"
    before = run_hooks(model, ids, [out])[out][7] @ onto
    for head, query, key in ((0, 7, 7), (2, 6, 3), (3, 7, 1), (1, 5, 2)):

        def without(maps, hook, at=(head, query, key)):
            maps = maps.clone()
            maps[(0, *at)] = 0
            return maps

        kept = {}
        model.run_with_hooks(
            torch.tensor([ids]),
            fwd_hooks=[(name, without), (out, lambda x, hook, kept=kept: kept.update(out=x[0, 7]))],
        )
        lost = float(before - kept["out"] @ onto)
        inside = query >= found.first_query
        told = float(found.values[head, query - found.first_query, key]) if inside else 0.0
        assert lost == pytest.approx(told, abs=1e-5)


def test_the_models_lock_is_held_where_a_hook_point_is_passed():
    model, free = build(OPTIONS[0]), []

    def try_lock():
        free.append(model.lock.acquire(blocking=False))

    class OtherSession(HookPoint):
        def forward(self, values):
            thread = threading.Thread(target=try_lock)
            thread.start()
            thread.join()
            return values

    trace = capture(model, list(range(6)))
    model.blocks[1].attn.hook_z_normed = OtherSession()
    layer_effect(trace, 1, 5, 3)
    assert free == [False]


@pytest.mark.parametrize("stage", ["z", "final", "kq2"])
def test_a_layer_patched_after_its_softmax_is_refused(stage):
    model = operated(build(OPTIONS[0]), [PatchHead(1, 2, stage, (3, 4, 5, 6))], 4)
    trace = capture(model, [1, 2, 3, 4])
    assert layer_effect(trace, 0, 3, 3).error <= 1e-5
    with pytest.raises(PromptError, match="a patch replaced what layer 1 computes"):
        layer_effect(trace, 1, 3, 3)


def test_a_prompts_effects_are_those_on_the_logit_it_asks_about():
    model = build(OPTIONS[0])
    found = direct_effect(model, list(range(10)), position=6)
    token = found.answer.ids[0]
    alone = layer_effect(capture(model, list(range(7))), 1, 6, token)
    assert torch.equal(found.layers[1].values, alone.values) and found.token == token
    assert found.logit == pytest.approx(float(capture(model, list(range(7))).logits()[6, token]), abs=1e-5)
    assert found.layers[1].sources.tolist() == pytest.approx(alone.values.sum((1, 2)).tolist(), abs=1e-5)
    cells = largest_cells(alone, 5)
    sizes = [abs(cell.value) for cell in cells]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == float(alone.values.abs().max())
    weights = capture(model, list(range(7))).maps(1, Stage.SOFTMAX)
    for cell in cells:
        row = cell.query - alone.first_query
        assert cell.value == float(alone.values[cell.head, row, cell.key])
        assert cell.softmax == pytest.approx(float(weights[cell.head, cell.query, cell.key]), abs=1e-6)


@pytest.mark.parametrize(("layer", "position", "token"), [(2, 0, 0), (0, 8, 0), (0, 0, 17), (-1, 0, 0)])
def test_what_is_not_there_is_told(layer, position, token):
    with pytest.raises(PromptError, match="does not exist; expected 0 to"):
        layer_effect(capture(build(OPTIONS[4]), list(range(8))), layer, position, token)


def removed_by_hand(model: HookedMTA, ids: list[int], layer: int, cell: tuple[int, int, int]) -> torch.Tensor:
    """Logits of the last position when one softmax weight is 0, by TransformerLens's own hooks."""

    def zero(maps, hook):
        maps = maps.clone()
        maps[(0, *cell)] = 0
        return maps

    name = f"blocks.{layer}.attn.{Stage.SOFTMAX.value.hook}"
    return model.run_with_hooks(torch.tensor([ids]), fwd_hooks=[(name, zero)])[0, -1]


@pytest.mark.parametrize("mta", OPTIONS)
@pytest.mark.parametrize("layer", [None, 0])
def test_whole_effects_are_runs_without_the_cell(mta, layer):
    model, ids = build(mta, 3), [3, 1, 4, 1, 5, 9, 2, 6]
    effects, done = direct_effect(model, ids), []
    found = whole_effects(effects, layer=layer, count=5, progress=done.append)
    before, token = model(torch.tensor([ids]))[0, -1], effects.token
    assert [(cell.layer, cell.value) for cell in found.cells] == [
        (cell.layer, cell.value) for cell in effects.largest(layer, 5)
    ]
    for cell in found.cells:
        after = removed_by_hand(model, ids, cell.layer, (cell.head, cell.query, cell.key))
        assert cell.whole_logit == pytest.approx(float(before[token] - after[token]), abs=1e-5)
        lost = before.log_softmax(-1)[token] - after.log_softmax(-1)[token]
        assert cell.whole_log_p == pytest.approx(float(lost), abs=1e-5)
    assert (
        done[-1] == 1 and len(done) == 5 and all(cell.layer == (layer or cell.layer) for cell in found.cells)
    )
    assert (
        found.table().columns == COLUMNS
        and found.as_data()["cells"][0]["direct_effect"] == found.cells[0].value
    )


def without_mlps(model: HookedMTA) -> HookedMTA:
    for block in model.blocks:
        block.mlp.w2.weight.zero_()
    return model


def test_where_only_the_final_norm_follows_what_it_hides_is_its_scale():
    """Norms free is the whole, and without the cell the logit is what is left, scaled anew."""
    model, ids = without_mlps(build(OPTIONS[1])), list(range(8))
    effects = direct_effect(model, ids)
    run = without_cell(effects.trace, 1, None, 7)
    for cell in whole_effects(effects, layer=1, count=12).cells:
        assert cell.norms_free == pytest.approx(cell.whole_logit, abs=1e-5)
        gone = without_cell(effects.trace, 1, (cell.head, cell.query, cell.key), 7)
        scale = float(run.leaving.norm() / gone.leaving.norm())
        left = (effects.logit - cell.value) * scale
        assert cell.whole_logit == pytest.approx(effects.logit - left, abs=1e-3)
        assert abs(cell.whole_logit - cell.value) > 1e-4  # the scale is not held


def test_a_cell_that_only_scales_a_norms_input_acts_with_the_norm_held_alone():
    """Equal tokens have equal values in layer 0: whatever goes, the group norm scales the rest up again."""
    model = build(OPTIONS[2], 4)
    found = whole_effects(direct_effect(model, [5] * 8), layer=0, count=6)
    for cell in found.cells:
        assert abs(cell.value) > 0.01
        assert cell.norms_free == pytest.approx(0, abs=abs(cell.value) / 20)
        assert cell.whole_logit == pytest.approx(0, abs=abs(cell.value) / 20)


def test_an_answer_of_several_tokens_is_removed_at_its_own_position():
    model, ids = build(OPTIONS[0]), list(range(8))
    trace_of = direct_effect(model, ids, position=5)
    whole = whole_effects(trace_of, count=1).cells[0]
    again = removed_by_hand(model, ids[:6], whole.layer, (whole.head, whole.query, whole.key))
    lost = float(model(torch.tensor([ids[:6]]))[0, -1, trace_of.token] - again[trace_of.token])
    assert whole.whole_logit == pytest.approx(lost, abs=1e-5)
    with pytest.raises(PromptError, match="layer 2 does not exist"):
        whole_effects(trace_of, layer=2)


def test_the_output_bias_belongs_to_no_head_and_stands_apart():
    """The attention's output is what its heads add, the values' bias among it, plus the bias of wo."""
    config = ModelConfig(
        d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=17,
        mta=OPTIONS[1], qkv_bias=True, out_bias=True, mlp_bias=True,
    )  # fmt: skip
    model = HookedMTA(config)
    model.load_state_dict(random_weights(config, 3))
    model.requires_grad_(False)
    trace = capture(model, list(range(9)))
    effect, onto = layer_effect(trace, 1, 8, 4), direction(trace, 8, 4)
    out = run_hooks(model, list(range(9)), ["blocks.1.hook_attn_out"])["blocks.1.hook_attn_out"][8]
    assert abs(effect.bias) > 0.01
    assert effect.total + effect.bias == pytest.approx(float(out @ onto), abs=1e-4)
    assert effect.bias == pytest.approx(float(model.blocks[1].attn.wo.bias @ onto), abs=1e-5)
    assert effect.error <= 1e-5
    assert effect.as_data()["bias"] == effect.bias
