"""From a path to the folder that holds a checkpoint, and its format, by file names alone.

sha256 of a checkpoint's weights, to tell which file a result came from.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from mta_viz.checkpoint import adapter, digests, door, dumps, hub, huggingface, lingua, native, parts
from mta_viz.checkpoint.files import PARAMS, STEPS
from mta_viz.checkpoint.hub import named_path
from mta_viz.checkpoint.types import Format, Source
from mta_viz.errors import CheckpointError, FileError
from mta_viz.printed import printable

_WEIGHTS: dict[Format, tuple[str, ...]] = {
    "native": parts.SAFETENSORS,
    "lingua": parts.TORCH,
    "dcp": (lingua.METADATA,),
    "kernels": (native.KERNELS,),
    "adapter": (adapter.ADAPTER,),
}
_NAMES = tuple(name for names in _WEIGHTS.values() for name in names)
_FILES = (PARAMS, *_NAMES, huggingface.CONFIG)
# Endings of files with weights that are read, whatever the file is called.
_READ: dict[str, Format] = {
    ".safetensors": "native",
    **dict.fromkeys((".pth", ".pt", ".bin", ".ckpt"), "lingua"),
}
_LARGE = door.MIB  # a file of this size may be weights whatever its name, but for these endings
_NO_WEIGHTS = re.compile(r"\.(jsonl?|txt|md|csv|log|model|tiktoken|png|pdf|html)")
# What runs leave beside the weights, in files of the same endings.
_BESIDE = re.compile(
    r"(optim|scheduler|scaler|rng|training_args|random_states|kernel_history|trainer_state|args|(bf16_)?zero_)"
)
GGUF = ".gguf"  # what a file of that format is called at the end; its name says nothing else
_STEP_NAME = re.compile(r"\d{1,18}")
# Names without one of which a folder is no checkpoint: most folders are told by these alone.
_TELLING = re.compile(
    rf"(?i:.*\.(json|safetensors|pth|distcp|gguf)(\.\w+)?)|{re.escape(lingua.METADATA)}|{STEPS}|consolidated|\d{{1,18}}"
)
MOST_SECONDS = 5.0  # of looking through the folders of one root, while a page waits
LOOKED_FOR = (
    f"{native.WEIGHTS} (or shards), {lingua.WEIGHTS} (or parts) or {lingua.METADATA} with *.distcp (each "
    f"beside {PARAMS}), {native.KERNELS} beside {PARAMS}, {adapter.ADAPTER}, {PARAMS} alone, a run with "
    f"{STEPS}/0000010000/, {huggingface.CONFIG} beside {parts.WEIGHTS} or {parts.INDEX}, or one {GGUF} file"
)


@dataclass(frozen=True)
class Location:
    """The folder to read, its format, its step, and all steps when it was chosen from a run.

    Of a `gguf`, and of weights that are not called as in a folder of their own, the file stands in its place.
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
    folder = path.parent if path.name in _FILES or parts.PIECE.fullmatch(path.name) else path
    try:
        if not path.exists():
            reason = "it is a link to something that is not there; copy the file itself"
            gone = reason if door.is_there(path) else "there is no such file or folder; check the path"
            raise CheckpointError([gone], printable(path))
        if is_gguf(path):
            return _of_file(path, step)
        if step is None and is_loose_adapter(path):
            return Location(path, "adapter")
        if step is None and dumps.is_kernels(path):
            return Location(path, "kernels")
        if step is None and path.is_file() and folder == path and (kind := _READ.get(path.suffix.lower())):
            return Location(path, kind, _own_step(path.parent))
        if not folder.is_dir():
            expected = f"expected weights, an adapter, or a folder with {LOOKED_FOR}"
            raise CheckpointError([f"it is a file; {expected}"], printable(path))
        location = find_checkpoint(folder, step)
    except OSError as error:
        raise CheckpointError([f"it cannot be read: {error.strerror or error}"], printable(path)) from error
    if location is None:
        raise CheckpointError([without_weights(folder)], printable(path))
    return location


