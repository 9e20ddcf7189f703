"""The tokenizer file a user gave for a model whose own cannot be opened, found again while it is there.

A small file a model in the folder `MTA_VIZ_TOKENIZERS` names, by default `mta_viz-tokenizers` in the user's
cache folder. Nothing here is needed for a run: where the folder cannot be written, the file is given again.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from mta_viz.checkpoint import door
from mta_viz.errors import FileError


def folder() -> Path:
    """Where they are kept. Raises RuntimeError for a user without a home."""
    if named := os.environ.get("MTA_VIZ_TOKENIZERS"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mta_viz-tokenizers"


def remember(model: Path, file: Path) -> None:
    """From now on `file` is what `remembered` gives for the model; of a run folder, for all its steps."""
    with suppress(OSError, RuntimeError):
        _write(_record(model), json.dumps({"tokenizer": str(file.resolve())}).encode())


def keep(model: Path, name: str, content: bytes) -> None:
    """The same of an uploaded file, of which a copy is kept."""
    with suppress(OSError, RuntimeError):
        file = folder() / hashlib.sha256(content).hexdigest() / f"tokenizer{Path(name).suffix[:8]}"
        _write(file, content)
        remember(model, file)


def remembered(model: Path) -> Path | None:
    """The file given for the model, if there is one and it is still there."""
    with suppress(FileError, OSError, RuntimeError, KeyError, TypeError, ValueError):
        file = Path(door.read_json(_record(model))["tokenizer"])
        return file if file.is_file() else None
    return None


def _record(model: Path) -> Path:
    place = model.resolve()
    run = place.parent.parent if place.parent.name == "checkpoints" else place
    return folder() / f"{hashlib.sha256(os.fsencode(run)).hexdigest()[:20]}.json"


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(file)
