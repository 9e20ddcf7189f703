"""Other trainings of a model's shape: beside its folder, among the models, as kernels in `cards`."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mta_viz.checkpoint.files import run_folder
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.relatives import own_seed, relative_kernels, relatives
from mta_viz.config import ModelConfig, MTAOptions
from tests.tiny_models import config, random_weights

SHAPES = config(MTAOptions(pre_kernel=(3, 5), post_kernel=(3, 5), mta_layers=(1,)), 258)
OTHER = config(MTAOptions(pre_kernel=(3, 7)), 258)


def write(folder: Path, shapes: ModelConfig = SHAPES, seed: int = 0) -> Path:
    weights = random_weights(shapes, seed)
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=torch.float32)
    (folder / "card.json").write_text(json.dumps({"seed": seed}))
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch) -> Path:
    """Beside it: another seed, another shape, no checkpoint, kernels in cards, one of another shape."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path / "elsewhere"))
    write(tmp_path / "runs" / "seed7", seed=7)
    write(tmp_path / "runs" / "wider", OTHER)
    (tmp_path / "runs" / "notes").mkdir()
    write(tmp_path / "elsewhere" / "deep" / "seed9", seed=9)
    cards = tmp_path / "runs" / "cards"
    cards.mkdir()
    stored = load_file(tmp_path / "runs" / "seed7" / "model.safetensors")
    kernels = {name: tensor for name, tensor in stored.items() if "mta_kernel" in name}
    save_file(kernels, cards / "rate2.kernels.safetensors")
    save_file(
        {name: tensor[..., :1].contiguous() for name, tensor in kernels.items()},
        cards / "bad.kernels.safetensors",
    )
    (cards / "rate2.json").write_text(json.dumps({"seed": 3}))
    return write(tmp_path / "runs" / "own")


def test_those_of_its_shape_are_found_with_their_seeds(own: Path):
    found = {relative.name: relative.seed for relative in relatives(own, SHAPES)}
    assert found == {"seed7": 7, "deep/seed9": 9, "rate2": 3}
    assert own_seed(own) == 0


def test_kernels_are_those_of_the_weights(own: Path):
    by_name = {relative.name: relative for relative in relatives(own, SHAPES)}
    expected = random_weights(SHAPES, 7)["blocks.1.attn.kernel_pre"]
    for name in ("seed7", "rate2"):
        kernels = relative_kernels(by_name[name], SHAPES)
        assert torch.equal(kernels["blocks.1.attn.kernel_pre"], expected)
        assert set(kernels) == {"blocks.1.attn.kernel_pre", "blocks.1.attn.kernel_post"}


def test_a_step_of_a_run_is_found_by_its_run_s_folder(own: Path):
    assert run_folder(own / "checkpoints" / "0000000010") == own
    assert run_folder(own / "0000000010") == own
    assert run_folder(own) == own
