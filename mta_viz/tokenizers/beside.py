"""What a Hugging Face folder says of its tokenizer beside it, or a GGUF file: tokenizer_config.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import FileError
from mta_viz.tokenizers.gguf_header import read_header

_TOKENS = "tokenizer.ggml.tokens"
_IDS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
SETTINGS = "tokenizer_config.json"


def settings_beside(folder: Path) -> Mapping[str, Any]:
    """What a folder's tokenizer_config.json says, or a GGUF file; nothing where none can be read."""
    try:
        if folder.is_file():
            return gguf_settings(read_header(folder).metadata)
        settings = door.read_json(folder / SETTINGS, 16 * door.MIB)
    except FileError:
        return {}
    return settings if isinstance(settings, dict) else {}


def gguf_settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a GGUF file's metadata: chat template and special tokens."""
    settings, tokens = {"chat_template": metadata.get("tokenizer.chat_template")}, metadata.get(_TOKENS, ())
    for name, key in _IDS.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if type(token_id) is int and 0 <= token_id < len(tokens):
            settings[f"{name}_token"] = tokens[token_id]
    return settings


def token_text(token: object) -> str | None:
    """A token as settings write it: its text, or an object with it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