def without_weights(folder: Path) -> str:
    """Why a folder is no checkpoint: the files in it that could be weights, and why each is not read."""
    settings = next((name for name in (PARAMS, huggingface.CONFIG) if (folder / name).is_file()), None)
    lacking = f"it holds {settings} but no weights" if settings else "it is no checkpoint"
    if other := _another_kind(folder):
        return other
    if reasons := [f"{printable(file.name)} ({reason})" for file, reason in _unread(folder)]:
        more = f" and {len(reasons) - 8} more" if len(reasons) > 8 else ""
        return f"{lacking} that {'are' if settings else 'is'} read: {', '.join(reasons[:8])}{more}"
    if below := [printable(inner.relative_to(folder)) for inner in _below(folder)]:
        return f"{lacking}; give the path of what is in it: {', '.join(below[:3])}{' ...' * (len(below) > 3)}"
    if settings == huggingface.CONFIG:
        broken = (
            ": their download is not finished"
            if any(parts.unfinished(folder / huggingface.DOWNLOADS))
            else ""
        )
        return f"{lacking}{broken}; fetch them: {parts.WEIGHTS}, or its shards with {parts.INDEX}"
    return f"{lacking}. Looked for {LOOKED_FOR}"


_SAVE = "save the model again with safetensors"
_ADAPTER = (
    "an adapter of peft (LoRA and the like), no model by itself; merge it into its base (merge_and_unload)"
)


def _another_kind(folder: Path) -> str | None:
    """What a folder holds in a model's place, told by the names in it."""
    pickles = sorted(file.name for file in folder.glob("pytorch_model*.bin"))
    if pickles and (folder / huggingface.CONFIG).is_file():
        return f"its weights are a pickle ({pickles[0]}), which may run code and is not read; {_SAVE}"
    if (folder / "adapter_config.json").is_file():
        return f"it is {_ADAPTER}"
    dump = "it is a dump of attention maps, without a model: open_trace(folder), or Open run in the app"
    return dump if dumps.is_attention(folder) else None


def _below(folder: Path) -> list[Path]:
    """Some checkpoints in the folders there, or files that may be weights."""
    inner = sorted(entry for entry in folder.iterdir() if entry.name[0] != "." and is_folder(entry, []))
    there = chain.from_iterable(checkpoint_folders(entry, 1, []) for entry in inner)
    return [*islice(there, 4)] or [file for entry in inner for file in _loose(entry)][:4]


