"""DIFF Transformer: its size in the paper, every hook against float64, causality, lambda, what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_cases import Case, assert_hooks_close, random_case, visible

from mta_viz.analysis.attention.changes import layer_steps
from mta_viz.analysis.attention.decomposition import Half, decompose
from mta_viz.analysis.cause.direct_effect import layer_effect
from mta_viz.analysis.compare.maps import stage_beside
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.checkpoint.types import parameter_count, parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import CheckpointError, ConfigError
from mta_viz.model.attention import Attention
from mta_viz.model.backends import Backend
from mta_viz.model.interventions import PatchHead
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, generate, operated, run_hooks

IDS = [1, 5, 3, 9, 12, 0, 5, 3, 7, 2, 11]
BLOCK: dict[str, Any] = {
    "dim": 16, "n_layers": 3, "n_heads": 2, "head_dim": 8, "multiple_of": 4, "vocab_size": 13,
    "differential": True, "mta": {"group_norm": True, "layer_norm_rescale": True},
}  # fmt: skip
BLOCKS = {
    "paper": BLOCK,
    "bare": BLOCK | {"mta": None, "head_dim": 12, "weight_tying": True},
    "gate": BLOCK | {"mta": {"group_norm": True, "add_gating": True}, "qkv_bias": True, "rope_theta": 50.0},
}


@pytest.fixture(params=BLOCKS)
def case(request: pytest.FixtureRequest) -> Case:
    return random_case(BLOCKS[request.param], seed=3)


def test_the_papers_configuration_has_its_number_of_parameters() -> None:
    norm = MTAOptions(group_norm=True, depth_scale=True)
    config = ModelConfig(
        d_model=1536, n_layers=24, n_heads=8, n_kv_heads=8, d_head=192, d_mlp=4096, vocab_size=128_256,
        tied=True, differential=True, mta=norm,
    )  # fmt: skip
    with torch.device("meta"):
        model = HookedMTA(config)
    assert sum(value.numel() for value in model.parameters()) == 876_567_552 == parameter_count(config)
    assert {name: tuple(value.shape) for name, value in model.named_parameters()} == parameter_shapes(config)


def test_every_hook_and_the_logits_equal_the_float64_reference(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, want = case.build(), case.reference(IDS)
    _, cache = model.run_with_cache(torch.tensor([IDS]))
    assert_hooks_close({name: value[0] for name, value in cache.items()}, want, atol=1e-5)
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 4)  # what no hook sees, in slabs
    with torch.no_grad():
        logits = model(torch.tensor([IDS]))[0]
    np.testing.assert_allclose(logits, want["logits"], rtol=0, atol=1e-5 * max(1, abs(want["logits"]).max()))


def test_torchs_own_attention_gives_the_slabs_values_and_gradients(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a CUDA device takes while nobody looks at the maps, in training too."""
    model, runs = case.build().requires_grad_(True), []
    for backend in ("slabs", "sdpa"):
        monkeypatch.setattr(Attention, "backend", lambda *_, backend=backend: Backend(backend))
        model.zero_grad()
        logits = model(torch.tensor([IDS, IDS[::-1]]))
        logits.logsumexp(-1).sum().backward()
        runs.append({"logits": logits.detach()} | {name: p.grad for name, p in model.named_parameters()})
    for name, want in runs[0].items():
        torch.testing.assert_close(runs[1][name], want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))


def test_no_row_reads_a_later_token(case: Case) -> None:
    model, at = case.build(), 6
    runs = [model.run_with_cache(torch.tensor([ids]))[1] for ids in (IDS, [*IDS[:at], 8, *IDS[at + 1 :]])]
    for name in runs[0]:
        a, b = (visible(run[name][0], name) for run in runs)
        if ".hook_lambda" not in name:
            rows = (slice(None), slice(at)) if a.shape[-1] == len(IDS) else slice(at)
            assert np.array_equal(a[rows], b[rows]), name


