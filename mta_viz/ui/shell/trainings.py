"""Finetunings as processes: started, stopped, gone on with and found again by their folder.

The app trains nothing itself: it runs the command that stands on the page, as `processes` does.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from mta_viz.analysis.kernels import finetuning
from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import from_text
from mta_viz.errors import MtaVizError
from mta_viz.printed import printable
from mta_viz.ui.shell.processes import check_may_start, interrupt, is_alive, last_lines, start_command
from mta_viz.writing import refusals, write

FORMAT = "mta_viz training 1"
WORDS = 4  # lines of it that are shown
MEASURING = "evaluating:"  # how lines begin that count what is measured
DEPTH = 2  # folders below a root, as models are looked for
Trained = Literal["kernels", "kernels+norms"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a training was asked for: the flags of `finetune`. `seconds` or `steps` end it."""

    base: str
    layers: tuple[int, ...]
    kernel: tuple[int, int] = (6, 11)
    train: Trained = "kernels"
    task: str = "pairs"
    pairs: tuple[int, int] = (3, 3)
    lengths: tuple[int, ...] = (256, 320, 384)
    corpus: str | None = None
    seconds: float | None = None
    steps: int | None = None
    seed: int = 0
    dtype: str = "float32"
    device: str = "cpu"

    def flags(self, out: Path) -> list[str]:
        """The command's arguments."""
        given: dict[str, object] = {
            "layers": ",".join(map(str, self.layers)),
            "kernel": "x".join(map(str, self.kernel)),
            "train": self.train,
            "task": self.task,
            "pairs": "x".join(map(str, self.pairs)) if self.task == "pairs" else None,
            "lengths": ",".join(map(str, self.lengths)) if self.task in ("pairs", "needle") else None,
            "corpus": self.corpus,
            "max-seconds": None if self.seconds is None else f"{self.seconds:g}",
            "steps": self.steps,
            "seed": self.seed,
            "dtype": self.dtype,
            "device": self.device,
            "out": out,
        }
        flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return ["finetune", self.base, *flags]


def command(settings: Settings, out: Path, resume: bool = False) -> str:
    """What to type for the same."""
    words = ["python", "-m", "mta_viz", *settings.flags(out), *(["--resume"] if resume else [])]
    return shlex.join(words)


@dataclass(frozen=True)
class Job:
    """What the app keeps of a training in its folder: its settings, and the process it was started as."""

    settings: Settings
    pid: int


@dataclass(frozen=True)
class Training:
    """A training as its folder tells. `run` is None before the base is measured.

    `alive`: whether its process runs now, and `begun`: whether `run` is of that process, not of the one it
    goes on from. `words`: the last lines of what it said; `measured`: how far what it measures now is.
    """

    folder: Path
    job: Job
    alive: bool
    run: finetuning.FinetuningRun | None
    begun: bool
    words: tuple[str, ...]
    measured: str = ""

    @property
    def done(self) -> bool:
        """Whether it came to its end."""
        return not self.alive and self.run is not None and self.run.state == "done"

    @property
    def resumable(self) -> bool:
        """Whether it ended before and left what it can go on from."""
        return not self.alive and not self.done and door.is_there(self.folder / finetuning.STATE_FILE)


def start(settings: Settings, out: Path, *, resume: bool = False) -> Training:
    """Start the process into a new folder, or go on with the one in it.

    Raises MtaVizError for a folder that is taken or cannot be made, and for one whose training runs.
    """
    check_may_start()
    if not resume:
        _make_folder(out)
    flags = [*settings.flags(out), *(["--resume"] if resume else [])]
    pid = start_command(flags, out / finetuning.LOG_FILE, go_on=resume)
    job = {"format": FORMAT, **asdict(Job(settings, pid))}
    write(out / finetuning.JOB_FILE, json.dumps(job, indent=1) + "\n")
    return read_training(out)


def _make_folder(out: Path) -> None:
    # of one that ended before there was anything to keep
    kept = {finetuning.PROGRESS_FILE, finetuning.LOG_FILE, finetuning.JOB_FILE}
    with refusals(out):
        if out.exists() and any(file.name not in kept for file in out.iterdir()):
            raise MtaVizError(f"{printable(out)} holds something already; choose another folder")
        out.mkdir(parents=True, exist_ok=True)


def stop(training: Training) -> None:
    """Have its process save its state and end, as Ctrl-C does."""
    interrupt(training.folder / finetuning.LOG_FILE, training.job.pid)


def read_training(folder: Path) -> Training:
    """The training in a folder. Raises MtaVizError where the app has started none, or files are damaged."""
    file = folder / finetuning.JOB_FILE
    job = from_text(Job, door.read_text(file, door.SETTINGS), printable(file), file_format=FORMAT)
    for name, path in (("base", job.settings.base), ("corpus", job.settings.corpus)):
        if path is not None and not Path(path).is_absolute():  # it could be taken for a flag
            raise MtaVizError(f"{printable(file)} names {name} by no whole path; it is not used")
    log = folder / finetuning.LOG_FILE
    alive = is_alive(log)  # before the rest is read: what ends meanwhile has written it
    progress = folder / finetuning.PROGRESS_FILE
    run = finetuning.read_finetuning(folder) if door.is_there(progress) else None
    words, measured = _last_words(log)
    return Training(folder, job, alive, run, _changed(progress) >= _changed(file), words, measured)


def _last_words(log: Path) -> tuple[tuple[str, ...], str]:
    """The last lines, without those that count; and what the very last counts of a measurement."""
    lines = last_lines(log)
    words = tuple(line for line in lines if not line.startswith(("step ", MEASURING)))[-WORDS:]
    last = lines[-1] if lines else ""
    return words, last.removeprefix(MEASURING).strip() if last.startswith(MEASURING) else ""


def find_trainings(roots: Sequence[Path]) -> Iterator[Training]:
    """Those in the folders with models, the newest first; what is damaged is left out."""
    jobs = {file for root in roots for depth in range(1, DEPTH + 1) for file in _jobs(root, depth)}
    for file in sorted(jobs, key=_changed, reverse=True):
        try:
            yield read_training(file.parent)
        except MtaVizError:
            continue


def _jobs(root: Path, depth: int) -> Iterator[Path]:
    try:
        yield from root.glob("/".join(["*"] * depth + [finetuning.JOB_FILE]))
    except OSError:
        return


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
