"""`convert`: a checkpoint in another format and back, bit for bit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_support import CONFIG, assert_refused

from mta_viz.checkpoint.adapter import read_adapter, write_adapter
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.checkpoint.relatives import base_of, read_model
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import MTAOptions
from tests.tiny_models import random_weights

PLAIN = replace(CONFIG, mta=MTAOptions())


def same(one, other) -> None:
    """Every value of the same dtype and the same bits, NaN and -0 too."""
    assert one.config == other.config and one.state_dict.keys() == other.state_dict.keys()
    assert one.tokenizer_name == other.tokenizer_name
    for name, tensor in one.state_dict.items():
        there = other.state_dict[name]
        assert tensor.dtype == there.dtype, name
        assert torch.equal(*(part.contiguous().view(torch.uint8) for part in (tensor, there))), name


def odd_weights(config, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Random, with values that compare oddly."""
    weights = {name: tensor.to(dtype) for name, tensor in random_weights(config).items()}
    for tensor in weights.values():
        odd = torch.tensor([float("nan"), -0.0, 0.0, float("inf")]).to(dtype)
        tensor.view(-1)[:4] = odd[: tensor.numel()]
    return weights


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def odd(request, tmp_path) -> Path:
    place = {"tokenizer_name": "char", "tokenizer_path": None, "dtype": None}
    write_native(tmp_path / "odd", CONFIG, odd_weights(CONFIG, request.param), **place)
    return tmp_path / "odd"


@pytest.fixture
def based(odd, tmp_path) -> tuple[Path, Path]:
    """A plain base, and a whole model made of it by kernels, a gate and one changed matrix."""
    whole = read_checkpoint(odd)
    plain = {name: whole.state_dict[name].clone() for name in parameter_shapes(PLAIN)}
    plain["blocks.1.mlp.w1.weight"][3] = -0.0
    place = {"tokenizer_name": "char", "tokenizer_path": None, "dtype": None}
    write_native(tmp_path / "plain", PLAIN, plain, **place)
    return odd, tmp_path / "plain"


def test_to_lingua_and_back(run, odd, tmp_path):
    there = run("convert", odd, "--to", "lingua", "--out", tmp_path / "lingua")
    assert there.status == 0, there.err
    assert there.json["format"] == "lingua" and (tmp_path / "lingua" / "consolidated.pth").is_file()
    back = run("convert", tmp_path / "lingua", "--out", tmp_path / "back")
    assert back.json["format"] == "native"
    same(read_checkpoint(tmp_path / "back"), read_checkpoint(odd))
    assert (tmp_path / "back/model.safetensors").read_bytes() == (odd / "model.safetensors").read_bytes()
    assert json.loads((tmp_path / "back/params.json").read_text()) == json.loads(
        (odd / "params.json").read_text()
    )


def test_kernels_alone(run, odd, tmp_path):
    answer = run("convert", odd, "--to", "kernels", "--out", tmp_path / "kernels")
    assert answer.status == 0, answer.err
    own, whole = read_checkpoint(tmp_path / "kernels"), read_checkpoint(odd)
    assert answer.json["parameters"] == sum(tensor.numel() for tensor in own.state_dict.values())
    same(
        replace(whole, state_dict={name: whole.state_dict[name] for name in own.state_dict}),
        replace(own, tokenizer_name="char", config=whole.config),
    )
    assert run("convert", tmp_path / "kernels", "--to", "kernels", "--out", tmp_path / "again").status == 0
    assert_refused(
        run("convert", tmp_path / "kernels", "--out", tmp_path / "x"), "holds kernels only", "--to kernels"
    )
    words = ("--to", "adapter", "--base", odd, "--out", tmp_path / "a.safetensors")
    assert_refused(run("convert", tmp_path / "kernels", *words), "holds kernels only", "--to kernels")


