"""The consolidated folder: names, layouts, tied copies, and files that are damaged or hostile."""

import os
from pathlib import Path

import pytest
import torch
from checkpoint_samples import (
    lingua_tensors,
    random_state,
    tiny_config,
    tiny_params,
    write_consolidated,
)

from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.checkpoint.types import Checkpoint, Source, parameter_shapes
from mta_viz.config import MTAOptions, RopeScaling
from mta_viz.errors import CheckpointError

GOLDEN = ("mta_full", "mta_headgroups2", "mta_toy", "talking_heads", "baseline")


def write(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **more: object) -> Path:
    config = tiny_config()
    return write_consolidated(
        folder, params_from_config(config, "char", None), tensors or lingua_tensors(config), **more
    )


def problems_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    return caught.value.problems


def test_layouts_are_normalised(tmp_path: Path) -> None:
    tensors = lingua_tensors(tiny_config())
    state = read_checkpoint(write(tmp_path / "c", tensors)).state_dict
    # head_kernel is [group, source, target] in the file, [group, target, source] here.
    assert state["blocks.0.attn.head_post"][1, 0, 1] == tensors["layers.0.attention.head_kernel"][1, 1, 0]
    assert state["blocks.0.attn.head_pre"][0, 3, 1] == tensors["layers.0.attention.wpsm.weight"][3, 1]
    assert state["blocks.1.attn.kernel_pre"][2, 1, 0] == tensors["layers.1.attention.mta_kernel"][2, 0, 1, 0]
    post = tensors["layers.1.attention.mta_kernel_after_sm"]
    assert torch.equal(state["blocks.1.attn.kernel_post"], post[:, 0])
    assert "blocks.0.attn.kernel_pre" not in state


def test_a_linear_layer_after_the_softmax_is_one_group(tmp_path: Path) -> None:
    config = tiny_config(MTAOptions(head_post_linear=True))
    tensors = lingua_tensors(config)
    folder = write_consolidated(tmp_path, params_from_config(config, "char", None), tensors)
    mixing = read_checkpoint(folder).state_dict["blocks.1.attn.head_post"]
    assert torch.equal(mixing[0], tensors["layers.1.attention.wposm.weight"])


@pytest.mark.golden
@pytest.mark.parametrize("name", GOLDEN)
def test_reference_checkpoints_give_exactly_the_models_parameters(golden: Path, name: str) -> None:
    checkpoint = read_checkpoint(golden / name)
    shapes = {key: tuple(value.shape) for key, value in checkpoint.state_dict.items()}
    assert shapes == parameter_shapes(checkpoint.config)
    assert checkpoint.tokenizer is not None
    assert (checkpoint.source.format, checkpoint.source.dtype) == ("lingua", "float32")


def test_the_second_copy_of_a_tied_matrix_is_optional(tmp_path: Path) -> None:
    tensors = lingua_tensors(tiny_config())
    both = read_checkpoint(write(tmp_path / "both", tensors))
    del tensors["output.tied_module.weight"]
    one = read_checkpoint(write(tmp_path / "one", tensors))
    assert both.state_dict.keys() == one.state_dict.keys()
    assert "unembed.weight" not in one.state_dict


def test_tied_copies_that_differ_are_a_fault_but_equal_nans_are_not(tmp_path: Path) -> None:
    tensors = lingua_tensors(tiny_config())
    tensors["tok_embeddings.weight"][0, 0] = float("nan")
    tensors["output.tied_module.weight"][0, 0] = float("nan")
    assert read_checkpoint(write(tmp_path / "nan", tensors)).state_dict["embed.weight"].isnan().sum() == 1
    tensors["output.tied_module.weight"][5, 5] += 1
    (problem,) = problems_of(write(tmp_path / "unequal", tensors))
    assert "output.tied_module.weight differs from tok_embeddings.weight" in problem


def test_optimiser_state_is_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, optim={"state": {0: {"exp_avg": torch.ones(3)}}, "lr": 0.1})
    assert read_checkpoint(folder).state_dict.keys() == parameter_shapes(tiny_config()).keys()


def test_tensors_outlive_the_file(tmp_path: Path) -> None:
    tensors = lingua_tensors(tiny_config())
    folder = write(tmp_path, tensors)
    state = read_checkpoint(folder).state_dict
    with (folder / "consolidated.pth").open("r+b") as file:
        file.write(b"\0" * (folder / "consolidated.pth").stat().st_size)
    assert torch.equal(state["embed.weight"], tensors["tok_embeddings.weight"])


