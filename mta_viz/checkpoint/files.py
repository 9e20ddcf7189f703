"""Files written whole or not at all, and the two beside the weights: params.json and the tokenizer's."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.checkpoint.params import MODEL_DTYPES, params_from_config
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError, MtaVizError
from mta_viz.printed import printable


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; at the end it takes `path`'s place, after an error it is gone.

    OSError is the caller's to explain.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_results(file: Path, text: str) -> None:
    """Replace `file`; a reader never sees half of it. Raises MtaVizError when the disk refuses."""
    try:
        with replacing(file) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MtaVizError(f"{file} cannot be written: {error.strerror or error}") from error


def write_folder(folder: Path, fill: Callable[[Path], None], *, overwrite: bool) -> None:
    """Let `fill` write files into a temporary folder, then move them to `folder`.

    A new folder appears at once; into an existing one, files are renamed one by one, and its other
    files stay. Raises CheckpointError when a file is there and `overwrite` is false, and when the
    disk refuses.
    """
    folder = Path(folder)
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.part"
    try:
        temporary.mkdir(parents=True)
        fill(temporary)
        _move(temporary, folder, overwrite)
    except OSError as error:
        raise CheckpointError([f"it cannot be written: {error.strerror or error}"], str(folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, folder: Path, overwrite: bool) -> None:
    names = sorted(file.name for file in temporary.iterdir())
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise CheckpointError(
            [f"{', '.join(there)} already there; choose another folder, or allow overwriting"], str(folder)
        )
    if folder.exists():
        for name in names:
            os.replace(temporary / name, folder / name)
    else:
        os.rename(temporary, folder)


PARAMS = "params.json"
STEPS = "checkpoints"  # of a run: a folder a step in it


def read_params(file: Path) -> tuple[Any, tuple[str, ...]]:
    """(contents, problems): what the JSON file holds, or None and why not."""
    try:
        return door.read_json(file), ()
    except FileError as error:
        name, wanted = printable(file.name), "expected Lingua's file of settings beside the weights"
        return None, (f"{name} {error.reason}; {wanted}" if error.missing else error.of(name),)


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
    try:
        file = Path(path) if folder is None else door.inside(folder, path)
        content = door.read_bytes(file, door.TEXT)
    except FileError:
        return TokenizerFile(path)
    return TokenizerFile("tokenizer.json" if name == "tokenizers" else file.name, content)


def params_bytes(
    config: ModelConfig, tokenizer_name: str | None, tokenizer: TokenizerFile, dtype: str | None
) -> bytes:
    """params.json as it is written; `dtype` is the tensors' (left out when Lingua has no word for it)."""
    params = params_from_config(config, tokenizer_name, tokenizer.written)
    words = {ours: theirs for theirs, ours in MODEL_DTYPES.items()}
    if dtype in words:
        params["distributed"] = {"model_dtype": words[dtype]}
    return (json.dumps(params, indent=2) + "\n").encode()
