"""Files are whole or not there: after a kill, on a full disk, in a place that cannot be written to."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint
from mta_viz.checkpoint.types import Checkpoint
from mta_viz.errors import CheckpointError, FileError
from mta_viz.version import ASSETS
from mta_viz.writing import HIDDEN, LEFT_SECONDS, replacing, write, write_folder
from tests.tiny_models import FULL, config, random_weights

OLD = b"what was there before"
BIG = 1 << 16
BIGGER = {"a": torch.zeros(BIG)}


@contextmanager
def full_disk(n_bytes: int = BIG // 2) -> Iterator[None]:
    """No file of this process grows beyond: the system refuses as on a full disk, to every library."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def by_safetensors(path: Path) -> None:
    with replacing(path) as partial:
        save_file(BIGGER, partial)


def by_torch(path: Path) -> None:
    with replacing(path) as partial:
        torch.save(torch.zeros(BIG), partial)


WRITERS: list[Callable[[Path], None]] = [by_safetensors, by_torch, lambda path: write(path, bytes(BIG))]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_one_line_and_the_old_file_stays(tmp_path: Path, writer) -> None:
    file = tmp_path / "file"
    file.write_bytes(OLD)
    with (
        full_disk(),
        pytest.raises(FileError, match=r"file cannot be written: .*free some disk") as refused,
    ):
        writer(file)
    assert "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": OLD}
    writer(file)
    assert file.stat().st_size >= BIG


def test_a_full_disk_leaves_no_folder(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(FileError, match="model cannot be written"):
        write_folder(tmp_path / "model", lambda into: save_file(BIGGER, into / "weights"), overwrite=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["below/file", "nul\0", "n" * 300, "gone/file"])
def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").write_bytes(OLD)
    with pytest.raises(FileError, match=r"cannot be written: .*name a place"):
        write(tmp_path / name, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["below"]


def test_an_error_of_ones_own_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file"):
        _ = 1 / 0
    with pytest.raises(CheckpointError, match="mine already there"):
        (tmp_path / "mine").touch()
        write_folder(tmp_path, lambda into: (into / "mine").touch(), overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


KILLED = """
import os, signal, sys
from pathlib import Path
from mta_viz.writing import replacing, write_folder
def fill(into):
    (into / "params.json").write_text("{}")
    (into / "model.safetensors").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "file":
    with replacing(Path(sys.argv[1]) / "file") as partial:
        partial.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
write_folder(Path(sys.argv[1]) / "model", fill, overwrite=True)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_leaves_is_no_file_and_goes(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(OLD)
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path, kind], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_bytes() == OLD
    (left,) = tmp_path.glob(f"{HIDDEN}*")
    assert find_checkpoints([tmp_path]).found == ()
    write(tmp_path / "other", b"soon after: it may still be written")
    assert left.exists()
    for place in (*left.glob("*"), left):
        os.utime(place, (0, left.stat().st_mtime - 2 * LEFT_SECONDS))
    write(tmp_path / "other", b"later")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


class Killed(BaseException):
    """In the place of a kill."""


def put(folder: Path, seed: int, tokenizer: Path | None) -> None:
    shapes = config(FULL, 4096)
    name, file = ("bytes", None) if tokenizer is None else ("tokenizers", str(tokenizer))
    write_native(
        folder, shapes, random_weights(shapes, seed), tokenizer_name=name, tokenizer_path=file,
        dtype=torch.float32, overwrite=True,
    )  # fmt: skip


@pytest.mark.parametrize("before", ["nothing", "another model", "its other step"])
def test_a_model_moved_into_a_folder_is_never_half_another(tmp_path: Path, monkeypatch, before: str) -> None:
    folder, tokenizer = tmp_path / "model", ASSETS / "needle-mta" / "tokenizer.json"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    if before != "nothing":
        put(folder, 1, tokenizer if before == "its other step" else None)
    states = [read_checkpoint(folder)] if before != "nothing" else []
    put(tmp_path / "new", 2, tokenizer)
    states.append(read_checkpoint(tmp_path / "new"))
    moves, replace = [0, 0], os.replace

    def until(old: Path, new: Path) -> None:
        moves[0] += 1
        if moves[0] > moves[1]:
            raise Killed
        replace(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", until)
        for moves[1] in range(4):  # at most so many are moved
            moves[0] = 0
            with suppress(Killed):
                put(folder, 2, tokenizer)
            (found,) = find_checkpoints([folder]).found or (None,)
            if found is not None and found.problem is None and found.summary.format == "native":
                read = read_checkpoint(folder)
                assert any(is_same(read, state) for state in states)
    assert is_same(read_checkpoint(folder), states[-1]) and (folder / "notes.txt").read_text() == "mine"


def is_same(one: Checkpoint, other: Checkpoint) -> bool:
    alike = one.tokenizer_name == other.tokenizer_name and (one.tokenizer is None) == (
        other.tokenizer is None
    )
    states = (one.state_dict, other.state_dict)
    return alike and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
