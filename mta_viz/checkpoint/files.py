"""The small files beside the weights: params.json and the tokenizer's file, read and made ready to write."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mta_viz.checkpoint.params import MODEL_DTYPES, params_from_config
from mta_viz.config import ModelConfig

PARAMS = "params.json"
STEPS = "checkpoints"  # of a run: a folder a step in it


def read_params(file: Path) -> tuple[Any, tuple[str, ...]]:
    """(contents, problems): what the JSON file holds, or None and why not."""
    try:
        if file.exists() and not file.is_file():  # reading a pipe would wait for ever
            return None, (f"{file.name} is no regular file; expected Lingua's file of settings",)
        return json.loads(file.read_text(encoding="utf-8-sig")), ()
    except FileNotFoundError:
        return None, (f"{file.name} is missing; expected Lingua's file of settings beside the weights",)
    except OSError as error:
        return None, (f"{file.name} cannot be read: {error.strerror}",)
    except (ValueError, RecursionError) as error:
        return None, (f"{file.name} is not JSON: {error}. Copy it again from the run",)


@dataclass(frozen=True)
class TokenizerFile:
    """The tokenizer's file as it will be written: its path for params.json, and its bytes to copy, if any."""

    written: str | None
    content: bytes | None = None


def copied_tokenizer(name: str | None, path: str | None, folder: Path | None) -> TokenizerFile:
    """The file of tokenizer `name` at `path` (relative to `folder`), to be copied beside the weights.

    A file that is not there is not copied, and its path stays as it is.
    """
    if path is None:
        return TokenizerFile(None)
    file = folder / path if folder else Path(path)
    if not file.is_file():
        return TokenizerFile(path)
    return TokenizerFile("tokenizer.json" if name == "tokenizers" else file.name, file.read_bytes())


def params_bytes(
    config: ModelConfig, tokenizer_name: str | None, tokenizer: TokenizerFile, dtype: str | None
) -> bytes:
    """params.json as it is written; `dtype` is the tensors' (left out when Lingua has no word for it)."""
    params = params_from_config(config, tokenizer_name, tokenizer.written)
    words = {ours: theirs for theirs, ours in MODEL_DTYPES.items()}
    if dtype in words:
        params["distributed"] = {"model_dtype": words[dtype]}
    return (json.dumps(params, indent=2) + "\n").encode()
