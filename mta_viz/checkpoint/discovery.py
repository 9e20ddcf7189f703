"""Which checkpoints lie in the folders a user gave: names and summaries, no weights read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mta_viz.checkpoint.locate import LOOKED_FOR, find_checkpoint
from mta_viz.checkpoint.printable import printable
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
    """Checkpoints at each root and one and two levels below it. Never raises for a broken folder.

    Names hold no control characters and no broken UTF-8: both are shown escaped.
    """
    found: dict[Path, Found] = {}
    skipped: list[str] = []
    for root in map(Path, roots):
        if not _is_folder(root, skipped):
            continue
        before = len(skipped)
        folders = list(_checkpoint_folders(root, _DEPTH, skipped))
        for folder in folders:
            place = folder.resolve()
            if place not in found:
                found[place] = _describe(folder, root)
        if not folders and len(skipped) == before:
            looked = f"Looked in it and two levels below for {LOOKED_FOR}"
            skipped.append(f"{printable(root)} has no checkpoint. {looked}")
    return Discovery(tuple(found.values()), tuple(skipped))


def _is_folder(root: Path, skipped: list[str]) -> bool:
    try:
        if root.is_dir():
            return True
        skipped.append(f"{printable(root)} is no folder; check the path")
    except OSError as error:  # no right to look, or a name too long
        skipped.append(_unreadable(root, error))
    return False


def _checkpoint_folders(folder: Path, depth: int, skipped: list[str]) -> Iterator[Path]:
    """`folder` if it is a checkpoint, else those below; nothing is looked for inside a checkpoint."""
    try:
        if find_checkpoint(folder) is not None:
            yield folder
            return
        entries = sorted(entry for entry in folder.iterdir() if entry.name[0] != ".")
    except OSError as error:
        skipped.append(_unreadable(folder, error))
        return
    except CheckpointError:  # a broken run; describing it says what is wrong
        yield folder
        return
    inside = [entry for entry in entries if _may_be_entered(entry, skipped)]
    if depth:
        for entry in inside:
            yield from _checkpoint_folders(entry, depth - 1, skipped)


def _may_be_entered(entry: Path, skipped: list[str]) -> bool:
    try:
        if entry.is_symlink() and not entry.exists():
            skipped.append(f"{printable(entry)} is a link to something that is not there")
            return False
        return entry.is_dir()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        skipped.append(_unreadable(entry, error))
        return False


def _unreadable(path: Path, error: Exception) -> str:
    return f"{printable(path)} cannot be read: {getattr(error, 'strerror', None) or error}"


def _describe(folder: Path, root: Path) -> Found:
    name = printable(root.name if folder == root else folder.relative_to(root).as_posix())
    name = name or printable(folder)
    try:
        summary = read_summary(folder)
    except CheckpointError as error:
        return Found(folder, name, None, str(error))
    except Exception as error:  # a file can be broken in ways nobody foresaw: the others must still be shown
        kind = f"{type(error).__name__}: {printable(error)}"
        return Found(folder, name, None, f"{printable(folder)} cannot be read ({kind})")
    problem = "params.json is here, but no weights" if summary.format == "params" else None
    return Found(folder, name, summary, problem)
