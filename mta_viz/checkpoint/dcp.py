"""Lingua's distributed folder (DCP): `.metadata` and `__R_S.distcp`, put together in memory.

Reads the model's pieces only and writes nothing. What `.metadata` says is dcp_metadata.py's.
"""

import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mta_viz.checkpoint.dcp_metadata import CutTensor, Piece, read_metadata
from mta_viz.checkpoint.pickle_limits import check_torch_file
from mta_viz.checkpoint.stored import StoredTensor, StoredWeights
from mta_viz.errors import CheckpointError

METADATA = ".metadata"
MODEL_PREFIX = "model."


def open_dcp(folder: Path) -> StoredWeights:
    """The model's tensors of all ranks. Missing or short .distcp files are among the problems."""
    if (folder / METADATA).exists() and not (folder / METADATA).is_file():
        return StoredWeights({}, (f"{METADATA} is no regular file; copy it again",))
    n_bytes = sum(file.stat().st_size for file in folder.glob("*.distcp"))
    try:
        cut, unreadable = read_metadata((folder / METADATA).read_bytes(), MODEL_PREFIX)
    except FileNotFoundError:
        missing = f"{METADATA} is missing beside the .distcp files; without it they cannot be read"
        return StoredWeights({}, (f"{missing}. Copy hidden files too",), n_bytes)
    except OSError as error:
        return StoredWeights({}, (f"{METADATA} cannot be read: {error.strerror}",), n_bytes)
    except CheckpointError as error:
        return StoredWeights({}, error.problems, n_bytes)
    problems = _file_problems(folder, cut)
    if not cut and not unreadable:
        problems = (f"{METADATA} lists no tensor of a model; expected names such as model.norm.weight",)
    tensors = {
        key: StoredTensor(tensor.shape, tensor.dtype, partial(_read, folder, key, tensor))
        for key, tensor in cut.items()
    }
    return StoredWeights(tensors, problems, n_bytes, unreadable)


def _file_problems(folder: Path, cut: Mapping[str, CutTensor]) -> tuple[str, ...]:
    """Files that are absent, or end before a piece that should lie in them."""
    needed: dict[str, int] = {}
    for tensor in cut.values():
        for piece in tensor.pieces:
            needed[piece.file] = max(needed.get(piece.file, 0), piece.offset + piece.length)
    problems = []
    for name, end in sorted(needed.items()):
        file = folder / name
        if not file.is_file():
            problems.append(f"{name} is missing; copy it from the run")
        elif file.stat().st_size < end:
            problems.append(
                f"{name} has {file.stat().st_size:,} bytes; expected at least {end:,}: copy it again"
            )
    return tuple(problems)


def _read(folder: Path, key: str, tensor: CutTensor) -> Tensor:
    pieces = [_read_piece(folder, key, piece, tensor.dtype) for piece in tensor.pieces]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _read_piece(folder: Path, key: str, piece: Piece, dtype: torch.dtype) -> Tensor:
    try:
        with (folder / piece.file).open("rb") as opened:
            opened.seek(piece.offset)
            content = io.BytesIO(opened.read(piece.length))
        check_torch_file(content)
        value = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged bytes
        raise CheckpointError(
            [f"{key}: its piece in {piece.file} is damaged; copy the file again"]
        ) from error
    if not isinstance(value, Tensor) or tuple(value.shape) != piece.shape or value.dtype != dtype:
        raise CheckpointError([f"{key}: its piece in {piece.file} is not the tensor .metadata describes"])
    return value.detach()
