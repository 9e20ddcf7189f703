"""The kernels over training: a file beside the weights, or the steps a run left on disk."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.checkpoint.layout import Entry, kernel_entries
from mta_viz.checkpoint.locate import Location, run_steps
from mta_viz.checkpoint.reading import open_weights
from mta_viz.checkpoint.types import dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, FileError

HISTORY_FILE = "kernel_history.safetensors"


@dataclass(frozen=True)
class KernelHistory:
    """`kernels`: parameter name -> [snapshot, *shape], float32; `steps`: training steps of the snapshots."""

    steps: tuple[int, ...]
    kernels: Mapping[str, Tensor]

    def at(self, snapshot: int) -> dict[str, Tensor]:
        """The kernels of one snapshot, by the names of a state dict."""
        return {name: tensor[snapshot] for name, tensor in self.kernels.items()}

    def holds(self, state_dict: Mapping[str, Tensor]) -> bool:
        """Whether one of the snapshots equals a model's kernels, in the model's dtype."""

        def same(here: Tensor, there: Tensor | None) -> bool:
            return there is not None and torch.allclose(here.to(there), there, rtol=0, atol=0, equal_nan=True)

        snapshots = (self.at(snapshot) for snapshot in reversed(range(len(self.steps))))
        return any(all(same(own[name], state_dict.get(name)) for name in own) for own in snapshots)


def read_history(folder: Path, config: ModelConfig) -> KernelHistory | None:
    """The history in a checkpoint's folder, None where there is no such file.

    Raises CheckpointError listing every fault: a damaged file, steps that do not increase, kernels that
    are missing, unknown or of another shape, values that are not finite.
    """
    file = folder / HISTORY_FILE
    if not door.is_there(file):
        return None
    try:
        with door.open_tensors(file) as stored:
            steps, problems = _steps((stored.metadata() or {}).get("steps", ""))
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 (no mapping)
    except FileError as error:
        raise CheckpointError([error.of(HISTORY_FILE)]) from None
    entries = kernel_entries(config)
    problems += _tensor_problems(tensors, entries, len(steps))
    if problems:
        raise CheckpointError(problems, HISTORY_FILE)
    kernels = {
        name: torch.stack([entry.layout.read(snapshot) for snapshot in tensors[entry.key].float()])
        for name, entry in entries.items()
    }
    return KernelHistory(steps, kernels)


def read_kernels(file: Path, config: ModelConfig) -> dict[str, Tensor]:
    """The kernels in a safetensors file that holds them alone, float32, by the names of a state dict.

    Raises CheckpointError listing what is missing, unknown or of another shape than `config` says.
    """
    with door.open_tensors(file) as stored:
        tensors = {key: stored.get_tensor(key)[None] for key in stored.keys()}  # noqa: SIM118 (no mapping)
    entries = kernel_entries(config)
    if problems := _tensor_problems(tensors, entries, 1):
        raise CheckpointError(problems, file.name)
    return {name: entry.layout.read(tensors[entry.key][0].float()) for name, entry in entries.items()}


def _steps(text: str) -> tuple[tuple[int, ...], list[str]]:
    try:
        steps = json.loads(text)
    except (ValueError, RecursionError):
        steps = None
    if not isinstance(steps, list) or not steps or any(type(step) is not int for step in steps):
        return (), ["its metadata has no list of whole training steps under `steps`"]
    rising = steps[0] >= 0 and all(step < later for step, later in pairwise(steps))
    return tuple(steps), [] if rising else ["its training steps do not increase from 0 or more"]


def _tensor_problems(tensors: Mapping[str, Tensor], entries: Mapping[str, Entry], count: int) -> list[str]:
    expected = {entry.key: (count, *entry.shape) for entry in entries.values()}
    problems = [f"it lacks {key}" for key in expected if key not in tensors]
    problems += [f"the model has no kernel {key}" for key in tensors if key not in expected]
    for key in expected.keys() & tensors.keys():
        if count and tuple(tensors[key].shape) != expected[key]:
            problems.append(f"{key} has shape {list(tensors[key].shape)}, expected {list(expected[key])}")
        elif not tensors[key].is_floating_point():
            problems.append(f"{key} holds {dtype_name(tensors[key].dtype)}, expected floating-point numbers")
        elif not tensors[key].float().isfinite().all():  # 8-bit numbers cannot be asked
            problems.append(f"{key} holds NaN or infinite values")
    return sorted(problems)


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
        kernels, wrong = read_step_kernels(location, config)
        snapshots.append(kernels)
        problems += [f"step {location.step}: {problem}" for problem in wrong]
        if progress:
            progress(count / len(steps))
    if problems:
        raise CheckpointError(problems, "The run's history")
    stacked = {name: torch.stack([kernels[name] for kernels in snapshots]) for name in kernel_entries(config)}
    return KernelHistory(tuple(location.step or 0 for location in steps), stacked)


def read_step_kernels(location: Location, config: ModelConfig) -> tuple[dict[str, Tensor], list[str]]:
    """The kernels of one checkpoint by the names of a state dict, float32, and what is wrong with them."""
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
