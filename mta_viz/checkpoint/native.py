"""The project's own folder: model.safetensors + params.json, with Lingua's keys and layouts.

A tied matrix is stored once. The tokenizer's path is relative to the folder.

A folder with the kernels of a model and nothing else: kernels.safetensors + params.json.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import PARAMS, TokenizerFile, copied_tokenizer, params_bytes, write_folder
from mta_viz.checkpoint.layout import kernel_entries, to_file
from mta_viz.checkpoint.stored import StoredTensor, StoredWeights, dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError

WEIGHTS = "model.safetensors"
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def open_native(folder: Path) -> StoredWeights:
    """The tensors of model.safetensors, as `open_safetensors` gives them."""
    return open_safetensors(folder / WEIGHTS)


def open_safetensors(file: Path) -> StoredWeights:
    """Names, shapes and dtypes in the header of a file; values are read through a memory map."""
    try:
        n_bytes, described = door.size(file), _header(file)
    except FileError as error:
        return StoredWeights({}, (error.of(file.name),))
    tensors, unreadable = {}, {}
    for key, (shape, word) in described.items():
        if word in _DTYPES:
            tensors[key] = StoredTensor(shape, _DTYPES[word], partial(_read, file, key))
        else:
            unreadable[key] = f"{key} has the dtype {word}, which is not supported; expected F32, BF16 or F16"
    return StoredWeights(tensors, (), n_bytes, unreadable)


def _header(file: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype word of every tensor."""
    with door.open_tensors(file) as opened:
        slices = {key: opened.get_slice(key) for key in sorted(opened.keys())}
        return {key: (tuple(part.get_shape()), part.get_dtype()) for key, part in slices.items()}


def _read(file: Path, key: str) -> Tensor:
    try:
        with door.open_tensors(file) as opened:
            return opened.get_tensor(key).clone()
    except FileError as error:
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
        raise CheckpointError(
            [f"the tokenizer file {path} is not there; give its path"], "The model to write"
        )
    name = dtype_name(tensors["tok_embeddings.weight"].dtype)

    def fill(target: Path) -> None:
        (target / PARAMS).write_bytes(params_bytes(config, tokenizer_name, tokenizer, name))
        save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
        # safetensors lets the owner alone read what it writes; a model is as public as its settings.
        shutil.copymode(target / PARAMS, target / WEIGHTS)
        if tokenizer.content is not None:
            (target / str(tokenizer.written)).write_bytes(tokenizer.content)

    write_folder(Path(folder), fill, overwrite=overwrite)


KERNELS = "kernels.safetensors"


def open_kernels(folder: Path) -> StoredWeights:
    """Names, shapes and dtypes in the header of kernels.safetensors; values are read through a memory map."""
    return open_safetensors(folder / KERNELS)


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
    dtype = dtype_name(next(iter(tensors.values())).dtype)

    def fill(target: Path) -> None:
        (target / PARAMS).write_bytes(params_bytes(config, None, TokenizerFile(None), dtype))
        save_file(tensors, target / KERNELS, metadata={"format": "pt"})
        shutil.copymode(target / PARAMS, target / KERNELS)  # safetensors lets the owner alone read it

    write_folder(folder, fill, overwrite=overwrite)
