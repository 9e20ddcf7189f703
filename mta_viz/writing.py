"""The one place that writes files: whole or not at all, and what a disk refuses in one line.

What is not complete lies under a hidden name beside its place, which no reader looks for; what a killed
process left there goes with a later file of the same folder. Imports nothing heavy.
"""

import filecmp
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mta_viz.errors import CheckpointError, FileError, MtaVizError

HIDDEN = ".mta_viz."  # what names of files that are not complete begin with
LEFT_SECONDS = 3600.0  # after which nobody writes any more what has not changed
_SYSTEM_ERROR = re.compile(r"os error (\d+)")  # as libraries in Rust say it
_TORCH = "iostream error"  # all that torch says
_NUL = "embedded null byte"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it then takes `path`'s place, or is gone after an error.

    Raises FileError where the disk refuses it; what was at `path` is then still there.
    """
    partial = _hidden(path.parent, "partial")
    try:
        with refusals(path):
            _clear(path.parent)
            yield partial
            _to_disk(partial)
            partial.replace(path)
            _to_disk(path.parent)
    finally:
        with suppress(OSError):
            partial.unlink()


def write(path: Path, content: bytes | str) -> None:
    """Replace the file, a text as UTF-8; a reader never sees half of it. Raises as `replacing`."""
    with replacing(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def write_folder(
    folder: Path, fill: Callable[[Path], None], *, overwrite: bool, last: str | None = None
) -> None:
    """Let `fill` write files into a hidden folder, then move them to `folder`.

    A new folder appears at once; into an existing one, files are renamed one by one; its others stay. `last`
    is one without which the rest is nothing: where several change it goes first and comes last, so that files
    of two writings never stand together as one.
    Raises CheckpointError when a file is there and `overwrite` is false, FileError when the disk refuses.
    """
    folder = Path(folder)
    hidden = _hidden(folder.parent, "part")
    try:
        with refusals(folder):
            hidden.mkdir(parents=True)
            _clear(folder.parent)
            fill(hidden)
            names = sorted(file.name for file in hidden.iterdir())
            check_free(folder, names, overwrite)
            for place in (*map(hidden.joinpath, names), hidden):
                _to_disk(place)
            if folder.exists():
                _move(hidden, folder, names, last)
            else:
                os.rename(hidden, folder)
            _to_disk(folder.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _move(hidden: Path, folder: Path, names: list[str], last: str | None) -> None:
    other = [name for name in names if not _is_same(hidden / name, folder / name)]
    if last is not None and len(other) > 1:
        (folder / last).unlink(missing_ok=True)
        _to_disk(folder)
    for name in sorted(names, key=lambda name: name == last):
        os.replace(hidden / name, folder / name)


def _is_same(new: Path, old: Path) -> bool:
    return old.is_file() and filecmp.cmp(new, old, shallow=False)


def check_new(path: Path, force: bool) -> None:
    """Raises MtaVizError where something is at the path, unless `force` lets a notebook replace it."""
    if path.exists() and not force:
        raise MtaVizError(f"{path} exists; choose another name, or replace it with force=True")


def check_free(folder: Path, names: Sequence[str], overwrite: bool = False) -> None:
    """Raises CheckpointError where one of these files is in the folder, unless it may be overwritten."""
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        problem = f"{', '.join(there)} already there; choose another folder, or allow overwriting"
        raise CheckpointError([problem], str(folder))


def _hidden(folder: Path, suffix: str) -> Path:
    return folder / f"{HIDDEN}{uuid.uuid4().hex}.{suffix}"  # of its own, also beside another thread


def _clear(folder: Path) -> None:
    """Remove what killed processes left."""
    with os.scandir(folder) as entries:
        left = [Path(entry) for entry in entries if entry.name.startswith(HIDDEN)]
    for place in left:
        with suppress(OSError):  # another writer's, which is complete now
            changed = max(file.lstat().st_mtime for file in (place, *place.glob("*")))
            if time.time() - changed > LEFT_SECONDS:
                shutil.rmtree(place) if place.is_dir() else place.unlink()


def _to_disk(place: Path) -> None:
    """Wait until it would survive a loss of power; folders of some systems cannot be asked."""
    try:
        opened = os.open(place, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Around what writes at `path`: FileError where the disk refuses, whatever a library makes of that."""
    try:
        yield
    except MtaVizError:
        raise
    except Exception as error:
        reason = _refusal(error)
        if reason is None:
            raise
        remedy = "free some disk, or name a place that can be written to"
        raise FileError(str(path), f"cannot be written: {reason}", remedy) from error


def _refusal(error: BaseException | None) -> str | None:
    """The system's reason in an error, whatever a library made of it; None where the system gave none."""
    while error is not None:
        if isinstance(error, OSError):
            return error.strerror or str(error)
        if _TORCH in str(error):
            return "the disk takes no more; is it full?"
        if _NUL in str(error):
            return f"{_NUL} in its name"
        if code := _SYSTEM_ERROR.search(str(error)):
            return os.strerror(int(code[1]))
        error = error.__cause__ or error.__context__
    return None
