"""The training loop: one model of its own, batches that depend on the step alone, resumable.

Owns optimizer, loss, kernel snapshots, Ctrl-C during an update, and the state file, which is written whole
or not at all and read without running code; data and what is done with the trained model belong to each
recipe. A batch is a function of the step and nothing here draws random numbers, so a resumed run and a twin
see the same data.
"""

import math
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import replacing
from mta_viz.errors import FileError, MtaVizError
from mta_viz.training.settings import TrainerSettings, snapshot_steps

KERNEL_NAMES = ("kernel_pre", "kernel_post", "head_pre", "head_post")
SAVE_SECONDS = 120.0


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


@dataclass(frozen=True)
class Batch:
    """Sequences and how much the loss counts each token's prediction (column 0 is never predicted)."""

    tokens: Int[Tensor, "batch position"]
    weights: Float[Tensor, "batch position"]


@dataclass(frozen=True)
class TrainingProgress:
    """`steps_done` of `steps`, mean loss since the last report, seconds spent and left."""

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
    `seconds` counts training time only, over all resumed parts.
    """

    steps_done: int
    losses: tuple[float, ...]
    history: tuple[Snapshot, ...]
    seconds: float


Report = Callable[[TrainingProgress], None]


def weighted_loss(model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """Weighted mean cross-entropy (nats) of every next token, computed in float32."""
    logits = model(batch.tokens[:, :-1]).float()
    weights = batch.weights[:, 1:]
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), batch.tokens[:, 1:], reduction="none")
    return (losses * weights).sum() / weights.sum()


def kernel_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The model's convolution kernels and head mixings by parameter name."""
    return {
        name: value for name, value in model.named_parameters() if name.rpartition(".")[2] in KERNEL_NAMES
    }


