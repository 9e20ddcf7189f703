"""A repository's name as a path: from the library's cache without network, or one clear sentence."""

import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_samples import saved

from mta_viz.checkpoint import hub
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.errors import CheckpointError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library's cache, with one repository in it as the library lays it out; no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    repository = tmp_path / "hub/models--org--tiny"
    commit = "0" * 40
    saved(repository / "snapshots" / commit, shard="10KB")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    return repository / "snapshots" / commit


def test_a_repository_in_the_cache_opens_by_its_name(cache: Path) -> None:
    assert read_summary("org/tiny").path == cache
    checkpoint = read_checkpoint("org/tiny")
    assert (checkpoint.source.name, checkpoint.source.format) == ("tiny", "huggingface")
    assert sha256("org/tiny") == sha256(cache)


def test_a_local_folder_of_that_name_wins(cache: Path, tmp_path: Path) -> None:
    saved(tmp_path / "org/tiny", num_hidden_layers=1)
    assert read_summary("org/tiny").config.n_layers == 1


@pytest.mark.parametrize("gone", ["*-00002-of-*", "config.json", "*.index.json"])
def test_a_part_of_a_repository_is_not_enough(cache: Path, gone: str) -> None:
    for file in cache.glob(gone):
        file.unlink()
    with pytest.raises(CheckpointError, match="nor can it be fetched") as caught:
        read_summary("org/tiny")
    assert "download it where there is network" in str(caught.value)


def test_without_network_one_sentence_says_so(cache: Path) -> None:
    with pytest.raises(
        CheckpointError, match="org/other cannot be used: there is no such file or folder, Hu"
    ):
        read_summary("org/other")


def test_wrong_paths_are_not_looked_up(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for path in ("models/none", "none", "a/b/c", "../x", str(tmp_path / "org/tiny")):
        with pytest.raises(CheckpointError, match="there is no such file or folder; check the path"):
            read_summary(path)


def test_without_the_library_it_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="install huggingface_hub"):
        read_summary("org/tiny")


def test_neither_code_nor_pickles_are_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def download(name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        asked.append(allow_patterns)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    read_summary("org/tiny")
    names = [
        "modeling_x.py",
        "pytorch_model.bin",
        "config.json",
        "model-00001-of-00002.safetensors",
        "x/y.json",
    ]
    kept = huggingface_hub.utils.filter_repo_objects(names, allow_patterns=asked[0])
    assert list(kept) == ["config.json", "model-00001-of-00002.safetensors"]
    assert asked[0] == list(hub.FETCHED)
