"""`trace`: the file holds what the hooks saw, under their names; nothing is overwritten unasked."""

import json
import re
from pathlib import Path

import pytest
import torch
from cli_support import CONFIG, assert_refused
from safetensors import safe_open
from safetensors.torch import load_file

import mta_viz
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.cli import trace
from mta_viz.errors import MtaVizError
from mta_viz.model.stages import Stage
from mta_viz.run.files import open_trace
from mta_viz.run.tracing import capture, run_hooks

IDS = [29, 3, 10, 11, 18, 26]


@pytest.fixture
def ids_file(tmp_path: Path) -> Path:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(IDS))
    return path


def test_the_file_holds_every_hook_as_run_with_cache_gives_it(run, folder, model, ids_file, tmp_path):
    out = tmp_path / "t.safetensors"
    answer = run("trace", folder, "--tokens", ids_file, "--out", out)
    assert answer.status == 0, answer.err
    saved = load_file(out)
    logits, cache = model.run_with_cache(torch.tensor([IDS]))
    assert saved.keys() == {"tokens", "logits", *cache}
    assert saved["tokens"].tolist() == IDS and saved["tokens"].dtype == torch.int64
    torch.testing.assert_close(saved["logits"], logits[0], atol=1e-6, rtol=0)
    for name, value in cache.items():
        assert saved[name].dtype == torch.float32
        torch.testing.assert_close(saved[name], value[0], atol=1e-6, rtol=0, msg=name)
    assert answer.json == {
        "out": str(out),
        "n_tokens": 6,
        "bytes": out.stat().st_size,
        "tensors": {name: list(value.shape) for name, value in saved.items()},
        "checkpoint": "small",
        "sha256": sha256(folder),
        "not_finite": {},
        "computed_in": "float32",
    }


def test_the_file_says_of_which_run_it_is(run, folder, tmp_path):
    out = tmp_path / "t.safetensors"
    assert run("trace", folder, "--prompt", "abc.def", "--out", out, "--stages", "hook_z").status == 0
    with safe_open(out, "pt") as opened:
        said = opened.metadata()
    assert said.items() >= {"prompt": "abc.def", "checkpoint": "small", "sha256": sha256(folder)}.items()
    assert said["version"] == mta_viz.__version__ and said["dtype"] == "float32"
    assert json.loads(said["pieces"])[1:] == list("abc.def") and json.loads(said["not_finite"]) == {}


@pytest.mark.parametrize("format", ["hooks", "run"])
def test_nan_is_said(run, model, tmp_path, format):
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights["blocks.1.attn.kernel_pre"][0, 0, 0] = torch.nan
    place = {"tokenizer_name": "char", "tokenizer_path": None, "dtype": None}
    write_native(tmp_path / "nan", CONFIG, weights, **place)
    words = ("--prompt", "abc.def", "--out", tmp_path / "t", "--format", format)
    answer = run("trace", tmp_path / "nan", *words)
    assert answer.status == 0 and "NaN or infinite values in" in answer.err
    assert answer.json["not_finite"]["blocks.1.attn.hook_scores_kq"] > 0
    assert "blocks.0.attn.hook_pattern" not in answer.json["not_finite"]


def test_shapes_are_without_batch_axis(run, folder, ids_file, tmp_path):
    out = tmp_path / "t.safetensors"
    shapes = run("trace", folder, "--tokens", ids_file, "--out", out).json["tensors"]
    assert shapes["blocks.1.attn.hook_scores_kq"] == [4, 6, 6]
    assert shapes["blocks.1.attn.hook_z"] == [6, 4, 4]
    assert shapes["blocks.1.attn.hook_gate"] == [6, 4, 1]
    assert shapes["blocks.1.hook_resid_post"] == [6, 16]
    assert shapes["logits"] == [6, 32]


def test_a_prompt_is_encoded_with_bos_and_ids_are_taken_as_they_are(run, folder, tmp_path, ids_file):
    out = tmp_path / "t.safetensors"
    run("trace", folder, "--prompt", "ab#", "--stages", "hook_z", "--out", out)
    assert load_file(out)["tokens"].tolist() == [29, 0, 1, 27]
    ids_file.write_text("[0, 1, 27]")
    run("trace", folder, "--tokens", ids_file, "--stages", "hook_z", "--out", out, "--force")
    assert load_file(out)["tokens"].tolist() == [0, 1, 27]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (("--stages", "hook_scores_kq"), {"blocks.1.attn.hook_scores_kq"}),
        (("--layers", "0", "--stages", "hook_pattern"), {"blocks.0.attn.hook_pattern"}),
        (
            ("--stages", "attn.hook_gate, blocks.1.hook_resid_mid"),
            {"blocks.0.attn.hook_gate", "blocks.1.attn.hook_gate", "blocks.1.hook_resid_mid"},
        ),
        (
            ("--stages", "ln1.hook_normalized"),
            {"blocks.0.ln1.hook_normalized", "blocks.1.ln1.hook_normalized"},
        ),
        (("--stages", "hook_embed"), {"hook_embed"}),
        (("--stages", "hook_softmax"), {"blocks.0.attn.hook_softmax", "blocks.1.attn.hook_softmax"}),
    ],
)
def test_layers_and_stages_choose(run, folder, ids_file, tmp_path, flags, names):
    answer = run("trace", folder, "--tokens", ids_file, "--out", tmp_path / "t.safetensors", *flags)
    assert answer.status == 0, answer.err
    assert answer.json["tensors"].keys() == {"tokens", "logits", *names}


