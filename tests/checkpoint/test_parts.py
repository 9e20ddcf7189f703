"""Weights of a folder in several files, or under other names: shards, parts of a run, one loose file."""

import json
from pathlib import Path

import pytest
import torch
from checkpoint_samples import lingua_tensors, problems_of, tiny_config, write_distributed
from safetensors.torch import save_file

from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.config import MTAOptions

CONFIG = tiny_config(tied=False)
PARAMS = params_from_config(CONFIG, "char", None)
MODEL = lingua_tensors(CONFIG)
BY_ROWS = ("wq.", "wk.", "wv.", "w1.", "w3.", "output.", "mta_kernel", "head_kernel")
Tensors = dict[str, torch.Tensor]


def settings(folder: Path, params: object = PARAMS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(params))
    return folder


def check(folder: Path, model: Tensors = MODEL) -> tuple[str, ...]:
    """The notes of a folder, or file, that must hold `model`; its summary must say the same."""
    checkpoint = read_checkpoint(folder)
    state = checkpoint.state_dict
    assert torch.equal(state["embed.weight"], model["tok_embeddings.weight"])
    assert torch.equal(state["blocks.1.attn.wo.weight"], model["layers.1.attention.wo.weight"])
    assert torch.equal(state["blocks.0.mlp.w1.weight"], model["layers.0.feed_forward.w1.weight"])
    assert torch.equal(state["unembed.weight"], model["output.weight"])
    summary = read_summary(folder)
    assert (summary.notes, summary.n_bytes) == (checkpoint.notes, checkpoint.source.n_bytes)
    assert len(sha256(checkpoint.source.path)) == 64
    return checkpoint.notes


