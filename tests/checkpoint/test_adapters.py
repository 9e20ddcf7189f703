"""Adapters: written and read back, put on their base, refused on another, opened without."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import mta_viz
from mta_viz.checkpoint import locate
from mta_viz.checkpoint.adapter import (
    ABOUT,
    AdapterAbout,
    AdapterBase,
    read_adapter,
    write_adapter,
)
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.native import write_kernels, write_merged, write_native
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.checkpoint.relatives import base_of, read_model, relatives
from mta_viz.config import MTAOptions
from mta_viz.errors import CheckpointError, PromptError
from mta_viz.run.tracing import capture
from tests.checkpoint.checkpoint_samples import random_state, tiny_config

BASE = tiny_config(MTAOptions())
MTA = MTAOptions(pre_kernel=(2, 3), mta_layers=(1,))
CONFIG = replace(BASE, mta=MTA)
STATE = random_state(CONFIG, seed=1)
OWN = {name: STATE[name] for name in kernel_entries(CONFIG)} | {"blocks.0.ln1.weight": torch.full((8,), 1.5)}
ELSEWHERE = "e" * 64


def write_base(folder, seed=0, config=BASE):
    state = random_state(config, seed)
    write_native(folder, config, state, tokenizer_name="char", tokenizer_path=None, dtype=None)
    return folder


def write(file, sha256=ELSEWHERE, path=None, options=MTA, config=CONFIG, tensors=OWN, **more):
    file.parent.mkdir(parents=True, exist_ok=True)
    about = AdapterAbout(AdapterBase("base", sha256, path), options, **more)
    write_adapter(file, config, tensors, about)
    return file


@pytest.fixture
def base(tmp_path):
    return write_base(tmp_path / "base")


@pytest.fixture
def file(tmp_path, base):
    """An adapter beside its base."""
    return write(tmp_path / "mine.safetensors", locate.sha256(base))


def problems(call):
    with pytest.raises(CheckpointError) as caught:
        call()
    return "\n".join(caught.value.problems)


def test_what_is_written_comes_back(tmp_path):
    recipe = {"steps": 300, "losses": [1.5, float("nan")]}
    file = write(tmp_path / "a.safetensors", recipe=recipe, numbers={"pairs": 0.96})
    adapter = read_adapter(file)
    assert adapter.config == CONFIG and adapter.tensors.keys() == OWN.keys()
    assert all(torch.equal(tensor, OWN[name]) for name, tensor in adapter.tensors.items())
    assert adapter.about.base == AdapterBase("base", ELSEWHERE) and adapter.about.options == MTA
    assert adapter.about.recipe == {"steps": 300, "losses": [1.5, None]}
    assert adapter.about.numbers == {"pairs": 0.96}
    with safe_open(file, "pt") as stored:  # Lingua's keys and layouts
        assert set(stored.keys()) == {"layers.1.attention.mta_kernel", "layers.0.attention_norm.weight"}
        assert stored.get_slice("layers.1.attention.mta_kernel").get_shape() == [4, 1, 2, 3]
    assert file.stat().st_mode & 0o044  # as readable as any other file


def test_layers_without_kernels_are_not_missed(tmp_path):
    kernels = {name: OWN[name] for name in kernel_entries(CONFIG)}
    adapter = read_adapter(write(tmp_path / "a.safetensors", tensors=kernels))
    write_kernels(tmp_path / "kernels", CONFIG, STATE)
    alone = read_checkpoint(tmp_path / "kernels")
    assert adapter.tensors.keys() == alone.state_dict.keys() == {"blocks.1.attn.kernel_pre"}


def test_everything_wrong_with_what_is_to_be_written_is_told(tmp_path):
    wrong = {"blocks.0.ln1.weight": torch.ones(3), "blocks.9.ln1.weight": torch.ones(8)}
    told = problems(lambda: write(tmp_path / "a.safetensors", options=MTAOptions(), tensors=wrong))
    assert "blocks.1.attn.kernel_pre is missing" in told
    assert "blocks.0.ln1.weight has shape [3]; expected [8]" in told
    assert "blocks.9.ln1.weight is no parameter" in told and "other options" in told
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "a.safetensors")
    assert "there already" in problems(lambda: write(tmp_path / "a.safetensors"))
    assert "recipe and numbers take" in problems(
        lambda: write(tmp_path / "b.safetensors", recipe={"log": "x" * 3_000_000})
    )


@pytest.mark.parametrize("place", ["beside", "noted", "own folder", "bases", "roots", "given"])
def test_the_base_is_found(tmp_path, place, monkeypatch):
    base = write_base(tmp_path / {"bases": "here/bases/b"}.get(place, "there/base"))
    (tmp_path / "here").mkdir(exist_ok=True)
    noted = str(base) if place == "noted" else None
    name = "here/own/adapter.safetensors" if place == "own folder" else "here/mine.safetensors"
    if place in ("beside", "own folder"):
        base = shutil.move(base, tmp_path / "here" / "base")
    elif place == "roots":
        monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path / "there"))
    file = write(tmp_path / name, locate.sha256(base), noted)
    model = read_model(file, base=base if place == "given" else None)
    assert model.source.base == base and model.is_whole and model.config == CONFIG
    want = random_state(BASE) | OWN
    assert all(torch.equal(tensor, want[name]) for name, tensor in model.state_dict.items())
    assert model.tokenizer is not None and model.source.format == "adapter"
    assert len(capture(mta_viz.load(file, base=base), [1, 2, 3]).tokens) == 3


def test_a_noted_base_that_has_changed_is_not_taken(tmp_path, base):
    file = write(tmp_path / "far" / "a.safetensors", locate.sha256(base), str(base))
    assert read_model(file).is_whole
    shutil.rmtree(base)
    write_base(base, seed=5)
    model = read_model(file)
    assert not model.is_whole and "an adapter of base (weights with sha256" in model.source.missing_base


def test_another_base_is_refused_with_both_digests(tmp_path, file):
    other = write_base(tmp_path / "other", seed=7)
    told = problems(lambda: read_model(file, base=other))
    assert locate.sha256(other)[:12] in told and read_adapter(file).about.base.sha256[:12] in told
    assert "no whole model (adapter)" in problems(lambda: read_model(file, base=file))
    assert "no adapter" in problems(lambda: read_model(other, base=other))
    assert "no such file" in problems(lambda: read_model(file, base=tmp_path / "nothing"))


@pytest.mark.parametrize(
    "change", [{"rope_theta": 500.0}, {"norm_eps": 1e-3}, {"n_heads": 2, "n_kv_heads": 1}]
)
def test_the_same_weights_under_other_settings_are_another_base(tmp_path, file, change):
    """Its sha256 is that of the weights, which compute something else."""
    other = shutil.copytree(tmp_path / "base", tmp_path / "other")
    shutil.rmtree(tmp_path / "base")
    params = json.loads((other / "params.json").read_text())
    params["model"] |= change
    (other / "params.json").write_text(json.dumps(params))
    if "n_heads" not in change:
        (name, value) = next(iter(change.items()))
        told = problems(lambda: read_model(file, base=other))
        assert f"its settings say {name} is {value!r}; the adapter was made for" in told
    assert not read_model(file).is_whole
    params["model"] |= {"rope_theta": BASE.rope_theta, "norm_eps": BASE.norm_eps, "max_seqlen": 5}
    (other / "params.json").write_text(json.dumps(params))
    assert read_model(file).is_whole or "n_heads" in change  # its length limits nothing


def test_without_its_base_the_kernels_are_there_and_no_prompt_runs(tmp_path):
    file = write(tmp_path / "a.safetensors")
    model = mta_viz.load(file)
    assert model.kernels_only and torch.equal(
        model.blocks[1].attn.kernel_pre, OWN["blocks.1.attn.kernel_pre"]
    )
    with pytest.raises(PromptError, match=r"an adapter of base \(weights with sha256 eeeeeeeeeeee.*--base"):
        capture(model, [1, 2])
    assert len(mta_viz.kernels(model)) == 4


def test_the_base_may_have_a_norm_and_a_gate_of_its_own(tmp_path):
    own = MTAOptions(group_norm=True, gate="1d")
    base = write_base(tmp_path / "base", config=replace(BASE, mta=own))
    both = replace(own, pre_kernel=(2, 3), mta_layers=(1,))
    digest, kernels = locate.sha256(base), {name: OWN[name] for name in kernel_entries(CONFIG)}
    file = write(tmp_path / "a.safetensors", digest, None, both, replace(CONFIG, mta=both), kernels)
    assert read_model(file).config.mta == both
    told = problems(lambda: read_model(write(tmp_path / "b.safetensors", digest)))
    assert "group_norm is False; the base has True" in told and "gate is None; the base has '1d'" in told
    assert "the model has no blocks.0.attn.gate.bias" in told
    asked = replace(MTA, gate="dd")
    lacking = write(tmp_path / "c.safetensors", ELSEWHERE, None, asked, replace(CONFIG, mta=asked), kernels)
    assert read_adapter(lacking).config.mta.gate == "dd"  # without the base nobody knows whose the gate is


def test_added_parts_that_neither_file_has_are_told(tmp_path, base):
    asked = replace(MTA, gate="1d")
    digest, config = locate.sha256(base), replace(CONFIG, mta=asked)
    told = problems(lambda: read_model(write(tmp_path / "a.safetensors", digest, None, asked, config)))
    assert "neither the adapter nor its base has blocks.0.attn.gate.weight" in told


def about_of(file):
    with safe_open(file, "pt") as stored:
        return json.loads(stored.metadata()[ABOUT])


@pytest.mark.parametrize(
    "change, words",
    [
        ({"format": "mta_viz adapter 2"}, "this version reads 'mta_viz adapter 1'"),
        ({"base": {"name": "b", "sha256": "../../etc/passwd"}}, "sha256"),
        ({"base": {"name": "b", "sha256": ELSEWHERE, "path": "//host/share"}}, "no path on this machine"),
        ({"base": {"name": "b", "sha256": ELSEWHERE, "path": "\\\\host\\share"}}, "no path on this machine"),
        ({"options": asdict(MTA) | {"mta_layers": [5]}}, "mta_layers names 5; the base has 2 layers"),
        ({"options": asdict(MTA) | {"pre_kernel": [2, 4]}}, "even key size 4"),
        (
            {"options": asdict(MTA) | {"pre_kernel": [10**9, 3]}},
            "has shape [4, 1, 2, 3]; expected [4, 1, 1000000000",
        ),
        ({"options": asdict(MTA) | {"gate": "__import__"}}, "gate"),
        ({"recipe": "text"}, "recipe"),
        ({"params": {}}, 'no "model" object'),
        ({"params": {"model": {"dim": 8, "n_heads": 4, "n_layers": 9999, "vocab_size": 32}}}, "9,999 layers"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, change, words):
    file = write(tmp_path / "a.safetensors")
    about = about_of(file) | change
    save_file(load_file(file), file, metadata={ABOUT: json.dumps(about)})
    assert words in problems(lambda: read_adapter(file))


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "no", '{"format": NaN}'])
def test_a_header_that_is_nothing_is_refused(tmp_path, text):
    file = write(tmp_path / "a.safetensors")
    save_file(load_file(file), file, metadata={ABOUT: text})
    assert problems(lambda: read_adapter(file))
    (described,) = find_checkpoints([tmp_path]).found
    assert described.summary is None and described.problem


def test_tensors_that_are_missing_unknown_or_of_another_kind_are_told_at_once(tmp_path):
    file = write(tmp_path / "a.safetensors")
    text = json.dumps(about_of(file))
    tensors = {"layers.0.attention_norm.weight": torch.ones(8, dtype=torch.int32), "other": torch.ones(2)}
    save_file(tensors, file, metadata={ABOUT: text})
    told = problems(lambda: read_adapter(file))
    assert "every tensor of layer 1 is missing" in told and "other [2]" in told and "int32" in told
    file.write_bytes(file.read_bytes()[:-3])
    assert "cut short" in problems(lambda: read_adapter(file))


@pytest.mark.parametrize("keep", [0, 5, 300, -3])
def test_a_cut_adapter_lacks_no_settings(tmp_path, keep):
    file = write(tmp_path / "a.safetensors")
    file.write_bytes(file.read_bytes()[:keep])
    told = problems(lambda: read_model(file))
    assert "cut short" in told and "params.json" not in told


def test_a_safetensors_file_that_is_no_adapter_is_not_taken_for_one(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    assert "params.json is missing" in problems(lambda: read_model(tmp_path / "a.safetensors"))
    assert "no adapter" in problems(lambda: read_adapter(tmp_path / "a.safetensors"))


def test_discovery_shows_adapters_behind_their_base(tmp_path, base):
    write_base(tmp_path / "aaa", seed=3)
    write_base(tmp_path / "zzz", seed=4)
    digest = locate.sha256(base)
    write(tmp_path / "1.safetensors", digest)
    write(base / "inside.safetensors", digest)
    write(tmp_path / "own" / "adapter.safetensors", digest)
    there = find_checkpoints([tmp_path]).found
    names = [model.name for model in there]
    assert names == ["aaa", "base", "1.safetensors", "base/inside.safetensors", "own", "zzz"]
    assert [model.summary.base for model in there] == [None, None, "base", "base", "base", None]
    assert read_summary(tmp_path / "own").path == tmp_path / "own"
    assert read_summary(base / "inside.safetensors").format == "adapter"
    assert read_summary(base).format == "native"
    assert locate.sha256(tmp_path / "own") == locate.sha256(tmp_path / "own" / "adapter.safetensors")


def test_adapters_of_one_shape_are_each_others_relatives(tmp_path, base):
    first = write(tmp_path / "a" / "adapter.safetensors")
    write(tmp_path / "b" / "adapter.safetensors")
    write(tmp_path / "c.safetensors")
    assert [other.name for other in relatives(first.parent, CONFIG)] == ["b", "c.safetensors"]
    assert [other.name for other in relatives(tmp_path / "c.safetensors", CONFIG)] == ["a", "b"]


@pytest.mark.parametrize("lingua", [False, True])
def test_merged_both_are_one_checkpoint_bit_for_bit(tmp_path, file, lingua):
    whole = read_model(file)
    write_merged(tmp_path / "merged", whole, whole.config, whole.state_dict, lingua=lingua)
    merged = read_checkpoint(tmp_path / "merged")
    assert merged.config == CONFIG and merged.source.format == ("lingua" if lingua else "native")
    assert merged.tokenizer_name == "char"
    want = random_state(BASE) | OWN
    assert merged.state_dict.keys() == want.keys()
    assert all(torch.equal(tensor, want[name]) for name, tensor in merged.state_dict.items())


def test_a_file_is_read_for_its_digest_once_for_each_state(base, monkeypatch):
    first, read = locate.sha256(base), []
    digest = locate.hashlib.file_digest
    monkeypatch.setattr(locate.hashlib, "file_digest", lambda *args: read.append(args) or digest(*args))
    assert locate.sha256(base) == first and not read
    weights = base / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert locate.sha256(base) != first and len(read) == 1


def test_what_an_adapter_says_of_its_base(tmp_path, base):
    source = read_checkpoint(base).source
    assert base_of(source) == AdapterBase("base", locate.sha256(base), str(base))
