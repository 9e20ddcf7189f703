"""What stands around a run: its folder, and how far it is, on stderr and in a file."""

import json
import math
import sys
from pathlib import Path

from mta_viz.checkpoint.files import replacing
from mta_viz.errors import MtaVizError
from mta_viz.training.trainer import TrainingProgress

PROGRESS_FILE = "progress.json"


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


def _is_taken(folder: Path) -> bool:
    """Whether it holds more than the progress of a run that ended before there was anything to keep."""
    return folder.exists() and (
        not folder.is_dir() or any(file.name != PROGRESS_FILE for file in folder.iterdir())
    )


def write_progress(folder: Path, progress: TrainingProgress, state: str) -> None:
    """Replace the folder's progress.json; a reader never sees half of it.

    It holds `step` of `steps`, `loss` (nats, mean of the last steps), `seconds_left` to train, both
    null before they are known, and `state`: running, stopped or done.
    """
    known = {
        name: value if math.isfinite(value) else None
        for name, value in (("loss", progress.loss), ("seconds_left", progress.seconds_left))
    }
    data = {"step": progress.steps_done, "steps": progress.steps, **known, "state": state}
    with replacing(folder / PROGRESS_FILE) as partial:
        partial.write_text(json.dumps(data) + "\n", encoding="utf-8")


def print_progress(progress: TrainingProgress) -> None:
    """Steps, loss and time left, on stderr."""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    done = f"step {progress.steps_done} of {progress.steps}  loss {progress.loss:.4f}"
    print(f"{done}  {minutes}:{seconds:02d} left", file=sys.stderr, flush=True)


def print_evaluation(share: float) -> None:
    """The share of the evaluation that is done, on one line of stderr."""
    print(f"evaluating {share:4.0%}", end="\n" if share >= 1 else "\r", file=sys.stderr, flush=True)
