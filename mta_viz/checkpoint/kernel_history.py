"""The kernels over training, read from `kernel_history.safetensors` beside the weights.

Keys, layouts and dtype are those of `model.safetensors`, with the snapshot as a first axis; the training
steps are JSON in the metadata. What the curves mean is `analysis/history.py`'s.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mta_viz.checkpoint.layout import Entry, kernel_entries
from mta_viz.checkpoint.stored import dtype_name
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError

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
        return any(self._same(snapshot, state_dict) for snapshot in reversed(range(len(self.steps))))

    def _same(self, snapshot: int, state_dict: Mapping[str, Tensor]) -> bool:
        own = ((tensor[snapshot], state_dict.get(name)) for name, tensor in self.kernels.items())
        return all(
            there is not None and torch.allclose(here.to(there), there, rtol=0, atol=0, equal_nan=True)
            for here, there in own
        )


def read_history(folder: Path, config: ModelConfig) -> KernelHistory | None:
    """The history in a checkpoint's folder, None where there is no such file.

    Raises CheckpointError listing every fault: a damaged file, steps that do not increase, kernels that
    are missing, unknown or of another shape, values that are not finite.
    """
    file = folder / HISTORY_FILE
    if not file.exists():
        return None
    try:
        with safe_open(file, "pt") as stored:
            steps = _steps((stored.metadata() or {}).get("steps", ""))
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise CheckpointError([f"{HISTORY_FILE} cannot be read ({error}); copy it again"]) from None
    entries = kernel_entries(config)
    if problems := [*_step_problems(steps), *_tensor_problems(tensors, entries, len(steps))]:
        raise CheckpointError(problems, HISTORY_FILE)
    return KernelHistory(
        steps,
        {
            name: torch.stack([entry.layout.read(one) for one in tensors[entry.key].float()])
            for name, entry in entries.items()
        },
    )


def _steps(text: str) -> tuple[int, ...]:
    try:
        steps = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    whole = isinstance(steps, list) and all(type(step) is int for step in steps)
    return tuple(steps) if whole else ()


def _step_problems(steps: tuple[int, ...]) -> list[str]:
    if not steps:
        return ["its metadata has no list of whole training steps under `steps`"]
    if steps[0] < 0 or any(later <= step for step, later in pairwise(steps)):
        return ["its training steps do not increase from 0 or more"]
    return []


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
