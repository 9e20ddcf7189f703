"""Which checkpoints lie in the folders a user gave: names and summaries, no weights read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mta_viz.checkpoint.locate import LOOKED_FOR, find_checkpoint
from mta_viz.checkpoint.reading import read_summary
from mta_viz.checkpoint.types import Summary
from mta_viz.errors import CheckpointError

_DEPTH = 2


@dataclass(frozen=True)
class Found:
    """One checkpoint (or run folder). A broken one has no summary but a `problem`."""

    path: Path
    name: str
    summary: Summary | None
    problem: str | None


@dataclass(frozen=True)
class Discovery:
    """All checkpoints found, in the order of the roots; `skipped` says what was not there or not readable."""

    found: tuple[Found, ...]
    skipped: tuple[str, ...]


def find_checkpoints(roots: Sequence[Path]) -> Discovery:
    """Checkpoints at each root and one and two levels below it. Never raises for a broken folder."""
    found: dict[Path, Found] = {}
    skipped: list[str] = []
    for root in map(Path, roots):
        if not root.is_dir():
            skipped.append(f"{root} is no folder; check the path")
            continue
        folders = list(_checkpoint_folders(root, _DEPTH, skipped))
        for folder in folders:
            found.setdefault(folder.resolve(), _describe(folder, root))
        if not folders:
            skipped.append(f"{root} has no checkpoint. Looked in it and two levels below for {LOOKED_FOR}")
    return Discovery(tuple(found.values()), tuple(skipped))


def _checkpoint_folders(folder: Path, depth: int, skipped: list[str]) -> Iterator[Path]:
    """`folder` if it is a checkpoint, else those below; nothing is looked for inside a checkpoint."""
    try:
        if find_checkpoint(folder) is not None:
            yield folder
            return
        inside = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        skipped.append(f"{folder} cannot be read: {error.strerror or error}")
        return
    if depth:
        for entry in inside:
            yield from _checkpoint_folders(entry, depth - 1, skipped)


def _describe(folder: Path, root: Path) -> Found:
    name = root.name if folder == root else folder.relative_to(root).as_posix()
    try:
        summary = read_summary(folder)
    except CheckpointError as error:
        return Found(folder, name or str(folder), None, str(error))
    problem = "params.json is here, but no weights" if summary.format == "params" else None
    return Found(folder, name or str(folder), summary, problem)
