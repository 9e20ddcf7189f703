"""A plain checkpoint with what was inserted into it, written as one: in the project's format or Lingua's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.types import Checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import FileError


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


def _tokenizer_file(folder: Path, written: str | None) -> Path | None:
    """The tokenizer's file of a checkpoint in `folder`, None where it is not there."""
    if written is None:
        return None
    try:
        file = door.inside(folder, written)
        return file if file.is_file() else None
    except FileError:
        return None
