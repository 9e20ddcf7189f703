"""What lies beside a model's weights on how often it is right: its card, and a table of arms.

The card says what the model was trained for. `arms.json`, as `benchmarks/finetune_arms.py` writes it, is a
controls table: one task trained into one base with kernels of several shapes, several seeds each.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from mta_viz.analysis.kernels.finetuning import Answers, Perplexity
from mta_viz.analysis.labs.needle import NeedleScore, counted
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.validate import Measured, from_data
from mta_viz.errors import ConfigError, FileError
from mta_viz.tables import Row, Table
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.facts import Task
from mta_viz.tasks.intervals import mean_interval
from mta_viz.tasks.needles import NeedleTask

CARD = "card.json"


def read_card(folder: Path | None) -> dict[str, Any]:
    """The card of a checkpoint; empty where there is none that can be read."""
    try:
        card = door.read_json(beside(folder) / CARD) if folder else {}
    except FileError:
        return {}
    return card if isinstance(card, dict) else {}


def note_of(folder: Path | None) -> str:
    """What a card says beside its numbers, such as how they hang on the seed; empty where it says nothing."""
    note = read_card(folder).get("note")
    return note if isinstance(note, str) else ""


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


FILE = "arms.json"
SPENT = ("parameters_trained", "steps", "seconds")


@dataclass(frozen=True)
class ArmRun:
    """One arm with one seed, base and result on the same held-out samples and texts.

    `right`: which samples it answers right, in their order, which is that of all arms; () where that is not
    known.
    """

    arm: str
    seed: int
    parameters_trained: int
    steps: int
    seconds: Measured
    perplexity: Perplexity
    held_out: Answers
    right: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        wrong = [
            side for side in (self.held_out.before, self.held_out.after) if not 0 <= side.right <= side.n > 0
        ]
        if wrong:
            raise ConfigError([f"{wrong[0].right} of {wrong[0].n} samples are right"], subject=self.arm)


@dataclass(frozen=True)
class Difference:
    """Share of the same samples that arm `first` has right less that of arm `second`.

    `mean` over all seeds that both have, `ends` of its 95 % interval over samples; `seeds`: seed, difference
    and ends of each.
    """

    first: str
    second: str
    mean: float
    ends: tuple[float, float]
    seeds: tuple[tuple[int, float, float, float], ...]

    @property
    def text(self) -> str:
        """In points, with the interval and the seeds."""
        low, high = (100 * end for end in self.ends)
        seeds = ", ".join(f"{100 * mean:+.1f}" for _, mean, *_ in self.seeds)
        return (
            f"{self.first} less {self.second}, on the same samples: {100 * self.mean:+.1f} points (95 % "
            f"{low:+.1f} to {high:+.1f}; by seed {seeds})"
        )


@dataclass(frozen=True)
class Arms:
    """All runs of a file."""

    runs: tuple[ArmRun, ...]

    @property
    def by_name(self) -> dict[str, tuple[ArmRun, ...]]:
        """The runs by their arms, in the order of the file."""
        names = dict.fromkeys(run.arm for run in self.runs)
        return {name: tuple(run for run in self.runs if run.arm == name) for name in names}

    def differences(self) -> tuple[Difference, ...]:
        """The first arm beside each other one that has seeds of it; none where samples are not known."""
        first, *others = self.by_name
        return tuple(filter(None, (self._difference(first, other) for other in others)))

    def _difference(self, first: str, second: str) -> Difference | None:
        arms = [{run.seed: run.right for run in self.by_name[arm] if run.right} for arm in (first, second)]
        seeds = sorted(arms[0].keys() & arms[1].keys())
        if not seeds:
            return None
        changes = np.array([np.subtract(arms[0][seed], arms[1][seed], dtype=float) for seed in seeds])
        low, high = mean_interval(changes.mean(0), (-1.0, 1.0))
        ends = np.stack(mean_interval(changes.T, (-1.0, 1.0)), 1)
        each = zip(seeds, changes.mean(1).tolist(), *ends.T.tolist(), strict=True)
        return Difference(first, second, float(changes.mean()), (float(low), float(high)), tuple(each))

    def table(self) -> Table:
        """A row a run; after an arm's runs one of all their answers together, numbers of runs as means."""
        texts = sorted(
            set.intersection(*(run.perplexity.after.keys() & run.perplexity.before for run in self.runs))
        )
        names = ("arm", "seed", "right_before", "right", "n", "accuracy", "low", "high")
        sides = (f"perplexity_{side}: {text}" for text, side in product(texts, ("before", "after")))
        rows: list[Row] = []
        for name, runs in self.by_name.items():
            rows += [(name, run.seed, *_numbers([run], texts)) for run in runs]
            rows += [(name, None, *_numbers(runs, texts))] if len(runs) > 1 else []
        return Table.of((*names, *sides, *SPENT), rows)


def pooled(runs: Sequence[ArmRun], *, before: bool = False) -> NeedleScore:
    """All answers of an arm's seeds together, or those of its base, with the exact interval."""
    counts = [run.held_out.before if before else run.held_out.after for run in runs]
    return counted(sum(count.right for count in counts), sum(count.n for count in counts))


def _numbers(runs: Sequence[ArmRun], texts: Sequence[str]) -> Row:
    score, base = pooled(runs), pooled(runs, before=True)
    perplexity = [
        fmean(getattr(run.perplexity, side)[text] for run in runs)
        for text, side in product(texts, ("before", "after"))
    ]
    spent = [fmean(getattr(run, name) for run in runs) for name in SPENT]
    return (base.right, score.right, score.n, score.accuracy, *score.interval, *perplexity, *spent)


def arms_file(folder: Path | None) -> Path | None:
    """The `arms.json` beside an adapter: in its folder, or in the one over it where it is an arm of it."""
    own = None if folder is None else beside(folder.absolute())
    if own is None or door.is_there(own / FILE):
        return None if own is None else own / FILE
    over = own.parent / FILE
    there = door.is_there(over) and own.name in {f"{run.arm}-seed{run.seed}" for run in read_arms(over).runs}
    return over if there else None


def read_arms(file: Path) -> Arms:
    """The runs in a file. Raises MtaVizError where it cannot be opened, or holds something else."""
    data: Any = door.read_json(file)
    listed = data if isinstance(data, list) and all(isinstance(row, dict) for row in data) else []
    rows = [(at, row) for at, row in enumerate(listed, 1) if row.get("held_out", 0) is not None]
    if not rows:
        raise ConfigError(["it is no list of arms that answered held-out questions"], subject=file.name)
    return Arms(tuple(from_data(ArmRun, row, f"{file.name}, arm {at}", others=True) for at, row in rows))