def test_lambda_alone_can_be_replaced_of_one_head() -> None:
    model, seen = random_case(BLOCK).build(), {}

    def without(share: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.cat([torch.zeros_like(share[:, :1]), share[:, 1:]], dim=1)

    def keep(z: torch.Tensor, hook: object) -> None:
        seen["z"] = z

    hooks = [("blocks.1.attn.hook_lambda", without), ("blocks.1.attn.hook_z", keep)]
    _, cache = model.run_with_cache(torch.tensor([IDS]))
    model.run_with_hooks(torch.tensor([IDS]), fwd_hooks=hooks)
    first, values = cache["blocks.1.attn.hook_softmax"][0, 0], cache["blocks.1.attn.hook_v"][0, :, 0]
    torch.testing.assert_close(seen["z"][0, :, 0], first @ values)
    torch.testing.assert_close(seen["z"][:, :, 1], cache["blocks.1.attn.hook_z"][:, :, 1])


def test_what_it_cannot_have_is_refused_at_once() -> None:
    config = random_case(BLOCK).build().config
    with pytest.raises(ConfigError) as refused:
        replace(config, n_kv_heads=1, d_head=6, mta=MTAOptions(pre_kernel=(2, 3)))
    assert len(refused.value.problems) == 3
    assert "no kernels and no head mixing" in refused.value.problems[0]


def test_it_is_written_and_read_bit_for_bit_and_lingua_has_no_place_for_it(tmp_path: Path) -> None:
    model = random_case(BLOCK).build()
    write_native(
        tmp_path / "a", model.config, model.state_dict(), tokenizer_name=None, tokenizer_path=None, dtype=None
    )
    back = read_checkpoint(tmp_path / "a")
    assert back.config == model.config and back.config.variant == "differential"
    assert all(torch.equal(back.state_dict[name], value) for name, value in model.state_dict().items())
    assert params_from_config(back.config, None, None)["model"]["differential"] is True
    with pytest.raises(CheckpointError, match="it has differential True, which Lingua's format has no place"):
        write_lingua(tmp_path / "b", back)
    settings = tmp_path / "a" / "params.json"
    params = json.loads(settings.read_text())
    del params["model"]["differential"]
    settings.write_text(json.dumps(params))
    with pytest.raises(CheckpointError) as refused:
        read_checkpoint(tmp_path / "a")
    words = "layers.0.attention.lambda_k1 and 11 more are of the option differential, which is off in"
    assert any(problem.startswith(words) for problem in refused.value.problems)
    assert "remove it" not in str(refused.value)


def test_cells_patches_and_generation_know_both_softmax_maps() -> None:
    model = random_case(BLOCK).build()
    kernels, trace = model.config.kernels(1), capture(model, IDS)
    cache = model.run_with_cache(torch.tensor([IDS]))[1]
    for stage in model.blocks[1].attn.stages:
        row = cache[stage.hook_name(1)][0, 1, 9]
        torch.testing.assert_close(trace.map(1, stage, 1, slice(9, 10))[0, :10], row[:10])
        why = decompose(trace, 1, stage, 1, 9, 4)
        assert why.residual < 1e-5 and why.value == pytest.approx(float(row[4]), abs=1e-6)
    halves = {term.source_stage: term.weight for term in why.terms if isinstance(term, Half)}
    share = float(cache["blocks.1.attn.hook_lambda"][0, 1])
    assert halves == {"hook_softmax": 1.0, "hook_softmax_2": pytest.approx(-share)}
    assert [is_distribution(stage, kernels) for stage in (Stage.SOFTMAX_2, Stage.PATTERN)] == [True, False]
    befores = {step.after: step.before for step in layer_steps(kernels)}
    assert (befores[Stage.SOFTMAX_2], befores[Stage.PATTERN]) == (Stage.RAW_2, Stage.SOFTMAX)
    beside = [stage_beside(model.config, 1, stage) for stage in (Stage.KQ, Stage.SOFTMAX_KQ, Stage.SOFTMAX_2)]
    assert beside == [Stage.RAW, Stage.SOFTMAX, Stage.SOFTMAX_2]  # of an MTA model's stages, and its own
    effect = layer_effect(trace, 1, 9, 3)
    torch.testing.assert_close(effect.values.sum(), effect.heads.sum())
    other = (*IDS[:4], 8, *IDS[5:])
    patched = operated(model, [PatchHead(1, 0, "sm2", other)], len(IDS))
    there = run_hooks(model, other, [Stage.SOFTMAX_2.hook_name(1)])[Stage.SOFTMAX_2.hook_name(1)][0]
    torch.testing.assert_close(capture(patched, IDS).map(1, Stage.SOFTMAX_2, 0), there)
    ids = list(generate(model, IDS, 3))
    with torch.no_grad():
        logits = model(torch.tensor([[*IDS, *ids]]))[0]
    assert logits[len(IDS) - 1 : -1].argmax(-1).tolist() == ids
