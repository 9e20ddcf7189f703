"""What is looked at before a training run begins: its device, its clock, and the folders it will write."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from mta_viz.analysis.kernels.finetuning import JOB_FILE, LOG_FILE, PROGRESS_FILE, STATE_FILE
from mta_viz.errors import MtaVizError
from mta_viz.run.devices import checked_device
from mta_viz.training.trainer import TrainingError, nothing_to_resume
from mta_viz.writing import refusals

EARLY_FILES = (PROGRESS_FILE, JOB_FILE, LOG_FILE)  # there before there is anything to keep
Checks = list[Callable[[], object]]  # each raises `MtaVizError` for what it does not find right


def run_checks(
    out: Path | None, device: str = "cpu", max_seconds: float | None = None, resume: bool = False
) -> Checks:
    """What is looked at before a run of any recipe; `out` None: its place is free whatever its name."""
    folder = [partial(_check_folder, out, resume)] if out is not None else []
    return [partial(checked_device, device), partial(_check_clock, max_seconds), *folder]


def _check_clock(max_seconds: float | None) -> None:
    if max_seconds is not None and not max_seconds > 0:
        raise TrainingError(f"max_seconds is {max_seconds}; expected a number of seconds above 0.")


def _check_folder(out: Path, resume: bool) -> None:
    if resume and not (out / STATE_FILE).is_file():
        raise nothing_to_resume(out / STATE_FILE)
    if out.is_symlink() and not out.exists():
        raise MtaVizError(f"{out} is a link to something that is not there; choose another folder.")
    if not resume and _is_taken(out):
        raise MtaVizError(f"{out} exists; choose another folder, or resume the run that began there.")


def export_checks(lingua: Path | None, out: Path | None, resume: bool) -> Checks:
    """The same of the folder for Lingua's format: not the run's own, nor over something else."""
    return [] if lingua is None else [partial(_check_export, lingua, out, resume)]


def _check_export(lingua: Path, out: Path | None, resume: bool) -> None:
    if out is not None and lingua.resolve() == out.resolve():
        raise MtaVizError(f"{lingua} is the run's own folder; choose another one for the Lingua export.")
    if not resume and _is_taken(lingua):
        raise MtaVizError(f"{lingua} exists; choose another folder for the Lingua export.")


def prepare_folder(out: Path) -> None:
    """Make the folder of a run."""
    with refusals(out):
        out.mkdir(parents=True, exist_ok=True)


def _is_taken(folder: Path) -> bool:
    """Whether it holds more than a run that ended before there was anything to keep leaves."""
    return folder.exists() and (
        not folder.is_dir() or any(file.name not in EARLY_FILES for file in folder.iterdir())
    )
