"""Files that readers give the app: the places for them, where they lie, how many there may be.

`MTA_VIZ_READ_ONLY=1`, or `--read-only` after `--`: no uploads, no training. Uploads lie in a folder of this
process by their content; a session's and all have limits, and nobody's go for those of others. A folder is
locked for as long as its process lives: what a killed one left goes when another starts.
"""

import hashlib
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PureWindowsPath
from typing import Any

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.printed import printable, size_text
from mta_viz.ui.shell import state
from mta_viz.ui.shell.kept_prompts import sizes
from mta_viz.writing import refusals, write

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

MOST_OWN, MOST_BYTES = 2**29, 2**31  # bytes, of a session and of all
MAX_AGE = 12 * 3600.0  # seconds since it was used, when there is no room
LONGEST_NAME = 150  # bytes
PREFIX, JUST_MADE = "mta-viz-uploads-", 60.0  # of folders; seconds in which one may not be locked yet
one_at_a_time = threading.Lock()  # else each finds room for itself, or what another has half written
READ_ONLY = "This app is read-only: it takes no files and starts no training."


def read_only() -> bool:
    """Whether whoever started the app said so."""
    return os.environ.get("MTA_VIZ_READ_ONLY", "") not in ("", "0") or "--read-only" in sys.argv[1:]


def upload(label: str, types: Sequence[str] | None, megabytes: int, key: str) -> Any | None:
    """The file at a place for one; where the app is read-only, words in its place."""
    if read_only():
        st.caption(READ_ONLY)
        return None
    return st.file_uploader(label, type=types, max_upload_size=megabytes, key=key)


@dataclass
class Own:
    """This session's uploads that were written, and their bytes."""

    files: dict[Path, int] = field(default_factory=dict)


def keep_upload(name: str, content: bytes) -> Path:
    """Where the uploaded bytes lie, by content and name, for this user alone; gone when the process ends.

    Raises MtaVizError for a name no file can have, and where there is no room (FileError: on the disk).
    """
    file = folder_of(hashlib.sha256(content).hexdigest()) / checked_name(name)
    with one_at_a_time:
        if file.is_file() and file.stat().st_size == len(content):
            os.utime(file)
            return file
        make_room(len(content), file)
        with refusals(file):
            file.parent.mkdir(exist_ok=True)
        write(file, content)
    return file


def checked_name(name: str) -> str:
    """The last part of a path, as a name of a file here. Raises MtaVizError for one that is none."""
    last = PureWindowsPath(name).name
    if last in ("", "..") or last != printable(last) or len(last.encode("utf-8", "replace")) > LONGEST_NAME:
        raise MtaVizError(
            f"{printable(name, 60)!r} ({len(name):,} characters) is no name of a file here: give it one of "
            f"at most {LONGEST_NAME} bytes that can be printed"
        )
    return last


def make_room(n_bytes: int, place: Path) -> None:
    """Count `n_bytes` at `place` as this session's. MtaVizError where that is too much for it, or for all."""
    own = state.part(Own).files
    used, used_by_all = sum(own.values()), _sizes(math.inf)
    if used_by_all + n_bytes > MOST_BYTES:
        used_by_all = _sizes(MAX_AGE)
    if used + n_bytes > MOST_OWN or used_by_all + n_bytes > MOST_BYTES:
        raise MtaVizError(
            f"the upload has {size_text(n_bytes)}; this session's take {size_text(used)} of "
            f"{size_text(MOST_OWN)}, all {size_text(used_by_all)} of {size_text(MOST_BYTES)}. Put the file "
            "into a folder with models instead"
        )
    own[place] = n_bytes


def _sizes(max_age: float) -> int:
    """Bytes of all uploads; older ones are deleted."""
    return sum(sizes(_root().rglob("*"), max_age))


def folder_of(name: str) -> Path:
    """A folder among the uploads of this process."""
    return _root() / name


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    _hold(Path(folder.name))  # until the process ends
    return folder


@cache
def sweep() -> None:
    """Once a process: remove this user's folders of uploads whose process is gone."""
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another's, or gone by now
            status = place.lstat()
            fresh = time.time() - status.st_mtime < JUST_MADE
            if fcntl is None or status.st_uid != os.geteuid() or fresh or (held := _hold(place)) is None:
                continue
            shutil.rmtree(place, ignore_errors=True)
            os.close(held)


def _hold(folder: Path) -> int | None:
    """The folder opened and locked; None where a process that lives holds it, and without locks."""
    if fcntl is None:
        return None
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def _root() -> Path:
    return Path(_folder().name)
