"""The training loop: one model of its own, batches that depend on the step alone, resumable.

Owns the optimizer, the schedule, the loss, the kernel snapshots and the state file's contents; the
data and what is done with the trained model belong to each recipe. A batch is a function of the
step and nothing here draws random numbers, so a resumed run and a twin see the same data.

Ctrl-C held back while a value is between two states. Owns the signal for that moment only.
The weights a run starts from: seeded, the same on every device.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.training.settings import TrainerSettings, snapshot_steps
from mta_viz.training.state import DamagedState, check_state, load_state, save_state


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


def initial_model(config: ModelConfig, seed: int, device: torch.device | str) -> HookedMTA:
    """A model with truncated-normal matrices of deviation 1/sqrt(input width) and identity kernels.

    Drawn on the CPU and moved, without touching torch's global generator. The embedding, which is
    also the unembedding of a tied model, has deviation 1/sqrt(d_model). Matrices are drawn in the
    parameters' order, kernels drawing nothing: a model and its plain twin start from equal ones.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        model = HookedMTA(config)
    for name, weight in model.named_parameters():
        if name.endswith(".weight") and weight.ndim == 2:
            std = weight.shape[1] ** -0.5
            nn.init.trunc_normal_(weight, 0.0, std, -3 * std, 3 * std, generator=generator)
    return model.to(device)


KERNEL_NAMES = ("kernel_pre", "kernel_post", "head_pre", "head_post")


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
    """Trains `model`, which must be this trainer's own, on `batches(step)`.

    `state_file`, when given, is rewritten every `save_seconds` and when the run stops before its
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

    def resume(self) -> None:
        """Go back to the saved state. Raises `TrainingError` when it is missing, damaged or another run's."""
        if self._state_file is None or not self._state_file.is_file():
            raise TrainingError(f"There is nothing to resume: {self._state_file} is not there.")
        try:
            state = load_state(self._state_file, self._device)
            self._check_identity(state["identity"])
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

    def _check_identity(self, identity: object) -> None:
        if identity != self._identity:
            there = identity if isinstance(identity, str) else "none"
            raise TrainingError(
                f"{self._state_file} belongs to a run with other settings; resume with the same "
                f"configuration, seed and variant.\nthere: {there}\nasked: {self._identity}"
            )

    def run(self, *, max_seconds: float | None = None, report: Report | None = None) -> TrainingResult:
        """Train to the last step, or until this call has taken `max_seconds`.

        `report` is called every `report_every` steps; what it raises (`Cancelled`, say), like
        Ctrl-C at any time, ends the run after the state is saved. Raises `TrainingError` when
        the loss stops being a number, and when the clock leaves no time for a first step.
        """
        clock = _Clock(self._seconds, self._step)
        self.model.train()
        try:
            self._take_steps(clock, max_seconds, report)
        except TrainingError:
            raise  # the weights are no numbers any more: the last good state stays
        except BaseException:  # Ctrl-C among them
            self._save_if_whole()
            raise
        self._collect_losses()
        self._seconds = clock.total()
        self._save()
        if self._step == 0:
            raise TrainingError(
                f"The time limit of {max_seconds:g} seconds passed before the first step: nothing was "
                "trained, and no model is written. Allow more seconds, and resume."
            )
        return TrainingResult(self._step, tuple(self._losses), self._whole_history(), self._seconds)

    def _take_steps(self, clock: "_Clock", max_seconds: float | None, report: Report | None) -> None:
        while self._step < self.settings.steps and not clock.over(max_seconds):
            self._take_step()
            self._seconds = clock.total()
            if self._step % self.settings.report_every == 0 or self._step == self.settings.steps:
                self._report(clock, report)
            if clock.since_save() > self.settings.save_seconds:
                self._save()
                clock.saved()

    def _take_step(self) -> None:
        factor = self.settings.rate_factor(self._step)
        for group in self._optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor
        autocast = self.settings.bfloat16 and self._device.type == "cuda"
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=autocast):
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

    def _report(self, clock: "_Clock", report: Report | None) -> None:
        recent = self._collect_losses()
        if report is None:
            return
        left = clock.per_step(self._step) * (self.settings.steps - self._step)
        mean = sum(recent) / max(1, len(recent))
        report(TrainingProgress(self._step, self.settings.steps, mean, self._seconds, left))

    def _collect_losses(self) -> list[float]:
        """Move losses off the device (rarely: it waits for the GPU) and check them."""
        with uninterrupted():  # or losses would be lost between the two lists
            recent = torch.stack(self._pending).tolist() if self._pending else []
            self._pending = []
            self._losses += recent
        if not all(map(math.isfinite, recent)):
            raise TrainingError(
                f"The loss stopped being a number before step {self._step}; lower learning_rate."
            )
        return recent

    def _save_if_whole(self) -> None:
        """Save unless the update itself failed half-way; then the last state on disk stays."""
        if self._whole:
            self._save()

    def _save(self) -> None:
        if self._state_file is None:
            return
        self._collect_losses()
        state: dict[str, Any] = {
            "identity": self._identity,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "seconds": self._seconds,
            "losses": self._losses,
            "history": [(entry.step, dict(entry.kernels)) for entry in self._history],
        }
        save_state(self._state_file, state)

    def _snapshot(self) -> Snapshot:
        kernels = {
            name: value.detach().float().cpu().clone()
            for name, value in kernel_parameters(self.model).items()
        }
        return Snapshot(self._step, kernels)

    def _whole_history(self) -> tuple[Snapshot, ...]:
        history = tuple(self._history)
        return history if history[-1].step == self._step else (*history, self._snapshot())


class _Clock:
    """Seconds of one `run` call, on top of those of earlier ones."""

    def __init__(self, seconds_before: float, step_before: int) -> None:
        self._start = self._last_save = time.monotonic()
        self._seconds_before, self._step_before = seconds_before, step_before

    def total(self) -> float:
        return self._seconds_before + time.monotonic() - self._start

    def over(self, max_seconds: float | None) -> bool:
        return max_seconds is not None and time.monotonic() - self._start >= max_seconds

    def per_step(self, step: int) -> float:
        return (time.monotonic() - self._start) / max(1, step - self._step_before)

    def since_save(self) -> float:
        return time.monotonic() - self._last_save

    def saved(self) -> None:
        self._last_save = time.monotonic()


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
    return torch.optim.AdamW(
        [
            {"params": params, "full_rate": rate * multiplier, "weight_decay": decay}
            for params, multiplier, decay in groups
            if params
        ],
        lr=rate,
        betas=settings.betas,
        fused=fused,
    )
