"""Files the commands write: never over an existing one unasked, never half of one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from mta_viz.checkpoint.atomic import replacing
from mta_viz.cli.json_text import json_text
from mta_viz.errors import MtaVizError

LONGEST_NAME = 200  # bytes; systems take 255, and a file is written under a longer name first


def check_output(path: Path, force: bool) -> None:
    """Raise MtaVizError before any work when `path` cannot be written."""
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise MtaVizError(f"the name {path.name[:20]}... has over {LONGEST_NAME} bytes; choose a shorter one")
    if path.is_symlink() and not path.exists():
        raise MtaVizError(f"{path} is a link to something that is not there; name a file, or remove the link")
    if path.is_dir():
        raise MtaVizError(f"{path} is a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise MtaVizError(f"{path} is no regular file, and would be replaced by one; name another")
    if path.exists() and not force:
        raise MtaVizError(f"{path} exists; choose another name or add --force")
    if not path.parent.is_dir():
        raise MtaVizError(f"the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise MtaVizError(f"the folder {path.parent} cannot be written to; choose another")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Save as safetensors through a file beside `path`, put in its place when complete.

    Raises MtaVizError when the place cannot be written (no permission, disk full).
    """
    try:
        with replacing(path) as partial:
            save_file(_separate(tensors), partial)
    except (OSError, SafetensorError) as error:
        raise MtaVizError(f"{path} cannot be written ({error}); choose another place") from error


def write_json(path: Path, answer: Mapping[str, Any]) -> None:
    """The answer of a command as a file, put in its place when complete."""
    with replacing(path) as partial:
        partial.write_text(json_text(answer) + "\n", encoding="utf-8")


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hooks that pass a tensor on unchanged share its memory, which the format refuses: copy those."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        separate[name] = tensor.clone().contiguous() if shared else tensor.contiguous()
    return separate
