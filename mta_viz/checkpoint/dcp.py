"""Lingua's distributed folder (DCP): `.metadata` and `__R_S.distcp`, put together in memory.

Reads `.metadata` without running it, the model's pieces only, and writes nothing.
"""

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.pickles import TooLargeError, check_pickle
from mta_viz.checkpoint.stored import StoredTensor, StoredWeights, has_every_value
from mta_viz.errors import CheckpointError, FileError
from mta_viz.printed import short_repr

_METADATA = "torch.distributed.checkpoint.metadata"
RECORDS = frozenset(
    {
        (_METADATA, name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    }
    | {("torch.distributed.checkpoint.filesystem", "_StorageInfo"), ("torch.serialization", "_get_layout")}
)
_PATHS = frozenset(
    (module, name)
    for module in ("pathlib", "pathlib._local")
    for name in ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")
)
_DTYPES = frozenset(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))


LARGEST = 2**63 - 1  # what a file's place or a shape may count


class Record:
    """Whatever was pickled under an allowed name: its constructor's arguments and its state, no behaviour."""

    def __new__(cls, *args: object) -> "Record":
        """Accepts any arguments, as a pickle gives them."""
        return super().__new__(cls)

    def __init__(self, *args: object) -> None:
        self.args, self.state = args, None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __getitem__(self, name: str) -> Any:
        """A field of the state; CheckpointError when the record has none such."""
        if not isinstance(self.state, dict) or name not in self.state:
            raise CheckpointError([f".metadata has a record without {name}; expected torch's own format"])
        return self.state[name]


