"""Hugging Face folders: the same logits as their own library, in every layout; one tensor at a time."""

import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_samples import LLAMA3, change, saved
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM

import mta_viz
from mta_viz.checkpoint import huggingface, parts
from mta_viz.checkpoint.layout import read_parameters
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.checkpoint.types import Conversion, StoredTensor, parameter_count
from mta_viz.config import RopeScaling
from mta_viz.errors import CheckpointError, PromptError

IDS = torch.randint(0, 60, (1, 90), generator=torch.Generator().manual_seed(1))


def problems_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    return caught.value.problems


def assert_same_logits(folder: Path) -> None:
    library = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        want = library(IDS).logits
        found = mta_viz.load(folder)(IDS)
    assert float(want.std()) > 0.5
    torch.testing.assert_close(found, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": True}),
        ("Llama", {"num_key_value_heads": 4, "head_dim": 10}),
        ("Llama", {"num_key_value_heads": 1, "rope_theta": 500.0}),
        ("Llama", {"rope_scaling": {**LLAMA3, "rope_theta": 100.0}}),
        ("Llama", {"attention_bias": True}),
        ("Llama", {"mlp_bias": True, "rms_norm_eps": 0.01}),
        ("Mistral", {"sliding_window": None}),
        ("Mistral", {"sliding_window": 128, "head_dim": 8}),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}),
        ("Qwen2", {}),
        ("Qwen2", {"tie_word_embeddings": True, "sliding_window": 16}),
        ("Llama", {"shard": "10KB"}),
    ],
    ids=str,
)
def test_logits_are_those_of_the_library(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    assert_same_logits(saved(tmp_path / "m", kind, **settings))


def test_settings_of_mistrals_own_format_may_lie_beside(tmp_path: Path) -> None:
    saved(tmp_path, "Mistral", sliding_window=None)
    (tmp_path / "params.json").write_text('{"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40}')
    assert_same_logits(tmp_path)


def test_half_precision_is_read_as_it_is(tmp_path: Path) -> None:
    saved(tmp_path / "m", dtype="bfloat16")
    tensors = {key: value.bfloat16() for key, value in load_file(tmp_path / "m/model.safetensors").items()}
    save_file(tensors, tmp_path / "m/model.safetensors", metadata={"format": "pt"})
    checkpoint = read_checkpoint(tmp_path / "m")
    assert checkpoint.source.dtype == "bfloat16"
    assert {value.dtype for value in checkpoint.state_dict.values()} == {torch.bfloat16}
    assert_same_logits(tmp_path / "m")


def test_older_libraries_wrote_theta_and_scaling_apart(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    change(tmp_path / "m", rope_parameters=..., rope_theta=5e5, rope_scaling=LLAMA3, torch_dtype="float32")
    config = read_summary(tmp_path / "m").config
    assert (config.rope_theta, config.rope_scaling) == (5e5, RopeScaling(8.0, 1.0, 4.0, 64))
    assert_same_logits(tmp_path / "m")
    change(tmp_path / "m", rope_scaling=None)
    assert read_summary(tmp_path / "m").config.rope_scaling is None


def test_rows_of_a_head_become_pairs() -> None:
    """Two heads, four rows each: halves (0, 1) and (2, 3) become pairs (0, 2) and (1, 3)."""
    layout = huggingface.halves(4)
    assert layout.read(torch.arange(8)).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert layout.write(layout.read(torch.arange(8))).tolist() == list(range(8))


def test_a_folder_is_described_by_its_headers(tmp_path: Path) -> None:
    folder = saved(tmp_path / "models/tiny", shard="10KB")
    summary = read_summary(folder)
    assert (summary.format, summary.dtype, summary.config.n_ctx) == ("huggingface", "float32", 128)
    assert summary.n_bytes == sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    (there,) = find_checkpoints([tmp_path]).found
    assert (there.name, there.problem) == ("models/tiny", None)
    assert read_summary(folder / "config.json") == read_summary(folder / parts.INDEX) == summary
    count = sum(value.numel() for value in read_checkpoint(folder).state_dict.values())
    assert count == parameter_count(summary.config)


def test_the_digest_is_that_of_all_weights(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", shard="10KB")
    before = sha256(folder)
    shard = sorted(folder.glob("*.safetensors"))[1]
    tensors = {key: value + 1 for key, value in load_file(shard).items()}
    save_file(tensors, shard, metadata={"format": "pt"})
    assert sha256(folder) != before
    whole = saved(tmp_path / "whole")
    assert sha256(whole) == sha256(whole / "model.safetensors")


def test_a_copy_of_a_tied_matrix_must_equal_it(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", tie_word_embeddings=True)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, file, metadata={"format": "pt"})
    assert "unembed.weight" not in read_checkpoint(folder).state_dict
    tensors["lm_head.weight"][3, 3] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    (problem,) = problems_of(folder)
    assert problem.startswith("lm_head.weight differs from model.embed_tokens.weight")
    assert "set tie_word_embeddings to false" in problem


def test_angles_that_older_files_hold_are_passed_over(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = 10_000.0 ** (-torch.arange(3) / 3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert read_checkpoint(folder).config.n_layers == 2
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] *= 2
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "holds other rotary angles than config.json gives" in problems_of(folder)[0]


def test_missing_shards_are_named_without_their_tensors_and_lost_tensors_by_name(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", shard="10KB")
    first, second, *_, last = sorted(folder.glob("*.safetensors"))
    first.unlink()
    second.unlink()
    tensors = load_file(last)
    lost = sorted(tensors)[0]
    save_file({key: value for key, value in tensors.items() if key != lost} | {"odd": torch.ones(1)}, last)
    odd, *shards, _ = problems_of(folder)  # the last one is that there is no tokenizer
    gone, absent = sorted(shards, reverse=True)
    assert gone == f"{first.name}, {second.name}: each is missing; check the path"
    assert absent == f"{lost} is not in {last.name}, where {parts.INDEX} says it is; copy both again"
    assert odd.startswith("odd [1] is a tensor the model of config.json")


def test_shards_stay_inside_the_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", shard="10KB")
    index = json.loads((folder / parts.INDEX).read_text())
    names = iter(["../other.safetensors", "/etc/passwd"])
    for key in list(index["weight_map"])[:2]:
        index["weight_map"][key] = next(names)
    (folder / parts.INDEX).write_text(json.dumps(index))
    outside, _ = problems_of(folder)
    assert outside.startswith("../other.safetensors, /etc/passwd: each lies outside")


@pytest.mark.parametrize("index", ["{}", '{"weight_map": {"a": 1}}', "no json", None])
def test_an_index_that_is_none_is_said_to_be(tmp_path: Path, index: str | None) -> None:
    folder = saved(tmp_path / "m", shard="10KB")
    (folder / parts.INDEX).unlink()
    if index is not None:
        (folder / parts.INDEX).write_text(index)
    problem, without_tokenizer = problems_of(folder)
    assert problem.startswith(parts.INDEX)
    assert "tokenizer.json is missing" in without_tokenizer


def test_links_of_the_librarys_cache_are_followed(tmp_path: Path) -> None:
    """A snapshot is a folder of links to files called by their digests."""
    folder, snapshot, blobs = saved(tmp_path / "m", shard="10KB"), tmp_path / "snapshot", tmp_path / "blobs"
    snapshot.mkdir()
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.move(file, blobs / str(number))
        (snapshot / file.name).symlink_to(blobs / str(number))
    assert_same_logits(snapshot)


def test_reading_holds_one_tensor_beyond_the_parameters(tmp_path: Path) -> None:
    """What was read of queries and keys is let go, once turned, before the next tensor is read."""
    folder = saved(tmp_path / "m")
    config = read_summary(folder).config
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    def watched(key: str, stored: StoredTensor) -> StoredTensor:
        def read() -> torch.Tensor:
            nonlocal most
            most = max(most, len(alive))
            values = stored.read()
            if ".q_proj." in key or ".k_proj." in key:
                alive.add(values)
            return values

        return StoredTensor(stored.shape, stored.dtype, read)

    tensors = {key: watched(key, stored) for key, stored in parts.open_native(folder).tensors.items()}
    read_parameters(config, tensors, None, huggingface.file_entries(config), huggingface.WORDS)
    assert most == 0


def with_tokenizer(folder: Path, n_tokens: int) -> Path:
    words = {f"w{number}": number for number in range(n_tokens)}
    library = Tokenizer(WordLevel(words, unk_token="w0"))
    library.pre_tokenizer = Whitespace()
    library.save(str(folder / "tokenizer.json"))
    return folder


def test_a_vocabulary_with_places_to_spare_is_noted(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(with_tokenizer(saved(tmp_path / "m"), 50))
    assert checkpoint.tokenizer_name == "huggingface"
    assert checkpoint.notes == ("the vocabulary has 60 places, the tokenizer 50 tokens: the rest is padding",)
    assert mta_viz.capture(mta_viz.load(tmp_path / "m"), "w1 w2").tokens.ids == (1, 2)


def test_tokens_added_to_the_tokenizer_alone_cannot_be_run(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "m"), 61)
    (note,) = read_checkpoint(folder).notes
    assert note.startswith("the tokenizer has 61 tokens, the model 60")
    with pytest.raises(PromptError, match="60"):
        mta_viz.capture(mta_viz.load(folder), "w1 w60")


def test_it_is_saved_and_opened_again_in_the_projects_own_format(tmp_path: Path) -> None:
    settings = {"attention_bias": True, "mlp_bias": True, "rope_scaling": {**LLAMA3, "rope_theta": 100.0}}
    folder = with_tokenizer(saved(tmp_path / "m", **settings), 60)
    checkpoint = read_checkpoint(folder)
    write_native(
        tmp_path / "own", checkpoint.config, checkpoint.state_dict, dtype=None,
        tokenizer_name=checkpoint.tokenizer_name, tokenizer_path=folder / "tokenizer.json",
    )  # fmt: skip
    again = mta_viz.load(tmp_path / "own")
    assert again.config == checkpoint.config
    assert torch.equal(again(IDS), mta_viz.load(folder)(IDS))
    assert again.tokenizer.encode("w3 w4").ids == (3, 4)


def test_tensors_are_made_the_dtype_to_compute_in_one_by_one(tmp_path: Path) -> None:
    folder, asked = saved(tmp_path / "m", tie_word_embeddings=True), []
    want = read_checkpoint(folder).state_dict
    checkpoint = read_checkpoint(folder, conversion=Conversion(torch.bfloat16, asked.append))
    assert asked == [parameter_count(checkpoint.config)]
    assert checkpoint.source.dtype == "float32"
    assert {name: value.bfloat16().tolist() for name, value in want.items()} == {
        name: value.tolist() for name, value in checkpoint.state_dict.items()
    }
    assert {value.dtype for value in checkpoint.state_dict.values()} == {torch.bfloat16}
