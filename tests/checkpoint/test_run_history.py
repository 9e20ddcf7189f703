"""The steps of a run folder are a history of the kernels, whatever the format of each step."""

import pytest
import torch

from mta_viz.checkpoint.history import read_run_history
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.errors import CheckpointError
from tests.checkpoint.checkpoint_samples import (
    edit_tensors,
    lingua_tensors,
    tiny_config,
    write_consolidated,
    write_distributed,
)

CONFIG = tiny_config()
KERNEL = "layers.1.attention.mta_kernel"


@pytest.fixture
def run(tmp_path):
    """A run of three finished steps, in two formats, and one that was interrupted."""
    params = params_from_config(CONFIG, "char", None)
    steps = tmp_path / "checkpoints"
    for seed, step in enumerate((0, 10)):
        write_consolidated(steps / f"{step:010}", params, lingua_tensors(CONFIG, seed))
    of_model = {f"model.{key}": tensor for key, tensor in lingua_tensors(CONFIG, 2).items()}
    write_distributed(steps / f"{200:010}", params, of_model, ranks=2)
    interrupted = steps / f"{300:010}"
    interrupted.mkdir()
    (interrupted / "__0_0.distcp").write_bytes(b"half")
    return tmp_path


def test_every_finished_step_is_a_snapshot_equal_to_its_checkpoint(run):
    said = []
    history = read_run_history(read_checkpoint(run).source.path, CONFIG, said.append)
    assert history is not None and history.steps == (0, 10, 200)
    assert said == [pytest.approx(share) for share in (1 / 3, 2 / 3, 1)]
    for index, step in enumerate(history.steps):
        weights = read_checkpoint(run, step=step).state_dict
        assert set(history.kernels) == {name for name in weights if "kernel_" in name or "head_p" in name}
        for name in history.kernels:
            assert torch.equal(history.at(index)[name], weights[name].float()), name
        assert history.holds(weights)
    assert not history.holds({name: tensor + 1 for name, tensor in weights.items()})


def test_a_single_checkpoint_is_no_run(run, tmp_path):
    alone = tmp_path / "alone"
    write_consolidated(alone, params_from_config(CONFIG, "char", None), lingua_tensors(CONFIG))
    assert read_run_history(alone, CONFIG) is None
    one = tmp_path / "one" / f"{7:010}"
    write_consolidated(one, params_from_config(CONFIG, "char", None), lingua_tensors(CONFIG))
    assert read_run_history(one, CONFIG) is None


def test_what_is_wrong_with_a_step_is_told_with_its_number(run):
    edit_tensors(run / "checkpoints" / f"{0:010}", **{KERNEL: None})
    edit_tensors(run / "checkpoints" / f"{10:010}", **{KERNEL: torch.zeros(1)})
    (run / "checkpoints" / f"{200:010}" / "__1_0.distcp").unlink()
    with pytest.raises(CheckpointError) as raised:
        read_run_history(run / "checkpoints" / f"{10:010}", CONFIG)
    shape = list(kernel_entries(CONFIG)["blocks.1.attn.kernel_pre"].shape)
    assert raised.value.problems == (
        f"step 0: it lacks {KERNEL}",
        f"step 10: {KERNEL} has shape [1], expected {shape}",
        "step 200: __1_0.distcp is missing; copy it from the run",
    )


def test_a_step_that_diverged_is_kept(run):
    broken = lingua_tensors(CONFIG, 1)[KERNEL].clone()
    broken[0, 0, 0, 0] = float("nan")
    edit_tensors(run / "checkpoints" / f"{10:010}", **{KERNEL: broken})
    history = read_run_history(run / "checkpoints" / f"{10:010}", CONFIG)
    assert history is not None and history.at(1)["blocks.1.attn.kernel_pre"].isnan().sum() == 1
    assert history.holds(read_checkpoint(run, step=10).state_dict)