class Trainer:
    """Trains `model`, which must be this trainer's own, on `batches(step)`; bfloat16 autocast on CUDA.

    `state_file`, when given, is rewritten every SAVE_SECONDS and when the run stops before its
    end, be it by the clock, an error or Ctrl-C; `resume()` continues from it as if nothing had
    happened. `identity` is stored with the state: a run with another identity refuses to resume.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Callable[[int], Batch],
        settings: TrainerSettings,
        *,
        state_file: Path | None = None,
        identity: str = "",
    ) -> None:
        self.model, self.batches, self.settings = model, batches, settings
        self._state_file, self._identity = state_file, identity
        self._device = next(model.parameters()).device
        self._optimizer = _optimizer(model, settings, fused=self._device.type == "cuda")
        self._snapshot_steps = frozenset(snapshot_steps(settings.steps, settings.snapshots))
        self._step, self._seconds, self._whole = 0, 0.0, True
        self._losses: list[float] = []
        self._pending: list[Tensor] = []
        self._history: list[Snapshot] = [self._snapshot()]
        self._loss = self._per_step = math.nan  # mean since the last report; seconds a step, of this run

    @property
    def progress(self) -> TrainingProgress:
        """How far the run is; the loss and the seconds left are NaN before they are known."""
        steps = self.settings.steps
        left = self._per_step * (steps - self._step)
        return TrainingProgress(self._step, steps, self._loss, self._seconds, left)

    def resume(self) -> None:
        """Go back to the saved state. Raises `TrainingError` when it is missing, damaged or another run's."""
        if self._state_file is None or not self._state_file.is_file():
            raise TrainingError(f"There is nothing to resume: {self._state_file} is not there.")
        try:
            state = load_state(self._state_file, self._device)
            if (identity := state["identity"]) != self._identity:
                there = identity if isinstance(identity, str) else "none"
                raise TrainingError(
                    f"{self._state_file} belongs to a run with other settings; resume with the same "
                    f"configuration, seed and variant.\nthere: {there}\nasked: {self._identity}"
                )
            kernels = self._history[0].kernels
            check_state(state, self.model, self._optimizer, kernels, self.settings.steps)
        except DamagedState as error:
            raise TrainingError(
                f"{self._state_file} is damaged: {error}. The run cannot be resumed; put back a copy of "
                "the file, or start anew in another folder."
            ) from error
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._seconds, self._losses = state["step"], state["seconds"], state["losses"]
        self._history = [Snapshot(step, kernels) for step, kernels in state["history"]]

    def run(self, *, max_seconds: float | None = None, report: Report | None = None) -> TrainingResult:
        """Train to the last step, or until this call has taken `max_seconds`.

        `report` is called every `report_every` steps; what it raises (`Cancelled`, say), like
        Ctrl-C at any time, ends the run after the state is saved. Raises `TrainingError` when
        the loss stops being a number, and when the clock leaves no time for a first step.
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
        last = () if self._history[-1].step == self._step else (self._snapshot(),)
        return TrainingResult(self._step, tuple(self._losses), (*self._history, *last), self._seconds)

    def _take_steps(self, max_seconds: float, report: Report | None) -> None:
        start = saved = time.monotonic()
        seconds_before, step_before = self._seconds, self._step
        while self._step < self.settings.steps and time.monotonic() - start < max_seconds:
            self._take_step()
            due = self._step % self.settings.report_every == 0 or self._step == self.settings.steps
            if due:
                self._collect_losses()
            spent = time.monotonic() - start
            self._seconds, self._per_step = seconds_before + spent, spent / (self._step - step_before)
            if due and report is not None:
                report(self.progress)
            if time.monotonic() - saved > SAVE_SECONDS:
                self._save()
                saved = time.monotonic()

    def _take_step(self) -> None:
        factor = self.settings.rate_factor(self._step)
        for group in self._optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._device.type == "cuda"):
            loss = weighted_loss(self.model, self.batches(self._step))
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        with uninterrupted():
            self._whole = False
            self._optimizer.step()
            self._pending.append(loss.detach())
            self._step += 1
            if self._step in self._snapshot_steps:
                self._history.append(self._snapshot())
            self._whole = True

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
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "seconds": self._seconds,
            "losses": self._losses,
            "history": [(entry.step, dict(entry.kernels)) for entry in self._history],
        }
        with replacing(self._state_file) as unfinished:  # a reader never sees half a file
            torch.save(state, unfinished)

    def _snapshot(self) -> Snapshot:
        values = kernel_parameters(self.model).items()
        return Snapshot(self._step, {name: value.detach().float().cpu().clone() for name, value in values})


def _optimizer(model: nn.Module, settings: TrainerSettings, *, fused: bool) -> torch.optim.AdamW:
    """AdamW over matrices (weight decay), vectors, and kernels (own rate); `full_rate` before decay."""
    kernels = kernel_parameters(model)
    others = {name: value for name, value in model.named_parameters() if name not in kernels}
    groups = [
        ([p for p in others.values() if p.ndim > 1], 1.0, settings.weight_decay),
        ([p for p in others.values() if p.ndim <= 1], 1.0, 0.0),
        (list(kernels.values()), settings.kernel_rate, 0.0),
    ]
    rate = settings.learning_rate
    given = [
        {"params": params, "full_rate": rate * multiplier, "weight_decay": decay}
        for params, multiplier, decay in groups
        if params
    ]
    return torch.optim.AdamW(given, lr=rate, betas=(0.9, 0.98), fused=fused)


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
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    kernels: Mapping[str, Tensor],
    steps: int,
) -> None:
    """Raises `DamagedState` unless `state` fits the model, its optimizer, its kernels and the run."""
    step, seconds, losses = state["step"], state["seconds"], state["losses"]
    if type(step) is not int or not 0 <= step <= steps:
        raise DamagedState("its step is outside the run")
    if type(seconds) is not float or not 0 <= seconds < math.inf:
        raise DamagedState("its training time is no number of seconds")
    if not isinstance(losses, list) or len(losses) != step or not all(type(loss) is float for loss in losses):
        raise DamagedState(f"it does not hold one loss for each of its {step} steps")
    if not _same_tensors(state["model"], model.state_dict()):
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