class _Refused(Exception):
    """A name outside the list."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in RECORDS:
            return Record
        if (module, name) in _PATHS:
            return PurePosixPath
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in _DTYPES:
            return getattr(torch, name)
        raise _Refused(f"{module}.{name}")


@dataclass(frozen=True)
class Piece:
    """One rank's rows of a tensor, from `start` on: `length` bytes at `offset` of `file`."""

    start: int
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class CutTensor:
    """A tensor over all ranks: full shape, dtype, and its non-empty pieces in the order of their rows."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[Piece, ...]


def read_metadata(content: bytes, prefix: str) -> tuple[dict[str, CutTensor], dict[str, str]]:
    """(tensors whose name starts with `prefix`, by the rest of their name; problems of others, likewise).

    Raises CheckpointError for a file that is damaged or names anything outside the list.
    """
    metadata = _unpickle(content)
    stored = {
        (_text(_record(index)["fqn"]), _offsets(_dict(index.state).get("offset"))): _record(info)
        for index, info in _dict(metadata["storage_data"]).items()
    }
    tensors: dict[str, CutTensor] = {}
    problems: dict[str, str] = {}
    for name, entry in _dict(metadata["state_dict_metadata"]).items():
        if isinstance(name, str) and name.startswith(prefix):
            try:
                tensors[name.removeprefix(prefix)] = _cut_tensor(name, entry, stored)
            except CheckpointError as error:
                problems[name.removeprefix(prefix)] = error.problems[0]
    return tensors, problems


def _unpickle(content: bytes) -> Record:
    try:
        check_pickle(content)
        metadata = _Unpickler(io.BytesIO(content)).load()
    except _Refused as error:
        raise CheckpointError(
            [f".metadata names {error}, which no checkpoint needs; refused, and nothing of it was run"]
        ) from None
    except TooLargeError as error:
        raise CheckpointError(
            [f".metadata cannot be read: {error}, which no checkpoint needs; refused"]
        ) from error
    except Exception as error:  # a damaged pickle raises almost anything
        raise CheckpointError([".metadata is cut short or damaged; copy it again"]) from error
    return _record(metadata)


def _cut_tensor(name: str, entry: Any, stored: dict[Any, Record]) -> CutTensor:
    if not isinstance(entry, Record) or not isinstance(entry.state, dict) or "size" not in entry.state:
        raise CheckpointError([f"{name} is no tensor in .metadata; expected one"])
    shape = _offsets(entry["size"])
    dtype = _dtype(name, entry["properties"])
    pieces = []
    for chunk in map(_record, _list(entry["chunks"])):
        offsets, sizes = _offsets(chunk["offsets"]), _offsets(chunk["sizes"])
        if 0 in sizes:  # a rank without rows
            continue
        if len(sizes) != len(shape) or any(offsets[1:]) or sizes[1:] != shape[1:]:
            raise CheckpointError([f"{name} is cut along a dimension other than 0, which is not supported"])
        pieces.append(_piece(name, offsets, sizes, stored))
    pieces.sort(key=lambda piece: piece.start)
    _check_cover(name, shape, pieces)
    return CutTensor(shape, dtype, tuple(pieces))


def _piece(name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], stored: dict[Any, Record]) -> Piece:
    info = stored.get((name, offsets))
    if info is None:
        raise CheckpointError([f"{name}: .metadata does not say where the piece at {list(offsets)} lies"])
    if _dict(info.state).get("transform_descriptors"):
        raise CheckpointError([f"{name} is stored transformed (compressed?), which is not supported"])
    file, offset, length = _text(info["relative_path"]), info["offset"], info["length"]
    if PurePosixPath(file).name != file or "\\" in file or "\0" in file:
        raise CheckpointError([f"{name} lies in {short_repr(file)}, outside the folder; refused"])
    if not (type(offset) is int and type(length) is int and 0 <= offset <= LARGEST and 0 < length <= LARGEST):
        raise CheckpointError(
            [f"{name} has a piece at offset {short_repr(offset)} of length {short_repr(length)}"]
        )
    return Piece(offsets[0] if offsets else 0, sizes, file, offset, length)


def _check_cover(name: str, shape: tuple[int, ...], pieces: list[Piece]) -> None:
    """The pieces must follow one another from row 0 to the last, without gap or overlap."""
    row = 0
    for piece in pieces:
        if piece.start != row:
            raise CheckpointError([f"{name}: its pieces leave out or repeat rows near row {row}"])
        row += piece.shape[0] if piece.shape else 1
    if row != (shape[0] if shape else 1):
        raise CheckpointError(
            [f"{name}: its pieces hold {row} rows of {shape[0]}; is a .distcp file missing?"]
        )


def _dtype(name: str, properties: Any) -> torch.dtype:
    state = properties.state if isinstance(properties, Record) else None
    dtype = state[0] if isinstance(state, tuple) and state else None
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError([f"{name} has no dtype in .metadata"])
    return dtype


def _offsets(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if isinstance(value, tuple) and all(type(size) is int and 0 <= size <= LARGEST for size in value):
        return tuple(value)
    raise CheckpointError([f".metadata has {short_repr(value)} where a shape was expected"])


def _text(value: Any) -> str:
    """A name; anything else is refused unread, since writing out a nested value may take forever."""
    if isinstance(value, str | PurePosixPath):
        return str(value)
    raise CheckpointError([f".metadata has {short_repr(value)} where a name was expected"])


def _record(value: Any) -> Record:
    if not isinstance(value, Record):
        raise CheckpointError(
            [f".metadata has {short_repr(value)} where one of torch's records was expected"]
        )
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise CheckpointError([f".metadata has {short_repr(value)} where a list of pieces was expected"])
    return value


def _dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise CheckpointError([".metadata lacks its table of tensors; copy it again"])
    return value


METADATA = ".metadata"
MOST_METADATA = 256 * door.MIB
MODEL_PREFIX = "model."


def open_dcp(folder: Path) -> StoredWeights:
    """The model's tensors of all ranks. Missing or short .distcp files are among the problems."""
    n_bytes = sum(file.stat().st_size for file in folder.glob("*.distcp"))
    try:
        content = door.read_bytes(folder / METADATA, MOST_METADATA)
        cut, unreadable = read_metadata(content, MODEL_PREFIX)
    except FileError as error:
        hidden = "is missing; without it the .distcp files cannot be read: copy hidden files too"
        return StoredWeights({}, (f"{METADATA} {hidden}" if error.missing else error.of(METADATA),), n_bytes)
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
        with door.opened(folder / piece.file) as opened:
            opened.seek(piece.offset)
            value = door.load_torch(opened.read(piece.length))
    except Exception as error:  # torch raises many kinds for damaged bytes
        raise CheckpointError(
            [f"{key}: its piece in {piece.file} is damaged; copy the file again"]
        ) from error
    fits = isinstance(value, Tensor) and tuple(value.shape) == piece.shape and value.dtype == dtype
    if not fits or not has_every_value(value):
        raise CheckpointError([f"{key}: its piece in {piece.file} is not the tensor .metadata describes"])
    return value.detach()
