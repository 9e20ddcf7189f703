"""What a path is read as, in full or as a summary: any format's folder, a file in it, pipes, nothing."""

import json
import os
from pathlib import Path

import pytest
import torch
from checkpoint_samples import (
    edit_tensors,
    tiny_params,
    write_sample,
)

from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.checkpoint.types import parameter_count
from mta_viz.errors import Cancelled, CheckpointError


def test_nan_weights_are_read(tmp_path: Path) -> None:
    folder = edit_tensors(write_sample(tmp_path), **{"norm.weight": torch.full((8,), float("nan"))})
    assert read_checkpoint(folder).state_dict["ln_final.weight"].isnan().all()


def test_mixed_dtypes_are_noted(tmp_path: Path) -> None:
    folder = edit_tensors(write_sample(tmp_path), **{"norm.weight": torch.ones(8, dtype=torch.bfloat16)})
    checkpoint = read_checkpoint(folder)
    assert checkpoint.source.dtype == "float32"
    assert checkpoint.notes == ("the file mixes dtypes: bfloat16, float32",)


def test_progress_grows_to_one_and_can_stop_the_reading(tmp_path: Path) -> None:
    folder, seen = write_sample(tmp_path), []
    read_checkpoint(folder, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert len(seen) > 10

    def stop(_: float) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        read_checkpoint(folder, progress=stop)


def test_nothing_is_written_into_the_folder(tmp_path: Path) -> None:
    folder = write_sample(tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    read_checkpoint(folder)
    read_summary(folder)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_summary_of_a_folder_and_of_params_alone(tmp_path: Path) -> None:
    folder = write_sample(tmp_path)
    summary = read_summary(folder)
    assert (summary.format, summary.dtype, summary.tokenizer_name) == ("lingua", "float32", "char")
    assert summary.n_bytes == (folder / "consolidated.pth").stat().st_size
    assert summary.path == folder
    assert parameter_count(summary.config) == sum(
        value.numel() for value in read_checkpoint(folder).state_dict.values()
    )
    alone = read_summary(folder / "params.json", vocab_size=40)
    assert (alone.format, alone.dtype, alone.config.vocab_size) == ("params", None, 40)
    assert parameter_count(alone.config) - parameter_count(summary.config) == 8 * 8


def test_params_without_a_vocabulary_ask_for_one(tmp_path: Path) -> None:
    params = tiny_params(vocab_size=-1)
    params["data"]["tokenizer"] = {"name": "tiktoken", "path": "t.model"}
    params["distributed"] = {"model_dtype": "bf16"}
    file = tmp_path / "params.json"
    file.write_text(json.dumps(params))
    with pytest.raises(CheckpointError, match=r"model\.vocab_size is -1"):
        read_summary(file)
    assert read_summary(file, vocab_size=9).dtype == "bfloat16"
    with pytest.raises(CheckpointError, match=r"holds params\.json but no weights"):
        read_checkpoint(tmp_path)


def test_a_path_that_is_no_checkpoint_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it is no checkpoint. Looked for model\.safetensors"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        read_checkpoint(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="it is a file"):
        read_checkpoint(tmp_path / "notes.txt")
    with pytest.raises(CheckpointError):
        read_checkpoint("x" * 5000)


def test_a_file_in_the_folder_stands_for_it(tmp_path: Path) -> None:
    folder = write_sample(tmp_path)
    for name in ("consolidated.pth", "params.json"):
        assert read_checkpoint(folder / name).source.path == folder


@pytest.mark.parametrize("name", ["params.json", "train_state_00000.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = write_sample(tmp_path)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    if name == "params.json":
        with pytest.raises(CheckpointError, match=r"params\.json is no regular file"):
            read_summary(folder)
    else:
        assert read_summary(folder).step is None


def test_a_pipe_for_metadata_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    (tmp_path / "params.json").write_text(json.dumps(tiny_params()))
    os.mkfifo(tmp_path / ".metadata")
    with pytest.raises(CheckpointError, match=r"\.metadata is no regular file"):
        read_summary(tmp_path)
