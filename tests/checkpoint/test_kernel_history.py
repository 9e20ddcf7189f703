"""A kernel history is read back as it was written, and everything wrong with one is told at once."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mta_viz.checkpoint.history import HISTORY_FILE, read_history
from mta_viz.errors import CheckpointError
from mta_viz.run.tracing import load

ASSETS = Path(__file__).parents[2] / "assets"
NEEDLE, BLOCKS = ASSETS / "needle-mta", ASSETS / "blocks-n5-mta"


@pytest.fixture(scope="module")
def blocks():
    return load(BLOCKS)


def changed(folder: Path, steps=None, **tensors) -> Path:
    """A copy of the block model's history with other steps or tensors (None: left out)."""
    stored = {**load_file(BLOCKS / HISTORY_FILE), **tensors}
    steps = json.dumps(list(range(48))) if steps is None else steps
    kept = {key: tensor.contiguous() for key, tensor in stored.items() if tensor is not None}
    save_file(kept, folder / HISTORY_FILE, metadata={"steps": steps})
    return folder


@pytest.mark.parametrize("folder", [NEEDLE, BLOCKS])
def test_the_shipped_history_starts_as_identity_and_ends_as_the_model(folder):
    model = load(folder)
    history = read_history(folder, model.config)
    assert history is not None and history.steps[0] == 0 and history.holds(model.state_dict())

    taps = history.at(0)["blocks.1.attn.kernel_pre"]
    assert float(taps.abs().sum()) == model.config.n_heads == float(taps.sum())  # a 1 and else 0 in each
    assert not torch.equal(taps, history.at(-1)["blocks.1.attn.kernel_pre"])


def test_weights_trained_on_are_not_the_end_of_the_history(blocks):
    history = read_history(BLOCKS, blocks.config)
    weights = dict(blocks.state_dict())
    weights["blocks.2.attn.kernel_pre"] = weights["blocks.2.attn.kernel_pre"] + 0.01
    assert history is not None and not history.holds(weights)


def test_no_file_is_no_history(tmp_path, blocks):
    assert read_history(tmp_path, blocks.config) is None


def test_every_fault_is_told_at_once(tmp_path, blocks):
    key = "layers.{}.attention.mta_kernel"
    stored = load_file(BLOCKS / HISTORY_FILE)
    broken = stored[key.format(1)].clone()
    broken[3, 0, 0, 0, 0] = float("nan")
    wrong = {key.format(0): None, key.format(1): broken, key.format(2): stored[key.format(2)][:, :, :, :1]}
    wrong["layers.9.attention.mta_kernel"] = broken.clone()
    with pytest.raises(CheckpointError) as raised:
        read_history(changed(tmp_path, json.dumps([1, 1, *range(2, 48)]), **wrong), blocks.config)
    told = str(raised.value)
    for words in ("do not increase", "lacks " + key.format(0), "NaN", "has shape", "no kernel layers.9"):
        assert words in told
    assert len(raised.value.problems) == 5


def test_kernels_that_are_no_floating_point_numbers_are_told(tmp_path, blocks):
    key = "layers.{}.attention.mta_kernel"
    stored = load_file(BLOCKS / HISTORY_FILE)
    whole, complex_ = stored[key.format(0)].long(), stored[key.format(1)].to(torch.complex64)
    steps = json.dumps([*range(48)])
    with pytest.raises(CheckpointError) as raised:
        read_history(
            changed(tmp_path, steps, **{key.format(0): whole, key.format(1): complex_}), blocks.config
        )
    assert [problem.split(" holds ")[1] for problem in raised.value.problems] == [
        f"{name}, expected floating-point numbers" for name in ("int64", "complex64")
    ]
    short = changed(tmp_path, steps, **{key.format(2): stored[key.format(2)].to(torch.float8_e5m2)})
    assert read_history(short, blocks.config) is not None


@pytest.mark.parametrize("steps", ["", "x", "[]", "[1.5]", "{}"])
def test_steps_that_are_no_list_of_whole_numbers_are_told(tmp_path, blocks, steps):
    with pytest.raises(CheckpointError, match="no list of whole training steps"):
        read_history(changed(tmp_path, steps), blocks.config)


def test_a_cut_file_is_told(tmp_path, blocks):
    (tmp_path / HISTORY_FILE).write_bytes((BLOCKS / HISTORY_FILE).read_bytes()[:500])
    with pytest.raises(CheckpointError, match="is cut short, damaged"):
        read_history(tmp_path, blocks.config)
