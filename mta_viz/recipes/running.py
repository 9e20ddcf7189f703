"""What every recipe does around its run: refuse a bad device or folder, and say how far it is."""

import sys
from pathlib import Path

import torch

from mta_viz.errors import MtaVizError
from mta_viz.recipes.trainer import TrainingProgress


def checked_device(name: str) -> torch.device:
    """The device, once a tensor could be put there. Raises `MtaVizError` that says which there are."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch asserts without CUDA
        cuda = "".join(f", cuda:{index}" for index in range(torch.cuda.device_count()))
        reason = str(error).splitlines()[0]
        raise MtaVizError(f"device {name!r} cannot be used ({reason}); there is: cpu{cuda}") from error
    return device


def prepare_folder(out: Path, resume: bool) -> None:
    """Make the folder of a new run. Raises `MtaVizError` when something is there already."""
    if resume:
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MtaVizError(f"{out} exists; choose another folder, or resume the run that began there.")
    out.mkdir(parents=True, exist_ok=True)


def print_progress(progress: TrainingProgress) -> None:
    """Steps, loss and time left, on stderr."""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    done = f"step {progress.steps_done} of {progress.steps}  loss {progress.loss:.4f}"
    print(f"{done}  {minutes}:{seconds:02d} left", file=sys.stderr, flush=True)


def print_evaluation(share: float) -> None:
    """The share of the evaluation that is done, on one line of stderr."""
    print(f"evaluating {share:4.0%}", end="\n" if share >= 1 else "\r", file=sys.stderr, flush=True)
