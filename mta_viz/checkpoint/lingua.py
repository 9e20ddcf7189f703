"""Lingua's two folders: consolidated.pth, and the distributed one (DCP): `.metadata` and `__R_S.distcp`.

Reads the model's tensors only and runs nothing of a file; a distributed model is put together in memory.
Names and layouts are layout.py's, params.json is params.py's.
"""

import io
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

import torch
from torch import Tensor

from mta_viz.checkpoint import door, pickles, types
from mta_viz.checkpoint.files import TokenizerFile, beside, copied_tokenizer, write_model
from mta_viz.checkpoint.layout import to_file
from mta_viz.checkpoint.params import BEYOND_LINGUA
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError
from mta_viz.printed import short_repr, size_text

T = TypeVar("T")
WEIGHTS = "consolidated.pth"
REFUSED = re.compile(r"GLOBAL ([\w.]+)")  # in torch's message: what a pickle names beside tensors


def open_torch(file: Path, *, bare: bool = False) -> types.StoredWeights:
    """The model's tensors in what torch.save wrote, memory-mapped; an optimiser's state is never touched.

    `bare`: in this format a state dict has nothing around it, so that none is noted.
    """
    try:
        n_bytes, loaded = door.size(file), door.load_torch(file)
    except Exception as error:  # torch raises many kinds for a damaged file
        return types.StoredWeights({}, (f"{file.name} cannot be read: {_reason(file, error)}",))
    entry, model = pickles.state_dict(loaded)
    if not model:
        return types.StoredWeights({}, (pickles.without_model(file.name, loaded),), n_bytes)
    named = {pickles.name_of(key): value for key, value in model.items()}
    plain = {key: value for key, value in named.items() if isinstance(value, Tensor) and _is_plain(value)}
    tensors = {key: types.stored_in_memory(value) for key, value in plain.items()}
    unreadable = {
        key: f"{key} in {file.name} {_what_is(value)}; expected a dense tensor"
        for key, value in named.items()
        if key not in tensors and (entry or isinstance(value, Tensor))
    }
    there = f'"{entry}"' if entry else "bare state dict"
    note = f'{file.name} has no "model": its {there} is read as one'
    notes = () if bare or entry == "model" else (note,)
    return types.StoredWeights(tensors, (), n_bytes, unreadable, notes)


def _is_plain(value: Tensor) -> bool:
    """Whether it has one value per cell (is not sparse or without data)."""
    dense = value.layout is torch.strided and value.device.type == "cpu"
    return dense and types.has_every_value(value)


def _what_is(value: object) -> str:
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        return "is sparse"
    if isinstance(value, Tensor) and value.device.type != "cpu":
        return f"has no values (it lies on the device {value.device.type})"
    if isinstance(value, Tensor):
        claimed, there = value.numel() * value.element_size(), value.untyped_storage().nbytes()
        return f"claims {size_text(claimed)}, of which the file holds {size_text(there)}"
    return f"is a {type(value).__name__}"


def _reason(file: Path, error: Exception) -> str:
    if isinstance(error, pickles.TooLargeError):
        return f"{error}, which no checkpoint needs; refused"
    if isinstance(error, FileError):
        return f"it {error.reason}; {error.remedy}"
    if isinstance(error, pickles.ForeignError):
        return str(error)
    if unsafe := REFUSED.search(str(error)):
        remedy = 'nothing of it was run. Save {"model": state_dict} with tensors only'
        return f"it holds {unsafe[1]}, which is not a tensor; {remedy}"
    if (kind := door.kind_of(file)) and kind != door.ZIP:
        remedy = "call it model.safetensors" if kind == door.TENSORS else "give what torch.save wrote"
        return f"it is {kind}; {remedy}"
    return "it is cut short or is no torch file. Copy it again, or consolidate the run again"


def write_lingua(folder: Path, checkpoint: types.Checkpoint, *, overwrite: bool = False) -> None:
    """Write consolidated.pth and params.json (and the tokenizer's file, if there is one) into `folder`.

    A tied matrix is written under both names, as Lingua does. The folder appears whole or not at
    all. Raises CheckpointError when a file is there already and `overwrite` is false, and for a model
    with what Lingua's models have none of.
    """
    config, source = checkpoint.config, checkpoint.source
    check_for_lingua(config)
    model = {"model": to_file(config, checkpoint.state_dict, None, tied_copy=True)}
    save = partial(torch.save, model)
    tokenizer = TokenizerFile(checkpoint.tokenizer_name, checkpoint.tokenizer_path)
    if checkpoint.tokenizer is not None:  # what is no tokenizer may be any file that a link leads to
        tokenizer = copied_tokenizer(tokenizer.name, tokenizer.written, beside(source.path))
    write_model(folder, config, WEIGHTS, save, dtype=source.dtype, tokenizer=tokenizer, overwrite=overwrite)


