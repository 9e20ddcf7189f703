"""From a path to the folder that holds a checkpoint, and its format, by file names alone.

sha256 of a checkpoint's weights, to tell which file a result came from.
"""

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mta_viz.checkpoint import adapter, door, hub, huggingface, lingua, native
from mta_viz.checkpoint.files import PARAMS, STEPS
from mta_viz.checkpoint.installed import named_path
from mta_viz.checkpoint.types import Format
from mta_viz.errors import CheckpointError, FileError
from mta_viz.printed import printable

_WEIGHTS: dict[Format, str] = {
    "native": native.WEIGHTS,
    "lingua": lingua.WEIGHTS,
    "dcp": lingua.METADATA,
    "kernels": native.KERNELS,
    "adapter": adapter.ADAPTER,
}
_FILES = (PARAMS, *_WEIGHTS.values(), huggingface.CONFIG, huggingface.INDEX)
GGUF = ".gguf"  # what a file of that format is called at the end; its name says nothing else
_STEP_NAME = re.compile(r"\d{1,18}")
LOOKED_FOR = (
    f"{native.WEIGHTS}, {lingua.WEIGHTS} or {lingua.METADATA} with *.distcp (each beside {PARAMS}), "
    f"{native.KERNELS} beside {PARAMS}, {adapter.ADAPTER}, {PARAMS} alone, a run folder with "
    f"{STEPS}/0000010000/ and so on, {huggingface.CONFIG} beside {huggingface.WEIGHTS} or "
    f"{huggingface.INDEX}, or one {GGUF} file"
)


@dataclass(frozen=True)
class Location:
    """The folder to read, its format, its step, and all steps when it was chosen from a run.

    Of a `gguf`, and of an adapter that is not called as in a folder of its own, the file stands in its place.
    """

    folder: Path
    format: Format
    step: int | None = None
    steps: tuple[int, ...] = ()


def locate(path: Path, step: int | None = None) -> Location:
    """The checkpoint at `path`: a folder, a file in it, a run (its last step), or a file that is a model.

    Where nothing is there, `path` may be the name of a Hugging Face repository, which is then fetched, or
    that of the installed base. Raises CheckpointError where there is none.
    """
    path = named_path(path)
    if hub.is_repository(path) and not door.is_there(path):
        path = hub.fetched(path.as_posix())
    folder = path.parent if path.name in _FILES else path
    try:
        if not path.exists():
            raise CheckpointError(["there is no such file or folder; check the path"], printable(path))
        if is_gguf(path):
            return _of_file(path, step)
        if step is None and is_loose_adapter(path):
            return Location(path, "adapter")
        if not folder.is_dir():
            expected = f"expected an adapter, or a folder with {LOOKED_FOR}"
            raise CheckpointError([f"it is a file; {expected}"], printable(path))
        location = find_checkpoint(folder, step)
    except OSError as error:
        raise CheckpointError([f"it cannot be read: {error.strerror or error}"], printable(path)) from error
    if location is None and (pickles := _pickles(folder)):
        remedy = "which may run code and is not read; save the model again with safetensors"
        raise CheckpointError([f"its weights are a pickle ({pickles[0]}), {remedy}"], printable(path))
    if location is None:
        if several := _gguf_files(folder):
            names = ", ".join(printable(file.name) for file in several[:8])
            raise CheckpointError([f"it has {len(several)} {GGUF} files; name one: {names}"], printable(path))
        raise CheckpointError([f"it is no checkpoint. Looked for {LOOKED_FOR}"], printable(path))
    return location


def find_checkpoint(folder: Path, step: int | None = None) -> Location | None:
    """The checkpoint in exactly this folder, or None; CheckpointError for a step it lacks, and OSError."""
    direct, steps = _weights_format(folder), _step_folders(folder)
    if direct is None and steps:
        chosen = max(steps) if step is None else step
        if chosen not in steps:
            offered = ", ".join(map(str, steps))
            raise CheckpointError([f"it has no step {step}; its steps are {offered}"], printable(folder))
        if (of_step := _weights_format(steps[chosen])) is None:
            raise CheckpointError([f"step {chosen} has gone; choose another"], printable(folder))
        return Location(steps[chosen], of_step, chosen, tuple(steps))
    if direct is None and (folder / "consolidated" / lingua.WEIGHTS).is_file():
        folder, direct = folder / "consolidated", "lingua"
    if direct is None and (folder / PARAMS).is_file():
        direct = "params"
    if direct is None:
        files = _gguf_files(folder)
        return _of_file(files[0], step) if len(files) == 1 else None
    own = _own_step(folder)
    if step not in (None, own):
        raise CheckpointError([f"it is a single checkpoint, not a run with a step {step}"], printable(folder))
    return Location(folder, direct, own)


