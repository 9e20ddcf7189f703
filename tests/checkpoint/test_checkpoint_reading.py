"""One door to all formats: one error with every fault, tokenizers, summaries, progress."""

import json
import os
from pathlib import Path

import pytest
import torch
from checkpoint_samples import lingua_tensors, tiny_config, tiny_params, write_consolidated

from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import parameter_count, read_checkpoint, read_summary
from mta_viz.errors import Cancelled, CheckpointError


def write(folder: Path, tokenizer: tuple[str | None, str | None] = ("char", None)) -> Path:
    config = tiny_config()
    return write_consolidated(folder, params_from_config(config, *tokenizer), lingua_tensors(config))


def edit_params(folder: Path, **model: object) -> Path:
    file = folder / "params.json"
    params = json.loads(file.read_text())
    mta = model.pop("mta", {})
    params["model"] |= model
    params["model"]["mta"] |= mta
    file.write_text(json.dumps(params))
    return folder


def edit_tensors(folder: Path, **changes: torch.Tensor | None) -> Path:
    file = folder / "consolidated.pth"
    model = torch.load(file, weights_only=True)["model"]
    for key, value in changes.items():
        if value is None:
            del model[key]
        else:
            model[key] = value
    torch.save({"model": model}, file)
    return folder


def problems_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    return caught.value.problems


def test_six_faults_of_six_kinds_are_all_in_one_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "broken", tokenizer=("tiktoken", "ranks.tiktoken"))
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
    folder = edit_tensors(write(tmp_path), **{"layers.0.attention_norm.weight": torch.ones(7)})
    problems = problems_of(edit_params(folder, **fault))
    assert sum(not problem.startswith("model.") for problem in problems) == 1
    assert "layers.0.attention_norm.weight has shape [7]; expected [8]" in problems
    assert problems[0].startswith("model.")


def test_a_broken_params_file_does_not_hide_a_broken_weights_file(tmp_path: Path) -> None:
    folder = write(tmp_path)
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
        (b"\xff\xfe", "params.json is not JSON"),
        (b"[" * 100_000, "params.json is not JSON"),
        (b"1" * 5000, "params.json is not JSON"),
    ],
)
def test_what_is_no_params_file_is_said(tmp_path: Path, content: bytes, words: str) -> None:
    folder = write(tmp_path)
    (folder / "params.json").write_bytes(content)
    assert words in problems_of(folder)[0]
    with pytest.raises(CheckpointError, match=words):
        read_summary(folder / "params.json")


def test_a_missing_params_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "params.json").unlink()
    assert problems_of(folder)[0].startswith("params.json is missing")


def test_nan_weights_are_read(tmp_path: Path) -> None:
    folder = edit_tensors(write(tmp_path), **{"norm.weight": torch.full((8,), float("nan"))})
    assert read_checkpoint(folder).state_dict["ln_final.weight"].isnan().all()


def test_mixed_dtypes_are_noted(tmp_path: Path) -> None:
    folder = edit_tensors(write(tmp_path), **{"norm.weight": torch.ones(8, dtype=torch.bfloat16)})
    checkpoint = read_checkpoint(folder)
    assert checkpoint.source.dtype == "float32"
    assert checkpoint.notes == ("the file mixes dtypes: bfloat16, float32",)


def test_a_missing_tokenizer_file_stops_nothing_and_is_asked_for(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path, ("tiktoken", "/author/tokenizer.model")))
    assert checkpoint.tokenizer is None
    assert checkpoint.tokenizer_name == "tiktoken"
    assert checkpoint.tokenizer_path == "/author/tokenizer.model"
    assert "tokenizer.model" in str(checkpoint.tokenizer_problem)


def test_no_tokenizer_named(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path, (None, None)))
    assert checkpoint.tokenizer is None
    assert "names no tokenizer" in str(checkpoint.tokenizer_problem)


