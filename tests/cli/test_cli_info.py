"""`info`: the fields of a checkpoint, from a folder or a lone params.json."""

import json

import pytest
from cli_support import CONFIG, assert_refused

FIELDS = [
    "variant", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "vocab_size", "parameters",
    "layers", "tokenizer", "format",
]  # fmt: skip


def test_every_field_of_a_checkpoint(run, folder, model):
    answer = run("info", folder)
    assert answer.status == 0
    info = answer.json
    assert list(info) == FIELDS
    assert {name: info[name] for name in FIELDS[1:7]} == {name: getattr(CONFIG, name) for name in FIELDS[1:7]}
    assert info["variant"] == "mta" and info["tokenizer"] == "char" and info["format"] == "native"
    assert info["parameters"] == sum(weight.numel() for weight in model.parameters())
    plain, full = info["layers"]
    assert plain == {
        "stages": ["hook_attn_scores", "hook_scores_mixed", "hook_softmax", "hook_pattern"],
        "kernels": {"pre": None, "post": None, "head_pre": [1, 4, 4], "head_post": [2, 2, 2]},
    }
    assert full["stages"] == [
        "hook_attn_scores", "hook_scores_kq", "hook_scores_mixed", "hook_softmax", "hook_softmax_kq",
        "hook_pattern",
    ]  # fmt: skip
    assert full["kernels"]["pre"] == [4, 2, 3] and full["kernels"]["post"] == [4, 3, 5]


def test_a_lone_params_file_needs_the_vocabulary_size(run, folder, tmp_path):
    params = json.loads((folder / "params.json").read_text())
    params["model"]["vocab_size"] = -1
    params["data"]["tokenizer"] = {"name": "tiktoken", "path": "absent.tiktoken"}
    path = tmp_path / "params.json"
    path.write_text(json.dumps(params))
    assert_refused(run("info", path), "vocab")
    info = run("info", path, "--vocab-size", 100).json
    assert info["format"] == "params" and info["vocab_size"] == 100 and info["tokenizer"] == "tiktoken"
    extra = (100 - CONFIG.vocab_size) * CONFIG.d_model * 2  # embedding and untied unembedding
    assert info["parameters"] == run("info", folder).json["parameters"] + extra


def test_a_folder_without_a_checkpoint_is_refused(run, tmp_path):
    assert_refused(run("info", tmp_path / "absent"), "absent")
    assert_refused(run("info", tmp_path), "params.json")


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "variant", "parameters", "form"),
    [
        ("mta_full", "mta", 219_108, "lingua"),
        ("mta_headgroups2", "mta", 169_672, "lingua"),
        ("mta_toy", "mta", 264_912, "lingua"),
        ("talking_heads", "talking_heads", 167_584, "lingua"),
        ("baseline", "transformer", 167_488, "lingua"),
        ("mta_dcp", "mta", 219_108, "dcp"),
    ],
)
def test_the_reference_checkpoints(run, golden, name, variant, parameters, form):
    info = run("info", golden / name).json
    assert (info["variant"], info["parameters"], info["format"]) == (variant, parameters, form)
