"""The reference's dumps: kernels open as a model without weights, `info` says what attention maps are."""

import json
import re
from argparse import ArgumentParser
from pathlib import Path

import pytest
import torch
from checkpoint_samples import problems_of

from mta_viz.checkpoint.dumps import LIMITS, find_attention
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.cli import info
from mta_viz.errors import CheckpointError, MtaVizError, PromptError
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.run.files import open_trace
from mta_viz.run.tracing import capture, load


def answer(path: Path) -> dict:
    parser = ArgumentParser()
    info.add_flags(parser)
    return info.run(parser.parse_args([str(path)]))


def dumped(file: Path, *layers: int, shape: tuple[int, ...] = (4, 1, 2, 3)) -> Path:
    torch.save({f"Layer {layer}": torch.full(shape, float(layer)) for layer in layers}, file)
    return file


def test_a_dump_of_kernels_opens_without_settings(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(dumped(tmp_path / "kernel_weights.pt", 1, 3))
    assert (checkpoint.source.format, checkpoint.is_whole) == ("kernels", False)
    assert {name: value.shape for name, value in checkpoint.state_dict.items()} == {
        "blocks.0.attn.kernel_pre": (4, 2, 3),
        "blocks.2.attn.kernel_pre": (4, 2, 3),
    }
    assert checkpoint.state_dict["blocks.2.attn.kernel_pre"].unique().item() == 3
    (note,) = checkpoint.notes
    assert note.startswith(
        "a dump of kernels before the softmax alone; with no params.json beside it, pad_key"
    )
    (found,) = find_checkpoints([tmp_path]).found
    assert (found.name, found.problem) == ("kernel_weights.pt", None)
    assert answer(tmp_path / "kernel_weights.pt") == {
        "format": "kernel dump",
        "layers": (0, 2),
        "n_heads": 4,
        "kernel": (2, 3),
    }


@pytest.mark.golden
def test_the_references_own_dumps(golden: Path, tmp_path: Path) -> None:
    dump, model = read_checkpoint(golden / "attn_dump" / "kernel_weights.pt"), golden / "mta_toy"
    whole = read_checkpoint(model).state_dict
    assert all(torch.equal(whole[name], kernel) for name, kernel in dump.state_dict.items())
    assert len(dump.state_dict) == 4
    (tmp_path / "params.json").write_bytes((model / "params.json").read_bytes())
    file = tmp_path / "kernels.pt"
    file.write_bytes((golden / "attn_dump" / "kernel_weights.pt").read_bytes())
    assert read_summary(file).config.d_model == read_summary(model).config.d_model
    (found, second) = find_checkpoints([tmp_path]).found
    assert found.problem is not None and second.problem is None
    about = answer(golden / "attn_dump")
    assert (about["format"], about["batches"], about["layers"]) == ("attention dump", 1, [0, 1, 2, 3])
    assert about["limits"] == list(LIMITS)
    assert answer(golden / "attn_dump" / "0") == about
    trace = open_trace(golden / "attn_dump")
    ids = torch.load(golden / "attn_dump" / "0" / "output_token_indices", weights_only=True)[0]
    run = capture(load(model), ids)
    assert len(trace.tokens) == len(ids) - 1 == 26 and trace.tokens.pieces[5] == run.tokens.pieces[5]
    for layer in range(4):  # one row fewer than tokens; this model has kernels in every layer
        same = run.maps(layer, Stage.PATTERN)[:, :26, :26]
        torch.testing.assert_close(trace.maps(layer, Stage.PATTERN), same, atol=1e-5, rtol=0)


def attention(folder: Path, *layers: int, shape: tuple[int, ...] = (1, 2, 4, 4), **files: object) -> Path:
    folder.mkdir(parents=True)
    for layer in layers:
        torch.save(torch.ones(shape).tril(), folder / f"attn_dump.{layer:02}.0")
    for name, value in files.items():
        torch.save(value, folder / name)
    return folder


def test_attention_dumps_open_as_maps_only(tmp_path: Path) -> None:
    attention(tmp_path / "d" / "10", 1)
    attention(tmp_path / "d" / "2", 1, 3, output_tokens=[["", "a", "b\n", "a", "c"], ["x"]])
    trace = open_trace(tmp_path / "d")
    assert trace.tokens.pieces == ("<empty>", "a", "b⏎", "a") and trace.tokens.ids == (0, 1, 2, 1)
    assert [trace.has(layer, Stage.PATTERN) for layer in range(4)] == [False, True, False, True]
    assert not is_distribution(Stage.PATTERN, trace.model.config.kernels(1))
    assert trace.map(3, Stage.PATTERN, 1).sum() == 10
    with pytest.raises(PromptError, match="does not hold layer 3's hook_softmax"):
        trace.map(3, Stage.SOFTMAX, 0)
    with pytest.raises(MtaVizError, match="names no checkpoint; open it without a model"):
        open_trace(tmp_path / "d", trace.model)
    assert open_trace(tmp_path / "d" / "10").tokens.pieces == ("?",) * 4
    assert find_attention([tmp_path]) == (tmp_path / "d",)


@pytest.mark.parametrize(
    ("layers", "change", "words"),
    [
        ((0,), torch.ones(1, 2, 4, 4), "it is no causal attention map"),
        ((0,), torch.ones(2, 4, 4), "it is no causal attention map"),
        ((0,), torch.ones(1, 2, 1, 1).expand(1, 2, 9000, 9000), "it is no causal attention map"),
        ((0, 1), torch.ones(1, 2, 3, 3).tril(), "shapes [2, 3, 3], [2, 4, 4]; expected one"),
    ],
)
def test_a_dump_that_is_none_is_named(
    tmp_path: Path, layers: tuple, change: torch.Tensor, words: str
) -> None:
    folder = attention(tmp_path / "0", *layers)
    torch.save(change, folder / "attn_dump.00.0")
    with pytest.raises(CheckpointError, match=re.escape(words)):
        open_trace(folder)


def test_what_is_no_dump_is_none(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps({"model": {}}))
    torch.save({"Layer 1": torch.ones(4, 1, 2, 3), "Layer x": 1}, tmp_path / "kernel.pt")
    assert find_checkpoints([tmp_path]).found[0].summary is None
    assert len(find_checkpoints([tmp_path]).found) == 1
    dumped(tmp_path / "kernels.pt", 1)
    torch.save(
        {"Layer 1": torch.ones(4, 1, 2, 3), "Layer 2": torch.ones(4, 1, 3, 3)}, tmp_path / "kernels.pt"
    )
    (problem, *_) = problems_of(tmp_path / "kernels.pt")
    assert problem.startswith("its kernels have the shapes [4, 1, 2, 3], [4, 1, 3, 3]; expected one")