def test_an_adapter_of_a_base_and_the_whole_again(run, based, tmp_path):
    odd, plain = based
    file = tmp_path / "a.safetensors"
    answer = run("convert", odd, "--to", "adapter", "--base", plain, "--out", file)
    assert answer.status == 0, answer.err
    assert answer.json["base"] == str(plain) and answer.json["parameters"] < 2000
    names = set(read_adapter(file).tensors)
    assert {"blocks.1.mlp.w1.weight", "blocks.0.attn.gate.bias"} < names and "embed.weight" not in names
    same(read_model(file), read_checkpoint(odd))
    assert run("convert", file, "--out", tmp_path / "whole").json["base"] == str(plain)
    same(read_checkpoint(tmp_path / "whole"), read_checkpoint(odd))
    assert run("convert", file, "--to", "lingua", "--out", tmp_path / "lingua").status == 0
    same(read_checkpoint(tmp_path / "lingua"), read_checkpoint(odd))
    again = run("convert", file, "--to", "adapter", "--out", tmp_path / "b.safetensors")
    assert again.json["parameters"] == answer.json["parameters"]
    assert read_adapter(tmp_path / "b.safetensors").about == read_adapter(file).about
    same(read_model(tmp_path / "b.safetensors"), read_checkpoint(odd))


def test_an_adapter_keeps_what_it_says_of_its_training(run, based, tmp_path):
    odd, plain = based
    run("convert", odd, "--to", "adapter", "--base", plain, "--out", tmp_path / "a.safetensors")
    own = read_adapter(tmp_path / "a.safetensors")
    trained = replace(own.about, recipe={"steps": 7}, numbers={"right": 0.5})
    unchanged = {"ln_final.weight": read_checkpoint(plain).state_dict["ln_final.weight"]}
    write_adapter(tmp_path / "t.safetensors", own.config, {**own.tensors, **unchanged}, trained)
    run("convert", tmp_path / "t.safetensors", "--to", "adapter", "--out", tmp_path / "u.safetensors")
    copy = read_adapter(tmp_path / "u.safetensors")
    assert copy.about == trained and copy.tensors.keys() == {*own.tensors, "ln_final.weight"}


def test_merge_is_the_older_word(run, based, tmp_path):
    odd, plain = based
    run("convert", odd, "--to", "adapter", "--base", plain, "--out", tmp_path / "a.safetensors")
    assert (
        run("merge", tmp_path / "a.safetensors", "--out", tmp_path / "m", "--lingua").json["format"]
        == "lingua"
    )
    same(read_checkpoint(tmp_path / "m"), read_checkpoint(odd))


def test_what_cannot_be_converted_is_said(run, based, tmp_path):
    odd, plain = based
    taken, words = tmp_path / "odd", ("convert", odd, "--to", "adapter", "--out")
    assert_refused(run("convert", odd, "--out", taken), "already there")
    assert_refused(run(*words, tmp_path / "a.safetensors"), "give the base with --base PATH")
    assert_refused(run(*words, tmp_path / "a", "--base", plain), "ends with .safetensors")
    assert_refused(run("convert", odd, "--base", plain, "--out", tmp_path / "x"), "is no adapter")
    assert_refused(run("convert", odd, "--to", "gguf", "--out", tmp_path / "x"), "invalid choice")
    assert_refused(run("convert", plain, "--to", "kernels", "--out", tmp_path / "x"), "no key-query kernels")
    other = replace(PLAIN, d_mlp=48)
    place = {"tokenizer_name": "char", "tokenizer_path": None, "dtype": None}
    write_native(tmp_path / "other", other, random_weights(other), **place)
    refused = run(*words, tmp_path / "b.safetensors", "--base", tmp_path / "other")
    assert_refused(refused, "the base has blocks.0.mlp.w1.weight [48, 16]")
    assert not (tmp_path / "x").exists() and not (tmp_path / "b.safetensors").exists()


def test_every_format_that_is_read_can_be_converted(run, odd, tmp_path):
    whole = read_checkpoint(odd)
    write_lingua(tmp_path / "run" / "checkpoints" / "0000000010" / "consolidated", whole)
    assert (
        run("convert", tmp_path / "run" / "checkpoints" / "0000000010", "--out", tmp_path / "step").status
        == 0
    )
    same(read_checkpoint(tmp_path / "step"), whole)
    assert base_of(read_checkpoint(tmp_path / "step").source).sha256 == base_of(whole.source).sha256
