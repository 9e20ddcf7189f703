"""What the card beside a model's weights says: what it was trained for, and how often it is right at it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.validate import from_data
from mta_viz.errors import FileError, MtaVizError
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import Task
from mta_viz.tasks.intervals import accuracy_interval
from mta_viz.tasks.needles import NeedleTask

CARD = "card.json"


@dataclass(frozen=True)
class _Counted:
    right: int
    n: int


@dataclass(frozen=True)
class _Cell:
    n_needles: int
    length: int
    depth: float | int | None
    scores: dict[str, _Counted]


@dataclass(frozen=True)
class _Needles:
    cells: tuple[_Cell, ...]


@dataclass(frozen=True)
class _Blocks:
    n: int
    wrong: int


@dataclass(frozen=True)
class _Measured:
    """What is read of a card's numbers."""

    sha256: str
    needles: _Needles | None = None
    evaluation: _Blocks | None = None


def read_card(folder: Path | None) -> dict[str, Any]:
    """The card of a checkpoint; empty where there is none that can be read."""
    try:
        card = door.read_json(beside(folder) / CARD) if folder else {}
    except FileError:
        return {}
    return card if isinstance(card, dict) else {}


def trained_for(folder: Path | None) -> str | None:
    """The task that the card names: needle, pairs, blocks, questions ...; None where none is named."""
    task = read_card(folder).get("task")
    return task if isinstance(task, str) else None


def card_score(folder: Path | None, sha256: Callable[[], str], task: Task | BlockTask) -> NeedleScore | None:
    """How often the card says the model is right at this setting; None where it says nothing of it.

    `sha256` gives the weights' own, which must be the card's.
    """
    card = read_card(folder)
    try:
        measured = from_data(_Measured, card, "The model card", others=True)
    except MtaVizError:
        return None
    if isinstance(task, BlockTask):
        score = _blocks(measured, card.get("config"), task)
    else:
        score = _needles(measured, task)
    return score if score is not None and sha256() == measured.sha256 else None


def _blocks(measured: _Measured, config: Any, task: BlockTask) -> NeedleScore | None:
    sizes = asdict(task)
    if measured.evaluation is None or not isinstance(config, dict):
        return None
    if {name: config.get(name) for name in sizes} != sizes:
        return None
    return _score(measured.evaluation.n - measured.evaluation.wrong, measured.evaluation.n)


def _needles(measured: _Measured, task: Task) -> NeedleScore | None:
    """Cards are of the usual words in the usual text."""
    if measured.needles is None or not isinstance(task, NeedleTask):
        return None
    if task != NeedleTask(task.n_needles, task.length, task.depth):
        return None
    wanted = (task.n_needles, task.length, task.depth)
    for cell in measured.needles.cells:
        if (cell.n_needles, cell.length, cell.depth) == wanted and "all" in cell.scores:
            return _score(cell.scores["all"].right, cell.scores["all"].n)
    return None


def _score(right: int, n: int) -> NeedleScore | None:
    there = 0 <= right <= n and n > 0
    return NeedleScore(right, n, right / n, accuracy_interval(right, n)) if there else None
