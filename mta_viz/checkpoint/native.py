"""The project's own folders, with Lingua's keys and layouts beside params.json.

model.safetensors is a whole model, a tied matrix stored once; kernels.safetensors holds the kernels of
a model and nothing else. The tokenizer's path is relative to the folder. Owns too how a base with what
was inserted into it is written as one model, and what a checkpoint has beyond its base.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import TokenizerFile, beside, copied_tokenizer, write_model
from mta_viz.checkpoint.layout import EMBEDDING, kernel_entries, to_file
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.types import Checkpoint, StoredTensor, StoredWeights, dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError, first_problems, is_out_of_memory
from mta_viz.printed import printable

WEIGHTS, KERNELS = "model.safetensors", "kernels.safetensors"
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPES |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
_DTYPES |= {"BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}


def open_safetensors(file: Path) -> StoredWeights:
    """Names, shapes and dtypes in the header of a file; values are read through a memory map."""
    try:
        n_bytes = door.size(file)
        with door.open_tensors(file) as opened:
            slices = {key: opened.get_slice(key) for key in sorted(opened.keys())}
            described = {key: (tuple(part.get_shape()), part.get_dtype()) for key, part in slices.items()}
    except FileError as error:
        return StoredWeights({}, (error.of(file.name),))
    tensors, unreadable = {}, {}
    for key, (shape, word) in described.items():
        if word in _DTYPES:
            tensors[key] = StoredTensor(shape, _DTYPES[word], partial(_read, file, key))
        else:
            unreadable[key] = f"{key} has the dtype {word}, which is not supported; expected F32, BF16 or F16"
    return StoredWeights(tensors, (), n_bytes, unreadable)


def _read(file: Path, key: str) -> Tensor:
    try:
        with door.open_tensors(file) as opened:
            return opened.get_tensor(key).clone()
    except FileError as error:
        if is_out_of_memory(error.__cause__):  # once, not for every tensor that is left
            raise
        raise CheckpointError([f"{key}: {error.of(file.name)}"]) from error


def write_native(
    folder: Path,
    config: ModelConfig,
    state_dict: Mapping[str, Tensor],
    *,
    tokenizer_name: str | None,
    tokenizer_path: str | Path | None,
    dtype: torch.dtype | None,
    overwrite: bool = False,
) -> None:
    """Write model.safetensors and params.json, and a copy of the tokenizer's file, into `folder`.

    Parameters are those of `parameter_shapes(config)`, stored in `dtype` (None: as they are).
    `tokenizer_path` is the file to copy (`tokenizers` becomes tokenizer.json). The folder appears
    whole or not at all. Raises CheckpointError when parameters do not fit the configuration, the
    tokenizer's file is missing, or a file is there already and `overwrite` is false.
    """
    tensors = to_file(config, state_dict, dtype, tied_copy=False)
    path = str(tokenizer_path) if tokenizer_path is not None else None
    tokenizer = copied_tokenizer(tokenizer_name, path, None)
    if path is not None and tokenizer.content is None:
        problem = f"the tokenizer file {path} is not there; give its path"
        raise CheckpointError([problem], "The model to write")
    save = partial(save_file, tensors, metadata={"format": "pt"})
    name = dtype_name(tensors[EMBEDDING].dtype)
    write_model(Path(folder), config, WEIGHTS, save, dtype=name, tokenizer=tokenizer, overwrite=overwrite)


def write_kernels(
    folder: Path, config: ModelConfig, state_dict: Mapping[str, Tensor], *, overwrite: bool = False
) -> None:
    """Write the kernels and head-mixing matrices of `state_dict`, in their dtype, and params.json.

    The folder appears whole or not at all. Raises CheckpointError for a model without kernels, and when a
    file is there already and `overwrite` is false.
    """
    tensors = {
        entry.key: entry.layout.write(state_dict[name].detach()).cpu().contiguous()
        for name, entry in kernel_entries(config).items()
    }
    if not tensors:
        raise CheckpointError(["it has no key-query kernels and mixes no heads"], "The model to write")
    save = partial(save_file, tensors, metadata={"format": "pt"})
    dtype = dtype_name(next(iter(tensors.values())).dtype)
    write_model(folder, config, KERNELS, save, dtype=dtype, tokenizer=TokenizerFile(), overwrite=overwrite)


def write_merged(
    folder: Path,
    checkpoint: Checkpoint,
    config: ModelConfig,
    state_dict: Mapping[str, Tensor],
    *,
    lingua: bool = False,
    overwrite: bool = False,
) -> None:
    """Write `state_dict`, of `config`, with the tokenizer that `checkpoint` came with; dtypes are kept.

    `checkpoint` is the base, or an adapter on it. Raises CheckpointError as `write_native` and `write_lingua`
    do.
    """
    place = beside(checkpoint.source.base or checkpoint.source.path)
    if lingua:
        source = replace(checkpoint.source, path=place)
        write_lingua(
            folder,
            replace(checkpoint, config=config, state_dict=state_dict, source=source),
            overwrite=overwrite,
        )
        return
    write_native(
        folder,
        config,
        state_dict,
        tokenizer_name=checkpoint.tokenizer_name,
        tokenizer_path=_tokenizer_file(place, checkpoint.tokenizer_path if checkpoint.tokenizer else None),
        dtype=None,
        overwrite=overwrite,
    )


def beyond(checkpoint: Checkpoint, base: Checkpoint) -> tuple[str, ...]:
    """Names of what an adapter of `checkpoint` on `base` holds: its kernels, and what the base lacks.

    A tensor counts as the base's where dtype and every bit are the same. Raises CheckpointError where the
    base has what the checkpoint lacks, or in another shape.
    """
    own, there = checkpoint.state_dict, base.state_dict
    wrong = [name for name, tensor in there.items() if name not in own or own[name].shape != tensor.shape]
    if wrong:
        problems = [f"the base has {name} {list(there[name].shape)}, this model has not" for name in wrong]
        raise CheckpointError(first_problems(problems, "such tensors"), printable(checkpoint.source.path))
    kernels = kernel_entries(checkpoint.config)
    return tuple(name for name in own if name in kernels or not _is_bit_equal(own[name], there.get(name)))


def _is_bit_equal(tensor: Tensor, other: Tensor | None) -> bool:
    if other is None or other.dtype != tensor.dtype:
        return False
    return torch.equal(*(part.contiguous().view(torch.uint8) for part in (tensor, other)))


def _tokenizer_file(folder: Path, written: str | None) -> Path | None:
    """The tokenizer's file of a checkpoint in `folder`, None where it is not there."""
    if written is None:
        return None
    try:
        file = door.inside(folder, written)
        return file if file.is_file() else None
    except FileError:
        return None
