"""Whether files have other bytes than before: what the system notes says when to look, the sha256 what is so.

A file that was merely touched, or replaced by its copy, is the same. Owns what is remembered of files that
were read; whose they are is locate.py's.
"""

import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mta_viz.checkpoint import door
from mta_viz.errors import FileError
from mta_viz.printed import printable
from mta_viz.writing import HIDDEN

Stamps = tuple[int, ...]
AT_SIGHT, AT_READING = 16 * door.MIB, 200 * door.MIB  # read for their sha256 when seen, when a model is read
_MOST = 4096
_known: OrderedDict[tuple[Path, Stamps], str] = OrderedDict()
_lock = threading.Lock()


def stamps_of(status: os.stat_result) -> Stamps:
    """What the system notes of a file; its size and times, (device, inode, bytes, ns, ns)."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def digest(file: Path) -> str:
    """The sha256 of a file, read once for each state of it: gigabytes take seconds. Raises FileError."""
    file = file.absolute()
    with door.opened(file) as opened:
        before = stamps_of(os.fstat(opened.fileno()))
        if (known := known_digest(file, before)) is not None:
            return known
        made = hashlib.file_digest(opened, "sha256").hexdigest()
        if stamps_of(os.fstat(opened.fileno())) == before:
            with _lock:
                _known[file, before] = made
                while len(_known) > _MOST:
                    _known.popitem(last=False)
    return made


def known_digest(file: Path, stamps: Stamps) -> str | None:
    """The sha256 of a file as it was when the system noted `stamps`; None where it was not read then."""
    with _lock:
        return _known.get((file.absolute(), stamps))


def noted(files: Iterable[Path]) -> tuple[tuple[Path, Stamps], ...]:
    """Files as they are now, for `as_noted`; smaller ones are read for their sha256."""
    now = []
    for file in files:
        with suppress(OSError, FileError):  # whoever reads it says what is wrong
            if file.stat().st_size <= AT_READING:
                digest(file)
            now.append((file.absolute(), stamps_of(file.stat())))
    return tuple(now)


def as_noted(file: Path, stamps: Stamps) -> str:
    """Its sha256 as it was when noted. Raises FileError where it changed before that was known."""
    now = known_digest(file, stamps) or digest(file)
    if known_digest(file, stamps) is None:
        reason = f"changed on disk since it was read, and has the sha256 {now[:12]}... now"
        raise FileError(printable(file), reason, "what was computed is of the file before: run it again")
    return now


class Watched:
    """Files that are looked at again and again: `state` is another once any has other bytes.

    `words`: what changed last, a sentence a file.
    """

    def __init__(self) -> None:
        self._lock, self._number, self._at = threading.Lock(), 0, 0.0
        self._files: dict[Path, Stamps] = {}
        self.words: tuple[str, ...] = ()

    def state(self, files: Iterable[Path]) -> int:
        """A number for the bytes of the regular ones among `files`: the newest time in ns, or one more."""
        with self._lock:
            now = dict(_regular(files))
            if now != self._files:
                if changes := tuple(self._changes(now)):
                    self._number = max(self._number + 1, *(max(stamps[3:]) for stamps in now.values()), 0)
                    self.words = changes if self._files else ()
                    self._at = time.time()
                self._files = now
            return self._number

    def _changes(self, now: dict[Path, Stamps]) -> Iterable[str]:
        since = time.strftime("%H:%M:%S", time.localtime(self._at))
        for file in sorted(now.keys() | self._files.keys()):
            before, after = self._files.get(file), now.get(file)
            name = printable(file.name, 80)
            if after is None or before is None:
                yield f"{name} is {'gone from' if after is None else 'new on'} disk since {since}"
            elif before != after:
                known, made = known_digest(file, before), _digest_now(file, after, before)
                if known is None or known != made:
                    yield f"{name} changed on disk since {since}{_between(known, made)}"
            if before is None and after is not None:
                _digest_now(file, after, None)


def _regular(files: Iterable[Path]) -> Iterable[tuple[Path, Stamps]]:
    for file in files:
        with suppress(OSError):  # a link to nothing, or a file that is replaced at this moment
            status = file.stat()
            if stat.S_ISREG(status.st_mode) and not file.name.startswith(HIDDEN):
                yield file.absolute(), stamps_of(status)


def _digest_now(file: Path, stamps: Stamps, before: Stamps | None) -> str | None:
    """Of a small file, and of one whose sha256 was known before: else there is nothing to compare with."""
    with suppress(FileError, OSError):
        if stamps[2] <= AT_SIGHT or (before is not None and known_digest(file, before)):
            return digest(file)
    return None


def _between(before: str | None, after: str | None) -> str:
    return f" (sha256 {before[:12]} → {after[:12]})" if before and after else ""
