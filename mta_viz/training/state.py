"""A training run's state on disk: written whole or not at all, read without running code, checked.

What a state must hold to fit a model and its optimizer is said here; who restores it is trainer.py.
"""

import math
import pickle
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import replacing
from mta_viz.errors import FileError


class DamagedState(Exception):
    """Why a file is no usable state; the message is a clause for the user."""


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Replace `path` by `state`; a reader never sees half a file."""
    with replacing(path) as unfinished:
        torch.save(state, unfinished)


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """The state in `path`, tensors of the model and optimizer on `device`, the history on the CPU.

    Raises `DamagedState` when the file is not one that `save_state` wrote.
    """
    try:
        state = door.load_torch(path, device)
    except FileError as error:
        raise DamagedState(f"it {error.reason}") from error
    except pickle.UnpicklingError as error:  # torch's text advises to run what is in the file: not repeated
        raise DamagedState(
            "it holds something else than numbers and tensors; nothing of it was run"
        ) from error
    except Exception as error:  # torch raises many kinds for damaged bytes
        raise DamagedState("it is cut short or no training state at all") from error
    fields = ("identity", "model", "optimizer", "step", "seconds", "losses", "history")
    if not isinstance(state, dict) or (missing := [name for name in fields if name not in state]):
        raise DamagedState("it lacks " + ", ".join(missing if isinstance(state, dict) else fields))
    try:
        history = [(step, _on_cpu(kernels)) for step, kernels in state["history"]]
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedState("its kernel history is not one") from error
    return state | {"history": history}


def _on_cpu(kernels: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.cpu() for name, value in kernels.items()}


def check_state(
    state: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    kernels: Mapping[str, Tensor],
    steps: int,
) -> None:
    """Raises `DamagedState` unless `state` fits the model, its optimizer, its kernels and the run."""
    step, seconds, losses = state["step"], state["seconds"], state["losses"]
    if type(step) is not int or not 0 <= step <= steps:
        raise DamagedState("its step is outside the run")
    if type(seconds) is not float or not (math.isfinite(seconds) and seconds >= 0):
        raise DamagedState("its training time is no number of seconds")
    if not isinstance(losses, list) or len(losses) != step or not all(type(loss) is float for loss in losses):
        raise DamagedState(f"it does not hold one loss for each of its {step} steps")
    if not _same_tensors(state["model"], model.state_dict()):
        raise DamagedState("its weights are not those of this model")
    if not _fits_optimizer(state["optimizer"], optimizer, step):
        raise DamagedState("its optimizer is not that of this model")
    taken = [entry_step for entry_step, _ in state["history"]]
    rising = all(type(s) is int for s in taken) and all(a < b for a, b in pairwise(taken))
    if not taken or not rising or taken[0] != 0 or taken[-1] > step:
        raise DamagedState("the steps of its kernel history are out of order")
    if not all(_same_tensors(entry, kernels) for _, entry in state["history"]):
        raise DamagedState("its kernel history is not of this model's kernels")


def _same_tensors(given: Any, expected: Mapping[str, Tensor]) -> bool:
    """Equal names, shapes and dtypes."""
    if not isinstance(given, Mapping) or given.keys() != expected.keys():
        return False
    return all(
        isinstance(value, Tensor)
        and value.shape == expected[name].shape
        and value.dtype == expected[name].dtype
        for name, value in given.items()
    )


def _fits_optimizer(given: Any, optimizer: torch.optim.Optimizer, step: int) -> bool:
    if not isinstance(given, dict) or not isinstance(given.get("state"), dict):
        return False
    groups, own = given.get("param_groups"), optimizer.state_dict()["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(own):
        return False
    for group, expected in zip(groups, own, strict=True):
        fixed = {name: value for name, value in expected.items() if name != "lr"}
        if not isinstance(group, dict) or {name: group.get(name) for name in fixed} != fixed:
            return False
    params = [param for group in optimizer.param_groups for param in group["params"]]
    if bool(given["state"]) != bool(step) or not set(given["state"]) <= set(range(len(params))):
        return False
    return all(_fits_moments(entry, params[index]) for index, entry in given["state"].items())


def _fits_moments(entry: Any, param: Tensor) -> bool:
    expected = {"step": torch.tensor(0.0), "exp_avg": param, "exp_avg_sq": param}
    return _same_tensors(entry, expected)
