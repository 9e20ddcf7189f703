"""What commands put out: the answer as text, files, and progress and notes on stderr. Imports nothing heavy.

Files are never written over an existing one unasked, and never by half. Progress is a line that moves on a
terminal, and now and then a line in a log.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from mta_viz.errors import MtaVizError
from mta_viz.printed import Pace, message, printable, time_text
from mta_viz.tables import finite

T = TypeVar("T")
TERMINAL_SECONDS, LOG_SECONDS = 0.1, 5.0  # between two lines of progress
KINDS = (".json", ".csv", ".safetensors", ".npz", ".pt", ".html", ".pdf", ".png", ".svg")
LONGEST_NAME = 200  # bytes; systems take 255, and a file is written under a longer name first


def json_text(answer: Mapping[str, Any]) -> str:
    """Indented, lists of numbers on one line (no JSON string holds a line break); NaN and inf are null."""
    text = json.dumps(finite(answer), indent=2, allow_nan=False)
    return re.sub(r'\[\n[^][{}"]*\]', lambda numbers: "".join(numbers[0].split()).replace(",", ", "), text)


class ProgressLine:
    """A progress callback: call it with the share done, 0 to 1. Use as a context manager.

    On a terminal one line is rewritten, elsewhere a line is printed every few seconds, so quick
    work says nothing in a log.
    """

    def __init__(self, label: str) -> None:
        self.rewrite, self.shown = sys.stderr.isatty(), False
        self.begin(label)

    def begin(self, label: str) -> None:
        """What is done from now on, on a line of its own."""
        self.__exit__()
        self.label, self.shown = printable(label), False
        self.start = self.last = time.monotonic()
        self.pace = Pace()

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.shown and self.rewrite:
            print(file=sys.stderr)

    def __call__(self, share: float) -> None:
        """Say how far it is, if it is time to."""
        self.pace.tell(share)
        now = time.monotonic()
        if now - self.last < (TERMINAL_SECONDS if self.rewrite else LOG_SECONDS):
            return
        self.last, self.shown = now, True
        left = self.pace.seconds_left
        clock = f"{time_text(now - self.start)} so far" if left is None else f"{time_text(left)} left"
        line = f"{self.label}: {share:4.0%}, {clock}"
        print(f"\r{line:<60}" if self.rewrite else line, end="" if self.rewrite else "\n", file=sys.stderr)
        sys.stderr.flush()


def evaluation_line() -> Callable[[float], None]:
    """Says how far evaluations are: the time of each runs from its first call to that of the share 1."""
    line = cache(partial(ProgressLine, "evaluating"))

    def say(share: float) -> None:
        line()(share)
        if share >= 1:
            line().__exit__()
            line.cache_clear()

    return say


def note(text: str) -> None:
    """Something the user should know that is no error."""
    print(f"note: {message(text)}", file=sys.stderr)


@contextmanager
def going_on_from(file: Path) -> Iterator[None]:
    """Around work whose results are kept in `file` as they come: after Ctrl-C, say so."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"what is measured is kept in {file}; the same command goes on from there")
        raise


def seldom(write: Callable[[T], None]) -> Callable[[T], None]:
    """`write`, of results that grow, for at most a twentieth of the time; the caller writes the last."""
    due = 0.0

    def written(results: T) -> None:
        nonlocal due
        start = time.monotonic()
        if start >= due:
            write(results)
            due = time.monotonic() + 20 * (time.monotonic() - start)

    return written


def check_output(path: Path, force: bool, ending: str = "") -> None:
    """Raise MtaVizError before any work when `path` cannot be written, or is named as another kind."""
    if ending and path.suffix in KINDS and path.suffix != ending:
        raise MtaVizError(f"{path}: what is written here is a {ending} file, not a {path.suffix}; name it so")
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise MtaVizError(f"the name {path.name[:20]}... has over {LONGEST_NAME} bytes; choose a shorter one")
    if path.is_symlink() and not path.exists():
        raise MtaVizError(f"{path} is a link to something that is not there; name a file, or remove the link")
    if path.is_dir():
        raise MtaVizError(f"{path} is a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise MtaVizError(f"{path} is no regular file, and would be replaced by one; name another")
    if path.exists() and not force:
        raise MtaVizError(f"{path} exists; choose another name or add --force")
    if not path.parent.is_dir():
        raise MtaVizError(f"the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise MtaVizError(f"the folder {path.parent} cannot be written to; choose another")