def test_a_tokenizer_file_the_user_gave_must_work(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", ("tiktoken", None))
    with pytest.raises(CheckpointError, match="nowhere"):
        read_checkpoint(folder, tokenizer=tmp_path / "nowhere.model")


@pytest.mark.golden
def test_a_tokenizer_file_given_by_the_user_or_found_by_name(golden: Path, tmp_path: Path) -> None:
    ranks = golden / "tokenizers" / "tiny.tiktoken"
    config = tiny_config(vocab_size=2000)
    params = params_from_config(config, "tiktoken", "/author/tiny.tiktoken")
    folder = write_consolidated(tmp_path, params, lingua_tensors(config))
    given = read_checkpoint(folder, tokenizer=ranks)
    assert given.tokenizer is not None
    assert given.tokenizer.kind == "tiktoken"
    assert given.tokenizer_path == str(ranks)
    (folder / "tiny.tiktoken").write_bytes(ranks.read_bytes())
    assert read_checkpoint(folder).tokenizer_path == "tiny.tiktoken"


def test_a_tokenizer_larger_than_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    (problem,) = problems_of(write(tmp_path, ("bytes", None)))
    assert '"bytes" has 258 tokens, more than the vocabulary of the model (32)' in problem


def test_vocabulary_of_minus_one(tmp_path: Path) -> None:
    assert read_checkpoint(edit_params(write(tmp_path / "a"), vocab_size=-1)).config.vocab_size == 32
    without = edit_params(write(tmp_path / "b", ("tiktoken", None)), vocab_size=-1)
    assert read_checkpoint(without).config.vocab_size == 32  # the rows of the embedding
    assert read_summary(without).config.vocab_size == 32
    (problem, *_) = problems_of(edit_params(write(tmp_path / "c", ("bytes", None)), vocab_size=-1))
    assert problem == "tok_embeddings.weight has shape [32, 8]; expected [258, 8]"


def test_progress_grows_to_one_and_can_stop_the_reading(tmp_path: Path) -> None:
    folder, seen = write(tmp_path), []
    read_checkpoint(folder, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert len(seen) > 10

    def stop(_: float) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        read_checkpoint(folder, progress=stop)


def test_nothing_is_written_into_the_folder(tmp_path: Path) -> None:
    folder = write(tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    read_checkpoint(folder)
    read_summary(folder)
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_summary_of_a_folder_and_of_params_alone(tmp_path: Path) -> None:
    folder = write(tmp_path)
    summary = read_summary(folder)
    assert (summary.format, summary.dtype, summary.tokenizer_name) == ("lingua", "float32", "char")
    assert summary.n_bytes == (folder / "consolidated.pth").stat().st_size
    assert summary.path == folder
    assert parameter_count(summary.config) == sum(
        value.numel() for value in read_checkpoint(folder).state_dict.values()
    )
    alone = read_summary(folder / "params.json", vocab_size=40)
    assert (alone.format, alone.dtype, alone.config.vocab_size) == ("params", None, 40)
    assert parameter_count(alone.config) - parameter_count(summary.config) == 8 * 8


def test_params_without_a_vocabulary_ask_for_one(tmp_path: Path) -> None:
    params = tiny_params(vocab_size=-1)
    params["data"]["tokenizer"] = {"name": "tiktoken", "path": "t.model"}
    params["distributed"] = {"model_dtype": "bf16"}
    file = tmp_path / "params.json"
    file.write_text(json.dumps(params))
    with pytest.raises(CheckpointError, match=r"model\.vocab_size is -1"):
        read_summary(file)
    assert read_summary(file, vocab_size=9).dtype == "bfloat16"
    with pytest.raises(CheckpointError, match=r"holds params\.json but no weights"):
        read_checkpoint(tmp_path)


def test_a_path_that_is_no_checkpoint_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Looked for model\.safetensors, consolidated\.pth"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        read_checkpoint(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match="it is a file"):
        read_checkpoint(tmp_path / "notes.txt")
    with pytest.raises(CheckpointError):
        read_checkpoint("x" * 5000)


def test_a_file_in_the_folder_stands_for_it(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for name in ("consolidated.pth", "params.json"):
        assert read_checkpoint(folder / name).source.path == folder


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


@pytest.mark.parametrize("name", ["params.json", "train_state_00000.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    if name == "params.json":
        with pytest.raises(CheckpointError, match=r"params\.json is no regular file"):
            read_summary(folder)
    else:
        assert read_summary(folder).step is None


def test_a_pipe_for_metadata_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    (tmp_path / "params.json").write_text(json.dumps(tiny_params()))
    os.mkfifo(tmp_path / ".metadata")
    with pytest.raises(CheckpointError, match=r"\.metadata is no regular file"):
        read_summary(tmp_path)


def test_thousands_of_unknown_tensors_are_counted_not_listed(tmp_path: Path) -> None:
    extra = {f"extra.{i}": torch.zeros(1) for i in range(1000)} | {"a\x1b[31m\nb": torch.zeros(1)}
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(edit_tensors(write(tmp_path), **extra))
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "and 981 more tensors the model does not have"


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    folder = edit_tensors(write(tmp_path / "a\x1bb"), **{"c\x1b[31m\nd": torch.zeros(1)})
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    assert "a\\x1bb" in str(caught.value)
    assert caught.value.problems[0].startswith("c\\x1b[31m\\nd [1] is a tensor the model")
    assert "\x1b" not in str(caught.value)