def test_the_old_torch_format_is_read_too(tmp_path: Path) -> None:
    folder = write(tmp_path)
    model = lingua_tensors(tiny_config())
    torch.save({"model": model}, folder / "consolidated.pth", _use_new_zipfile_serialization=False)
    assert torch.equal(read_checkpoint(folder).state_dict["ln_final.weight"], model["norm.weight"])


class Hostile:
    """Pickles as a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_hostile_pickle_is_refused_by_name_and_not_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    folder = write(tmp_path / "c", extra=Hostile(made))
    (problem,) = problems_of(folder)
    assert "mkdir" in problem
    assert "nothing of it was run" in problem
    assert not made.exists()


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_a_cut_file_is_said_to_be_cut(tmp_path: Path, keep: float) -> None:
    file = write(tmp_path) / "consolidated.pth"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("consolidated.pth cannot be read: it is cut short")


def test_a_file_without_model_says_what_it_holds(tmp_path: Path) -> None:
    folder = write(tmp_path)
    torch.save({"weights": 1, "step": 2}, folder / "consolidated.pth")
    assert problems_of(folder) == (
        'consolidated.pth has no "model" dict of tensors; it holds: weights, step',
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3.0, "is a float; expected a dense tensor"),
        (torch.ones(8).to_sparse(), "expected a dense tensor"),
        (torch.ones(8, dtype=torch.int64), "is int64; expected bf16, fp16 or fp32"),
        (torch.ones(9), "has shape [9]; expected [8]"),
    ],
)
def test_one_bad_entry_is_named_once(tmp_path: Path, value: object, words: str) -> None:
    folder = write(tmp_path, {**lingua_tensors(tiny_config()), "norm.weight": value})
    (problem,) = problems_of(folder)
    assert problem.startswith("norm.weight")
    assert words in problem


def test_layers_that_are_not_there_take_one_line(tmp_path: Path) -> None:
    params = params_from_config(tiny_config(n_layers=4), "char", None)
    folder = write_consolidated(tmp_path, params, lingua_tensors(tiny_config()))
    assert problems_of(folder) == ("every tensor of layer 2, 3 is missing; model.n_layers is 4",)


def test_written_folders_read_back_equal(tmp_path: Path) -> None:
    config = tiny_config(tied=False)
    source = Source(tmp_path, "native", "float32", 0)
    checkpoint = Checkpoint(config, random_state(config), None, source, tokenizer_name="char")
    write_lingua(tmp_path / "out", checkpoint)
    back = read_checkpoint(tmp_path / "out")
    assert back.config == config
    assert all(torch.equal(back.state_dict[name], value) for name, value in checkpoint.state_dict.items())
    with pytest.raises(CheckpointError, match="already there"):
        write_lingua(tmp_path / "out", checkpoint)
    write_lingua(tmp_path / "out", checkpoint, overwrite=True)


def test_a_link_that_is_no_tokenizer_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "system").write_text("hidden:x:0:0\n")
    params = params_from_config(tiny_config(), "tiktoken", "ranks.model")
    folder = write_consolidated(tmp_path / "in", params, lingua_tensors(tiny_config()))
    (folder / "ranks.model").symlink_to(tmp_path / "system")
    checkpoint = read_checkpoint(folder)
    assert checkpoint.tokenizer is None
    write_lingua(tmp_path / "out", checkpoint)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"consolidated.pth", "params.json"}


@pytest.mark.golden
def test_writing_a_reference_checkpoint_gives_its_file_again(golden: Path, tmp_path: Path) -> None:
    write_lingua(tmp_path / "out", read_checkpoint(golden / "mta_full"))
    ours, theirs = (
        torch.load(folder / "consolidated.pth", weights_only=True)["model"]
        for folder in (tmp_path / "out", golden / "mta_full")
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_params_alone_beside_a_plain_model(tmp_path: Path) -> None:
    params = tiny_params()
    assert problems_of(write_consolidated(tmp_path, params, {"output.weight": torch.ones(32, 8)})) == (
        "every tensor of layer 0, 1 is missing; model.n_layers is 2",
        "tok_embeddings.weight is missing; expected a tensor of shape [32, 8]",
        "norm.weight is missing; expected a tensor of shape [8]",
    )


def test_what_lingua_has_no_place_for_is_refused_by_name(tmp_path: Path) -> None:
    config = tiny_config(qkv_bias=True, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192))
    source = Source(tmp_path, "native", "float32", 0)
    with pytest.raises(CheckpointError) as caught:
        write_lingua(tmp_path / "out", Checkpoint(config, random_state(config), None, source))
    assert [problem[:15] for problem in caught.value.problems] == ["it has qkv_bias", "it has rope_sca"]
    assert not (tmp_path / "out").exists()
