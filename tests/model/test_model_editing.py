"""Edited models: the original untouched, the right tensors changed, everything else shared."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES, blocks, prompts, random_case

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import Cancelled, ConfigError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import (
    AblateHead,
    BypassGate,
    BypassGroupNorm,
    KernelFrom,
    KernelToIdentity,
    KernelToOwnTap,
    KernelToZero,
    MirrorKernel,
    MixingToIdentity,
    MixingToOwnWeight,
    PatchHead,
    ReplaceKernel,
    ScaleTowardsIdentity,
)
from mta_viz.model.plans import Plan, every_kernel
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, generate, run_hooks, score
from tests.tiny_models import FULL, config, random_weights

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 4, 0, 6, 3]])


def model_of(shapes: ModelConfig) -> HookedMTA:
    model = HookedMTA(shapes).requires_grad_(False).eval()
    model.load_state_dict(random_weights(shapes))
    return model


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    """4 layers x 4 heads, kernels in layers 1 and 3, group norm and gate."""
    return model_of(config(FULL, 16))


EVERY_KIND: Plan = (
    KernelToIdentity(1, 0, "pre"),
    KernelToZero(1, 1, "post"),
    ReplaceKernel(1, 2, "pre", tuple(tuple(float(r * c) for c in range(11)) for r in range(6))),
    KernelFrom(3, 0, "post", 2),
    MirrorKernel(3, 3, "pre"),
    ScaleTowardsIdentity(3, 1, "pre", 0.5),
    MixingToIdentity(0, "head_pre"),
    MixingToIdentity(2, "head_post", 3),
    KernelToOwnTap(3, 2, "pre"),
    MixingToOwnWeight(3, "head_post", 1),
    AblateHead(2, 1),
    BypassGroupNorm(1),
    BypassGate(3),
)


def test_own_tap_only_keeps_the_gain_and_sign_of_a_kernel_and_of_a_mixing_row(model: HookedMTA):
    """By hand: the own tap of a 6 x 11 kernel is its last row's middle; a head's own weight its diagonal."""
    made = edited(model, (KernelToOwnTap(1, 2, "pre"), MixingToOwnWeight(1, "head_post", 3)))
    own, there = model.blocks[1].attn, made.blocks[1].attn
    expected = torch.zeros(6, 11)
    expected[5, 5] = own.kernel_pre[2, 5, 5]
    assert torch.equal(there.kernel_pre[2], expected)
    assert torch.equal(there.kernel_pre[1], own.kernel_pre[1])
    assert there.head_post[0, 3].tolist() == [0, 0, 0, own.head_post[0, 3, 3].item()]
    assert torch.equal(there.head_post[0, :3], own.head_post[0, :3])
    whole = edited(model, (MixingToOwnWeight(1, "head_pre"),)).blocks[1].attn.head_pre
    assert torch.equal(whole[0], own.head_pre[0].diag().diag())


@EXAMPLES
@given(blocks(), prompts())
def test_an_empty_plan_changes_no_bit(block: dict, ids: list[int]):
    model = random_case(block).build()
    ids = torch.tensor([ids])
    assert torch.equal(score(edited(model, ()), ids), score(model, ids))


@EXAMPLES
@given(blocks(), prompts(), st.integers(0, 9))
def test_all_at_identity_is_the_plain_transformer(block: dict, ids: list[int], seed: int):
    model = random_case(block, seed).build()
    shapes = model.config
    plan = list(every_kernel(shapes))
    for layer in range(shapes.n_layers):
        plan += [BypassGroupNorm(layer)] if shapes.mta.group_norm else []
        plan += [BypassGate(layer)] if shapes.mta.gate else []
    plain = HookedMTA(replace(shapes, mta=MTAOptions(scale_block_norms=shapes.mta.scale_block_norms))).eval()
    plain.load_state_dict({name: model.state_dict()[name] for name in plain.state_dict()})
    want, got = score(plain, torch.tensor([ids])), score(edited(model, plan), torch.tensor([ids]))
    assert (got - want).abs().max() <= 1e-5 * max(1.0, float(want.abs().max()))


def test_the_original_is_never_touched_and_the_rest_is_shared(model: HookedMTA):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = edited(model, EVERY_KIND)
    capture(made, IDS[0].tolist())
    generate(made, IDS[0].tolist(), 3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    there = dict(made.named_parameters())
    shared = {
        name for name, value in model.named_parameters()
        if name in there and there[name].data_ptr() == value.data_ptr()
    }  # fmt: skip
    assert set(before) - shared == {
        "blocks.1.attn.kernel_pre", "blocks.1.attn.kernel_post", "blocks.3.attn.kernel_pre",
        "blocks.3.attn.kernel_post", "blocks.0.attn.head_pre", "blocks.2.attn.head_post",
        "blocks.2.attn.wo.weight", "blocks.1.attn.group_norm", "blocks.3.attn.gate.weight",
        "blocks.3.attn.gate.bias", "blocks.3.attn.head_post",
    }  # fmt: skip


def test_a_run_that_fails_half_way_leaves_the_original_as_it_was(model: HookedMTA):
    want = score(model, IDS)
    made = edited(model, EVERY_KIND)

    def stop(share: float) -> None:
        if share > 0.4:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        capture(made, IDS[0].tolist(), progress=stop)
    assert torch.equal(score(model, IDS), want)
    assert made.lock is not model.lock and made.lock.acquire(blocking=False)
    made.lock.release()


def test_every_way_of_running_gives_the_edited_model(model: HookedMTA):
    made = edited(model, EVERY_KIND)
    logits = score(made, IDS)[0]
    assert not torch.allclose(logits, score(model, IDS)[0], atol=1e-2)
    trace = capture(made, IDS[0].tolist())
    hooks = run_hooks(made, IDS[0].tolist(), ["blocks.3.attn.hook_pattern"])
    torch.testing.assert_close(trace.logits(), logits)
    torch.testing.assert_close(hooks["logits"], logits)
    torch.testing.assert_close(trace.maps(3, Stage.PATTERN), hooks["blocks.3.attn.hook_pattern"])
    assert generate(made, IDS[0].tolist(), 1) == (int(logits[-1].argmax()),)


@pytest.mark.parametrize(("pad_key", "own"), [("both", 1), ("left", 2), ("right", 0)])
def test_the_identity_kernel_has_its_own_tap_where_the_padding_says(pad_key: str, own: int):
    shapes = config(MTAOptions(pre_kernel=(2, 3), pad_key=pad_key), 16)
    original = model_of(shapes)
    kernels = edited(original, [KernelToIdentity(2, 1, "pre")]).blocks[2].attn.kernel_pre
    want = torch.zeros(2, 3)
    want[1, own] = 1
    assert torch.equal(kernels[1], want)
    others = [0, 2, 3]
    assert torch.equal(kernels[others], original.blocks[2].attn.kernel_pre[others])


def test_the_other_kernel_edits_by_hand():
    model = model_of(config(MTAOptions(pre_kernel=(1, 3)), 16))
    with torch.no_grad():
        model.blocks[0].attn.kernel_pre[0, 0] = torch.tensor([1.0, 2.0, 3.0])
        model.blocks[0].attn.kernel_pre[1, 0] = torch.tensor([4.0, 5.0, 6.0])

    def row(*plan) -> list[float]:
        return edited(model, plan).blocks[0].attn.kernel_pre[0, 0].tolist()

    assert row(KernelToZero(0, 0, "pre")) == [0, 0, 0]
    assert row(ReplaceKernel(0, 0, "pre", ((7.0, 8.0, 9.0),))) == [7, 8, 9]
    assert row(KernelFrom(0, 0, "pre", 1)) == [4, 5, 6]
    assert row(MirrorKernel(0, 0, "pre")) == [3, 2, 1]
    assert row(ScaleTowardsIdentity(0, 0, "pre", 0.0)) == [1, 2, 3]
    assert row(ScaleTowardsIdentity(0, 0, "pre", 0.25)) == [0.75, 1.75, 2.25]
    assert row(ScaleTowardsIdentity(0, 0, "pre", 1.0)) == [0, 1, 0]


def test_a_plan_acts_in_its_order():
    model = model_of(config(MTAOptions(pre_kernel=(1, 1)), 16))
    zero, copy = KernelToZero(0, 1, "pre"), KernelFrom(0, 0, "pre", 1)
    first, second = (
        edited(model, plan).blocks[0].attn.kernel_pre[0] for plan in ((zero, copy), (copy, zero))
    )
    assert float(first) == 0
    assert float(second) == float(model.blocks[0].attn.kernel_pre[1]) != 0


def test_one_row_of_a_grouped_mixing_becomes_the_identity():
    model = model_of(config(MTAOptions(head_post_group=2), 16))
    old = model.blocks[1].attn.head_post
    new = edited(model, [MixingToIdentity(1, "head_post", 2)]).blocks[1].attn.head_post
    assert new[1, 0].tolist() == [1, 0]  # head 2 is the first of the second group
    assert torch.equal(new[0], old[0]) and torch.equal(new[1, 1], old[1, 1])


def test_an_ablated_head_equals_a_hook_that_zeroes_its_output(model: HookedMTA):
    def zero(z: torch.Tensor, hook: object) -> torch.Tensor:
        z[:, :, 1] = 0
        return z

    with torch.no_grad():
        want = model.run_with_hooks(IDS, fwd_hooks=[("blocks.2.attn.hook_z", zero)])
    torch.testing.assert_close(score(edited(model, [AblateHead(2, 1)]), IDS), want)
    assert not torch.allclose(score(model, IDS), want, atol=1e-3)


def test_without_its_heads_an_attention_adds_its_output_bias_alone() -> None:
    model = model_of(replace(config(FULL, 16), qkv_bias=True, out_bias=True, mlp_bias=True))
    off = edited(model, [AblateHead(2, head) for head in range(4)])
    name = "blocks.2.hook_attn_out"
    added = run_hooks(off, IDS[0].tolist(), [name])[name]
    torch.testing.assert_close(added, model.blocks[2].attn.wo.bias.expand_as(added))


def test_a_bypassed_part_is_gone_from_that_layer_only(model: HookedMTA):
    made = edited(model, [BypassGroupNorm(1), BypassGate(1), BypassGate(1)])
    assert "blocks.1.attn.hook_z_normed" not in made.hook_dict
    assert "blocks.1.attn.hook_gate" not in made.hook_dict
    assert "blocks.2.attn.hook_gate" in made.hook_dict
    trace = capture(made, IDS[0].tolist())
    assert trace.gate(1) is None and trace.gate(2) is not None
    hooks = run_hooks(made, IDS[0].tolist(), [f"blocks.1.attn.{name}" for name in ("hook_z", "hook_z_gated")])
    assert torch.equal(hooks["blocks.1.attn.hook_z"], hooks["blocks.1.attn.hook_z_gated"])


@pytest.mark.parametrize("cut", range(len(EVERY_KIND) + 1))
def test_an_edited_model_can_be_edited_again(model: HookedMTA, cut: int):
    patch = PatchHead(2, 0, "sm", (1,) * 12)
    plan = (patch, *EVERY_KIND)
    sources = {patch: torch.full((12, 12), 0.3).tril()}
    whole = edited(model, plan, sources)
    twice = edited(edited(model, plan[: cut + 1], sources), plan[cut + 1 :])
    assert twice.plan == whole.plan
    assert torch.equal(score(twice, IDS), score(whole, IDS))
    assert not torch.allclose(score(edited(model, EVERY_KIND), IDS), score(whole, IDS), atol=1e-4)


def test_what_the_model_lacks_is_refused(model: HookedMTA):
    with pytest.raises(ConfigError, match="layer 0 has no pre kernel; layers with one: 1, 3"):
        edited(model, [KernelToIdentity(0, 0, "pre")])


def test_half_precision_stays_what_it_is(model: HookedMTA):
    half = model_of(config(FULL, 16)).to(torch.bfloat16)
    made = edited(half, EVERY_KIND)
    assert {value.dtype for value in made.state_dict().values()} == {torch.bfloat16}