def _unread(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files that could be weights, and why each is not read."""
    several = _loose(folder)
    for file in sorted(entry for entry in folder.iterdir() if entry.name[0] != "."):
        if reason := _why_unread(file, several):
            yield file, reason


def _why_unread(file: Path, several: list[Path]) -> str | None:
    """None for what is no weights by its name, and small."""
    kind = file.suffix.lower()
    if kind in parts.NOT_READ:
        what = parts.NOT_READ[kind]
        return what if ":" in what else f"{what} format: {_SAVE}"
    if file in several and file.exists():
        return _of_loose(file, len(several))
    if kind in (*_READ, GGUF) and not file.is_dir():
        named = "give its path" if kind == GGUF else "what a run leaves beside its weights, by its name"
        return named if file.exists() else "a link to something that is not there"
    large = not _NO_WEIGHTS.fullmatch(kind) and file.is_file() and file.stat().st_size >= _LARGE
    return f"of no kind that is read, by its name: {_SAVE}" if large else None


def _of_loose(file: Path, count: int) -> str:
    if file.name.startswith("adapter_model."):
        return _ADAPTER
    if _SHARD.search(file.stem):
        return f"one of several shards: {_SAVE}"
    if count > 1:
        return "one of several: give its path"
    if (file.parent / huggingface.CONFIG).is_file() and _READ[file.suffix.lower()] == "native":
        return f"beside {huggingface.CONFIG} it is to be called {parts.WEIGHTS}"
    return f"it needs {PARAMS} beside it"


_SHARD = re.compile(r"-\d+-of-\d+$|^consolidated\.\d+$|rank_?\d+$")


def _loose(folder: Path) -> list[Path]:
    """Files right in the folder that end as weights do and have a name of their own, by name."""
    entries = sorted(file for file in folder.iterdir() if file.suffix.lower() in _READ and not file.is_dir())
    own = (file for file in entries if not parts.PIECE.fullmatch(file.name) and file.name[0] != ".")
    named = (file for file in own if not _BESIDE.match(file.name.lower()))
    return [file for file in named if not is_beside(file)]


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
        loose = _loose(folder)
        if len(loose) == 1 and step in (None, own := _own_step(folder)):
            return Location(loose[0], _READ[loose[0].suffix.lower()], own)
        direct = "params"
    if direct is None:
        files = sorted(filter(is_gguf, folder.iterdir()))
        return _of_file(files[0], step) if len(files) == 1 else None
    own = _own_step(folder)
    if step not in (None, own):
        raise CheckpointError([f"it is a single checkpoint, not a run with a step {step}"], printable(folder))
    return Location(folder, direct, own)


def _of_file(file: Path, step: int | None) -> Location:
    if step is not None:
        raise CheckpointError([f"it is a single model, not a run with a step {step}"], printable(file))
    return Location(file, "gguf")


def is_gguf(path: Path) -> bool:
    """Whether it is a file named as GGUF files are, or a link to one."""
    with suppress(OSError, RuntimeError):
        return path.suffix.lower() == GGUF and path.is_file()
    return False


def is_loose_adapter(path: Path) -> bool:
    """Whether it is the file of an adapter that has no folder of its own."""
    with suppress(OSError, RuntimeError, ValueError):  # a name too long, links in a circle, NUL
        if path.suffix == ".safetensors" and path.is_file() and adapter.is_adapter(path):
            return path.name != adapter.ADAPTER or _weights_format(path.parent) != "adapter"
    return False


def is_beside(path: Path) -> bool:
    """Whether a file beside a checkpoint is something of its own: an adapter, or a dump of kernels."""
    return is_loose_adapter(path) or dumps.is_kernels(path)


def is_model_file(path: Path) -> bool:
    """Whether a file is listed where it lies alone."""
    return is_gguf(path) or is_beside(path)


def adapter_file(location: Location) -> Path:
    """The file of the adapter there."""
    return location.folder if location.folder.is_file() else location.folder / adapter.ADAPTER


def _weights_format(folder: Path) -> Format | None:
    if huggingface.is_folder(folder):  # with params.json beside it too, as Mistral's repositories have it
        return "huggingface"
    there: dict[Format, Path] = {}
    for weights_format, names in _WEIGHTS.items():
        if file := parts.first_there(folder, names):
            there[weights_format] = file
        elif weights_format == "dcp" and any(folder.glob("*.distcp")):
            return next((kind for kind, file in there.items() if file.is_file()), "dcp")
    # A file is read rather than a dangling link or a pipe of a name that goes before it.
    return next((kind for kind, file in there.items() if file.is_file()), next(iter(there), None))


def _step_folders(folder: Path) -> dict[int, Path]:
    """Step -> its folder, in order, in a run folder or its `checkpoints` folder; no unfinished ones."""
    base = folder / STEPS if (folder / STEPS).is_dir() else folder
    numbered = (entry for entry in sorted(base.iterdir()) if _STEP_NAME.fullmatch(entry.name))
    # `.metadata` is written last: pieces without it are a save that was interrupted.
    complete = (entry for entry in numbered if any((entry / name).is_file() for name in _NAMES))
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
            step = door.read_json(file, 4 * door.MIB)["step"]
        except (FileError, KeyError, TypeError):
            continue
        if type(step) is int and step >= 0:
            return step
    return None


def is_folder(path: Path, skipped: list[str], otherwise: str = "") -> bool:
    """Whether it is one; why not goes into `skipped`: nobody may look, a link to nothing, or `otherwise`."""
    try:
        if path.is_dir():
            return True
        if not otherwise and path.is_symlink() and not path.exists():
            otherwise = "is a link to something that is not there"
        if otherwise:
            skipped.append(f"{printable(path)} {otherwise}")
    except (OSError, RuntimeError) as error:  # no right to look, a name too long, links in a circle
        skipped.append(_no_access(path, error))
    return False


def checkpoint_folders(folder: Path, depth: int, skipped: list[str]) -> Iterator[Path]:
    """`folder` if it is a checkpoint, else those in and below it; a checkpoint is not searched.

    The nearer ones are looked for first, for at most `MOST_SECONDS`.
    """
    level, looked, end = [folder], 0, time.monotonic() + MOST_SECONDS
    for left in range(depth, -1, -1):
        below = list[Path]()
        for place in level:
            if time.monotonic() > end:
                words = f"in {MOST_SECONDS:.0f} s; name the folder with the models itself, not one above it"
                skipped.append(f"{printable(folder)}: looked at {looked:,} folders, not at all, {words}")
                return
            looked += 1
            yield from _look(place, below if left else None, skipped)
        level = below


def _look(folder: Path, below: list[Path] | None, skipped: list[str]) -> list[Path]:
    """What is a model right there; folders to look into go into `below`, where they are wanted."""
    try:
        with os.scandir(folder) as there:
            entries = sorted(there, key=lambda entry: entry.name)
        telling = any(_TELLING.fullmatch(entry.name) for entry in entries)
        own = find_checkpoint(folder) if telling else None
        half = telling and own is None and huggingface.is_half_fetched(folder, {*_READ, GGUF})
    except OSError as error:
        skipped.append(_no_access(folder, error))
        return []
    except CheckpointError:  # a broken run; describing it says what is wrong
        return [folder]
    shown = [(folder / entry.name, entry) for entry in entries if entry.name[0] != "."]
    named = own.folder if own and own.format == "gguf" else folder  # a GGUF file goes by its own name
    models = [named, *(path for path, _ in shown if is_beside(path))] if own else []
    may_have_more = own is None or own.format in ("gguf", "adapter")  # one file hides no folders
    if below is not None and may_have_more:
        others = (path for path, entry in shown if not entry.is_file(follow_symlinks=False))
        below += (path for path in others if is_folder(path, skipped))
    return models or [*([folder] if half else []), *(path for path, _ in shown if is_model_file(path))]


def _no_access(path: Path, error: Exception) -> str:
    return f"{printable(path)} cannot be read: {getattr(error, 'strerror', None) or error}"


def sha256(path: Path | str) -> str:
    """Hex digest of the weights file of the checkpoint at `path` (or of `path`, if a file) as it is now.

    Several files (a distributed checkpoint): the digest of their digests, sorted and joined.
    Raises CheckpointError when there is none or it cannot be read.
    """
    path = Path(path)
    try:
        return _of_all(map(digests.digest, [path] if path.is_file() else weight_files(locate(path))))
    except (FileError, OSError) as error:
        raise CheckpointError([str(error)], printable(path)) from error


def weight_files(location: Location) -> list[Path]:
    """The files with the weights. CheckpointError without any, FileError for an index that is none."""
    folder = location.folder
    if folder.is_file():
        return [folder]
    if location.format == "params":
        raise CheckpointError(["it holds no weights, so they have no sha256"], printable(folder))
    names = _WEIGHTS.get(location.format, (parts.WEIGHTS, parts.INDEX))
    files = parts.weight_files(folder, names)
    if location.format == "dcp":  # a pipe would be waited for
        files += filter(Path.is_file, folder.glob("*.distcp"))
    return files


def sha256_as_read(source: Source) -> str:
    """The same of the files a model was read from, as they were then: they may have changed since.

    Raises CheckpointError where they did before anybody read them for their sha256.
    """
    try:
        return _of_all([digests.as_noted(*file) for file in source.files] or [sha256(source.path)])
    except FileError as error:
        raise CheckpointError([str(error)], printable(source.path)) from error


def _of_all(made: Iterable[str]) -> str:
    each = sorted(made)
    return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()
