"""Files that appear whole or not at all: written beside their place under a hidden name, then renamed."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mta_viz.errors import CheckpointError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; at the end it takes `path`'s place, after an error it is gone.

    OSError is the caller's to explain.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_folder(folder: Path, fill: Callable[[Path], None], *, overwrite: bool) -> None:
    """Let `fill` write files into a temporary folder, then move them to `folder`.

    A new folder appears at once; into an existing one, files are renamed one by one, and its other
    files stay. Raises CheckpointError when a file is there and `overwrite` is false, and when the
    disk refuses.
    """
    folder = Path(folder)
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.part"
    try:
        temporary.mkdir(parents=True)
        fill(temporary)
        _move(temporary, folder, overwrite)
    except OSError as error:
        raise CheckpointError([f"it cannot be written: {error.strerror or error}"], str(folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, folder: Path, overwrite: bool) -> None:
    names = sorted(file.name for file in temporary.iterdir())
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise CheckpointError(
            [f"{', '.join(there)} already there; choose another folder, or allow overwriting"], str(folder)
        )
    if folder.exists():
        for name in names:
            os.replace(temporary / name, folder / name)
    else:
        os.rename(temporary, folder)