def sharded(folder: Path, model: Tensors = MODEL, separator: str = "") -> Path:
    keys = sorted(model)
    files = {f"model-0000{i + 1}-of-00003.safetensors": keys[i::3] for i in range(3)}
    for name, held in files.items():
        save_file({key: model[key].clone() for key in held}, settings(folder) / name)
    listed = {key: separator + name for name, held in files.items() for key in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    return folder


def parallel(folder: Path, n_parts: int, embedding_axis: int, params: object = PARAMS) -> Path:
    """What each of `n_parts` processes of a tensor-parallel run holds, in a file of its own."""
    settings(folder, params)
    for part in range(n_parts):
        held = {}
        for key, value in MODEL.items():
            axis = 0 if any(word in key for word in BY_ROWS) else 1 if "wo." in key or "w2." in key else None
            axis = embedding_axis if key == "tok_embeddings.weight" else axis
            held[key] = value.clone() if axis is None else value.chunk(n_parts, axis)[part].clone()
        torch.save(held, folder / f"consolidated.{part:02}.pth")
    return folder


@pytest.mark.parametrize("separator", ["", "./", ".\\"])
def test_shards_with_an_index(tmp_path: Path, separator: str) -> None:
    assert check(sharded(tmp_path, separator=separator)) == ()
    assert check(tmp_path / "model-00002-of-00003.safetensors") == ()
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors is missing; check the path" in problems_of(tmp_path)[0]


def test_a_shard_elsewhere_is_refused(tmp_path: Path) -> None:
    sharded(tmp_path / "a", separator="..\\b\\")
    assert "lies outside" in problems_of(tmp_path / "a")[0]


@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize("embedding_axis", [0, 1])
def test_parts_of_a_parallel_run_are_merged(tmp_path: Path, n_parts: int, embedding_axis: int) -> None:
    notes = check(parallel(tmp_path, n_parts, embedding_axis))
    assert notes == (() if n_parts == 1 else ("merged from the 2 parts of a tensor-parallel run",))
    assert check(tmp_path / "consolidated.00.pth") == notes


def test_missing_parts_are_one_line(tmp_path: Path) -> None:
    folder = parallel(tmp_path / "last", 2, 0)
    (folder / "consolidated.01.pth").unlink()
    (problem,) = problems_of(folder)
    assert "1 part of a tensor-parallel run, which has 2; copy consolidated.00.pth to cons" in problem
    first = parallel(tmp_path / "first", 2, 0)
    (first / "consolidated.01.pth").rename(first / "consolidated.02.pth")
    assert problems_of(first) == ("consolidated.01.pth is missing; copy all parts",)


def test_parts_that_should_be_alike_and_are_not(tmp_path: Path) -> None:
    folder = parallel(tmp_path, 2, 1)
    second = torch.load(folder / "consolidated.01.pth", weights_only=True)
    torch.save(second | {"norm.weight": torch.ones(8)}, folder / "consolidated.01.pth")
    assert problems_of(folder) == (
        "norm.weight differs among the parts, which should all have the same; copy them again",
    )
    del second["norm.weight"]
    torch.save(second, folder / "consolidated.01.pth")
    (problem,) = problems_of(folder)
    assert problem.startswith("norm.weight is in consolidated.00.pth or in consolidated.01.pth, not in both")


def test_parts_of_two_saves_are_told_by_their_dtypes(tmp_path: Path) -> None:
    second = parallel(tmp_path, 2, 1) / "consolidated.01.pth"
    torch.save({key: value.half() for key, value in torch.load(second, weights_only=True).items()}, second)
    (problem,) = problems_of(tmp_path)
    assert "is float16 in consolidated.01.pth, float32 in consolidated.00.pth; copy parts of one" in problem


def test_llamas_own_settings_beside_its_parts(tmp_path: Path) -> None:
    plain = tiny_config(MTAOptions(), tied=False)
    own = {key: value for key, value in MODEL.items() if key in lingua_tensors(plain)}
    fields = {"dim": 8, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1, "multiple_of": 8}
    settings(tmp_path, fields | {"norm_eps": 1e-6})
    torch.save(own | {"rope.freqs": torch.ones(1)}, tmp_path / "consolidated.00.pth")
    check(tmp_path, own)
    assert read_checkpoint(tmp_path).config.vocab_size == 32
    settings(tmp_path, fields | {"multiple_of": 256, "hidden_dim": 24})  # as Mistral's own have it
    check(tmp_path, own)
    settings(tmp_path, fields | {"use_scaled_rope": True})
    assert 'write "rope_scaling": {"rope_type": "llama3", "factor": 8.0, ' in problems_of(tmp_path)[0]


@pytest.mark.parametrize("name", ["consolidated.pt", "last.ckpt", "weights.pth", "pytorch_model.bin"])
def test_one_torch_file_of_any_name(tmp_path: Path, name: str) -> None:
    torch.save({"model": MODEL}, settings(tmp_path) / name)
    torch.save({}, tmp_path / "optimizer.pt")
    assert check(tmp_path) == check(tmp_path / name) == ()
    (found,) = find_checkpoints([tmp_path]).found
    assert found.problem is None


@pytest.mark.parametrize("name", ["consolidated.safetensors", "weights.safetensors"])
def test_one_safetensors_file_of_any_name(tmp_path: Path, name: str) -> None:
    save_file(MODEL, settings(tmp_path) / name)
    assert check(tmp_path) == ()


def test_of_several_files_the_one_named_is_read(tmp_path: Path) -> None:
    torch.save({"model": MODEL}, settings(tmp_path) / "a.pt")
    torch.save({"model": {key: value + 1 for key, value in MODEL.items()}}, tmp_path / "b.pt")
    check(tmp_path / "a.pt")
    assert sha256(tmp_path / "a.pt") != sha256(tmp_path / "b.pt")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, None])
@pytest.mark.parametrize("zipped", [True, False])
def test_half_mixed_and_the_old_format(tmp_path: Path, dtype: torch.dtype | None, zipped: bool) -> None:
    model = {
        key: value.to(dtype or (torch.float16 if "w1" in key else torch.float32))
        for key, value in MODEL.items()
    }
    file = settings(tmp_path) / "consolidated.pth"
    torch.save({"model": model}, file, _use_new_zipfile_serialization=zipped)
    notes = check(tmp_path, model)
    assert notes == (() if dtype else ("the file mixes dtypes: float16, float32",))


@pytest.mark.parametrize("prefix", ["", "module.", "app.model.", "model._orig_mod."])
def test_a_distributed_checkpoint_under_any_prefix(tmp_path: Path, prefix: str) -> None:
    optim = {f"optim.state.{key}.exp_avg": torch.zeros_like(value) for key, value in MODEL.items()}
    tensors = {prefix + key: value for key, value in MODEL.items()}
    check(write_distributed(tmp_path, PARAMS, {**optim, **tensors}, 2))