def _of_file(file: Path, step: int | None) -> Location:
    if step is not None:
        raise CheckpointError([f"it is a single model, not a run with a step {step}"], printable(file))
    return Location(file, "gguf")


def _gguf_files(folder: Path) -> list[Path]:
    """Those right in the folder, by name."""
    return sorted(filter(is_gguf, folder.iterdir()))


def is_gguf(path: Path) -> bool:
    """Whether it is a file named as GGUF files are, or a link to one."""
    with suppress(OSError, RuntimeError):
        return path.suffix.lower() == GGUF and path.is_file()
    return False


def _pickles(folder: Path) -> list[str]:
    """Weights of a Hugging Face folder in the format before safetensors."""
    there = folder / huggingface.CONFIG
    return sorted(file.name for file in folder.glob("pytorch_model*.bin")) if there.is_file() else []


def is_loose_adapter(path: Path) -> bool:
    """Whether it is the file of an adapter that has no folder of its own."""
    with suppress(OSError, RuntimeError, ValueError):  # a name too long, links in a circle, NUL
        if path.suffix == ".safetensors" and path.is_file() and adapter.is_adapter(path):
            return path.name != adapter.ADAPTER or _weights_format(path.parent) != "adapter"
    return False


def adapter_file(location: Location) -> Path:
    """The file of the adapter there."""
    return location.folder if location.folder.is_file() else location.folder / adapter.ADAPTER


def _weights_format(folder: Path) -> Format | None:
    if not (folder / PARAMS).is_file() and huggingface.is_folder(folder):
        return "huggingface"
    for weights_format, name in _WEIGHTS.items():
        if (folder / name).is_file() or (weights_format == "dcp" and any(folder.glob("*.distcp"))):
            return weights_format
    return None


def _step_folders(folder: Path) -> dict[int, Path]:
    """Step -> its folder, in order, in a run folder or its `checkpoints` folder; no unfinished ones."""
    base = folder / STEPS if (folder / STEPS).is_dir() else folder
    numbered = (entry for entry in sorted(base.iterdir()) if _STEP_NAME.fullmatch(entry.name))
    # `.metadata` is written last: pieces without it are a save that was interrupted.
    complete = (entry for entry in numbered if any((entry / name).is_file() for name in _WEIGHTS.values()))
    return dict(sorted((int(entry.name), entry) for entry in complete))


def run_steps(folder: Path) -> tuple[Location, ...]:
    """The finished steps, in order, of the run that `folder` is one step of; empty when it is none."""
    if not _STEP_NAME.fullmatch(folder.name):
        return ()
    formats = [(step, where, _weights_format(where)) for step, where in _step_folders(folder.parent).items()]
    return tuple(Location(where, kind, step) for step, where, kind in formats if kind is not None)


def _own_step(folder: Path) -> int | None:
    if _STEP_NAME.fullmatch(folder.name):
        return int(folder.name)
    for file in sorted(folder.glob("train_state_*.json")):
        try:
            step = door.read_json(file, 16 * door.MIB)["step"]
        except (FileError, KeyError, TypeError):
            continue
        if type(step) is int and step >= 0:
            return step
    return None


def sha256(path: Path | str) -> str:
    """Hex digest of the weights file of the checkpoint at `path` (or of `path`, if it is a file).

    Several files (a distributed checkpoint): the digest of their digests, sorted and joined.
    Raises CheckpointError when there is none or it cannot be read.
    """
    path = Path(path)
    try:
        files = [path]
        if not path.is_file():
            location = locate(path)
            if location.format == "params":
                raise CheckpointError(["it holds no weights, so they have no sha256"], printable(path))
            pieces = filter(Path.is_file, location.folder.glob("*.distcp"))  # a pipe would be waited for
            if location.format == "huggingface":
                files = huggingface.weight_files(location.folder)
            elif location.format == "gguf":
                files = [location.folder]
            else:
                weights = location.folder / _WEIGHTS[location.format]
                files = [weights, *(pieces if location.format == "dcp" else ())]
        digests = []
        for file in files:
            with door.opened(file) as opened:
                state = os.fstat(opened.fileno())
            stamps = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
            digests.append(_digest(file.absolute(), *stamps))
    except (FileError, OSError) as error:
        raise CheckpointError([str(error)], printable(path)) from error
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()


@lru_cache(maxsize=256)
def _digest(file: Path, *state: int) -> str:
    """The sha256 of a file, read once for each state of it: gigabytes take seconds."""
    with door.opened(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
