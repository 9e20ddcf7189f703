"""`insert` and `merge`, and commands on an adapter: found base, `--base`, none."""

import json

import pytest
import torch
from cli_support import CONFIG, assert_refused

from mta_viz.checkpoint.adapter import read_adapter, write_adapter
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from mta_viz.model.transformer import HookedMTA

PROMPT = ("--prompt", "abcabc")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A plain model in float16 with the character tokenizer."""
    config = type(CONFIG)(**{**vars(CONFIG), "mta": MTAOptions()})
    with torch.random.fork_rng():
        torch.manual_seed(1)
        state = HookedMTA(config).state_dict()
    folder = tmp_path_factory.mktemp("bases") / "plain"
    write_native(folder, config, state, tokenizer_name="char", tokenizer_path=None, dtype=torch.float16)
    return folder


@pytest.fixture
def adapter(run, plain, tmp_path):
    file = tmp_path / "a.safetensors"
    assert run("insert", plain, "--layers", "1", "--kernel", "2x3", "--out", file).status == 0
    return file


def test_an_adapter_at_the_identity(run, plain, tmp_path):
    words = ("--layers", "all", "--post", "3x5", "--head-mixing", "both", "--out", tmp_path / "a.safetensors")
    answer = run("insert", plain, *words)
    assert answer.status == 0 and answer.err == ""
    assert answer.json["largest_logit_change"] == 0 and answer.json["largest_logit"] > 0
    # 2 layers x (4 heads x (6 x 11 + 3 x 5) + 2 x 4 x 4)
    assert answer.json["added"] == 2 * (4 * (66 + 15) + 32)
    options = read_adapter(tmp_path / "a.safetensors").about.options
    assert options == MTAOptions((6, 11), (3, 5), mta_layers=(0, 1), head_pre=True, head_post_group=4)
    assert_refused(run("insert", plain, *words), "exists; choose another name or add --force")
    assert run("insert", plain, *words, "--force").status == 0


def test_what_changes_the_logits_says_by_how_much_and_why(run, plain, tmp_path):
    words = ("--kernel", "none", "--gate", "head", "--norm", "--out", tmp_path / "a.safetensors")
    answer = run("insert", plain, *words)
    assert answer.json["largest_logit_change"] > 0
    assert "the group norm rescales every head's output, the gate begins at 0.9975" in answer.err
    assert answer.json["options"]["group_norm"] and answer.json["options"]["gate"] == "1d"


@pytest.mark.parametrize(
    "words, told",
    [
        (("--layers", "1"), "required: --out"),
        (("--layers", "5", "--kernel", "6x10", "--out", "a.safetensors"), "no layer 5"),
        (("--layers", "5", "--kernel", "6x10", "--out", "a.safetensors"), "even key size 10"),
        (("--out", "a.safetensors"), "no layer is named"),
        (("--layers", "1", "--out", "a"), "let it end in .safetensors"),
        (("--layers", "x", "--out", "a.safetensors"), "not a list of layers"),
        (("--layers", "1", "--kernel", "6", "--out", "a.safetensors"), "numbers of 1 to 63, such as 6x11"),
        (("--layers", "1", "--kernel", "600x601", "--out", "a.safetensors"), "two numbers of 1 to 63"),
        (("--layers", "1", "--post", f"{10**30}x3", "--out", "a.safetensors"), "two numbers of 1 to 63"),
    ],
)
def test_what_cannot_be_inserted_is_refused(run, plain, words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(run("insert", plain, *words), told)


def test_a_model_with_kernels_is_refused(run, folder, tmp_path):
    assert_refused(
        run("insert", folder, "--layers", "1", "--out", tmp_path / "a.safetensors"), "expected a plain model"
    )


def test_commands_take_an_adapter_and_find_its_base(run, plain, adapter):
    for words in (
        ("cells", "--layer", "1", "--head", "0", "--stage", "kq"),
        ("lens",),
        ("generate", "--max-new-tokens", "2"),
    ):
        answer = run(words[0], adapter, *words[1:], *PROMPT)
        assert answer.status == 0, answer.err
    assert run("lens", adapter, *PROMPT).json == run("lens", plain, *PROMPT).json
    info = run("info", adapter, "--base", plain).json
    assert info["format"] == "adapter" and info["variant"] == "mta" and info["parameters_in_file"] == 24
    assert info["base"]["name"] == "plain" and info["base"]["path"] == str(plain)
    assert run("info", adapter).json["base"]["path"] == str(plain)  # as it was noted


@pytest.fixture
def lost(plain, adapter):
    """The same adapter where its base is nowhere."""
    content = adapter.read_bytes()
    adapter.write_bytes(content.replace(read_adapter(adapter).about.base.sha256.encode(), b"0" * 64))
    return adapter


def test_without_the_base_kernels_can_be_seen_and_nothing_run(run, lost, plain):
    assert len(run("kernels", lost).json["kernels"]) == 4
    assert run("info", lost).status == 0
    wanted = "it is an adapter of plain (weights with sha256 000000000000...)"
    for words in (("lens", lost, *PROMPT), ("generate", lost, *PROMPT, "--max-new-tokens", "1")):
        assert_refused(run(*words), wanted, "--base PATH")
    assert wanted in run("kernels", lost, *PROMPT).err
    assert_refused(
        run("lens", lost, *PROMPT, "--base", plain), "its weights have sha256", "the base is plain"
    )
    for words in (("info",), ("kernels",), ("convert", "--to", "kernels", "--out", lost.with_suffix(""))):
        assert_refused(run(words[0], lost, "--base", plain, *words[1:]), "its weights have sha256")
    assert_refused(run("merge", lost, "--out", lost.with_suffix("")), "--base PATH")


def test_base_for_a_model_that_is_no_adapter(run, plain, adapter):
    answer = run("lens", plain, *PROMPT, "--base", plain)
    assert answer.status == 0 and "is no adapter: --base is not used for it" in answer.err
    assert run("compare", plain, adapter, *PROMPT, "--base", plain).status == 0


@pytest.mark.parametrize("flags, format", [((), "native"), (("--lingua",), "lingua")])
def test_merge_writes_both_as_one(run, plain, adapter, tmp_path, flags, format):
    answer = run("merge", adapter, "--out", tmp_path / "merged", *flags)
    assert answer.status == 0 and answer.json["format"] == format and answer.json["base"] == str(plain)
    assert run("info", tmp_path / "merged").json["format"] == format
    assert run("lens", tmp_path / "merged", *PROMPT).json == run("lens", adapter, *PROMPT).json
    assert_refused(run("merge", adapter, "--out", tmp_path / "merged", *flags), "already there")


def test_recurrence_compares_adapters(run, adapter, tmp_path):
    other, own = tmp_path / "b.safetensors", read_adapter(adapter)
    changed = {name: tensor * 2 for name, tensor in own.tensors.items()}
    write_adapter(other, own.config, changed, own.about)
    answer = run("recurrence", adapter, other)
    assert answer.status == 0 and json.loads(answer.out)["others"][0]["other"] == str(other)
