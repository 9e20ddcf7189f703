"""The training loop: one model of its own, batches that depend on the step alone, resumable.

Trained is what requires gradients: optimizer and state file hold nothing else. Owns optimizer, the usual
loss, kernel snapshots, Ctrl-C during an update, and when the state file is written; data and what is done
with the trained model belong to each recipe. A batch is a function of the step and nothing here draws random
numbers, so a resumed run and a twin see the same data.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mta_viz.config import PARAMETERS
from mta_viz.errors import MtaVizError
from mta_viz.training.settings import TrainerSettings, snapshot_steps
from mta_viz.training.state import DamagedState, check_state, load_state
from mta_viz.writing import replacing

SAVE_SECONDS, REPORT_SECONDS = 120.0, 5.0


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the body finish before Ctrl-C acts. Outside the main thread Ctrl-C never arrives anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[FrameType | None] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, or not Python's to handle
        yield
        return
    signal.signal(signal.SIGINT, lambda _number, frame: held.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(signal.SIGINT, held[0])


class TrainingError(MtaVizError):
    """A run that cannot start, go on or be resumed."""


def nothing_to_resume(state_file: Path | None) -> TrainingError:
    """The error of a run that is to go on and never began."""
    return TrainingError(f"There is nothing to resume: {state_file} is not there.")


@dataclass(frozen=True)
class Batch:
    """Sequences and how much the loss counts each token's prediction (column 0 is never predicted)."""

    tokens: Int[Tensor, "batch position"]
    weights: Float[Tensor, "batch position"]

    def to(self, device: torch.device) -> "Batch":
        """The same there."""
        return Batch(self.tokens.to(device), self.weights.to(device))


class Prefetched:
    """Makes the next step's batch in a thread during the present one, and moves batches to `device`."""

    def __init__(self, batches: Callable[[int], Any], device: torch.device) -> None:
        self._batches, self._device = batches, device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: dict[int, Future[Any]] = {}

    def __call__(self, step: int) -> Any:
        """The batch of `step`, whatever was asked before."""
        future = self._ahead.pop(step, None) or self._pool.submit(self._batches, step)
        self._ahead = {step + 1: self._pool.submit(self._batches, step + 1)}
        return future.result().to(self._device)

    def close(self) -> None:
        """Stop the thread."""
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class TrainingProgress:
    """`steps_done` of `steps`, mean loss since the last report, seconds spent and left, with what follows.

    Of a run that ends by the clock `steps` are about those that it will reach, once that can be told.
    """

    steps_done: int
    steps: int
    loss: float
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class Snapshot:
    """All kernels and head mixings, float32 on the CPU, after `step` steps, by parameter name."""

    step: int
    kernels: Mapping[str, Tensor]


@dataclass(frozen=True)
class TrainingResult:
    """What a run leaves beside the model; `losses[s]` is the loss of step s.

    `history` ends with the kernels as they are now, also when the clock stopped the run early.
    `seconds` counts training time only, over all resumed parts. `whole`: whether the run came to its end.
    """

    steps_done: int
    losses: tuple[float, ...]
    history: tuple[Snapshot, ...]
    seconds: float
    whole: bool


Loss = Callable[[Any, Any], Float[Tensor, ""]]  # of the model and a batch
Report = Callable[[TrainingProgress], None]


def weighted_loss(model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """Weighted mean cross-entropy (nats) of every next token, computed in float32."""
    logits = model(batch.tokens[:, :-1]).float()
    weights = batch.weights[:, 1:]
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), batch.tokens[:, 1:], reduction="none")
    return (losses * weights).sum() / weights.sum()


