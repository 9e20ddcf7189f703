"""A broken folder: one error that lists every fault, whatever their number."""

from pathlib import Path

import pytest
import torch
from checkpoint_samples import (
    edit_params,
    edit_tensors,
    problems_of,
    tiny_params,
    write_consolidated,
    write_sample,
)

from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.errors import CheckpointError


def test_six_faults_of_six_kinds_are_all_in_one_error(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "broken", tokenizer=("tiktoken", "ranks.tiktoken"))
    edit_params(folder, n_kv_heads=3, mta={"shift_keys": True})
    edit_tensors(
        folder,
        **{
            "layers.1.attention.wq.weight": None,
            "layers.0.attention.extra": torch.ones(2, 3),
            "layers.0.feed_forward.w1.weight": torch.ones(24, 9),
        },
    )
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    message, problems = str(caught.value), caught.value.problems
    assert len(problems) == 6
    for words in (
        "model.n_kv_heads is 3; expected a divisor of n_heads 4 (the tensors fit 2)",
        "model.mta.shift_keys (true) is not a field this program knows",
        "layers.1.attention.wq.weight is missing; expected a tensor of shape [8, 8]",
        "layers.0.attention.extra [2, 3] is a tensor the model of params.json does not have",
        "layers.0.feed_forward.w1.weight has shape [24, 9]; expected [24, 8]",
        "ranks.tiktoken",
    ):
        assert words in message
    assert message.startswith(str(folder))


@pytest.mark.parametrize(
    "fault",
    [
        {"dim": 0},
        {"n_layers": 0},
        {"n_layers": "two"},
        {"n_heads": 0},
        {"n_heads": 3, "head_dim": None},
        {"head_dim": 3},
        {"n_kv_heads": 99},
        {"vocab_size": 0},
        {"multiple_of": 0},
        {"norm_eps": -1},
        {"mta": {"pad_key": "middle"}},
        {"mta": {"key_kernel_size": 4}},
        {"mta": {"query_kernel_size": 0}},
        {"mta": {"head_kernel_size": 3}},
        {"mta": {"mta_layers": "x"}},
        {"mta": {"use_mta": "yes"}},
        {"mta": {"group_norm": 1, "add_gating": 1, "gate_1d": 1, "pre_sm_linear_head": 1}},
        {"weight_tying": "no"},
        {"mta": {"after_sm_key_kernel_size": 2}},
    ],
    ids=str,
)
def test_a_field_out_of_range_does_not_hide_a_misshapen_tensor(tmp_path: Path, fault: dict) -> None:
    folder = edit_tensors(write_sample(tmp_path), **{"layers.0.attention_norm.weight": torch.ones(7)})
    problems = problems_of(edit_params(folder, **fault))
    assert sum(not problem.startswith("model.") for problem in problems) == 1
    assert "layers.0.attention_norm.weight has shape [7]; expected [8]" in problems
    assert problems[0].startswith("model.")


def test_a_broken_params_file_does_not_hide_a_broken_weights_file(tmp_path: Path) -> None:
    folder = write_sample(tmp_path)
    (folder / "params.json").write_text("{")
    (folder / "consolidated.pth").write_bytes(b"PK")
    params, weights = problems_of(folder)
    assert params.startswith("params.json is not JSON")
    assert weights.startswith("consolidated.pth cannot be read")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "params.json is not JSON"),
        (b"[1]", 'params.json has no "model" object'),
        (b"\xff\xfe", "params.json is not UTF-8 text"),
        (b"[" * 100_000, "params.json is not JSON"),
        (b"1" * 5000, "params.json is not JSON"),
    ],
)
def test_what_is_no_params_file_is_said(tmp_path: Path, content: bytes, words: str) -> None:
    folder = write_sample(tmp_path)
    (folder / "params.json").write_bytes(content)
    assert words in problems_of(folder)[0]
    with pytest.raises(CheckpointError, match=words):
        read_summary(folder / "params.json")


def test_a_missing_params_file_is_named(tmp_path: Path) -> None:
    folder = write_sample(tmp_path)
    (folder / "params.json").unlink()
    assert problems_of(folder)[0].startswith("params.json is missing")


@pytest.mark.parametrize(
    ("model", "key", "shape"),
    [
        ({"dim": "x"}, "tok_embeddings.weight", ()),
        ({"n_heads": "x", "head_dim": None}, "layers.0.attention.mta_kernel", (0, 1, 2, 9)),
        ({"mta": {"use_mta": True, "head_kernel_size": "x"}}, "layers.0.attention.head_kernel", (0, 0, 0)),
    ],
)
def test_empty_tensors_hint_at_nothing(
    tmp_path: Path, model: dict[str, object], key: str, shape: tuple[int, ...]
) -> None:
    folder = write_consolidated(tmp_path, tiny_params(**model), {key: torch.zeros(shape)})
    with pytest.raises(CheckpointError, match="expected"):
        read_checkpoint(folder)


def test_thousands_of_unknown_tensors_are_counted_not_listed(tmp_path: Path) -> None:
    extra = {f"extra.{i}": torch.zeros(1) for i in range(1000)} | {"a\x1b[31m\nb": torch.zeros(1)}
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(edit_tensors(write_sample(tmp_path), **extra))
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "and 981 more tensors the model does not have"


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    folder = edit_tensors(write_sample(tmp_path / "a\x1bb"), **{"c\x1b[31m\nd": torch.zeros(1)})
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    assert "a\\x1bb" in str(caught.value)
    assert caught.value.problems[0].startswith("c\\x1b[31m\\nd [1] is a tensor the model")
    assert "\x1b" not in str(caught.value)
