"""The project's own folder: written whole or not at all, read back equal."""

import json
import struct
from pathlib import Path

import pytest
import torch
from checkpoint_samples import configs, random_state, tiny_config
from hypothesis import HealthCheck, given, settings
from safetensors import safe_open
from safetensors.torch import save_file

from mta_viz.checkpoint.layout import file_entries
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError


def write(folder: Path, config: ModelConfig | None = None, dtype: torch.dtype | None = None) -> Path:
    config = config or tiny_config()
    state = random_state(config)
    write_native(folder, config, state, tokenizer_name="char", tokenizer_path=None, dtype=dtype)
    return folder


def problems_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    return caught.value.problems


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(configs())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_model_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> None:
    folder = tmp_path_factory.mktemp("native") / "model"
    state = random_state(config)
    write_native(folder, config, state, tokenizer_name=None, tokenizer_path=None, dtype=None)
    back = read_checkpoint(folder).state_dict
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "float16"), (torch.bfloat16, "bfloat16")])
def test_half_precision(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "m", dtype=dtype))
    assert checkpoint.source.dtype == name
    expected = random_state(tiny_config())["embed.weight"].to(dtype)
    assert torch.equal(checkpoint.state_dict["embed.weight"], expected)
    written = json.loads((tmp_path / "m" / "params.json").read_text())
    assert written["distributed"]["model_dtype"] == {"float16": "fp16", "bfloat16": "bf16"}[name]


def test_keys_and_layouts_are_linguas_and_a_tied_matrix_is_stored_once(tmp_path: Path) -> None:
    config = tiny_config()
    with safe_open(write(tmp_path / "m") / "model.safetensors", framework="pt") as file:
        keys = set(file.keys())
        mixing = file.get_tensor("layers.0.attention.head_kernel")
        kernel = file.get_tensor("layers.1.attention.mta_kernel")
    assert keys == {entry.key for entry in file_entries(config).values()}
    state = random_state(config)
    assert mixing[0, 0, 1] == state["blocks.0.attn.head_post"][0, 1, 0]
    assert torch.equal(kernel[:, 0], state["blocks.1.attn.kernel_pre"])


def test_the_tokenizers_file_comes_along_under_a_relative_path(tmp_path: Path) -> None:
    file = tmp_path / "words.json"
    file.write_text("{}")
    config = tiny_config()
    write_native(
        tmp_path / "m",
        config,
        random_state(config),
        tokenizer_name="tokenizers",
        tokenizer_path=file,
        dtype=None,
    )
    params = json.loads((tmp_path / "m" / "params.json").read_text())
    assert params["data"]["tokenizer"] == {"name": "tokenizers", "path": "tokenizer.json"}
    assert (tmp_path / "m" / "tokenizer.json").read_text() == "{}"


def test_others_may_read_the_weights_as_they_may_the_settings(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    modes = {(folder / name).stat().st_mode for name in ("model.safetensors", "params.json")}
    assert len(modes) == 1


def test_nothing_is_overwritten_unless_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "README.md").write_text("card")
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"model\.safetensors, params\.json already there"):
        write(folder)
    assert (folder / "model.safetensors").read_bytes() == before
    config = tiny_config()
    write_native(
        folder,
        config,
        random_state(config, seed=1),
        tokenizer_name="char",
        tokenizer_path=None,
        dtype=None,
        overwrite=True,
    )
    assert (folder / "model.safetensors").read_bytes() != before
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "model.safetensors", "params.json"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_parameters_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    config = tiny_config()
    state = random_state(config)
    del state["ln_final.weight"]
    state["extra"] = torch.ones(2)
    with pytest.raises(CheckpointError) as caught:
        write_native(tmp_path / "m", config, state, tokenizer_name=None, tokenizer_path=None, dtype=None)
    assert len(caught.value.problems) == 2
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("keep", [0, 5, 200, 0.5, 0.999])
def test_a_cut_file_is_said_to_be_cut(tmp_path: Path, keep: float) -> None:
    file = write(tmp_path / "m") / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    (problem,) = problems_of(file.parent)
    assert "is cut short, damaged or no safetensors file" in problem


def test_a_header_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "m") / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    assert "is cut short, damaged or no safetensors file" in problems_of(file.parent)[0]


def test_other_dtypes_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors["norm.weight"] = torch.ones(8, dtype=torch.complex64)
    tensors["layers.0.ffn_norm.weight"] = torch.ones(8, dtype=torch.int32)
    save_file(tensors, folder / "model.safetensors")
    complex_problem, whole = problems_of(folder)
    assert "norm.weight has the dtype C64" in complex_problem
    assert "layers.0.ffn_norm.weight is int32; expected bf16, fp16 or fp32" in whole
