"""Loading a model and running a prompt beside the page: progress, time left, Stop.

A `Job` is one thread. The page that started it shows its progress and may cancel it; results go
to the stores of `cache`, so a finished job is found by any later rerun. No drawing here.
"""

import gc
import threading
import time
from collections.abc import Callable, Hashable
from functools import cache
from pathlib import Path
from typing import Any

from mta_viz.errors import Cancelled
from mta_viz.ui.shell.cache import ModelKey, RunKey, Stores

SHOW_SECONDS_FROM = 5.0  # shorter runs are not worth an estimate


class Job:
    """A piece of work in a thread: `work(job)` reports through `job.report` and may raise."""

    def __init__(self, work: Callable[["Job"], None]) -> None:
        self.stage, self.fraction, self.error = "Starting", 0.0, None
        self._expected: float | None = None
        self._started, self._cancelled, self._done = time.monotonic(), threading.Event(), threading.Event()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    error: Exception | None

    def _run(self, work: Callable[["Job"], None]) -> None:
        try:
            work(self)
        except Exception as error:  # handed to the page, which owns how it is said
            self.error = error
        finally:
            self._done.set()

    def begin(self, stage: str, expected: float | None = None) -> None:
        """Name what happens from now on; progress and the clock start again.

        `expected`: seconds the stage should take, told until its progress says more.
        """
        self.report(0.0)
        self.stage, self._started, self._expected = stage, time.monotonic(), expected

    def report(self, fraction: float) -> None:
        """Progress 0..1 of the current stage. Raises Cancelled after `cancel`."""
        if self._cancelled.is_set():
            raise Cancelled("stopped")
        self.fraction = min(max(fraction, 0.0), 1.0)

    def cancel(self) -> None:
        """Ask the work to stop at its next report."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the work is done, at most so long; whether it is."""
        return self._done.wait(seconds)

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the progress so far, else from what was expected; None without either."""
        spent = time.monotonic() - self._started
        if self.fraction < 0.02 or spent < 1.0:
            return None if self._expected is None else max(self._expected - spent, 0.0)
        return spent * (1.0 - self.fraction) / self.fraction


def load_job(key: ModelKey, stores: Stores) -> Job:
    """Read the checkpoint into `stores.models`."""
    return Job(lambda job: model_of(key, stores, job) and None)


def run_job(key: RunKey, stores: Stores) -> Job:
    """Read the checkpoint if needed, run the prompt into `stores.traces`."""

    def work(job: Job) -> None:
        model = model_of(key.model, stores, job)
        job.begin("Running the prompt", _expected_seconds(model, key.prompt))
        stores.traces.get_or_make(key, lambda: _capture(model, key.prompt, job))

    return Job(work)


def model_of(key: ModelKey, stores: Stores, job: Job) -> Any:
    """The model (a HookedMTA) from `stores.models`, read by this job if it is not there."""
    return stores.models.get_or_make(key, lambda: _load(key, job))


def _load(key: ModelKey, job: Job) -> object:
    job.begin("Loading the libraries (first time only)")
    from mta_viz.checkpoint.reading import read_checkpoint
    from mta_viz.model.transformer import build_model

    _set_libraries_apart()
    job.begin(f"Reading {Path(key.path).name}")
    override = Path(key.tokenizer) if key.tokenizer else None
    checkpoint = read_checkpoint(Path(key.path), tokenizer=override, step=key.step, progress=job.report)
    return build_model(checkpoint, device=key.device, dtype=torch_dtype(key.dtype))


@cache
def _set_libraries_apart() -> None:
    """Leave what the libraries made out of the search for garbage.

    Streamlit searches after every run of a page, which took 0.3 s with them. Once only: garbage
    that is there at the moment stays for good.
    """
    gc.freeze()


def _capture(model: Any, prompt: str | tuple[int, ...], job: Job) -> object:
    from mta_viz.run.tracing import capture

    return capture(model, prompt, progress=job.report)


def health_job(key: Hashable, model: Any, trace: Any, stores: Stores) -> Job:
    """Examine a model and its run (None: the weights alone) into `stores.drawn`."""
    from mta_viz.analysis.attention.health import health

    return Job(lambda job: stores.drawn.get_or_make(key, lambda: health(model, trace)) and None)


def _expected_seconds(model: Any, prompt: str | tuple[int, ...]) -> float | None:
    """How long a run should take, if it is long enough to be worth the measuring."""
    from mta_viz.run.cost import multiply_adds
    from mta_viz.run.tracing import CALIBRATION, estimate_seconds, tokenize

    n_tokens = len(tokenize(model, prompt))
    if multiply_adds(model.config, n_tokens) < 4 * CALIBRATION:
        return None
    seconds = estimate_seconds(model, n_tokens)
    return seconds if seconds > SHOW_SECONDS_FROM else None


def torch_dtype(name: str) -> Any:
    """`torch.float32` for "float32"; torch is imported only here, in the job's thread."""
    import torch

    return getattr(torch, name)
