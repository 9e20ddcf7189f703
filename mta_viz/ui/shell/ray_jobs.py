"""Measurements of a checkpoint on Ray, as processes of the command: started, found again, stopped.

A checkpoint has one at a time, whose log and settings lie beside its weights, and so does the result, where
the pages find it as far as it has come.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.validate import from_text
from mta_viz.errors import MtaVizError
from mta_viz.printed import printable
from mta_viz.ui.shell.cache import ModelKey
from mta_viz.ui.shell.processes import check_may_start, interrupt, is_alive, last_lines, start_command
from mta_viz.writing import write

FORMAT = "mta_viz job 1"
JOB_FILE, LOG_FILE = "ray_job.json", "ray_job.log"
Measured = Literal["effects", "shapley"]
Task = Literal["needle", "pairs", "blocks"]
FAILED = ("error: ", "interrupted")  # how the last line of a command that did not come to its end begins


@dataclass(frozen=True)
class Job:
    """What is kept of one: what is measured, at which task, and the process it was started as."""

    measured: Measured
    task: Task
    pid: int


@dataclass(frozen=True)
class RayJob:
    """A job as the folder tells. `words`: the last line that its process said, "" where there is none."""

    folder: Path
    job: Job
    alive: bool
    words: str

    @property
    def failed(self) -> bool:
        """Whether it ended, or was ended, before its end."""
        return not self.alive and self.words.startswith(FAILED)


def there() -> bool:
    """Whether this machine has Ray."""
    return find_spec("ray") is not None


def arguments(model: ModelKey, measured: Measured, task: Task, on: str) -> list[str]:
    """Of the command; what is measured lies beside the weights."""
    path = Path(model.path).absolute()  # it could be taken for a flag
    more = {"base": model.base, "tokenizer": model.tokenizer}
    if measured == "shapley":
        more["out"] = str(beside(path) / "shapley.json")
    how = {"task": task, "device": model.device, "dtype": model.dtype, "on": on, **more}
    return [measured, str(path), *(f"--{name}={value}" for name, value in how.items() if value is not None)]


def start(model: ModelKey, measured: Measured, task: Task, on: str) -> None:
    """Start one, or go on with what there is. Raises MtaVizError where one of the checkpoint runs already."""
    check_may_start()
    folder = beside(Path(model.path).absolute())
    pid = start_command(arguments(model, measured, task, on), folder / LOG_FILE)
    job = {"format": FORMAT, **asdict(Job(measured, task, pid))}
    write(folder / JOB_FILE, json.dumps(job, indent=1) + "\n")


def stop(job: RayJob) -> None:
    """Have it end as Ctrl-C does; of effects what is measured stays."""
    interrupt(job.folder / LOG_FILE, job.job.pid)


def jobs_of(checkpoints: Iterable[Path]) -> Iterator[RayJob]:
    """Those of these checkpoints; what is damaged is left out."""
    for folder in dict.fromkeys(map(beside, checkpoints)):
        file, log = folder / JOB_FILE, folder / LOG_FILE
        if not door.is_there(file):
            continue
        try:
            job = from_text(Job, door.read_text(file, door.SETTINGS), printable(file), file_format=FORMAT)
        except MtaVizError:
            continue
        yield RayJob(folder, job, is_alive(log), (last_lines(log) or ("",))[-1])
