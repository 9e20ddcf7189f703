"""sha256 of a checkpoint's weights, to tell which file a result came from."""

import hashlib
from pathlib import Path

from mta_viz.checkpoint import dcp, kernels_only, lingua, native
from mta_viz.checkpoint.locate import locate
from mta_viz.errors import CheckpointError


def sha256(path: Path | str) -> str:
    """Hex digest of the weights file of the checkpoint at `path` (or of `path`, if it is a file).

    Several files (a distributed checkpoint): the digest of their digests, sorted and joined.
    Raises CheckpointError when there is none or it cannot be read.
    """
    path = Path(path)
    try:
        digests = sorted(_file_digest(file) for file in _weight_files(path))
    except OSError as error:
        raise CheckpointError([f"it cannot be read: {error.strerror or error}"], str(path)) from error
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    location = locate(path)
    if location.format == "dcp":
        pieces = filter(Path.is_file, location.folder.glob("*.distcp"))  # reading a pipe would wait for ever
        return [location.folder / dcp.METADATA, *pieces]
    names = {"native": native.WEIGHTS, "lingua": lingua.WEIGHTS, "kernels": kernels_only.WEIGHTS}
    if location.format not in names:
        raise CheckpointError(["it holds no weights, so they have no sha256"], str(path))
    return [location.folder / names[location.format]]


def _file_digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