def check_for_lingua(config: ModelConfig) -> None:
    """Raises CheckpointError for a model with what Lingua's models have none of."""
    remedy = "which Lingua's format has no place for; write the project's own (model.safetensors)"
    there = {name: getattr(config, name) for name in (*BEYOND_LINGUA, "rope_scaling")}
    if problems := [f"it has {name} {value}, {remedy}" for name, value in there.items() if value]:
        raise CheckpointError(problems, "The model to write")


METADATA = ".metadata"
_MOST_METADATA, _MOST_STEPS = 64 * door.MIB, 3_000_000  # 1,000 tensors over 48 ranks, 60 steps a piece
_MODEL_PREFIX = "model."
_LARGEST = 2**63 - 1  # what a file's place or a shape may count
_DCP = "torch.distributed.checkpoint.metadata"
_OF_DCP = (
    *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta"),
    *("TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
)
RECORDS = {(_DCP, name) for name in _OF_DCP} | {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
}
_PATHS = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")
_DTYPES = frozenset(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))


class Record:
    """Whatever was pickled under an allowed name: its state, no behaviour."""

    state: Any = None

    def __init__(self, *args: object) -> None:
        """Accepts any arguments, as a pickle gives them."""

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
        if module in ("pathlib", "pathlib._local") and name in _PATHS:
            return PurePosixPath
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in _DTYPES:
            return getattr(torch, name)
        raise _Refused(f"{module}.{name}")


@dataclass(frozen=True)
class Piece:
    """One rank's part of a tensor, from `start` of each axis on: `length` bytes at `offset` of `file`."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class CutTensor:
    """A tensor over all ranks: full shape, dtype, and its non-empty pieces, which fill it as a grid."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[Piece, ...]


def read_metadata(content: bytes) -> tuple[dict[str, CutTensor], dict[str, str]]:
    """(tensors by name, problems of others likewise); CheckpointError for a damaged file.

    Names begin with `model.`, which is taken off; in a file without such names all its tensors are taken.
    """
    metadata = _unpickled(content)
    stored = {
        (_text(_record(index)["fqn"]), _offsets(_table(index.state).get("offset"))): _record(info)
        for index, info in _table(metadata["storage_data"]).items()
    }
    tensors: dict[str, CutTensor] = {}
    problems: dict[str, str] = {}
    listed = {k: v for k, v in _table(metadata["state_dict_metadata"]).items() if isinstance(k, str)}
    prefix = _MODEL_PREFIX if any(name.startswith(_MODEL_PREFIX) for name in listed) else ""
    for name, entry in listed.items():
        if name.startswith(prefix) and (prefix or _has_size(entry)):
            try:
                tensors[name.removeprefix(prefix)] = _cut_tensor(name, entry, stored)
            except CheckpointError as error:
                problems[name.removeprefix(prefix)] = error.problems[0]
    return tensors, problems


def _unpickled(content: bytes) -> Record:
    try:
        pickles.check_pickle(content, _MOST_STEPS)
        return _record(_Unpickler(io.BytesIO(content)).load())
    except CheckpointError:
        raise
    except _Refused as error:
        problem = f"names {error}, which no checkpoint needs; refused, and nothing of it was run"
    except pickles.TooLargeError as error:
        problem = f"cannot be read: {error}, which no checkpoint needs; refused"
    except Exception:  # a damaged pickle raises almost anything
        problem = "is cut short or damaged; copy it again"
    raise CheckpointError([f"{METADATA} {problem}"])


def _has_size(entry: object) -> bool:
    return isinstance(entry, Record) and isinstance(entry.state, dict) and "size" in entry.state


def _cut_tensor(name: str, entry: Any, stored: dict[Any, Record]) -> CutTensor:
    if not _has_size(entry):
        raise CheckpointError([f"{name} is no tensor in .metadata; expected one"])
    shape = _offsets(entry["size"])
    properties = entry["properties"]
    state = properties.state if isinstance(properties, Record) else None
    if not (isinstance(state, tuple) and state and isinstance(state[0], torch.dtype)):
        raise CheckpointError([f"{name} has no dtype in .metadata"])
    pieces = []
    for chunk in map(_record, _expected(entry["chunks"], list, "a list of pieces")):
        offsets, sizes = _offsets(chunk["offsets"]), _offsets(chunk["sizes"])
        if 0 in sizes:  # a rank without rows
            continue
        if not len(offsets) == len(sizes) == len(shape):
            raise CheckpointError([f"{name} has a piece with other axes than {list(shape)}"])
        piece = _piece(name, offsets, sizes, stored)
        if (claimed := prod(sizes) * state[0].itemsize) > piece.length:
            raise CheckpointError(
                [f"{name} claims {size_text(claimed)} in a piece of {size_text(piece.length)}"]
            )
        pieces.append(piece)
    _check_grid(name, shape, pieces)
    return CutTensor(shape, state[0], tuple(pieces))


