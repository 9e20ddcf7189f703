"""From what params.json says about the tokenizer to a Tokenizer: finds and opens the file.

Each kind's own file knows its format; this one knows paths and messages. The libraries behind
the kinds are imported when a tokenizer of that kind is opened, not before.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import FileError, TokenizerError
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.beside import settings_beside
from mta_viz.tokenizers.bytes import BytesTokenizer
from mta_viz.tokenizers.char import CharTokenizer

_MAX_FILE_BYTES = 1 << 28
GGUF = "gguf"
_WHAT_TO_DO = "Choose the file (on the command line: --tokenizer FILE), or paste token ids instead of text."
# Of the tokenizers in a file: what the file is called in a message, the module of the kind, and its class.
_FILE_KINDS = {
    "tiktoken": (
        'a tiktoken rank file (lines of "base64 rank", often tokenizer.model)',
        "tiktoken_ranks",
        "TiktokenTokenizer",
    ),
    "sp": ("a SentencePiece model (often tokenizer.model)", "sentencepiece_model", "SentencePieceTokenizer"),
    "sp-plain": (
        "a SentencePiece model (often tokenizer.model)",
        "sentencepiece_model",
        "PlainSentencePieceTokenizer",
    ),
    "tokenizers": ("a tokenizer.json of the tokenizers library", "hf_json", "JsonTokenizer"),
    "huggingface": ("a tokenizer.json of the tokenizers library", "hf_json", "HuggingFaceTokenizer"),
}


def load_tokenizer(name: str, path: str | None, *, folder: Path, override: Path | None = None) -> Tokenizer:
    """The tokenizer `name` (char, bytes or one of `_FILE_KINDS`) of the checkpoint in `folder`.

    `path` is the one written in params.json: a file in `folder`, or a path of the author's machine,
    of which only the base name is looked for there. `override` is the user's own choice and is then
    the only file looked for.
    char and bytes need no file; gguf is the vocabulary in the file of the model. Raises TokenizerError
    saying which file is wanted, where it was looked for and what to do.
    """
    without_file: dict[str, type[CharTokenizer | BytesTokenizer]]
    without_file = {"char": CharTokenizer, "bytes": BytesTokenizer}
    if name in without_file:
        if override is None:
            return without_file[name]()
        raise TokenizerError(
            f'The tokenizer file {override} was given, but this checkpoint uses the "{name}" tokenizer, '
            "which needs no file. Leave the file out."
        )
    if name == GGUF:
        if override is None:
            return _of_gguf(folder if folder.is_file() else folder / door.base_name(path or ""))
        name = kind_of_file(override)
    if name not in _FILE_KINDS:
        known = ", ".join([*without_file, *_FILE_KINDS])
        raise TokenizerError(
            f'params.json names the tokenizer "{name}". Known tokenizers: {known}. '
            "Correct the name, or paste token ids instead of text."
        )
    wanted = _FILE_KINDS[name][0]
    file, content = _read(name, wanted, _candidates(path, folder, override))
    try:
        tokenizer: Any = _opened(name, content)
        return tokenizer.with_settings(settings_beside(file.parent)) if name == "huggingface" else tokenizer
    except TokenizerError as error:
        raise TokenizerError(f"{file} cannot be used as {wanted}: {error} {_WHAT_TO_DO}") from error


def kind_of_file(file: Path) -> str:
    """The kind of a tokenizer's file that a user gives for a model whose own vocabulary makes none."""
    return "sp" if file.suffix == ".model" else "huggingface"


def _of_gguf(file: Path) -> Tokenizer:
    kind, _, content = gguf_tokenizer_file(file)
    try:
        return _opened(kind, content)
    except TokenizerError as error:
        raise _no_vocabulary(file, error) from error


def gguf_tokenizer_file(file: Path) -> tuple[str, str, bytes]:
    """Kind, file name and bytes of the tokenizer whose vocabulary is in a GGUF file; else TokenizerError."""
    from mta_viz.tokenizers.gguf_header import read_header
    from mta_viz.tokenizers.gguf_vocabulary import tokenizer_file, vocabulary

    try:
        return tokenizer_file(vocabulary(read_header(file).metadata))
    except FileError as error:
        raise TokenizerError(str(error)) from error
    except TokenizerError as error:
        raise _no_vocabulary(file, error) from error


def _no_vocabulary(file: Path, error: TokenizerError) -> TokenizerError:
    wanted = f"Give the model's tokenizer.json or tokenizer.model. {_WHAT_TO_DO}"
    return TokenizerError(f"The vocabulary in {file.name} cannot be used: {error} {wanted}")


def _opened(kind: str, content: bytes) -> Tokenizer:
    _, module, class_name = _FILE_KINDS[kind]
    return getattr(import_module(f"mta_viz.tokenizers.{module}"), class_name)(content)


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
    for place in candidates:
        if isinstance(place, FileError):
            looked.append(str(place))
            continue
        try:
            return place, door.read_bytes(place, _MAX_FILE_BYTES)
        except FileError as error:
            looked.append(f"{place} {error.reason}")
            if not error.missing:
                break
    places = "; ".join(looked) or "nowhere, since params.json gives no path"
    raise TokenizerError(f'The "{name}" tokenizer needs {wanted}. Looked for: {places}. {_WHAT_TO_DO}')
