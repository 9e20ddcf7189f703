"""Lingua's consolidated folder: consolidated.pth = {"model": state_dict, ...} beside params.json.

Opens and writes the files; names and layouts are layout.py's, params.json is params.py's.
"""

import re
from pathlib import Path

import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import PARAMS, copied_tokenizer, params_bytes, write_folder
from mta_viz.checkpoint.layout import to_file
from mta_viz.checkpoint.pickles import TooLargeError
from mta_viz.checkpoint.stored import StoredWeights, has_every_value, stored_in_memory
from mta_viz.checkpoint.types import Checkpoint
from mta_viz.errors import FileError

WEIGHTS = "consolidated.pth"
REFUSED = re.compile(r"GLOBAL ([\w.]+)")  # in torch's message: what a pickle names beside tensors


def open_lingua(folder: Path) -> StoredWeights:
    """The model's tensors in consolidated.pth, memory-mapped; optimiser state is never touched."""
    file = folder / WEIGHTS
    try:
        n_bytes, loaded = door.size(file), door.load_torch(file)
    except Exception as error:  # torch raises many kinds for a damaged file
        return StoredWeights({}, (f"{WEIGHTS} cannot be read: {_reason(error)}",))
    model = loaded.get("model") if isinstance(loaded, dict) else None
    if not isinstance(model, dict):
        found = ", ".join(map(str, loaded)) if isinstance(loaded, dict) else type(loaded).__name__
        return StoredWeights(
            {}, (f'{WEIGHTS} has no "model" dict of tensors; it holds: {found[:200]}',), n_bytes
        )
    named = {str(key): value for key, value in model.items()}
    tensors = {key: stored_in_memory(value) for key, value in named.items() if _is_plain(value)}
    unreadable = {
        key: f"{key} in {WEIGHTS} is a {type(value).__name__}; expected a dense tensor"
        for key, value in named.items()
        if key not in tensors
    }
    return StoredWeights(tensors, (), n_bytes, unreadable)


def _is_plain(value: object) -> bool:
    """Whether it is a tensor with one value per cell (not sparse, quantised or without data)."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return value.device.type == "cpu" and not value.is_quantized and has_every_value(value)


def _reason(error: Exception) -> str:
    if unsafe := REFUSED.search(str(error)):
        return (
            f"it holds {unsafe[1]}, which is not a tensor; nothing of it was run. "
            'Save {"model": state_dict} with tensors only'
        )
    if isinstance(error, TooLargeError):
        return f"{error}, which no checkpoint needs; refused"
    if isinstance(error, FileError):
        return error.reason
    return "it is cut short or is no torch file. Copy it again, or consolidate the run again"


def write_lingua(folder: Path, checkpoint: Checkpoint, *, overwrite: bool = False) -> None:
    """Write consolidated.pth and params.json (and the tokenizer's file, if there is one) into `folder`.

    A tied matrix is written under both names, as Lingua does. The folder appears whole or not at
    all. Raises CheckpointError when a file is there already and `overwrite` is false.
    """
    tensors = to_file(checkpoint.config, checkpoint.state_dict, None, tied_copy=True)
    tokenizer = copied_tokenizer(checkpoint.tokenizer_name, checkpoint.tokenizer_path, checkpoint.source.path)
    params = params_bytes(checkpoint.config, checkpoint.tokenizer_name, tokenizer, checkpoint.source.dtype)

    def fill(target: Path) -> None:
        torch.save({"model": tensors}, target / WEIGHTS)
        (target / PARAMS).write_bytes(params)
        if tokenizer.content is not None:
            (target / str(tokenizer.written)).write_bytes(tokenizer.content)

    write_folder(folder, fill, overwrite=overwrite)
