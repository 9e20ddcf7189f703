"""Shapley values at a named task: measured here, or read from the file beside a checkpoint's weights.

Owns the task's words, the file's format and whether a file belongs to a checkpoint; the values are
`shapley`'s.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch

from mta_viz.analysis.cause.answers import AnswerMeter
from mta_viz.analysis.cause.effects import Absent, find_measured
from mta_viz.analysis.cause.shapley import KernelValue, Shapley
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import from_text
from mta_viz.errors import MtaVizError
from mta_viz.tables import Table

FILE, FORMAT = "shapley.json", "mta_viz shapley 1"
Task = Literal["needle", "pairs", "file", "blocks", "prompt"]
SAMPLES: dict[Task, int] = {"needle": 16, "pairs": 16, "file": 16, "blocks": 64, "prompt": 1}


@dataclass(frozen=True)
class TaskShapley:
    """Shapley values at a task. `setting`: what a sample is; `seed`: of samples, orders and random sets.

    `sha256` is that of the weights they were measured on, empty for a model that is not from a file.
    """

    sha256: str
    task: Task
    setting: str
    seed: int
    shared: Shapley

    def table(self) -> Table:
        """A line a kernel."""
        return self.shared.table()

    def of(self, kernel: KernelId) -> KernelValue | None:
        """One kernel's worth, None where it was not measured."""
        return next((value for value in self.shared.values if value.kernel == kernel), None)

    def as_data(self) -> dict[str, Any]:
        """JSON-ready, as the file has it."""
        head = {"format": FORMAT, "sha256": self.sha256}
        return head | {"task": self.task, "setting": self.setting, "seed": self.seed} | self.shared.as_data()


def prompt_batch(meter: AnswerMeter) -> tuple[str, list[GoldBatch]]:
    """The prompt with its answer after it as the one sample."""
    prompt, gold = meter.trace.tokens.ids, meter.answer.ids

    def right(greedy: torch.Tensor) -> list[bool]:
        return (greedy[:, : len(gold)].cpu() == torch.tensor(gold)).all(1).tolist()

    setting = f"this prompt of {len(prompt)} tokens and the answer {meter.answer.text!r}"
    return setting, [GoldBatch(torch.tensor([[*prompt, *gold]]), len(gold) + 1, (tuple(gold),), right)]


@dataclass(frozen=True, kw_only=True)
class _File(Shapley):
    """The file's fields; those that follow from others are not read."""

    sha256: str
    task: Task
    setting: str
    seed: int


def read_shapley(file: Path) -> TaskShapley:
    """The values in a file. Raises MtaVizError listing what is wrong with it."""
    content, remedy = door.read_bytes(file, door.RESULTS), "Move it away and measure again."
    read = from_text(_File, content, f"{file} as Shapley values", file_format=FORMAT, remedy=remedy)
    listed = {value.kernel for value in read.values}
    for kernel in (kernel for part in read.removals for kernel in part.kernels):
        if kernel not in listed:
            raise MtaVizError(
                f"{file} has a greedy set with {kernel.name()}, a kernel it does not list. {remedy}"
            )
    shared = Shapley(**{own.name: getattr(read, own.name) for own in fields(Shapley)})
    return TaskShapley(read.sha256, read.task, read.setting, read.seed, shared)


def find_shapley(path: Path | None) -> TaskShapley | Absent:
    """The values of the checkpoint at `path`; `Absent` says what is wrong with what is there."""
    unmeasured = "The Shapley values of this checkpoint's kernels have not been measured."
    measured = find_measured(path, FILE, read_shapley, unmeasured)
    if not isinstance(measured, Absent) and not measured.shared.values:
        return Absent(f"{FILE} lists no kernel.")
    return measured
