"""A folder with the kernels of a model and nothing else: kernels.safetensors + params.json.

Keys and layouts are those of model.safetensors. It is a thousandth of the model and holds all that the
atlas of kernels needs; no prompt can be run with it.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from mta_viz.checkpoint.atomic import write_folder
from mta_viz.checkpoint.files import PARAMS, TokenizerFile, params_bytes
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.native import open_safetensors
from mta_viz.checkpoint.stored import StoredWeights, dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError

WEIGHTS = "kernels.safetensors"


def open_kernels(folder: Path) -> StoredWeights:
    """Names, shapes and dtypes in the header of kernels.safetensors; values are read through a memory map."""
    return open_safetensors(folder / WEIGHTS)


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
        save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
        shutil.copymode(target / PARAMS, target / WEIGHTS)  # safetensors lets the owner alone read it

    write_folder(folder, fill, overwrite=overwrite)
