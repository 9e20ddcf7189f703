"""From what params.json says about the tokenizer to a Tokenizer: finds and opens the file.

Each kind's own file knows its format; this one knows paths and messages, and what a Hugging Face folder
or a GGUF file says beside its tokenizer. What a library makes of a file it makes in a process of its own:
see worker.py.

The file a user gave for a model whose own cannot be opened is found again while it is there: a small record
a model in the folder `MTA_VIZ_TOKENIZERS` names, by default `mta_viz-tokenizers` in the user's cache folder.
Nothing of it is needed for a run: where the folder cannot be written, the file is given again.
"""

import hashlib
import json
import os
from codecs import BOM_UTF8
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from mta_viz.checkpoint import door
from mta_viz.errors import FileError, TokenizerError
from mta_viz.printed import printable
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.builtin import BytesTokenizer, CharTokenizer
from mta_viz.tokenizers.gguf import read_header, tokenizer_file, vocabulary
from mta_viz.tokenizers.model_files import rank_of_line
from mta_viz.tokenizers.worker import FencedTokenizer, fenced
from mta_viz.writing import write

_TOKENS = "tokenizer.ggml.tokens"
_IDS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
SETTINGS = "tokenizer_config.json"
_MAX_FILE_BYTES = 1 << 26  # the largest known, of 262,144 tokens, is half of that
GGUF = "gguf"
WHAT_TO_DO = "Choose the file (on the command line: --tokenizer FILE), or paste token ids instead of text."
_JSON, _PROTO = "a tokenizer.json of the tokenizers library", "a SentencePiece model (often tokenizer.model)"
# What the file of a kind is called in a message.
_FILES = {
    "tiktoken": 'a tiktoken rank file (lines of "base64 rank", often tokenizer.model)',
    **dict.fromkeys(("sp", "sp-plain"), _PROTO),
    **dict.fromkeys(("tokenizers", "huggingface"), _JSON),
}


def load_tokenizer(name: str, path: str | None, *, folder: Path, override: Path | None = None) -> Tokenizer:
    """The tokenizer `name` (char, bytes or one of `_FILES`) of the checkpoint in `folder`.

    `path` is the one written in params.json: a file in `folder`, or a path of the author's machine,
    of which only the base name is looked for there. `override` is the user's own choice and is then
    the only file looked for; one given before is taken where the checkpoint's own makes none.
    char and bytes need no file; gguf is the vocabulary in the file of the model. Raises TokenizerError
    saying which file is wanted, where it was looked for and what to do.
    """
    try:
        return _load(name, path, folder, override)
    except TokenizerError:
        before = None if override else remembered(folder)
        if before is None:
            raise
        with suppress(TokenizerError):
            tokenizer = _load(_kind_given(name, before), None, folder, before)
            return replace(cast(FencedTokenizer, tokenizer), given_before=before)
        raise


def _kind_given(name: str, file: Path) -> str:
    """The kind of a file given before: params.json names it, or its ending."""
    named = name in ("tiktoken", "tokenizers") or (name == "sp" and file.suffix != ".json")
    return name if named else kind_of_file(file)


def _load(name: str, path: str | None, folder: Path, override: Path | None) -> Tokenizer:
    without_file: dict[str, type[CharTokenizer | BytesTokenizer]]
    without_file = {"char": CharTokenizer, "bytes": BytesTokenizer}
    if name in without_file:
        if override is None:
            return without_file[name]()
        raise TokenizerError(
            f"The tokenizer file {printable(override)} was given, but this checkpoint uses the "
            f'"{name}" tokenizer, which needs no file. Leave the file out.'
        )
    if name == GGUF:
        if override is None:
            return _of_gguf(folder if folder.is_file() else folder / door.base_name(path or ""))
        name = kind_of_file(override)
    if name not in _FILES:
        known = ", ".join([*without_file, *_FILES])
        raise TokenizerError(
            f'params.json names the tokenizer "{printable(name)}". Known tokenizers: {known}. '
            "Correct the name, or paste token ids instead of text."
        )
    wanted = _FILES[name]
    file, content = _read(name, wanted, _candidates(path, folder, override))
    settings = settings_beside(file.parent) if name == "huggingface" else {}
    try:
        return fenced(name, content, token_text(settings.get("eos_token")))
    except TokenizerError as error:
        reason = f"{printable(file)} cannot be used as {wanted}: {_why(wanted, file, content, error)}"
        raise TokenizerError(f"{reason} {WHAT_TO_DO}") from error


def _why(wanted: str, file: Path, content: bytes, error: TokenizerError) -> str:
    """What the file is instead, where that is known; else the library's `error`."""
    kind = kind_of_file(file)
    if _FILES[kind] == wanted:
        return str(error)
    try:
        fenced(kind, content)
    except TokenizerError as other:
        return str(other if file.suffix == ".json" else error)
    return f'it is {_FILES[kind]}: write "{kind}" in data.tokenizer.name, or give a file of the kind named.'


