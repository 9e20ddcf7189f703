"""A controls table: one task trained into one base with kernels of several shapes, a seed each.

Reads `arms.json` as `benchmarks/finetune_arms.py` writes it: a list of arms and seeds with right answers to
held-out questions and perplexity, before and after.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.validate import Measured, from_data
from mta_viz.errors import ConfigError
from mta_viz.tables import Row, Table
from mta_viz.tasks.intervals import accuracy_interval

FILE = "arms.json"
MOST = 1_000  # arms and seeds in a file
NORMS = "norms"  # an arm without kernels: the gains before the attention


@dataclass(frozen=True)
class Counted:
    """Right answers among `n`."""

    right: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.n or self.n < 1:
            raise ConfigError([f"{self.right} of {self.n} are right"], subject="The arm")


@dataclass(frozen=True)
class HeldOut:
    """Base and result on the same held-out samples."""

    before: Counted
    after: Counted


@dataclass(frozen=True)
class Perplexities:
    """By the name of the text."""

    before: dict[str, Measured]
    after: dict[str, Measured]


@dataclass(frozen=True)
class ArmRun:
    """One arm with one seed. `held_out` is None where nothing is asked."""

    arm: str
    seed: int
    parameters_trained: int
    steps: int
    seconds: Measured
    perplexity: Perplexities
    held_out: HeldOut | None = None


@dataclass(frozen=True)
class Arms:
    """All runs of a file."""

    runs: tuple[ArmRun, ...]

    @property
    def asked(self) -> tuple[ArmRun, ...]:
        """Those that answered held-out questions."""
        return tuple(run for run in self.runs if run.held_out is not None)

    @property
    def by_name(self) -> dict[str, tuple[ArmRun, ...]]:
        """The same by their arms, in the order of the file."""
        names = dict.fromkeys(run.arm for run in self.asked)
        return {name: tuple(run for run in self.asked if run.arm == name) for name in names}

    def table(self) -> Table:
        """A row a run, and after an arm's runs one of all their answers together, with its exact interval."""
        columns = ("arm", "seed", "right_before", "right", "n", "accuracy", "low", "high")
        texts = sorted({text for run in self.runs for text in run.perplexity.after})
        sides = (f"perplexity_{side}: {text}" for text in texts for side in ("before", "after"))
        rows: list[Row] = []
        for name, runs in self.by_name.items():
            rows += [_row(name, run.seed, (run,), texts) for run in runs]
            rows += [_row(name, None, runs, texts)] if len(runs) > 1 else []
        return Table.of((*columns, *sides, "parameters_trained", "steps", "seconds"), rows)


def pooled(runs: Iterable[ArmRun], after: bool = True) -> NeedleScore:
    """All answers of an arm's seeds together, with the exact interval."""
    counts = [
        run.held_out.after if after else run.held_out.before for run in runs if run.held_out is not None
    ]
    right, n = sum(count.right for count in counts), sum(count.n for count in counts)
    return NeedleScore(right, n, right / n, accuracy_interval(right, n))


def mean(values: Iterable[float]) -> float:
    """Over an arm's seeds."""
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _row(name: str, seed: int | None, runs: tuple[ArmRun, ...], texts: list[str]) -> Row:
    score, before = pooled(runs), pooled(runs, after=False)
    numbers = [score.right, score.n, score.accuracy, *score.interval]
    sides = [
        mean(getattr(run.perplexity, side)[text] for run in runs)
        if all(text in getattr(run.perplexity, side) for run in runs)
        else None
        for text in texts
        for side in ("before", "after")
    ]
    trained = mean(run.parameters_trained for run in runs)
    spent = [mean(run.steps for run in runs), mean(run.seconds for run in runs)]
    return (name, seed, before.right, *numbers, *sides, trained, *spent)


def arms_file(folder: Path | None) -> Path | None:
    """The `arms.json` beside an adapter: in its folder, or in the one over it where it is an arm of it."""
    if folder is None:
        return None
    own = beside(folder.absolute())
    if door.is_there(own / FILE):
        return own / FILE
    over = own.parent / FILE
    if not door.is_there(over):
        return None
    return over if own.name in {f"{run.arm}-seed{run.seed}" for run in read_arms(over).runs} else None


def read_arms(file: Path) -> Arms:
    """The runs in a file. Raises MtaVizError where it cannot be opened, or holds something else."""
    data: Any = door.read_json(file)
    if (
        not isinstance(data, list)
        or not 0 < len(data) <= MOST
        or not all(isinstance(row, dict) for row in data)
    ):
        raise ConfigError([f"it is no list of 1 to {MOST:,} arms"], subject=file.name)
    rows = enumerate(data, 1)
    return Arms(tuple(from_data(ArmRun, row, f"{file.name}, arm {at}", others=True) for at, row in rows))
