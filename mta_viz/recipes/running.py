"""What every recipe does around its run: refuse a bad device or folder, and say how far it is."""

import re
import sys
from pathlib import Path

import torch

from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.errors import MtaVizError
from mta_viz.recipes.trainer import TrainingError, TrainingProgress

_DEVICES = re.compile(r"(cpu|cuda|mps)(:\d{1,3})?")


def checked_device(name: str) -> torch.device:
    """The device of that name: cpu, cuda or mps. Raises `MtaVizError` that says which there are."""
    cuda = "".join(f", cuda:{index}" for index in range(torch.cuda.device_count()))
    if not _DEVICES.fullmatch(name):  # torch knows more, such as meta, on which nothing can be run
        raise MtaVizError(f"device {name!r} cannot be used; there is: cpu{cuda}")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch asserts without CUDA
        reason = str(error).strip().partition("\n")[0]  # torch goes on with advice for its developers
        raise MtaVizError(f"device {name!r} cannot be used ({reason}); there is: cpu{cuda}") from error
    return torch.device(name)


def check_seconds(max_seconds: float | None) -> None:
    """Raises `TrainingError` unless the limit is None or a number above 0."""
    if max_seconds is not None and not max_seconds > 0:
        raise TrainingError(f"max_seconds is {max_seconds}; expected a number of seconds above 0.")


def prepare_folder(out: Path, resume: bool) -> None:
    """Make the folder of a new run. Raises `MtaVizError` when something is there already."""
    if resume:
        return
    if out.is_symlink() and not out.exists():
        raise MtaVizError(f"{out} is a link to something that is not there; choose another folder.")
    if _is_taken(out):
        raise MtaVizError(f"{out} exists; choose another folder, or resume the run that began there.")
    out.mkdir(parents=True, exist_ok=True)


def check_export(lingua: Path | None, out: Path, resume: bool) -> None:
    """Raises `MtaVizError` unless the export's folder is None or, but for a resumed run's, a new one."""
    if lingua is None:
        return
    if lingua.resolve() == out.resolve():
        raise MtaVizError(f"{lingua} is the run's own folder; choose another one for the Lingua export.")
    if not resume and _is_taken(lingua):
        raise MtaVizError(f"{lingua} exists; choose another folder for the Lingua export.")


def export_lingua(lingua: Path | None, out: Path) -> None:
    """Write the checkpoint in `out` as Lingua's consolidated folder, its dtype kept."""
    if lingua is not None:
        write_lingua(lingua, read_checkpoint(out), overwrite=True)  # what a stopped run left


def _is_taken(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def print_progress(progress: TrainingProgress) -> None:
    """Steps, loss and time left, on stderr."""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    done = f"step {progress.steps_done} of {progress.steps}  loss {progress.loss:.4f}"
    print(f"{done}  {minutes}:{seconds:02d} left", file=sys.stderr, flush=True)


def print_evaluation(share: float) -> None:
    """The share of the evaluation that is done, on one line of stderr."""
    print(f"evaluating {share:4.0%}", end="\n" if share >= 1 else "\r", file=sys.stderr, flush=True)
