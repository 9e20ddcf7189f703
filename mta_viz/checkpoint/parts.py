"""Where the weights of a folder lie: in one file, in shards with an index, or in the parts of a parallel run.

What is in a file is lingua.py's and native.py's; here several become one.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mta_viz.checkpoint import door, lingua, native
from mta_viz.checkpoint.layout import Entry
from mta_viz.checkpoint.types import StoredTensor, StoredWeights, dtype_name
from mta_viz.errors import CheckpointError, FileError, first_problems

WEIGHTS, INDEX = native.WEIGHTS, "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
FIRST_PART = "consolidated.00.pth"
SAFETENSORS = (WEIGHTS, INDEX, "consolidated.safetensors")  # the first that is there is read
TORCH = (lingua.WEIGHTS, FIRST_PART)
PIECE = re.compile(r"consolidated\.\d{2,5}\.pth|model-\d{1,6}-of-\d{1,6}\.safetensors")
# Endings of files with weights that are not read, and of what.
BROKEN_OFF = "a download that is not finished: fetch it again"
_OTHERS = {
    "Keras's": "h5 hdf5 keras", "ONNX's": "onnx onnx_data", "NumPy's": "npz npy", "Flax's": "msgpack",
    "TensorFlow's": "index meta pb tflite", "Core ML's": "mlmodel mlpackage", "Orbax's": "ocdbt",
    "Paddle's": "pdparams", "MLX's": "mlx", "torch.export's": "pt2", "rust-bert's": "ot", "NeMo's": "nemo",
    "GGML's": "ggml", "a pickle": "pkl pickle joblib", "an archive: unpack it": "zip tar gz zst 7z",
    "where DVC finds a file: run `dvc pull`": "dvc",
    BROKEN_OFF: "aria2 crdownload download incomplete part partial tmp",
}  # fmt: skip
NOT_READ = {f".{ending}": what for what, endings in _OTHERS.items() for ending in endings.split()}
_PART = re.compile(r"consolidated\.(\d{2,5})\.pth")
_MOST_INDEX, _MOST_SHARDS = 4 * door.MIB, 1000
# Of Llama's format: what is cut by rows among the parts, and by columns; all else every part has whole.
_ROWS = re.compile(
    r"layers\.\d+\.(attention\.w[qkv]|feed_forward\.w[13])\.(weight|bias)|output\.weight|"
    r"layers\.\d+\.attention\.(mta_kernel|mta_kernel_after_sm|head_kernel)"
)
_COLUMNS = re.compile(r"layers\.\d+\.(attention\.wo|feed_forward\.w2)\.weight")
# Llama 3 cuts the first by rows, others by columns.
_EMBEDDING, _NORM = "tok_embeddings.weight", "norm.weight"


def first_there(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these that is a file; without one, that is a dangling link, a pipe, or no folder else."""
    places = [folder / name for name in names]
    places += [folder / INDEX] if INDEX in names and any(folder.glob(SHARDS)) else []
    places += [folder / FIRST_PART] if FIRST_PART in names and _part_files(folder) else []
    odd = (place for place in places if door.is_there(place) and not place.is_dir())
    return (
        next(filter(Path.is_file, places), None) or next(odd, None) or next(iter(places[len(names) :]), None)
    )


def unfinished(folder: Path) -> list[Path]:
    """Downloads right there that broke off."""
    return [file for file in folder.glob("*") if NOT_READ.get(file.suffix.lower()) == BROKEN_OFF]


def open_native(place: Path) -> StoredWeights:
    """The tensors of a folder's safetensors, one file or shards; or of the file itself."""
    file = first_there(place, SAFETENSORS) or place
    return _open_shards(place) if file.name == INDEX else native.open_safetensors(file)


def open_torch(place: Path) -> StoredWeights:
    """The tensors of a folder's consolidated.pth, or of all parts of a run; or of the file itself."""
    file = first_there(place, TORCH) or place
    return _open_parts(place) if file.name == FIRST_PART else lingua.open_torch(file)


def weight_files(place: Path, names: Sequence[str]) -> list[Path]:
    """The files that hold a folder's weights, which `names` find. FileError for an index that is none."""
    file = first_there(place, names) or place
    if file.name == INDEX:
        return [door.inside(place, name) for name in sorted(set(_shards(place).values()))]
    return _part_files(place) if file.name == FIRST_PART else [file]


def _part_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("consolidated.*.pth") if _PART.fullmatch(file.name))


def _shards(folder: Path) -> dict[str, str]:
    """Tensor -> the shard that has it, as the index says. FileError for one that is missing or none."""
    index = door.read_json(folder / INDEX, _MOST_INDEX)
    listed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(file, str) for file in listed.values()):
        raise FileError(INDEX, 'has no "weight_map" of tensors and their files', "copy it again")
    if (count := len(set(listed.values()))) > _MOST_SHARDS:
        raise FileError(INDEX, f"names {count:,} files, more than {_MOST_SHARDS:,}", "copy it again")
    return listed


def _open_shards(folder: Path) -> StoredWeights:
    try:
        listed = _shards(folder)
    except FileError as error:
        lacking = "without it nobody knows which shard has what: copy it too" if error.missing else None
        return StoredWeights({}, (error.of(INDEX, lacking),))
    tensors: dict[str, StoredTensor] = {}
    unreadable: dict[str, str] = {}
    unopened: dict[str, list[str]] = {}  # what is wrong -> the shards of which it is
    shards = {name: _open_shard(folder, name) for name in sorted(set(listed.values()))}
    for name, shard in shards.items():
        tensors |= shard.tensors
        unreadable |= shard.unreadable
        for problem in shard.problems:
            unopened.setdefault(problem.removeprefix(door.base_name(name)), []).append(name)
    said = {name: _of_shards(names, problem) for problem, names in unopened.items() for name in names}
    for key, name in listed.items():  # of tensors in a shard that cannot be read nothing else is told
        if name in said or key not in tensors.keys() | unreadable.keys():
            lost = f"{key} is not in {name}, where {INDEX} says it is; copy both again"
            unreadable[key] = said.get(name, lost)
            tensors.pop(key, None)
    return StoredWeights(tensors, (), sum(shard.n_bytes for shard in shards.values()), unreadable)