def _check_grid(name: str, shape: tuple[int, ...], pieces: list[Piece]) -> None:
    """Pieces must fill the tensor as a grid, without gap or overlap, cut along whichever axes."""
    fault, cells = f"{name}: a .distcp file is missing, or pieces repeat", 0 if 0 in shape else 1
    for axis, length in enumerate(shape if cells else ()):
        starts = sorted({piece.start[axis] for piece in pieces}) or [length]
        ends = dict(zip(starts, [*starts[1:], length], strict=True))
        wrong = [at for at, size in {(p.start[axis], p.shape[axis]) for p in pieces} if at + size != ends[at]]
        if wrong or starts[0] != 0:
            raise CheckpointError([f"{fault}: see {min(wrong, default=0):,} of {length:,} along axis {axis}"])
        cells *= len(starts)
    if not cells == len(pieces) == len({piece.start for piece in pieces}):
        raise CheckpointError([f"{fault}: {len(pieces)} are there, expected a grid of {cells}"])


def _piece(name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], stored: dict[Any, Record]) -> Piece:
    info = stored.get((name, offsets))
    if info is None:
        raise CheckpointError([f"{name}: .metadata does not say where the piece at {list(offsets)} lies"])
    if _table(info.state).get("transform_descriptors"):
        raise CheckpointError([f"{name} is stored transformed (compressed?), which is not supported"])
    file, offset, length = _text(info["relative_path"]), info["offset"], info["length"]
    place = PureWindowsPath(file)  # which knows both separators
    if str(place) != place.name or "\0" in file:
        raise CheckpointError([f"{name} lies in {short_repr(file)}, outside the folder; refused"])
    whole = type(offset) is int and type(length) is int
    if not (whole and 0 <= offset <= _LARGEST and 0 < length <= _LARGEST):
        numbers = f"offset {short_repr(offset)} of length {short_repr(length)}"
        raise CheckpointError([f"{name} has a piece at {numbers}"])
    return Piece(offsets, sizes, place.name, offset, length)


def _offsets(value: Any) -> tuple[int, ...]:
    sizes = _expected(() if value is None else value, tuple, "a shape")
    if all(type(size) is int and 0 <= size <= _LARGEST for size in sizes):
        return sizes
    raise CheckpointError([f".metadata has {short_repr(value)} where a shape was expected"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(_expected(value, PurePosixPath, "a name"))


def _record(value: Any) -> Record:
    return _expected(value, Record, "one of torch's records")


def _table(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise CheckpointError([".metadata lacks its table of tensors; copy it again"])
    return value


def _expected(value: Any, kind: type[T], what: str) -> T:
    """The value, of that kind; another is cut short, since writing out a nested one may take forever."""
    if not isinstance(value, kind):
        raise CheckpointError([f".metadata has {short_repr(value)} where {what} was expected"])
    return value


def open_dcp(folder: Path) -> types.StoredWeights:
    """The model's tensors of all ranks. Missing or short .distcp files are among the problems."""
    n_bytes = sum(file.stat().st_size for file in folder.glob("*.distcp"))
    try:
        content = door.read_bytes(folder / METADATA, _MOST_METADATA)
        cut, unreadable = read_metadata(content)
    except FileError as error:
        hidden = "without it the .distcp files cannot be read: copy hidden files too"
        return types.StoredWeights({}, (error.of(METADATA, hidden if error.missing else None),), n_bytes)
    except CheckpointError as error:
        return types.StoredWeights({}, error.problems, n_bytes)
    problems = _file_problems(folder, cut)
    if not cut and not unreadable:
        problems = [f"{METADATA} lists no tensor of a model; expected names such as model.norm.weight"]
    tensors = {
        key: types.StoredTensor(tensor.shape, tensor.dtype, partial(_read, folder, key, tensor))
        for key, tensor in cut.items()
    }
    return types.StoredWeights(tensors, tuple(problems), n_bytes, unreadable)


def _file_problems(folder: Path, cut: Mapping[str, CutTensor]) -> list[str]:
    needed: dict[str, int] = {}
    for piece in (piece for tensor in cut.values() for piece in tensor.pieces):
        needed[piece.file] = max(needed.get(piece.file, 0), piece.offset + piece.length)
    problems = []
    for name, end in sorted(needed.items()):
        file = folder / name
        if not file.is_file():
            problems.append(f"{name} is missing; copy it from the run")
        elif (there := file.stat().st_size) < end:
            problems.append(f"{name} has {there:,} bytes; expected at least {end:,}: copy it again")
    return problems


def _read(folder: Path, key: str, tensor: CutTensor) -> Tensor:
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    for piece in tensor.pieces:
        try:
            with door.opened(folder / piece.file) as opened:
                opened.seek(piece.offset)
                value = door.load_torch(opened.read(piece.length))
        except Exception as error:  # torch raises many kinds for damaged bytes
            raise CheckpointError([f"{key}: its piece in {piece.file} is damaged; copy it again"]) from error
        fits = isinstance(value, Tensor) and (tuple(value.shape), value.dtype) == (piece.shape, tensor.dtype)
        if not fits or not types.has_every_value(value):
            raise CheckpointError([f"{key}: its piece in {piece.file} is not the tensor .metadata describes"])
        place = tuple(slice(at, at + size) for at, size in zip(piece.start, piece.shape, strict=True))
        whole[place] = value.detach()
    return whole
