"""Files that were merely touched are the same; others are told, with their sha256 before and after."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from mta_viz.checkpoint import digests
from mta_viz.checkpoint.digests import Watched
from mta_viz.checkpoint.locate import sha256, sha256_as_read
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.errors import CheckpointError
from tests.checkpoint.checkpoint_samples import write_sample


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "model.safetensors"
    place.write_bytes(b"before")
    return place


def short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@pytest.mark.parametrize("touch", ["times", "copied"])
def test_a_file_that_is_touched_or_replaced_by_its_copy_is_the_same(file: Path, touch: str) -> None:
    watched = Watched()
    before = watched.state([file])
    if touch == "copied":
        shutil.copy(file, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)
    else:
        os.utime(file, (1, 1))
    assert watched.state([file]) == before == watched.state([file]) and not watched.words


def test_other_bytes_of_the_same_size_and_time_are_told_with_both_sums(file: Path) -> None:
    watched, times = Watched(), file.stat()
    before = watched.state([file])
    file.write_bytes(b"after!")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = watched.state([file])
    assert after > before and watched.state([file]) == after
    (words,) = watched.words
    assert words.startswith("model.safetensors changed on disk since ")
    assert words.endswith(f"(sha256 {short(b'before')} → {short(b'after!')})")


def test_files_that_come_and_go_are_told_and_pipes_and_hidden_ones_are_not_waited_for(file: Path) -> None:
    watched, other, hidden = Watched(), file.with_name("params.json"), file.with_name(".mta_viz.x.partial")
    first = watched.state([file])
    hidden.write_text("half")
    os.mkfifo(file.with_name("pipe"))
    assert watched.state(file.parent.iterdir()) == first and not watched.words
    other.write_text("{}")
    second = watched.state(file.parent.iterdir())
    assert second > first and watched.words[0].startswith("params.json is new on disk since")
    file.unlink()
    assert watched.state(file.parent.iterdir()) > second
    assert watched.words[0].startswith("model.safetensors is gone from disk since")


def test_a_large_file_whose_sum_nobody_knows_counts_as_changed(file: Path, monkeypatch) -> None:
    monkeypatch.setattr(digests, "AT_SIGHT", 1)
    watched = Watched()
    before = watched.state([file])
    os.utime(file, (1, 1))
    assert watched.state([file]) > before and "sha256" not in watched.words[0]
    digests.digest(file)  # as the page does when it says it
    os.utime(file, (2, 2))
    now = watched.state([file])
    os.utime(file, (3, 3))
    assert watched.state([file]) == now


def test_what_was_computed_is_of_the_weights_as_they_were_read(tmp_path: Path, monkeypatch) -> None:
    write_sample(tmp_path)
    weights = tmp_path / "consolidated.pth"
    before, source = sha256(tmp_path), read_checkpoint(tmp_path).source
    monkeypatch.setattr(digests, "AT_READING", 0)
    digests._known.clear()
    large = read_checkpoint(tmp_path).source
    os.utime(weights, (1, 1))
    digests._known.clear()
    with pytest.raises(CheckpointError, match="changed on disk since it was read"):  # nobody can tell
        sha256_as_read(large)
    monkeypatch.undo()
    source = read_checkpoint(tmp_path).source
    weights.write_bytes(weights.read_bytes() + b"more")
    assert sha256_as_read(source) == before != sha256(tmp_path)
    weights.unlink()
    assert sha256_as_read(source) == before