def is_kernel(name: str) -> bool:
    """Whether a parameter of that name is a convolution kernel or a head mixing."""
    return name.rpartition(".")[2] in PARAMETERS.values()


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """What is trained, by name: all that requires gradients."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


class Trainer:
    """Trains what requires gradients of `model`, which must be this trainer's own, on `batches(step)`.

    `loss` takes the model and a batch; `autocast` computes in bfloat16 with the weights as they are.
    `state_file`, when given, is rewritten every SAVE_SECONDS and when the run stops before its
    end, be it by the clock, an error or Ctrl-C; `resume()` continues from it as if nothing had
    happened. `identity` is stored with the state: a run with another identity refuses to resume. `after`: the
    seconds of what follows the training.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Callable[[int], Any],
        settings: TrainerSettings,
        *,
        loss: Loss | None = None,
        autocast: bool = False,
        state_file: Path | None = None,
        identity: str = "",
        after: float = 0.0,
    ) -> None:
        self.model, self.batches, self.settings = model, batches, settings
        self.loss, self._autocast = loss or weighted_loss, autocast
        self._state_file, self._identity, self._after = state_file, identity, after
        self._device = next(model.parameters()).device
        self._trained = trained_parameters(model)
        self._optimizer = _optimizer(self._trained, settings, fused=self._device.type == "cuda")
        self._snapshot_steps = frozenset(snapshot_steps(settings.steps, settings.snapshots))
        self._step, self._seconds, self._whole = 0, 0.0, True
        self._losses: list[float] = []
        self._pending: list[Tensor] = []
        self._history: list[Snapshot] = [self._snapshot()]
        self._loss = self._per_step = math.nan  # mean since the last report; seconds a step, of this run

    @property
    def progress(self) -> TrainingProgress:
        """How far the run is; the loss and the seconds left are NaN before they are known."""
        steps, clock = self.settings.steps, self.settings.clock
        left = self._per_step * (steps - self._step)
        if clock is not None and max(clock - self._seconds, 0.0) < left:
            left = max(clock - self._seconds, 0.0)
            steps = self._step + math.ceil(left / self._per_step)
        return TrainingProgress(self._step, steps, self._loss, self._seconds, left + self._after)

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.settings.left(self._step, self._seconds) <= 0

    @property
    def losses(self) -> tuple[float, ...]:
        """Of the steps done, as far as they were collected: up to the last report."""
        return tuple(self._losses)

    def time_step(self) -> float:
        """Seconds that a step takes here: one is computed for practice, one timed; nothing is changed."""
        for _ in range(2):
            start = time.monotonic()
            self._gradients()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        self._optimizer.zero_grad(set_to_none=True)
        return time.monotonic() - start

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The kernels' history so far; it ends with them as they are now."""
        last = () if self._history[-1].step == self._step else (self._snapshot(),)
        return (*self._history, *last)

    def resume(self) -> None:
        """Go back to the saved state. Raises `TrainingError` when it is missing, damaged or another run's."""
        if self._state_file is None or not self._state_file.is_file():
            raise nothing_to_resume(self._state_file)
        try:
            state = load_state(self._state_file, self._device)
            if (identity := state["identity"]) != self._identity:
                there = identity if isinstance(identity, str) else "none"
                raise TrainingError(
                    f"{self._state_file} belongs to a run with other settings; resume with the same "
                    f"configuration, seed and variant.\nthere: {there}\nasked: {self._identity}"
                )
            kernels = self._history[0].kernels
            check_state(state, self._trained, self._optimizer, kernels, self.settings.steps)
        except DamagedState as error:
            raise TrainingError(
                f"{self._state_file} is damaged: {error}. The run cannot be resumed; put back a copy of "
                "the file, or start anew in another folder."
            ) from error
        with torch.no_grad():
            for name, value in self._trained.items():
                value.copy_(state["model"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._seconds, self._losses = state["step"], state["seconds"], state["losses"]
        self._history = [Snapshot(step, kernels) for step, kernels in state["history"]]

    def run(self, *, max_seconds: float | None = None, report: Report | None = None) -> TrainingResult:
        """Train to the run's end, or until this call has taken `max_seconds`.

        `report` is called every `report_every` steps, and where they are slow every few seconds; what it
        raises (`Cancelled`, say), like Ctrl-C at any time, ends the run after the state is saved. Raises
        `TrainingError` when the loss stops being a number, and when the clock leaves no time for a first
        step.
        """
        self.model.train()
        try:
            self._take_steps(math.inf if max_seconds is None else max_seconds, report)
            self._save()
        except TrainingError:
            raise  # the weights are no numbers any more: the last good state stays
        except BaseException:  # Ctrl-C among them
            if self._whole:  # else the update itself failed half-way: the last state on disk stays
                self._save()
            raise
        if self._step == 0:
            raise TrainingError(
                f"The time limit of {max_seconds:g} seconds passed before the first step: nothing was "
                "trained, and no model is written. Allow more seconds, and resume."
            )
        losses = tuple(self._losses)
        return TrainingResult(self._step, losses, self.snapshots(), self._seconds, self.finished)

    def _take_steps(self, max_seconds: float, report: Report | None) -> None:
        start = saved = reported = time.monotonic()
        seconds_before, step_before = self._seconds, self._step
        while not self.finished and time.monotonic() - start < max_seconds:
            self._take_step()
            spent = time.monotonic() - start
            self._seconds, self._per_step = seconds_before + spent, spent / (self._step - step_before)
            due = self._step % self.settings.report_every == 0 or self.finished
            if due or time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                self._collect_losses()
                if report is not None:
                    report(self.progress)
            if time.monotonic() - saved > SAVE_SECONDS:
                self._save()
                saved = time.monotonic()

    def _take_step(self) -> None:
        factor = self.settings.rate_factor(self._step, self._seconds)
        for group in self._optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor
        loss = self._gradients()
        nn.utils.clip_grad_norm_(self._trained.values(), self.settings.clip)
        with uninterrupted():
            self._whole = False
            self._optimizer.step()
            self._pending.append(loss.detach())
            self._step += 1
            if self._step in self._snapshot_steps:
                self._history.append(self._snapshot())
            self._whole = True

    def _gradients(self) -> Tensor:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._autocast):
            loss = self.loss(self.model, self.batches(self._step))
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return loss

    def _collect_losses(self) -> None:
        """Move losses off the device (rarely: it waits for the GPU) and check them."""
        if not self._pending:
            return
        with uninterrupted():  # or losses would be lost between the two lists
            recent = torch.stack(self._pending).tolist()
            self._pending = []
            self._losses += recent
            self._loss = sum(recent) / len(recent)
        if not all(map(math.isfinite, recent)):
            raise TrainingError(
                f"The loss stopped being a number before step {self._step}; lower learning_rate."
            )

    def _save(self) -> None:
        self._collect_losses()
        if self._state_file is None:
            return
        state: dict[str, Any] = {
            "identity": self._identity,
            "model": {name: value.detach() for name, value in self._trained.items()},
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "seconds": self._seconds,
            "losses": self._losses,
            "history": [(entry.step, dict(entry.kernels)) for entry in self._history],
        }
        with replacing(self._state_file) as unfinished:  # a reader never sees half a file
            torch.save(state, unfinished)

    def _snapshot(self) -> Snapshot:
        kernels = {name: value for name, value in self.model.named_parameters() if is_kernel(name)}
        values = {name: value.detach().float().cpu().clone() for name, value in kernels.items()}
        return Snapshot(self._step, values)


def _optimizer(
    trained: Mapping[str, nn.Parameter], settings: TrainerSettings, *, fused: bool
) -> torch.optim.AdamW:
    """AdamW over matrices (weight decay), vectors, and kernels (own rate); `full_rate` before decay."""
    others = [value for name, value in trained.items() if not is_kernel(name)]
    of_matrices, of_vectors, of_kernels = settings.rates
    groups = [
        ([p for p in others if p.ndim > 1], of_matrices, settings.weight_decay),
        ([p for p in others if p.ndim <= 1], of_vectors, 0.0),
        ([value for name, value in trained.items() if is_kernel(name)], of_kernels, 0.0),
    ]
    rate = settings.learning_rate
    given = [
        {"params": params, "full_rate": rate * multiplier, "weight_decay": decay}
        for params, multiplier, decay in groups
        if params
    ]
    return torch.optim.AdamW(given, lr=rate, betas=(0.9, 0.98), fused=fused)
