"""The state file that a training run goes on from: read without running code, and checked whole before use.

Owns what may stand in it; when it is written and what is done with it is the trainer's.
"""

import math
import pickle
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mta_viz.checkpoint import door
from mta_viz.errors import FileError


class DamagedState(Exception):
    """Why a file is no usable state; the message is a clause for the user."""


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """The state in `path`, tensors of the model and optimizer on `device`, the history on the CPU.

    Raises `DamagedState` when the file is not one that a `Trainer` wrote.
    """
    try:
        state = door.load_torch(path, device)
    except FileError as error:
        raise DamagedState(f"it {error.reason}") from error
    except pickle.UnpicklingError as error:  # torch's text advises to run what is in the file: not repeated
        reason = "it holds something else than numbers and tensors; nothing of it was run"
        raise DamagedState(reason) from error
    except Exception as error:  # torch raises many kinds for damaged bytes
        raise DamagedState("it is cut short or no training state at all") from error
    fields = ("identity", "model", "optimizer", "step", "seconds", "losses", "history")
    if missing := [name for name in fields if not isinstance(state, dict) or name not in state]:
        raise DamagedState("it lacks " + ", ".join(missing))
    try:
        history = [
            (step, {name: value.cpu() for name, value in kernels.items()})
            for step, kernels in state["history"]
        ]
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedState("its kernel history is not one") from error
    return state | {"history": history}


def check_state(
    state: Mapping[str, Any],
    trained: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    kernels: Mapping[str, Tensor],
    steps: int,
) -> None:
    """Raises `DamagedState` unless `state` fits what is trained, its optimizer, the kernels and the run."""
    step, seconds, losses = state["step"], state["seconds"], state["losses"]
    if type(step) is not int or not 0 <= step <= steps:
        raise DamagedState("its step is outside the run")
    if type(seconds) is not float or not 0 <= seconds < math.inf:
        raise DamagedState("its training time is no number of seconds")
    if not isinstance(losses, list) or len(losses) != step or not all(type(loss) is float for loss in losses):
        raise DamagedState(f"it does not hold one loss for each of its {step} steps")
    if not _same_tensors(state["model"], trained):
        raise DamagedState("its weights are not those of this model")
    if not _fits_optimizer(state["optimizer"], optimizer, step):
        raise DamagedState("its optimizer is not that of this model")
    taken = [entry_step for entry_step, _ in state["history"]]
    whole = all(type(entry_step) is int for entry_step in taken) and taken[:1] == [0]
    if not whole or taken[-1] > step or not all(a < b for a, b in pairwise(taken)):
        raise DamagedState("the steps of its kernel history are out of order")
    if not all(_same_tensors(entry, kernels) for _, entry in state["history"]):
        raise DamagedState("its kernel history is not of this model's kernels")


def _same_tensors(given: Any, expected: Mapping[str, Tensor]) -> bool:
    """Equal names, shapes and dtypes."""
    if not isinstance(given, Mapping) or given.keys() != expected.keys():
        return False
    return all(
        isinstance(given[name], Tensor) and (given[name].shape, given[name].dtype) == (like.shape, like.dtype)
        for name, like in expected.items()
    )


def _fits_optimizer(given: Any, optimizer: torch.optim.Optimizer, step: int) -> bool:
    """Equal groups but for the learning rate, and moments of the parameters' shapes, none before a step."""
    try:
        groups = [{**group, "lr": None} for group in given["param_groups"]]
        moments = dict(given["state"])
    except (TypeError, KeyError, ValueError):
        return False
    own = [{**group, "lr": None} for group in optimizer.state_dict()["param_groups"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    if groups != own or bool(moments) != bool(step) or not moments.keys() <= set(range(len(params))):
        return False
    fixed = {"step": torch.tensor(0.0)}
    return all(
        _same_tensors(entry, fixed | {"exp_avg": params[index], "exp_avg_sq": params[index]})
        for index, entry in moments.items()
    )