def kind_of_file(file: Path) -> str:
    """The kind of a tokenizer's file that no settings name: `tokenizer.model` may be either of two."""
    if file.suffix == ".json":
        return "huggingface"
    with suppress(FileError, TokenizerError, ValueError), door.opened(file) as opened:
        rank_of_line(opened.readline(1000))
        return "tiktoken"
    return "sp" if file.suffix == ".model" else "huggingface"


def unnamed_file(model: Path) -> Path | None:
    """The tokenizer's file of a model (its folder, or a file there) whose settings name none."""
    folder = model if model.is_dir() else model.parent
    places = (folder / name for name in ("tokenizer.json", "tokenizer.model", "tekken.json"))
    return next(filter(Path.is_file, places), None) or remembered(model)


def _of_gguf(file: Path) -> Tokenizer:
    kind, _, content = gguf_tokenizer_file(file)
    try:
        return fenced(kind, content)
    except TokenizerError as error:
        raise _no_vocabulary(file, error) from error


def gguf_tokenizer_file(file: Path) -> tuple[str, str, bytes]:
    """Kind, file name and bytes of the tokenizer whose vocabulary is in a GGUF file; else TokenizerError."""
    try:
        return tokenizer_file(vocabulary(read_header(file).metadata))
    except FileError as error:
        raise TokenizerError(str(error)) from error
    except TokenizerError as error:
        raise _no_vocabulary(file, error) from error


def _no_vocabulary(file: Path, error: TokenizerError) -> TokenizerError:
    wanted = f"Give the model's tokenizer.json or tokenizer.model. {WHAT_TO_DO}"
    return TokenizerError(f"The vocabulary in {printable(file.name)} cannot be used: {error} {wanted}")


def _candidates(path: str | None, folder: Path, override: Path | None) -> list[Path | FileError]:
    """Where to look, best first, each place once; or why a path is not followed."""
    if override is not None:
        return [override]
    if not path:
        return []
    own = folder / door.base_name(path)
    try:
        return list(dict.fromkeys([door.inside(folder, path), own]))
    except FileError as error:
        return [own, error]


def _read(name: str, wanted: str, candidates: list[Path | FileError]) -> tuple[Path, bytes]:
    """The first file that is there, and its bytes."""
    looked: list[str] = []
    missing = True
    for place in candidates:
        if isinstance(place, FileError):
            looked.append(str(place))
            continue
        try:
            return place, door.read_bytes(place, _MAX_FILE_BYTES).removeprefix(BOM_UTF8)
        except FileError as error:
            looked.append(f"{printable(place)} {error.reason}")
            if not error.missing:
                missing = False
                break
    places = "; ".join(looked) or "nowhere, since params.json gives no path"
    message = f'The "{name}" tokenizer needs {wanted}. Looked for: {places}. {WHAT_TO_DO}'
    raise TokenizerError(message, missing=missing)


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
    tokens = tokens if isinstance(tokens, tuple) else ()
    for name, key in _IDS.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if type(token_id) is int and 0 <= token_id < len(tokens):
            settings[f"{name}_token"] = tokens[token_id]
    return settings


def token_text(token: object) -> str | None:
    """A token as settings write it: its text, or an object with it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def given_folder() -> Path:
    """Where files that users gave are kept. Raises RuntimeError for a user without a home."""
    if named := os.environ.get("MTA_VIZ_TOKENIZERS"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mta_viz-tokenizers"


def remember_given(model: Path, file: Path) -> None:
    """From now on `file` is what `remembered` gives for the model; of a run folder, for all its steps."""
    with suppress(OSError, FileError, RuntimeError):
        _write(_record(model), json.dumps({"tokenizer": str(file.resolve())}).encode())


def keep_given(model: Path, name: str, content: bytes) -> None:
    """The same of an uploaded file, of which a copy is kept."""
    with suppress(OSError, FileError, RuntimeError):
        file = given_folder() / hashlib.sha256(content).hexdigest() / f"tokenizer{Path(name).suffix[:8]}"
        _write(file, content)
        remember_given(model, file)


def remembered(model: Path) -> Path | None:
    """The file given for the model, if there is one and it is still there."""
    with suppress(FileError, OSError, RuntimeError, KeyError, TypeError, ValueError):
        file = Path(door.read_json(_record(model))["tokenizer"])
        return file if file.is_file() else None
    return None


def _record(model: Path) -> Path:
    place = model.resolve()
    run = place.parent.parent if place.parent.name == "checkpoints" else place
    return given_folder() / f"{hashlib.sha256(os.fsencode(run)).hexdigest()[:20]}.json"


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(file, content)
