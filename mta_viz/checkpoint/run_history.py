"""The kernels over training, read from the steps a run left on disk (`checkpoints/0000010000/` and so on).

Only the kernels of each step are read, whatever the format. A history written while training is
`kernel_history.py`'s; which folder is read is the caller's business.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from mta_viz.checkpoint.kernel_history import KernelHistory
from mta_viz.checkpoint.layout import kernel_entries
from mta_viz.checkpoint.locate import Location, run_steps
from mta_viz.checkpoint.reading import open_weights
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError


def read_run_history(
    folder: Path, config: ModelConfig, progress: Callable[[float], None] | None = None
) -> KernelHistory | None:
    """The kernels of every finished step of the run that `folder` is a step of; None with fewer than two.

    `progress` gets the fraction of steps read. Raises CheckpointError listing what is wrong with each step:
    files that cannot be read, kernels that are missing or of another shape. NaN and infinite values are
    kept: where a run diverged is what one wants to see.
    """
    steps = run_steps(folder)
    if len(steps) < 2:
        return None
    problems: list[str] = []
    snapshots: list[dict[str, Tensor]] = []
    for count, location in enumerate(steps, 1):
        found, wrong = _kernels(location, config)
        snapshots.append(found)
        problems += [f"step {location.step}: {problem}" for problem in wrong]
        if progress:
            progress(count / len(steps))
    if problems:
        raise CheckpointError(problems, "The run's history")
    stacked = {name: torch.stack([one[name] for one in snapshots]) for name in kernel_entries(config)}
    return KernelHistory(tuple(location.step or 0 for location in steps), stacked)


def _kernels(location: Location, config: ModelConfig) -> tuple[dict[str, Tensor], list[str]]:
    """The kernels of one step as a model has them, float32, and what is wrong with them."""
    weights = open_weights(location)
    problems, found = list(weights.problems), dict[str, Tensor]()
    if problems:
        return found, problems
    for name, entry in kernel_entries(config).items():
        stored = weights.tensors.get(entry.key)
        if stored is None:
            problems.append(weights.unreadable.get(entry.key, f"it lacks {entry.key}"))
        elif stored.shape != entry.shape:
            problems.append(f"{entry.key} has shape {list(stored.shape)}, expected {list(entry.shape)}")
        else:
            found[name] = entry.layout.read(stored.read().float())
    return found, problems
