"""What a finetuning has reached, as its folder tells: loss, held-out answers, perplexity before and after.

Read from the run's own files, while it runs too; how kernels changed is in their history.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import Measured, from_data
from mta_viz.errors import MtaVizError
from mta_viz.tables import Row, Table
from mta_viz.tasks.intervals import accuracy_interval

PROGRESS_FILE, STATE_FILE, CARD_FILE = "progress.json", "training_state.pt", "card.json"
JOB_FILE, LOG_FILE = "training.json", "training.log"  # of a training that the app started
FEW_STEPS = 100  # fewer teach little
State = Literal["running", "stopped", "done"]
T = TypeVar("T")


@dataclass(frozen=True)
class HeldOut:
    """How many of `n` held-out samples were answered right after `step` steps."""

    step: int
    right: int
    n: int

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share, 95 %."""
        return accuracy_interval(self.right, self.n)


@dataclass(frozen=True)
class Change:
    """Right answers after less before, as a share of the same samples, with its 95 % interval, paired."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class FinetuningRun:
    """A run as far as it came: `step` of `steps`, about `seconds_left` with measuring (None: not known yet).

    `loss`: (steps done, mean loss in nats since the pair before). `looks`: glances at a few held-out samples;
    `before` and `after`: all of them, of the base and of the result. `perplexity`: text -> of the base and of
    the result. What a run does not know yet is None.
    """

    step: int
    steps: int
    state: State
    seconds_left: float | None
    loss: tuple[tuple[int, float], ...]
    looks: tuple[HeldOut, ...]
    before: HeldOut | None
    after: HeldOut | None
    change: Change | None
    perplexity: Mapping[str, tuple[float, float | None]]

    def table(self) -> Table:
        """A row a number: what it is, after which step, with the ends of its interval and its samples."""
        columns = ("what", "step", "value", "low", "high", "samples")
        return Table.of(columns, [*self._losses(), *self._answers(), *self._perplexities()])

    def _losses(self) -> Iterator[Row]:
        yield from (("loss", step, value, None, None, None) for step, value in self.loss)

    def _answers(self) -> Iterator[Row]:
        named = [("base", self.before), *(("look", look) for look in self.looks), ("result", self.after)]
        for what, held_out in named:
            if held_out is not None:
                ends = held_out.interval
                yield f"right, {what}", held_out.step, held_out.share, *ends, held_out.n
        if self.change is not None and self.before is not None:
            change = self.change
            yield "right, change", self.step, change.value, change.low, change.high, self.before.n

    def _perplexities(self) -> Iterator[Row]:
        for name, (before, after) in self.perplexity.items():
            yield f"perplexity of {name}, base", 0, before, None, None, None
            if after is not None:
                yield f"perplexity of {name}, result", self.step, after, None, None, None


@dataclass(frozen=True)
class _Progress:
    """What is read of progress.json."""

    step: int
    steps: int
    state: State
    seconds_left: Measured = math.nan
    loss_curve: tuple[tuple[int, Measured], ...] = ()
    accuracy: tuple[tuple[int, int, int], ...] = ()
    right_before: tuple[int, int] | None = None
    perplexity_before: dict[str, Measured] | None = None


@dataclass(frozen=True)
class Counted:
    """Right answers among `n`."""

    right: int
    n: int


@dataclass(frozen=True)
class Answers:
    """Base and result on the same samples, and the paired difference."""

    before: Counted
    after: Counted
    difference: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Perplexity:
    """By the names of texts, of base and result."""

    before: dict[str, Measured]
    after: dict[str, Measured]


@dataclass(frozen=True)
class _Card:
    """What is read of card.json."""

    steps: int
    held_out: Answers | None = None
    perplexity: Perplexity | None = None


def read_finetuning(folder: Path) -> FinetuningRun:
    """The run in a folder. Raises MtaVizError where there is none, or its files are damaged."""
    progress = _read(_Progress, folder / PROGRESS_FILE)
    done = progress.state == "done"  # a run that goes on still has the card of its first end
    card = _read(_Card, folder / CARD_FILE) if done and door.is_there(folder / CARD_FILE) else None
    answers = None if card is None else card.held_out
    looks = tuple(_held_out(*look) for look in progress.accuracy if look[2])
    before = None if not progress.right_before else _held_out(0, *progress.right_before)
    left = progress.seconds_left
    return FinetuningRun(
        progress.step,
        progress.steps,
        progress.state,
        None if math.isnan(left) else left,
        progress.loss_curve,
        looks,
        before if answers is None else _held_out(0, answers.before.right, answers.before.n),
        None if answers is None else _held_out(progress.step, answers.after.right, answers.after.n),
        None if answers is None else Change(answers.difference, *answers.interval),
        _perplexity(progress, card),
    )


def _perplexity(progress: _Progress, card: _Card | None) -> dict[str, tuple[float, float | None]]:
    if card is not None and card.perplexity is not None:
        measured = card.perplexity
        return {name: (value, measured.after.get(name)) for name, value in measured.before.items()}
    return {name: (value, None) for name, value in (progress.perplexity_before or {}).items()}


def _held_out(step: int, right: int, n: int) -> HeldOut:
    if not 0 <= right <= n or n < 1:
        raise MtaVizError(f"the run's files say that {right} of {n} samples are right; they are damaged")
    return HeldOut(step, right, n)


def _read(kind: type[T], file: Path) -> T:
    """The fields of `kind` that the file has; the rest of it is passed over."""
    data: Any = door.read_json(file)
    if not isinstance(data, dict):
        raise MtaVizError(f"{file.name} holds no object; it is no file of a finetuning")
    return from_data(kind, data, file.name, others=True)