def test_all_stages_of_one_layer(run, folder, ids_file, tmp_path):
    answer = run(
        "trace", folder, "--tokens", ids_file, "--out", tmp_path / "t", "--layers", "1", "--stages", "all"
    )
    hooks = answer.json["tensors"].keys() - {"tokens", "logits"}
    assert len(hooks) > 20 and all(name.startswith("blocks.1.") for name in hooks)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--layers", "0,7"), ["no layer 7", "layers 0 to 1"]),
        (("--stages", "hook_nothing"), ["hook_nothing", "hook_scores_kq", "hook_resid_post"]),
        (("--layers", "0", "--stages", "hook_scores_kq"), ["hook_scores_kq", "layers 1 only"]),
        (("--device", "cuda:99"), ["cuda:99", "there is: cpu"]),
        (("--device", "gpu"), ["gpu", "there is: cpu"]),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(run, folder, ids_file, tmp_path, flags, said):
    out = tmp_path / "t.safetensors"
    assert_refused(run("trace", folder, "--tokens", ids_file, "--out", out, *flags), *said)
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[0, 32]", "32"),
        ("[0, -1]", "-1"),
        ("[]", "token"),
        ("[0, 1.5]", "whole numbers"),
        ("[true]", "whole numbers"),
        ('"abc"', "whole numbers"),
        ("[0, 1", "is not JSON"),
        pytest.param("[" * 100_000, "is not JSON", id="deep"),
    ],
)
def test_a_token_file_is_checked(run, folder, ids_file, tmp_path, text, said):
    ids_file.write_text(text)
    assert_refused(run("trace", folder, "--tokens", ids_file, "--out", tmp_path / "t"), said)


def test_a_token_file_may_begin_with_a_byte_order_mark(run, folder, ids_file, tmp_path):
    ids_file.write_bytes(b"\xef\xbb\xbf[0, 1, 27]")
    out = tmp_path / "t"
    assert run("trace", folder, "--tokens", ids_file, "--stages", "hook_z", "--out", out).status == 0
    assert load_file(out)["tokens"].tolist() == [0, 1, 27]


def test_a_missing_token_file_is_named(run, folder, tmp_path):
    assert_refused(run("trace", folder, "--tokens", tmp_path / "no.json", "--out", tmp_path / "t"), "no.json")


@pytest.mark.parametrize("prompt", ["a\udce9", "aé"])
def test_a_prompt_that_cannot_be_encoded_is_refused(run, folder, tmp_path, prompt):
    assert_refused(run("trace", folder, "--prompt", prompt, "--out", tmp_path / "t"))


def test_nothing_is_overwritten_without_force(run, folder, ids_file, tmp_path):
    out = tmp_path / "t.safetensors"
    out.write_text("mine")
    command = ("trace", folder, "--tokens", ids_file, "--stages", "hook_z", "--out", out)
    assert_refused(run(*command), "exists", "--force")
    assert out.read_text() == "mine"
    assert run(*command, "--force").status == 0
    assert "tokens" in load_file(out)


