"""A plain checkpoint with what was inserted into it, as one, and what a checkpoint has beyond its base."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.types import Checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError, first_problems
from mta_viz.printed import printable


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
    return torch.equal(*(one.contiguous().view(torch.uint8) for one in (tensor, other)))


def _tokenizer_file(folder: Path, written: str | None) -> Path | None:
    """The tokenizer's file of a checkpoint in `folder`, None where it is not there."""
    if written is None:
        return None
    try:
        file = door.inside(folder, written)
        return file if file.is_file() else None
    except FileError:
        return None
