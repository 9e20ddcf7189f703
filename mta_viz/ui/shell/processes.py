"""Commands as processes that outlive the page, and the app: started with a log, watched and stopped by it.

A process holds a lock on its log for as long as it lives, so that the log tells whether it runs, whatever
became of who started it. Which process that is, its own command line tells: files may name any.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import mta_viz
from mta_viz.checkpoint import door
from mta_viz.errors import MtaVizError
from mta_viz.printed import printable
from mta_viz.ui.shell.uploads import READ_ONLY, read_only
from mta_viz.writing import refusals

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

PROC = Path("/proc/self")
LOG_END = 4096  # bytes of the log's end that are looked at
LOCK_TRIES = 10


def check_may_start() -> None:
    """Raise MtaVizError where the app is read-only."""
    if read_only():
        raise MtaVizError(READ_ONLY)


def start_command(arguments: Sequence[str], log: Path, *, go_on: bool = False) -> int:
    """The id of a new process of the command with these arguments; `go_on`: the log keeps what it has.

    Raises MtaVizError where the log's process still runs, FileError where it cannot be written.
    """
    with refusals(log), open(log, "ab", opener=_no_link) as written:
        if not _lock(written.fileno(), exclusive=True):
            raise MtaVizError(f"one runs in {printable(log.parent)} already; wait for it, or stop it")
        if not go_on:
            written.truncate(0)
        return _spawn([*_named(log), *arguments], written.fileno()).pid


def _no_link(file: str, flags: int) -> int:
    """Open what is written to: in a folder of others a link could lead to any file of this user's."""
    return os.open(file, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


# As `python -m mta_viz`; an app started in the background ignores SIGINT, which its children inherit.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); del sys.argv[1]; "
    "from mta_viz.__main__ import main; sys.exit(main())"
)


def _named(log: Path) -> list[str]:
    """How the command line of the log's process begins, behind Python's name."""
    return ["-c", _START, str(log.parent.resolve() / log.name)]


def _spawn(arguments: Sequence[str], log: int) -> "subprocess.Popen[bytes]":
    """In a session of its own, so that neither Ctrl-C in the app's terminal nor its end reaches it."""
    root = str(Path(mta_viz.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )


def interrupt(log: Path, pid: int) -> None:
    """Have the log's process keep what it has and end, as Ctrl-C does; nothing where it has ended.

    Raises MtaVizError where the process `pid` is not the log's, or is another user's.
    """
    if not is_alive(log):
        return
    words = f"what writes {printable(log)} is %s; stop it where it was started"
    if " ".join([*_named(log), ""]) not in _command_line(pid):
        raise MtaVizError(words % f"not process {pid}, which the file beside it names")
    with suppress(ProcessLookupError):
        try:
            os.kill(pid, signal.SIGINT)
        except PermissionError:
            raise MtaVizError(words % "another user's") from None


def _command_line(pid: int) -> str:
    """Of a process, its words joined by spaces; "" where nobody can tell."""
    with suppress(OSError):
        if PROC.exists():
            line = (PROC.parent / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
        else:  # macOS
            asked = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
            line = subprocess.run(asked, capture_output=True, check=False).stdout
        return os.fsdecode(line)
    return ""


def is_alive(log: Path) -> bool:
    """Whether the process that writes the log lives: it holds the log's lock."""
    try:
        with door.opened(log) as file:
            return not _lock(file.fileno(), exclusive=False)
    except MtaVizError:
        return False


def _lock(file: int, *, exclusive: bool) -> bool:
    """Take the lock of an open file, whether that is possible; it goes when all have closed the file.

    Who only looks shares it, for a moment: whoever starts a process waits that long.
    """
    if fcntl is None:
        raise MtaVizError("this system has no locks of files; run the command in a terminal")
    for _ in range(LOCK_TRIES if exclusive else 1):
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines that hold anything."""
    try:
        with door.opened(log) as file:
            file.seek(max(door.size(log) - LOG_END, 0))
            text = file.read(LOG_END).decode("utf-8", "replace")
    except MtaVizError:
        return ()
    return tuple(line for line in map(str.strip, text.splitlines()) if line)
