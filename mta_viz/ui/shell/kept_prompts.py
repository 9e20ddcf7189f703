"""Prompts and texts too long for an address, kept on this machine under an id, so that a link can name them.

In the folder `MTA_VIZ_PROMPTS` names, by default `mta_viz-prompts` in the user's cache folder. What nobody
used for `MAX_AGE` goes; nothing goes for something new, so that nobody can push out another's links. Nothing
here is needed for a run: where there is no room, or the folder cannot be written, links lack the prompt.
"""

import hashlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mta_viz.checkpoint import door
from mta_viz.errors import FileError
from mta_viz.writing import write

MAX_TEXT = 2**20  # bytes of one
MAX_OWN, MAX_OWN_BYTES = 100, 2**24  # of a session
MAX_KEPT, MAX_BYTES = 4000, 2**28  # of all
MAX_AGE = 90 * 86_400.0  # seconds since it was used
_one_at_a_time = threading.Lock()
_ID = re.compile(r"[0-9a-f]{20}")
_ADDRESS = re.compile(rf"kept:({_ID.pattern})")


@dataclass
class Own:
    """How many a session has had kept, and their bytes; by parameters' names, what stands there for what."""

    count: int = 0
    n_bytes: int = 0
    addresses: dict[str, tuple[object, str | None]] = field(default_factory=dict)

    def address(self, name: str, value: str | tuple[int, ...]) -> str | None:
        """What stands for the value in the parameter `name`: kept once, not at every rerun."""
        if name not in self.addresses or self.addresses[name][0] != value:
            self.addresses[name] = value, address_of(value, self)
        return self.addresses[name][1]


def folder() -> Path:
    """Where they are kept. Raises RuntimeError for a user without a home."""
    named = os.environ.get("MTA_VIZ_PROMPTS")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mta_viz-prompts"


def keep(prompt: str, own: Own | None = None) -> str | None:
    """Keep it; its id, the same for the same text. None where it cannot be kept, or is too much for `own`."""
    try:
        content = prompt.encode()
        name = hashlib.sha256(content).hexdigest()[:20]
        with _one_at_a_time:  # else each finds room for itself
            if find(name) is None and not _write(name, content, own or Own()):
                return None
        with suppress(OSError):  # a folder that can only be read
            (folder() / name).touch()
        return name
    except (OSError, FileError, RuntimeError, UnicodeEncodeError):
        return None


def _write(name: str, content: bytes, own: Own) -> bool:
    """Whether there was room for it."""
    if len(content) > MAX_TEXT or own.count >= MAX_OWN or own.n_bytes + len(content) > MAX_OWN_BYTES:
        return False
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    there = list(sizes((file for file in folder().iterdir() if _ID.fullmatch(file.name)), MAX_AGE))
    if len(there) >= MAX_KEPT or sum(there) + len(content) > MAX_BYTES:
        return False
    write(folder() / name, content)
    own.count, own.n_bytes = own.count + 1, own.n_bytes + len(content)
    return True


def sizes(files: Iterable[Path], max_age: float) -> Iterator[int]:
    """Bytes of each file; older ones are deleted."""
    for file in files:
        with suppress(FileNotFoundError):  # another session deleted it
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                if time.time() - status.st_mtime > max_age:
                    file.unlink()
                else:
                    yield status.st_size


def find(name: str) -> str | None:
    """The prompt with this id, None where it is not here or not what was kept."""
    if not _ID.fullmatch(name):
        return None
    try:
        prompt = door.read_bytes(folder() / name, MAX_TEXT).decode()
    except (FileError, RuntimeError, UnicodeDecodeError):
        return None
    return prompt if hashlib.sha256(prompt.encode()).hexdigest().startswith(name) else None


def is_address(text: str) -> bool:
    """Whether it reads as what stands for a kept text."""
    return _ADDRESS.fullmatch(text) is not None


def address_of(text: str | tuple[int, ...], own: Own | None = None) -> str | None:
    """What stands for a text, or ids, in an address; None for what is too long or cannot be kept."""
    name = keep(json.dumps(text), own)
    return None if name is None else f"kept:{name}"


def value_of(name: str) -> object:
    """What JSON was kept under this id; None where there is none."""
    kept = find(name)
    with suppress(ValueError, RecursionError):
        return None if kept is None else json.loads(kept)
    return None


def text_at(address: str) -> str:
    """The text `address_of` kept. Raises ValueError where it is not here."""
    found = _ADDRESS.fullmatch(address)
    text = None if found is None else value_of(found[1])
    if not isinstance(text, str):
        raise ValueError("its text is kept on the machine the link was made on, not here, or no longer")
    return text
