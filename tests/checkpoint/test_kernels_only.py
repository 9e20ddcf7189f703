"""A folder of kernels alone is read, shown by the atlas, and refused where a prompt should run."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from mta_viz.analysis.attention.changes import health
from mta_viz.analysis.kernels.table import kernel_table
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import KERNELS, write_kernels
from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.cli import main
from mta_viz.errors import CheckpointError, PromptError
from mta_viz.run.tracing import capture, generate, load, run_hooks, score
from tests.checkpoint.checkpoint_samples import problems_of, random_state, tiny_config, write_sample

CONFIG = tiny_config()
STATE = random_state(CONFIG)


@pytest.fixture
def folder(tmp_path):
    write_kernels(tmp_path / "kernels", CONFIG, STATE)
    return tmp_path / "kernels"


def test_the_kernels_come_back_as_they_were_and_nothing_else(folder):
    found = read_checkpoint(folder)
    assert (found.config, found.source.format) == (CONFIG, "kernels")
    assert set(found.state_dict) == set(kernel_entries(CONFIG))
    assert all(torch.equal(tensor, STATE[name]) for name, tensor in found.state_dict.items())
    assert read_summary(folder / KERNELS).n_bytes == (folder / KERNELS).stat().st_size
    assert len(sha256(folder)) == 64


def test_the_table_is_that_of_the_whole_model(folder):
    model = load(folder)
    assert model.kernels_only
    assert kernel_table(model.state_dict(), CONFIG) == kernel_table(STATE, CONFIG)
    assert health(model).n_nan == 0


@pytest.mark.parametrize(
    "run",
    [
        lambda model: capture(model, [1, 2]),
        lambda model: generate(model, [1, 2], 1),
        lambda model: run_hooks(model, [1, 2], []),
        lambda model: score(model, torch.tensor([[1, 2]])),
    ],
)
def test_no_prompt_can_be_run(folder, run):
    with pytest.raises(PromptError, match=r"holds kernels only.*open the whole model"):
        run(load(folder))


def test_what_is_missing_or_too_much_is_told(folder):
    tensors = load_file(folder / KERNELS)
    del tensors["layers.1.attention.mta_kernel"]
    tensors["tok_embeddings.weight"] = torch.zeros(2, 2)
    save_file(tensors, folder / KERNELS)
    told = "\n".join(problems_of(folder))
    assert "layers.1.attention.mta_kernel" in told and "tok_embeddings.weight [2, 2]" in told


def test_a_model_without_kernels_has_none_to_write(tmp_path):
    plain = tiny_config(type(CONFIG.mta)())
    with pytest.raises(CheckpointError, match="no key-query kernels and mixes no heads"):
        write_kernels(tmp_path / "none", plain, random_state(plain))


def test_the_command_writes_them_and_reads_them(tmp_path, capsys):
    write_sample(tmp_path / "model")
    model, alone = str(tmp_path / "model"), str(tmp_path / "alone")
    assert main(["convert", model, "--to", "kernels", "--out", alone]) == 0
    rows = []
    for path in (model, alone):
        capsys.readouterr()
        assert main(["kernels", path]) == 0
        rows.append(json.loads(capsys.readouterr().out))
    assert rows[0] == rows[1]
    assert main(["convert", model, "--to", "kernels", "--out", alone]) == 2
    assert "alone" in capsys.readouterr().err
