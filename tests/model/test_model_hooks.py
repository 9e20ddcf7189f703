"""The model as a TransformerLens module: hook names, caches, ablations, dtypes, nothing in place."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from model_cases import EXAMPLES, FIXTURES, Case, blocks, is_map, random_case, read_case
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from mta_viz.model.attention import Attention
from mta_viz.model.stages import model_stages
from mta_viz.model.transformer import HookedMTA

BLOCK = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "multiple_of": 8,
    "vocab_size": 13,
    "mta": {
        "use_mta": True,
        "query_kernel_size": 3,
        "key_kernel_size": 5,
        "after_sm_query_kernel_size": 2,
        "after_sm_key_kernel_size": 3,
        "mta_layers": "1",
        "head_kernel_size": 2,
        "pre_sm_linear_head": True,
        "group_norm": True,
        "add_gating": True,
    },
}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
BLOCK_HOOKS = ("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_out", "hook_resid_post")
VECTOR_HOOKS = ("hook_q", "hook_k", "hook_v", "hook_rot_q", "hook_rot_k", "hook_z", "hook_z_gated")


@pytest.fixture(scope="module")
def case() -> Case:
    return random_case(BLOCK, seed=4)


@pytest.fixture
def model(case: Case) -> HookedMTA:
    return case.build()


def _hooks(model: HookedMTA) -> int:
    points = [module for module in model.modules() if isinstance(module, HookPoint)]
    return sum(len(p._forward_hooks) + len(p._backward_hooks) + len(p._forward_pre_hooks) for p in points)


@EXAMPLES
@given(blocks())
def test_the_cache_holds_the_listed_hooks_and_no_others(block: dict) -> None:
    model = random_case(block).build()
    config = model.config
    expected = {"hook_embed", "ln_final.hook_normalized"}
    for layer, stages in enumerate(model_stages(config)):
        expected |= {stage.hook_name(layer) for stage in stages}
        attn = [
            *VECTOR_HOOKS,
            *["hook_z_normed"] * config.mta.group_norm,
            *["hook_gate"] * bool(config.mta.gate),
        ]
        expected |= {f"blocks.{layer}.attn.{name}" for name in attn}
        expected |= {f"blocks.{layer}.{name}" for name in BLOCK_HOOKS}
        expected |= {f"blocks.{layer}.{norm}.hook_normalized" for norm in ("ln1", "ln2")}
    _, cache = model.run_with_cache(TOKENS)
    assert set(cache) == expected == set(model.hook_dict)


@pytest.mark.golden
def test_stages_per_layer_of_the_golden_models(golden: Path) -> None:
    short = {name: [] for name in FIXTURES}
    for name in FIXTURES:
        for stages in model_stages(read_case(golden / name).build().config):
            short[name].append(" ".join(stage.value.key for stage in stages))
    mixing, everything = "raw mix sm final", "raw kq mix sm kq2 final"
    assert short == {
        "mta_full": [mixing, everything, mixing, everything],
        "mta_headgroups2": ["raw kq sm kq2 final", "raw sm final", "raw kq sm kq2 final"],
        "mta_toy": ["raw kq sm final"] * 4,
        "talking_heads": [mixing] * 3,
        "baseline": ["raw sm final"] * 3,
    }


def test_an_ablation_hook_acts_once_and_leaves_nothing(
    model: HookedMTA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 5)

    def without_head_2(pattern: Tensor, hook: HookPoint) -> Tensor:
        assert pattern.shape == (1, 4, 12, 12)
        return torch.where(torch.arange(4)[:, None, None] == 2, 0.0, pattern)

    with torch.no_grad():
        clean = model(TOKENS)
        ablated = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_pattern", without_head_2)])
        again = model(TOKENS)
    assert (ablated - clean).abs().max() > 1e-3
    assert torch.equal(again, clean)
    assert _hooks(model) == 0


def test_ablating_a_head_is_a_zero_in_hook_z(model: HookedMTA) -> None:
    def zero(value: Tensor, hook: HookPoint) -> Tensor:
        axis = torch.arange(4) == 1
        return torch.where(axis[:, None, None] if is_map(hook.name) else axis[:, None], 0.0, value)

    by_pattern, by_z = (
        model.run_with_hooks(TOKENS, fwd_hooks=[(f"blocks.1.attn.{name}", zero)])
        for name in ("hook_pattern", "hook_z")
    )
    torch.testing.assert_close(by_pattern, by_z, atol=1e-6, rtol=0)


@pytest.mark.parametrize("stage", ["hook_attn_scores", "hook_scores_kq", "hook_scores_mixed", "hook_softmax"])
def test_a_hook_on_any_stage_changes_what_follows(model: HookedMTA, stage: str) -> None:
    name = f"blocks.1.attn.{stage}"
    changed = model.run_with_hooks(TOKENS, fwd_hooks=[(name, lambda value, hook: value * value)])
    assert (changed - model(TOKENS)).abs().max() > 1e-3


def test_a_failing_hook_leaves_no_hook_behind(model: HookedMTA) -> None:
    def fail(value: Tensor, hook: HookPoint) -> Tensor:
        raise RuntimeError("stopped here")

    with pytest.raises(RuntimeError, match="stopped here"):
        model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_softmax", fail)])
    assert _hooks(model) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_nothing_is_written_in_place(case: Case, dtype: torch.dtype) -> None:
    """Every tensor a hook saw still holds after the run what it held when the hook saw it."""
    model, seen = case.build(dtype), {}
    weights = {name: value.clone() for name, value in model.state_dict().items()}

    def keep(value: Tensor, hook: HookPoint) -> None:
        seen[hook.name] = (value, value.clone())

    tokens = TOKENS.clone()
    model.run_with_hooks(tokens, fwd_hooks=[(name, keep) for name in model.hook_dict])
    assert set(seen) == set(model.hook_dict)
    changed = [name for name, (tensor, copy) in seen.items() if not torch.equal(tensor, copy)]
    assert changed == []
    assert torch.equal(tokens, TOKENS)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 0), (torch.bfloat16, 0.15), (torch.float16, 0.02)]
)
def test_every_hook_has_the_asked_dtype(case: Case, dtype: torch.dtype, atol: float) -> None:
    model = case.build(dtype)
    logits, cache = model.run_with_cache(TOKENS)
    assert model.dtype == logits.dtype == dtype
    assert {name: value.dtype for name, value in cache.items()} == dict.fromkeys(cache, dtype)
    exact = case.build()(TOKENS)
    assert (logits.float() - exact).abs().max() <= atol * exact.abs().max()


@pytest.mark.parametrize("rows", [1, 3, 5, 11, 12, 100])
def test_slabs_give_what_one_slab_gives(model: HookedMTA, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.cat([TOKENS, TOKENS.flip(1)])
    whole = model.run_with_cache(tokens)[0]
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: rows)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), whole, atol=1e-5, rtol=0)


def test_with_gradients_the_logits_are_the_same(model: HookedMTA) -> None:
    with torch.no_grad():
        expected = model(TOKENS)
    model.requires_grad_(True)
    logits = model(TOKENS)
    torch.testing.assert_close(logits.detach(), expected, atol=2e-6, rtol=0)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