def test_the_output_must_have_a_place(run, folder, ids_file, tmp_path):
    assert_refused(run("trace", folder, "--tokens", ids_file, "--out", tmp_path), "folder")
    assert_refused(
        run("trace", folder, "--tokens", ids_file, "--out", tmp_path / "no" / "t"), "does not exist"
    )
    long = run("trace", folder, "--tokens", ids_file, "--out", tmp_path / ("n" * 300))
    assert_refused(long, "over 200 bytes")


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "x", "--prompt", "ab", "--out"),
        ("lens", "x", "--prompt", "ab", "--out"),
        ("perplexity", "x", "--prompt", "ab", "--csv"),
        ("convert", "x", "--out"),
        ("train", "blocks", "--out"),
        ("paper-figures", "x", "--out"),
    ],
)
def test_a_dash_is_no_file(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(run(*words, "-"), "- is no file", "stdout")
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_nothing_is_no_place_to_write(run, folder, ids_file, tmp_path):
    out = tmp_path / "t"
    out.symlink_to(tmp_path / "nowhere")
    for flags in ((), ("--force",)):
        assert_refused(run("trace", folder, "--tokens", ids_file, "--out", out, *flags), "link", str(out))
    assert out.is_symlink() and not out.exists()


@pytest.mark.parametrize("length", [1, 2, 9])
def test_the_stated_size_is_the_size_of_the_tensors(model, length):
    names = tuple(model.hook_dict)
    tensors = run_hooks(model, [1] * length, names)
    exact = sum(tensor.numel() * 4 for tensor in tensors.values()) + 8 * length
    assert trace.stored_bytes(model, length, names) == exact


def test_more_than_the_limit_needs_yes(run, folder, ids_file, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "ASK_ABOVE", 1000)
    command = ("trace", folder, "--tokens", ids_file, "--out", tmp_path / "t.safetensors")
    assert_refused(run(*command), "kB", "--yes")
    answer = run(*command, "--yes")
    assert answer.status == 0
    assert re.search(r"note: 6 tokens, \d+ hooks: \d+\.\d kB", answer.err)


def test_a_run_beyond_the_trained_length_says_so(run, folder, ids_file, tmp_path):
    ids_file.write_text(json.dumps([1] * (CONFIG.n_ctx + 1)))
    answer = run("trace", folder, "--tokens", ids_file, "--stages", "hook_z", "--out", tmp_path / "t")
    assert answer.status == 0 and "17 tokens is beyond the trained length of 16" in answer.err


def test_the_computing_dtype_can_be_chosen_and_float32_is_stored(run, folder, ids_file, tmp_path):
    for dtype in ("float32", "bfloat16"):
        out = tmp_path / dtype
        run("trace", folder, "--tokens", ids_file, "--dtype", dtype, "--stages", "hook_z", "--out", out)
    exact, rounded = (load_file(tmp_path / dtype)["logits"] for dtype in ("float32", "bfloat16"))
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    assert torch.equal(rounded, rounded.bfloat16().float())


def test_a_run_is_saved_to_be_opened_again(run, folder, model, ids_file, tmp_path):
    out = tmp_path / "run.safetensors"
    command = ("trace", folder, "--tokens", ids_file, "--format", "run", "--out", out)
    answer = run(*command, "--stages", "hook_pattern,hook_scores_kq")
    assert answer.status == 0, answer.err
    opened, expected = open_trace(out), capture(model, IDS)
    assert opened.tokens.ids == tuple(IDS)
    assert torch.equal(opened.maps(1, Stage.KQ), expected.maps(1, Stage.KQ))
    maps = ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_scores_kq", "blocks.1.attn.hook_pattern"]
    assert answer.json["attention"].endswith("layers in slabs of maps, since it runs on the CPU")
    assert answer.json["maps"] == maps and answer.json["bytes"] == out.stat().st_size
    assert answer.json["checkpoint"] == folder.name
    assert "note: 6 tokens: " in answer.err
    assert_refused(run(*command), "exists", "--force")
    assert run(*command, "--force", "--stages", "none").json["maps"] == []
    assert len(run(*command, "--force").json["maps"]) == 10
    assert_refused(run(*command, "--force", "--stages", "hook_z"), "is no stage", "hook_scores_mixed")
    assert_refused(run(*command, "--force", "--layers", "7"), "no layer 7")


GOLDEN_NAMES = {
    "scores_raw": "attn.hook_attn_scores",
    "scores_after_kq": "attn.hook_scores_kq",
    "scores_after_head": "attn.hook_scores_mixed",
    "probs": "attn.hook_softmax",
    "probs_after_kq": "attn.hook_softmax_kq",
    "probs_final": "attn.hook_pattern",
    "attn_out_prenorm": "attn.hook_z",
    "attn_out_normed": "attn.hook_z_normed",
    "gate": "attn.hook_gate",
    "attn_out_gated": "attn.hook_z_gated",
    "resid_post": "hook_resid_post",
}


@pytest.mark.golden
@pytest.mark.parametrize(
    "name", ["mta_full", "mta_headgroups2", "mta_toy", "talking_heads", "baseline", "mta_dcp"]
)
def test_the_trace_equals_the_reference(run, golden, tmp_path, name):
    expected = load_file(golden / name / "golden.safetensors")
    path, out = tmp_path / "ids.json", tmp_path / "t.safetensors"
    path.write_text(json.dumps(expected["tokens"][1].tolist()))
    answer = run("trace", golden / name, "--tokens", path, "--out", out)
    assert answer.status == 0, answer.err
    saved = load_file(out)
    torch.testing.assert_close(saved["logits"], expected["logits"][1], atol=1e-4, rtol=0)
    stages = [key for key in expected if key.startswith("layers.")]
    for key in stages:
        _, layer, stage = key.split(".")
        ours, theirs = saved[f"blocks.{layer}.{GOLDEN_NAMES[stage]}"], expected[key][1]
        if stage.startswith(("scores", "probs")):
            ours, theirs = ours.tril(), theirs.tril()
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=0, msg=key)
    assert stages or name == "mta_dcp"


def test_an_unknown_layer_is_an_error_of_the_user(model):
    with pytest.raises(MtaVizError, match="no layer 2, 5"):
        trace.select_hooks(model, (0, 2, 5), None)
