"""What every recipe does: train, leave a checkpoint folder with kernel history, measure it, write its card.

Owns the order of the work, the weights a run starts from and the files it leaves; data, measurement
and words about them are each recipe's own.
"""

import dataclasses
import json
import math
import os
import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from mta_viz.checkpoint.files import replacing
from mta_viz.checkpoint.history import HISTORY_FILE
from mta_viz.checkpoint.layout import file_entries
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.run.devices import checked_device
from mta_viz.training import trainer as training
from mta_viz.training.settings import RecipeSettings
from mta_viz.training.trainer import Batch, Report, Trainer, TrainingProgress, TrainingResult

STATE_FILE, PROGRESS_FILE = "training_state.pt", "progress.json"
FILE_DTYPE = torch.float16
CURVE_POINTS = 200

Batches = Callable[[int], Batch]
Progress = Callable[[float], None]


class Recipe(ABC):
    """A run's settings, with what they mean for its data, its measurement and its card."""

    config: RecipeSettings
    title: str

    @abstractmethod
    def batches(self, device: torch.device) -> AbstractContextManager[Batches]:
        """Step -> its batch on `device`, for as long as the context is open: of seed and step alone."""

    @abstractmethod
    def facts(self, steps: int) -> dict[str, Any]:
        """What the card says of the data, `steps` into the run."""

    @abstractmethod
    def evaluate(self, model: HookedMTA, progress: Progress = lambda share: None) -> dict[str, Any]:
        """What the card says of how well the written model does."""

    @abstractmethod
    def summary(self, card: dict[str, Any]) -> str:
        """What the model does and how well, in sentences."""

    def model_config(self) -> ModelConfig:
        """The model as it is trained."""
        return self.config.model_config()

    def write_tokenizer(self, out: Path) -> tuple[str, Path | None]:
        """The tokenizer's name and, where it needs one, its file, which is put into `out`."""
        return "char", None

    def train(
        self,
        out: Path,
        *,
        lingua: Path | None = None,
        device: str = "cpu",
        max_seconds: float | None = None,
        resume: bool = False,
        report: Report | None = None,
        evaluation_progress: Progress = lambda share: None,
    ) -> dict[str, Any]:
        """Train, write the checkpoint folder `out`, measure what was written; returns the card.

        `out` gets model.safetensors and params.json (float16), kernel_history.safetensors (models with
        kernels), card.json, README.md and, from the first step on, progress.json. While training, and
        when `max_seconds` stops the run early, it also holds the state that `resume=True` continues
        from. `lingua` is a folder for the same weights in Lingua's format. Raises `MtaVizError` for an
        `out` or `lingua` that exists (without `resume`), a missing device, or settings that describe
        no model, before any work.
        """
        place = checked_device(device)
        if max_seconds is not None and not max_seconds > 0:
            raise training.TrainingError(
                f"max_seconds is {max_seconds}; expected a number of seconds above 0."
            )
        self.config.model_config()
        prepare_folder(out, resume, lingua)
        with self.batches(place) as batches:
            trainer = self._trainer(batches, out, place)
            if resume:
                trainer.resume()
            with _followed(trainer, out, report) as follow:
                result = trainer.run(max_seconds=max_seconds, report=follow)
                self._write_model(trainer, result, out, lingua)
                model = tracing.load(out, device=device, dtype=torch.float32)
                card = self._card(result, out, place) | self.evaluate(model, evaluation_progress)
                write_card(out, card, self.title, self.summary(card))
                if result.steps_done == self.config.steps:
                    (out / STATE_FILE).unlink()
        return card

    def _trainer(self, batches: Batches, out: Path, device: torch.device) -> Trainer:
        identity = {"device": device.type} | dataclasses.asdict(self.config)
        return Trainer(
            initial_model(self.model_config(), self.config.seed, device),
            batches,
            self.config,
            state_file=out / STATE_FILE,
            identity=json.dumps(identity, sort_keys=True),
        )

    def _write_model(self, trainer: Trainer, result: TrainingResult, out: Path, lingua: Path | None) -> None:
        """Over what a run stopped by the clock left."""
        config = self.model_config()
        state = {name: value.detach().cpu() for name, value in trainer.model.state_dict().items()}
        name, file = self.write_tokenizer(out)
        write_native(
            out, config, state, tokenizer_name=name, tokenizer_path=file, dtype=FILE_DTYPE, overwrite=True
        )
        write_history(out / HISTORY_FILE, config, result.history)
        if lingua is not None:
            write_lingua(lingua, read_checkpoint(out), overwrite=True)

    def _card(self, result: TrainingResult, out: Path, device: torch.device) -> dict[str, Any]:
        config = self.config
        cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads used"
        cpu = f"CPU ({platform.machine()}, {cores})"
        cuda = device.type == "cuda"
        return {
            "task": config.task,
            "variant": config.variant,
            "command": config.command(device.type),
            "config": dataclasses.asdict(config),
            **self.facts(result.steps_done),
            "seed": config.seed,
            "steps": result.steps_done,
            "planned_steps": config.steps,
            "seconds": round(result.seconds, 1),
            "hardware": torch.cuda.get_device_name(device) if cuda else cpu,
            "torch": torch.__version__,
            "training_precision": "bfloat16 autocast" if cuda else "float32",
            "sha256": sha256(out),
            "loss_curve": loss_curve(result.losses),
        }


