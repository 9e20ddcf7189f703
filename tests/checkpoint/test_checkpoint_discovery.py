"""Finding checkpoints below the user's folders, and their sha256."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from checkpoint_samples import (
    lingua_tensors,
    random_state,
    tiny_config,
    tiny_params,
    write_consolidated,
    write_distributed,
)

from mta_viz.checkpoint import locate, reading
from mta_viz.checkpoint.adapter import AdapterAbout, write_adapter
from mta_viz.checkpoint.locate import find_checkpoint, sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.checkpoint.relatives import base_of
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import MTAOptions
from mta_viz.errors import CheckpointError


def native(folder: Path) -> Path:
    config = tiny_config()
    write_native(folder, config, random_state(config), tokenizer_name="char", tokenizer_path=None, dtype=None)
    return folder


def consolidated(folder: Path) -> Path:
    config = tiny_config()
    return write_consolidated(folder, params_from_config(config, "char", None), lingua_tensors(config))


def distributed(folder: Path) -> Path:
    config = tiny_config()
    tensors = {f"model.{key}": value for key, value in lingua_tensors(config).items()}
    return write_distributed(folder, params_from_config(config, "char", None), tensors, 2)


def test_one_file_in_a_root_hides_no_folders(tmp_path: Path) -> None:
    config = tiny_config(MTAOptions())
    plain, state = tmp_path / "plain", random_state(config)
    write_native(plain, config, state, tokenizer_name="char", tokenizer_path=None, dtype=None)
    native(tmp_path / "a")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert {found.path.name for found in find_checkpoints([tmp_path]).found} == {"x.gguf", "a", "plain"}
    (tmp_path / "x.gguf").unlink()
    inserted = replace(config, mta=MTAOptions(pre_kernel=(2, 3)))
    base = base_of(read_checkpoint(plain).source)
    write_adapter(
        tmp_path / "adapter.safetensors",
        inserted,
        {name: torch.zeros(shape) for name, shape in parameter_shapes(inserted).items() if "kernel" in name},
        AdapterAbout(base, inserted.mta),
    )
    assert {found.path.name for found in find_checkpoints([tmp_path]).found} == {tmp_path.name, "a", "plain"}


def test_the_root_itself_and_two_levels_below(tmp_path: Path) -> None:
    native(tmp_path / "a")
    consolidated(tmp_path / "sub" / "b")
    native(tmp_path / "x" / "y" / "too_deep")
    native(tmp_path / ".hidden")
    distributed(tmp_path / "run" / "checkpoints" / "0000010000")
    distributed(tmp_path / "run" / "checkpoints" / "0000020000")
    discovery = find_checkpoints([tmp_path])
    assert [(found.name, found.problem) for found in discovery.found] == [
        ("a", None),
        ("run", None),
        ("sub/b", None),
    ]
    formats = [found.summary.format for found in discovery.found if found.summary]
    assert formats == ["native", "dcp", "lingua"]
    run = discovery.found[1].summary
    assert run is not None
    assert run.steps == (10_000, 20_000)
    assert [found.name for found in find_checkpoints([tmp_path / "a"]).found] == ["a"]


def test_a_checkpoint_under_two_roots_is_listed_once(tmp_path: Path) -> None:
    native(tmp_path / "a")
    assert len(find_checkpoints([tmp_path, tmp_path / "a", tmp_path]).found) == 1


def test_broken_folders_are_listed_with_their_problem(tmp_path: Path) -> None:
    native(tmp_path / "good")
    (native(tmp_path / "no_params") / "params.json").unlink()
    (native(tmp_path / "cut") / "model.safetensors").write_bytes(b"123")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "params.json").write_text("3")
    write_consolidated(tmp_path / "pickle", tiny_params(), {})
    problems = {found.name: found.problem for found in find_checkpoints([tmp_path]).found}
    assert problems.pop("good") is None
    assert set(problems) == {"no_params", "cut", "settings", "pickle"}
    assert all(problems.values())


def test_empty_and_missing_roots_say_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    discovery = find_checkpoints([tmp_path / "empty", tmp_path / "none"])
    assert discovery.found == ()
    empty, missing = discovery.skipped
    assert "has no checkpoint. Looked in it and two levels below for model.safetensors" in empty
    assert "is no folder" in missing


def test_sha256_of_one_file_and_of_several(tmp_path: Path) -> None:
    folder = native(tmp_path / "a")
    expected = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert sha256(folder) == sha256(folder / "model.safetensors") == expected
    several = distributed(tmp_path / "d")
    names = (".metadata", "__0_0.distcp", "__1_0.distcp")
    digests = sorted(hashlib.sha256((several / name).read_bytes()).hexdigest() for name in names)
    assert sha256(several) == hashlib.sha256("".join(digests).encode()).hexdigest()


def test_sha256_waits_for_no_pipe(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"m")
    (tmp_path / "__0_0.distcp").write_bytes(b"x")
    before = sha256(tmp_path)
    os.mkfifo(tmp_path / "__1_0.distcp")
    assert sha256(tmp_path) == before


def test_sha256_needs_weights(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(CheckpointError, match="holds no weights"):
        sha256(tmp_path)


def test_a_fault_nobody_foresaw_hides_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native(tmp_path / "a")
    native(tmp_path / "b")

    def broken(folder: Path) -> object:
        if folder.name == "a":
            raise IndexError("tuple index out of range")
        return read_summary(folder)

    monkeypatch.setattr(reading, "read_summary", broken)
    first, second = find_checkpoints([tmp_path]).found
    assert first.summary is None
    assert "a cannot be read (IndexError: tuple index out of range)" in str(first.problem)
    assert second.problem is None


def test_roots_of_any_kind_are_skipped_with_a_reason(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9\x1b"))
    native(odd / "m")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    found = find_checkpoints([odd, tmp_path / ("x" * 5000), tmp_path / "gone", odd / "m", tmp_path])
    assert [entry.name for entry in found.found] == ["m"]
    too_long, no_folder, link = found.skipped
    assert "cannot be read: File name too long" in too_long
    assert len(too_long) < 400
    assert "gone is no folder" in no_folder
    assert "gone is a link to something that is not there" in link
    inner = find_checkpoints([tmp_path]).found[0]
    assert inner.name == "caf\\udce9\\x1b/m"
    assert inner.path.is_dir()


def test_a_folder_without_rights_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native(tmp_path / "good")
    (tmp_path / "shut").mkdir()
    plain = Path.is_dir

    def guarded(path: Path) -> bool:
        if path.name == "shut":
            raise PermissionError(13, "Permission denied")
        return plain(path)

    monkeypatch.setattr(Path, "is_dir", guarded)
    found = find_checkpoints([tmp_path, tmp_path / "shut"])
    assert [entry.name for entry in found.found] == ["good"]
    assert len(found.skipped) == 2
    assert all("shut cannot be read: Permission denied" in reason for reason in found.skipped)


def test_many_empty_folders_are_passed_over_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(2000):
        (tmp_path / f"{at}-a").mkdir()
    native(tmp_path / "z")
    looked = list[Path]()
    monkeypatch.setattr(locate, "find_checkpoint", lambda path: looked.append(path) or find_checkpoint(path))
    assert [found.name for found in find_checkpoints([tmp_path]).found] == ["z"]
    assert looked == [tmp_path / "z"]


def test_a_search_that_takes_long_ends_with_a_sentence_the_nearer_folders_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native(tmp_path / "a" / "b" / "far")
    native(tmp_path / "z")
    (tmp_path / "a" / "c").mkdir()
    clock = iter(range(100))
    monkeypatch.setattr(locate, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(locate, "MOST_SECONDS", 3.0)  # of this clock: the root and two folders
    found = find_checkpoints([tmp_path])
    assert [model.name for model in found.found] == ["z"]
    assert found.skipped == (
        f"{tmp_path}: looked at 3 folders, not at all, in 3 s; name the folder with the models itself, "
        "not one above it",
    )


def test_a_folder_that_is_fetched_by_half_is_listed_with_what_it_lacks(tmp_path):
    """Where it was left out, a visitor looked for their model in a list that did not have it."""
    llama = json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 16})
    files = {
        "broken-off": {"config.json": llama, ".cache/huggingface/download/ab12.incomplete": ""},
        "index": {
            "config.json": llama,
            "model.safetensors.index.json": json.dumps({"weight_map": {"x": "model-1-of-1.safetensors"}}),
        },
        "part": {"model-00001-of-00002.safetensors.incomplete": "", "tokenizer.json": "{}"},
        "settings": {"config.json": llama, "tokenizer.json": "{}"},
        "film": {"film.mkv.part": "", "notes.json.tmp": ""},
        "web": {"config.json": "{}"},
        "damaged": {"config.json": "{"},
    }
    for name, texts in files.items():
        for file, text in texts.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(text)
    found = {model.name: model.problem for model in find_checkpoints([tmp_path]).found}
    assert list(found) == ["broken-off", "index", "part", "settings"]
    lacking = "it holds config.json but no weights"
    assert f"{lacking}: their download is not finished; fetch them: model.safetensors" in found["broken-off"]
    assert f"{lacking}; fetch them: model.safetensors, or its shards" in found["settings"]
    assert "a download that is not finished: fetch it again" in found["part"]
    assert "is missing" in found["index"]
