"""Prompts and texts too long for an address, kept on this machine under an id, so that a link can name them.

In the folder `MTA_VIZ_PROMPTS` names, by default `mta_viz-prompts` in the user's cache folder; the ones used
longest ago go. Nothing here is needed for a run: where the folder cannot be written, links lack the prompt.
"""

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import replacing
from mta_viz.errors import FileError

MAX_KEPT = 200
MAX_TEXT = 2**20  # characters of a text that is no prompt
_ID = re.compile(r"[0-9a-f]{20}")
_ADDRESS = re.compile(rf"kept:({_ID.pattern})")


def folder() -> Path:
    """Where they are kept. Raises RuntimeError for a user without a home."""
    named = os.environ.get("MTA_VIZ_PROMPTS")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mta_viz-prompts"


def keep(prompt: str) -> str | None:
    """Keep it; its id, the same for the same text. None where it cannot be kept."""
    name = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    try:
        place = folder() / name
        if find(name) is None:
            folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(place) as partial:
                partial.write_text(prompt, encoding="utf-8", newline="")
            with suppress(OSError):  # another session was first
                used = {file: file.stat().st_mtime for file in folder().iterdir() if _ID.fullmatch(file.name)}
                for file in sorted(used, key=used.__getitem__, reverse=True)[MAX_KEPT:]:
                    file.unlink()
        else:
            place.touch()
        return name
    except (OSError, RuntimeError, UnicodeEncodeError):
        return None


def find(name: str) -> str | None:
    """The prompt with this id, None where it is not here or not what was kept."""
    if not _ID.fullmatch(name):
        return None
    try:
        prompt = door.read_bytes(folder() / name, door.TEXT).decode()
    except (FileError, RuntimeError, UnicodeDecodeError):
        return None
    return prompt if hashlib.sha256(prompt.encode()).hexdigest().startswith(name) else None


def is_address(text: str) -> bool:
    """Whether it reads as what stands for a kept text."""
    return _ADDRESS.fullmatch(text) is not None


def address_of(text: str) -> str | None:
    """What stands for a text in an address; None for one that is too long or cannot be kept."""
    name = keep(json.dumps(text)) if len(text) <= MAX_TEXT else None
    return None if name is None else f"kept:{name}"


def text_at(address: str) -> str:
    """The text `address_of` kept. Raises ValueError where it is not here."""
    found = _ADDRESS.fullmatch(address)
    kept = None if found is None else find(found[1])
    text = None if kept is None else json.loads(kept)
    if not isinstance(text, str):
        raise ValueError("its text is kept on the machine the link was made on, not here, or no longer")
    return text
