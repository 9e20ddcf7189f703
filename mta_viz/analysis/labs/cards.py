"""What the card beside a model's weights says: what it was trained for, and how often it is right at it."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.errors import FileError
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import Task
from mta_viz.tasks.intervals import accuracy_interval
from mta_viz.tasks.needles import NeedleTask

CARD = "card.json"


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


def counted(right: int, n: int) -> NeedleScore:
    """The share of right answers with its exact interval. Raises ValueError for counts that cannot be."""
    return NeedleScore(right, n, right / n if n else 0.0, accuracy_interval(right, n))


def card_score(folder: Path | None, sha256: Callable[[], str], task: Task | BlockTask) -> NeedleScore | None:
    """How often the card says the model is right at this setting; None where it says nothing of it.

    `sha256` gives the weights' own, which must be the card's.
    """
    card = read_card(folder)
    try:
        score = _of_blocks(card, task) if isinstance(task, BlockTask) else _of_needles(card, task)
    except (AttributeError, KeyError, TypeError, ValueError):  # another kind of card
        return None
    return score if score is not None and sha256() == card.get("sha256") else None


def _of_blocks(card: dict[str, Any], task: BlockTask) -> NeedleScore | None:
    of, same = card["evaluation"], asdict(task).items() <= card["config"].items()
    return counted(of["n"] - of["wrong"], of["n"]) if same else None


def _of_needles(card: dict[str, Any], task: Task) -> NeedleScore | None:
    """Cards are of the usual words in the usual text."""
    if not isinstance(task, NeedleTask) or task != NeedleTask(task.n_needles, task.length, task.depth):
        return None
    wanted = {"n_needles": task.n_needles, "length": task.length, "depth": task.depth}
    scores = (cell["scores"]["all"] for cell in card["needles"]["cells"] if wanted.items() <= cell.items())
    score = next(scores, None)
    return None if score is None else counted(score["right"], score["n"])
