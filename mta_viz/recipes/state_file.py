"""A training run's state on disk: written whole or not at all, read without running code."""

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from mta_viz.errors import MtaVizError


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Replace `path` by `state`; a reader never sees half a file."""
    unfinished = path.with_name(path.name + ".part")
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """The state in `path`, tensors of the model and optimizer on `device`, the history on the CPU.

    Raises `MtaVizError` when the file is not one that `save_state` wrote.
    """
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        history = [
            (step, {name: value.cpu() for name, value in kernels.items()})
            for step, kernels in state["history"]
        ]
    except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise MtaVizError(f"{path} is not a training state: {error}. Remove it to start anew.") from error
    return state | {"history": history}
