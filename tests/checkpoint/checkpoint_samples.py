"""Tiny models and folders that the checkpoint tests share."""

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from mta_viz.checkpoint.layout import file_entries
from mta_viz.checkpoint.params import Parsed, params_from_config, parse_params
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions, RopeScaling
from mta_viz.errors import CheckpointError, ConfigError

ALL_OPTIONS = MTAOptions(
    pre_kernel=(2, 3),
    post_kernel=(3, 5),
    mta_layers=(1,),
    head_pre=True,
    head_post_group=2,
    group_norm=True,
    gate="1d",
)


def tiny_config(mta: MTAOptions = ALL_OPTIONS, **changes: Any) -> ModelConfig:
    sizes = {"d_model": 8, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_head": 2, "d_mlp": 24}
    return ModelConfig(**{**sizes, "vocab_size": 32, "tied": True, "n_ctx": 16, **changes}, mta=mta)


def random_state(config: ModelConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in parameter_shapes(config).items()}


def tiny_params(**model: Any) -> dict[str, Any]:
    """params.json of a small plain transformer with the char tokenizer; `model` fields on top."""
    fields = {"dim": 8, "n_layers": 2, "n_heads": 4, "multiple_of": 8, "vocab_size": 32, "weight_tying": True}
    tokenizer = {"name": "char", "path": None}
    return {"model": {**fields, **model}, "data": {"seq_len": 16, "tokenizer": tokenizer}}


def lingua_tensors(config: ModelConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tensors under Lingua's names and shapes, both copies of a tied matrix included."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        entry.key: torch.randn(entry.shape, generator=generator) for entry in file_entries(config).values()
    }
    if config.tied:
        tensors["output.tied_module.weight"] = tensors["tok_embeddings.weight"].clone()
    return tensors


def write_consolidated(folder: Path, params: object, tensors: Mapping[str, Any], **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": dict(tensors), **more}, folder / "consolidated.pth")
    (folder / "params.json").write_text(json.dumps(params))
    return folder


def write_sample(folder: Path, tokenizer: tuple[str | None, str | None] = ("char", None)) -> Path:
    """A consolidated folder of `tiny_config()` with random tensors and the named tokenizer."""
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


def write_distributed(
    folder: Path, params: object, tensors: Mapping[str, torch.Tensor], ranks: int, columns: int = 1
) -> Path:
    """What `ranks` processes leave: each holds ceil(n / ranks) rows, the last ones possibly none.

    Of matrices `columns` times as many processes each hold a part of the columns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [io.BytesIO() for _ in range(ranks * columns)]
    entries, storage = {}, {}
    for name, tensor in tensors.items():
        chunks = []
        rows = -(-tensor.shape[0] // ranks)
        width = -(-tensor.shape[-1] // columns)
        for rank in range(ranks * (columns if tensor.dim() == 2 else 1)):
            start = min(rank % ranks * rows, tensor.shape[0])
            piece, offsets = tensor[start : start + rows].clone(), [start] + [0] * (tensor.dim() - 1)
            if columns > 1 and tensor.dim() == 2:
                offsets[1] = min(rank // ranks * width, tensor.shape[1])
                piece = piece[:, offsets[1] : offsets[1] + width].clone()
            offsets = torch.Size(offsets)
            chunks.append(ChunkStorageMetadata(offsets, piece.shape))
            place = files[rank].tell()
            torch.save(piece, files[rank])
            length = files[rank].seek(0, 2) - place
            storage[MetadataIndex(name, offsets, rank)] = _StorageInfo(f"__{rank}_0.distcp", place, length)
        properties = TensorProperties(dtype=tensor.dtype)
        entries[name] = TensorStorageMetadata(properties, tensor.shape, chunks)
    for rank, content in enumerate(files):
        (folder / f"__{rank}_0.distcp").write_bytes(content.getvalue())
    metadata = Metadata(state_dict_metadata=entries, planner_data={}, storage_data=storage)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    (folder / "params.json").write_text(json.dumps(params))
    return folder


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any model with every option in play."""
    n_heads = draw(st.sampled_from([1, 2, 4, 6]))
    n_layers = draw(st.integers(1, 4))
    pad_key = draw(st.sampled_from(["both", "left", "right"]))
    widths = st.sampled_from([1, 3, 5]) if pad_key == "both" else st.integers(1, 5)
    kernel = st.none() | st.tuples(st.integers(1, 4), widths)
    layers = st.none() | st.sets(st.integers(0, n_layers - 1)).map(lambda found: tuple(sorted(found)))
    head_post = draw(st.sampled_from(["none", "group", "linear"]))
    divisors = [size for size in range(1, n_heads + 1) if n_heads % size == 0]
    mta = MTAOptions(
        pre_kernel=draw(kernel),
        post_kernel=draw(kernel),
        pad_key=pad_key,
        mta_layers=draw(layers),
        head_pre=draw(st.booleans()),
        head_post_group=draw(st.sampled_from(divisors)) if head_post == "group" else None,
        head_post_linear=head_post == "linear",
        group_norm=draw(st.booleans()),
        depth_scale=draw(st.booleans()),
        gate=draw(st.sampled_from([None, "1d", "dd"])),
        scale_block_norms=draw(st.booleans()),
    )
    return ModelConfig(
        d_model=draw(st.integers(1, 40)),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from(divisors)),
        d_head=2 * draw(st.integers(1, 4)),
        d_mlp=draw(st.integers(1, 120)),
        vocab_size=draw(st.integers(1, 50)),
        n_ctx=draw(st.integers(1, 99)),
        norm_eps=draw(st.sampled_from([1e-5, 1e-6])),
        rope_theta=draw(st.sampled_from([1e4, 1e5])),
        tied=draw(st.booleans()),
        mta=mta,
        rope_scaling=draw(st.sampled_from([None, RopeScaling(8.0, 1.0, 4.0, 8192)])),
        **{name: draw(st.booleans()) for name in ("qkv_bias", "out_bias", "mlp_bias")},
    )


def config_of(params: object, vocab_size: int | None = None) -> ModelConfig:
    """The configuration a params.json object describes."""
    return parsed(params, vocab_size).config


def params_problems_of(params: object) -> tuple[str, ...]:
    """What is wrong with one."""
    with pytest.raises(ConfigError) as caught:
        config_of(params)
    return caught.value.problems


def parsed(params: object, vocab_size: int | None = None) -> Parsed:
    """What params.json says. Raises ConfigError where it is at fault."""
    found = parse_params(params, vocab_size=vocab_size)
    if found.config is None or found.problems:
        raise ConfigError(found.problems, "params.json")
    return found