@contextmanager
def _followed(trainer: Trainer, out: Path, report: Report | None) -> Iterator[Report]:
    """Keep `progress.json` at what the run does, however it ends; reports go on to `report`."""

    def follow(progress: TrainingProgress) -> None:
        write_progress(out, progress, "running")
        if report is not None:
            report(progress)

    write_progress(out, trainer.progress, "running")
    done = False
    try:
        yield follow
        done = trainer.progress.steps_done == trainer.settings.steps
    finally:
        write_progress(out, trainer.progress, "done" if done else "stopped")


def initial_model(config: ModelConfig, seed: int, device: torch.device | str) -> HookedMTA:
    """A model with truncated-normal matrices of deviation 1/sqrt(input width) and identity kernels.

    Drawn on the CPU and moved, the same on every device, without touching torch's global generator.
    The embedding, which is also the unembedding of a tied model, has deviation 1/sqrt(d_model).
    Matrices are drawn in the parameters' order, kernels drawing nothing: a model and its plain twin
    start from equal ones.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # of the biases, which the layers draw themselves
        model = HookedMTA(config)
    for name, weight in model.named_parameters():
        if name.endswith(".weight") and weight.ndim == 2:
            std = weight.shape[1] ** -0.5
            nn.init.trunc_normal_(weight, 0.0, std, -3 * std, 3 * std, generator=generator)
    return model.to(device)


def write_history(path: Path, config: ModelConfig, history: Sequence[training.Snapshot]) -> None:
    """Write every kernel as [snapshot, *shape in the checkpoint file]; `steps` is in the metadata.

    `steps` is a JSON list of training steps done, strictly increasing. A model without kernels
    gets no file: there is nothing to write.
    """
    entries = file_entries(config)
    stacked = {
        entries[name].key: torch.stack(
            [entries[name].layout.write(snapshot.kernels[name]) for snapshot in history]
        ).to(FILE_DTYPE)
        for name in history[0].kernels
    }
    if stacked:
        steps = json.dumps([snapshot.step for snapshot in history])
        save_file(stacked, path, metadata={"steps": steps})


def loss_curve(losses: Sequence[float]) -> list[tuple[int, float]]:
    """At most CURVE_POINTS pairs (steps done, mean loss of the steps since the pair before)."""
    width = -(-len(losses) // CURVE_POINTS) or 1
    chunks = ((start, losses[start : start + width]) for start in range(0, len(losses), width))
    return [(start + len(chunk), sum(chunk) / len(chunk)) for start, chunk in chunks]


def write_card(folder: Path, card: dict[str, Any], title: str, summary: str) -> None:
    """Write `card.json` and a readable `README.md` of it: the curve's ends only, and `cells` left out."""
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    stopped = f" Stopped early, after {card['steps']} steps." if card["steps"] < card["planned_steps"] else ""
    lines = [f"# {title}: {card['variant']}", "", summary + stopped, "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in card.items() if name != "loss_curve"]
    (first_step, first), (last_step, last) = card["loss_curve"][0], card["loss_curve"][-1]
    curve = f"Loss: {first:.3f} after {first_step} steps, {last:.4f} after {last_step} (card.json)."
    (folder / "README.md").write_text("\n".join([*lines, "", curve]) + "\n", encoding="utf-8")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items() if name != "cells")
    if isinstance(value, list | tuple):
        return " ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def prepare_folder(out: Path, resume: bool, lingua: Path | None = None) -> None:
    """Make the folder of a new run. Raises `MtaVizError` when something is there, or at `lingua`, already."""
    if lingua is not None and lingua.resolve() == out.resolve():
        raise MtaVizError(f"{lingua} is the run's own folder; choose another one for the Lingua export.")
    if resume:
        return
    if lingua is not None and _is_taken(lingua):
        raise MtaVizError(f"{lingua} exists; choose another folder for the Lingua export.")
    if out.is_symlink() and not out.exists():
        raise MtaVizError(f"{out} is a link to something that is not there; choose another folder.")
    if _is_taken(out):
        raise MtaVizError(f"{out} exists; choose another folder, or resume the run that began there.")
    out.mkdir(parents=True, exist_ok=True)


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