def _open_shard(folder: Path, name: str) -> StoredWeights:
    try:
        return native.open_safetensors(door.inside(folder, name))
    except FileError as error:
        return StoredWeights({}, (f" {error.reason}, and {INDEX} names it; {error.remedy}",))


def _of_shards(names: list[str], problem: str) -> str:
    if len(names) == 1:
        return f"{names[0]}{problem}"
    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{more}: each{problem}"


def _open_parts(folder: Path) -> StoredWeights:
    """The parts of a tensor-parallel run as one model; numbers that are left out are told."""
    files = _part_files(folder)
    there = {int(_PART.fullmatch(file.name)[1]) for file in files}  # type: ignore[index]
    gone = [
        f"consolidated.{number:02}.pth is missing; copy all parts"
        for number in range(max(there))
        if number not in there
    ]
    parts = [lingua.open_torch(file, bare=True) for file in files]
    problems = [*first_problems(gone, "parts"), *(problem for part in parts for problem in part.problems)]
    keys = [{*part.tensors, *part.unreadable} for part in parts]
    unlike = [
        f"{min(parts_keys ^ keys[0])} is in {files[0].name} or in {file.name}, not in both; copy both again"
        for file, parts_keys in zip(files, keys, strict=True)
        if parts_keys != keys[0]
    ]
    n_bytes = sum(part.n_bytes for part in parts)
    if problems := problems or unlike:
        return StoredWeights({}, tuple(problems), n_bytes)
    if len(parts) == 1:
        return replace(parts[0], parts=1)
    if differing := _other_dtype(files, parts):
        return StoredWeights({}, (differing,), n_bytes)
    unreadable = {key: reason for part in parts for key, reason in part.unreadable.items()}
    width = parts[0].tensors[_NORM].shape[-1:] if _NORM in parts[0].tensors else ()
    tensors = {}
    for key in parts[0].tensors:
        if key not in unreadable:
            tensors[key] = _merged(key, [part.tensors[key] for part in parts], width)
    notes = (f"merged from the {len(parts)} parts of a tensor-parallel run",)
    return StoredWeights(tensors, (), n_bytes, unreadable, notes, parts=len(parts))


def _other_dtype(files: list[Path], parts: list[StoredWeights]) -> str | None:
    for file, part in zip(files, parts, strict=True):
        for key, tensor in part.tensors.items():
            first = parts[0].tensors.get(key, tensor)
            if tensor.dtype != first.dtype:
                which = f"{key} is {dtype_name(tensor.dtype)} in {file.name}"
                return f"{which}, {dtype_name(first.dtype)} in {files[0].name}; copy parts of one save"
    return None


def _merged(key: str, cuts: list[StoredTensor], width: tuple[int, ...]) -> StoredTensor:
    shape, axis = cuts[0].shape, _axis(key, cuts[0].shape, width)
    alike = all(len(cut.shape) == len(shape) for cut in cuts)
    if axis is not None and alike and len(shape) > axis:
        shape = (*shape[:axis], sum(cut.shape[axis] for cut in cuts), *shape[axis + 1 :])
    return StoredTensor(shape, cuts[0].dtype, partial(_join, key, cuts, axis, shape))


def _axis(key: str, shape: tuple[int, ...], width: tuple[int, ...]) -> int | None:
    if key == _EMBEDDING:
        return 0 if shape[1:] == width else 1
    return 0 if _ROWS.fullmatch(key) else 1 if _COLUMNS.fullmatch(key) else None


def _join(key: str, cuts: list[StoredTensor], axis: int | None, shape: tuple[int, ...]) -> Tensor:
    """The whole tensor. Raises CheckpointError where the parts do not fit, or should be equal and are not."""
    values = [cut.read() for cut in cuts]
    if axis is None:
        # bits: a NaN equals its copy
        first, *others = (value.flatten().view(torch.uint8) for value in values)
        if all(torch.equal(first, other) for other in others):
            return values[0]
        problem = f"{key} differs among the parts, which should all have the same; copy them again"
        raise CheckpointError([problem])
    with suppress(RuntimeError, IndexError):
        whole = torch.cat(values, axis)
        if tuple(whole.shape) == shape:
            return whole
    raise CheckpointError([f"{key}: its parts do not fit together; copy them again"])


def missing_parts(weights: StoredWeights, entries: Mapping[str, Entry]) -> str | None:
    """Of a parallel run some of whose last parts are not here, how many there should be."""
    entry = entries["blocks.0.attn.wq.weight"]
    stored, rows = weights.tensors.get(entry.key), entry.shape[0]
    if stored is None or not stored.shape or not 0 < stored.shape[0] < rows:
        return None
    wanted, rest = divmod(rows * weights.parts, stored.shape[0])
    here = f"{weights.parts} part{'s' if weights.parts > 1 else ''} of a tensor-parallel run"
    remedy = f"copy consolidated.00.pth to consolidated.{wanted - 1:02}.pth"
    return None if rest else f"it has {here}, which has {wanted}; {remedy}"
