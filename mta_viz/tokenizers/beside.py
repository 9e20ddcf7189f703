"""What a Hugging Face folder says of its tokenizer beside it: tokenizer_config.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import FileError

SETTINGS = "tokenizer_config.json"


def settings_beside(folder: Path) -> Mapping[str, Any]:
    """What a folder's tokenizer_config.json says; nothing where there is none that can be read."""
    try:
        settings = door.read_json(folder / SETTINGS, 16 * door.MIB)
    except FileError:
        return {}
    return settings if isinstance(settings, dict) else {}


def token_text(token: object) -> str | None:
    """A token as settings write it: its text, or an object with it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
