"""The files beside the weights, params.json and the tokenizer's, and a model's folder written with them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.checkpoint.params import MODEL_DTYPES, params_from_config
from mta_viz.config import ModelConfig
from mta_viz.errors import FileError
from mta_viz.printed import printable
from mta_viz.tokenizers.loading import GGUF, gguf_tokenizer_file
from mta_viz.writing import write_folder


def beside(weights: Path) -> Path:
    """The folder where the files that belong to weights lie; these are a folder, or one file in it."""
    return weights.parent if weights.is_file() or (weights.is_symlink() and not weights.is_dir()) else weights


PARAMS = "params.json"
STEPS = "checkpoints"  # of a run: a folder a step in it
JSON_KINDS = ("tokenizers", "huggingface")  # of tokenizers


def run_folder(folder: Path) -> Path:
    """The folder that has a checkpoint's name: of RUN/checkpoints/0000001000 it is RUN."""
    folder = folder.absolute()
    if not folder.name.isdecimal():
        return folder
    return folder.parents[1] if folder.parent.name == STEPS else folder.parent


def read_params(file: Path) -> tuple[Any, tuple[str, ...]]:
    """(contents, problems): what the JSON file holds, or None and why not."""
    try:
        return door.read_json(file), ()
    except FileError as error:
        name, wanted = printable(file.name), "expected Lingua's file of settings beside the weights"
        return None, (f"{name} {error.reason}; {wanted}" if error.missing else error.of(name),)


@dataclass(frozen=True)
class TokenizerFile:
    """A model's tokenizer as it will be written: its path for params.json, and its bytes to copy, if any."""

    name: str | None = None
    written: str | None = None
    content: bytes | None = None


def copied_tokenizer(name: str | None, path: str | None, folder: Path | None) -> TokenizerFile:
    """The file of tokenizer `name` at `path` (relative to `folder`); its path alone where it is not there.

    Of a vocabulary in a GGUF file one is made; TokenizerError where it makes none.
    """
    if path is None:
        return TokenizerFile(name)
    try:
        file = Path(path) if folder is None else door.inside(folder, path)
        if name == GGUF:
            return TokenizerFile(*gguf_tokenizer_file(file))
        content = door.read_bytes(file, door.TEXT)
    except FileError:
        return TokenizerFile(name, path)
    return TokenizerFile(name, "tokenizer.json" if name in JSON_KINDS else file.name, content)


def write_model(
    folder: Path,
    config: ModelConfig,
    weights: str,
    save: Callable[[Path], None],
    *,
    dtype: str | None,
    tokenizer: TokenizerFile,
    overwrite: bool,
) -> None:
    """Write params.json, the weights, which `save` writes to a file called `weights`, and the tokenizer.

    `dtype` is the tensors' (left out of params.json when Lingua has no word for it). For the rest as
    `write_folder`.
    """
    params = params_from_config(config, tokenizer.name, tokenizer.written)
    words = {ours: theirs for theirs, ours in MODEL_DTYPES.items()}
    if dtype in words:
        params["distributed"] = {"model_dtype": words[dtype]}

    def fill(target: Path) -> None:
        (target / PARAMS).write_bytes((json.dumps(params, indent=2) + "\n").encode())
        save(target / weights)
        # safetensors lets the owner alone read what it writes; a model is as public as its settings.
        shutil.copymode(target / PARAMS, target / weights)
        if tokenizer.content is not None:
            (target / str(tokenizer.written)).write_bytes(tokenizer.content)

    write_folder(folder, fill, overwrite=overwrite, last=PARAMS)
