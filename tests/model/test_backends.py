"""How a layer is computed is chosen by what it is, where it runs and who looks; and slabs say why."""

from dataclasses import replace

import pytest
import torch

import mta_viz
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model import backends
from mta_viz.model.backends import Backend, choose, described
from mta_viz.model.transformer import HookedMTA

MIXED = MTAOptions(pre_kernel=(6, 11), mta_layers=(0,), head_pre=True)
SIZES = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "d_head": 16,
    "d_mlp": 8,
    "vocab_size": 9,
}
CONFIG = ModelConfig(**SIZES, mta=MIXED)
PLAIN = ModelConfig(**SIZES)


@pytest.fixture(autouse=True)
def triton(monkeypatch):
    """Whether Triton is here does not matter to these tests."""
    monkeypatch.setattr(backends, "has_triton", lambda: True)


def chosen(config=CONFIG, *, layer=0, device="cuda", dtype=torch.bfloat16, hooked=False, patched=False):
    with torch.no_grad():
        kernels, seen = config.kernels(layer), {"hooked": hooked, "patched": patched}
        return choose(config, kernels, torch.device(device), dtype, **seen)


def test_on_cuda_kernels_and_mixing_are_fused_and_plain_layers_torchs_own():
    assert chosen() == chosen(layer=1) == Backend("fused")
    assert chosen(PLAIN) == chosen(PLAIN, dtype=torch.float64) == Backend("sdpa")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cpu"}, "the CPU"),
        ({"hooked": True}, "a hook"),
        ({"patched": True}, "an intervention"),
        ({"dtype": torch.float64}, "float64"),
        ({"config": replace(CONFIG, n_heads=128, n_kv_heads=1)}, "128 heads"),
        ({"config": replace(CONFIG, d_head=512)}, "width 512"),
        ({"config": replace(CONFIG, d_head=40)}, "width 40"),
        ({"config": replace(CONFIG, mta=replace(MIXED, pre_kernel=(2, 201)))}, "2 x 201"),
    ],
)
def test_slabs_say_why(change, words):
    backend = chosen(**change)
    assert backend.name == "slabs" and words in backend.reason


def test_gradients_and_a_missing_triton_keep_the_slabs(monkeypatch):
    kernels, seen = CONFIG.kernels(0), {"hooked": False, "patched": False}
    assert choose(CONFIG, kernels, torch.device("cuda"), torch.float32, **seen).reason == "gradients are kept"
    assert choose(PLAIN, PLAIN.kernels(0), torch.device("cuda"), torch.float32, **seen).name == "sdpa"
    monkeypatch.setattr(backends, "has_triton", lambda: False)
    assert "Triton" in chosen().reason


def test_a_run_keeps_and_tells_it():
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    trace = mta_viz.capture(model, [1, 2, 3])
    assert described(trace.backends) == "2 layers in slabs of maps, since it runs on the CPU"
    fused, plain = Backend("fused"), Backend("sdpa")
    assert described([fused, plain, fused]) == "2 layers in fused kernels; 1 layer by torch's own attention"
