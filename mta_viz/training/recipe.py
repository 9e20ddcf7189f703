"""What every recipe does: train, leave a folder with kernel history, measure what it holds, write its card.

Owns the order of the work and the files a run leaves; of recipes that train a model of their own also the
weights they start from and the checkpoint. Data, measurement and words about them are each recipe's own.
"""

import dataclasses
import json
import math
import os
import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from mta_viz.analysis.kernels.finetuning import PROGRESS_FILE, STATE_FILE
from mta_viz.checkpoint.history import HISTORY_FILE
from mta_viz.checkpoint.layout import file_entries
from mta_viz.checkpoint.lingua import check_for_lingua, write_lingua
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import refuse_all
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import time_text
from mta_viz.run import tracing
from mta_viz.run.devices import checked_device
from mta_viz.training import trainer as training
from mta_viz.training.checks import export_checks, prepare_folder, run_checks
from mta_viz.training.settings import RecipeSettings, RunSettings
from mta_viz.training.trainer import Report, Trainer, TrainingProgress, TrainingResult
from mta_viz.writing import replacing, write

FILE_DTYPE = torch.float16
CURVE_POINTS = 200

Batches = Callable[[int], Any]
Progress = Callable[[float], None]
Extras = Callable[[TrainingProgress], Mapping[str, Any]]


class Recipe(ABC):
    """A run's settings, with what they mean for its data, its measurement and its card."""

    config: RunSettings
    title: str

    @property
    def measuring(self) -> float:
        """About the seconds that measuring the result takes; 0 where nobody knows."""
        return 0.0

    @abstractmethod
    def check(self) -> None:
        """Raise `MtaVizError` for settings that describe no run, before any work."""

    @abstractmethod
    def start(self, device: torch.device) -> HookedMTA:
        """The model as training begins, what is trained requiring gradients."""

    @abstractmethod
    def batches(self, device: torch.device) -> AbstractContextManager[Batches]:
        """Step -> its batch on `device`, for as long as the context is open: of seed and step alone."""

    @abstractmethod
    def write(self, trainer: Trainer, result: TrainingResult, out: Path) -> None:
        """Put what was trained into `out`, over what a run stopped by the clock left."""

    @abstractmethod
    def written(self, out: Path, device: torch.device) -> HookedMTA:
        """The model that `write` left, read again."""

    @abstractmethod
    def facts(self, steps: int) -> dict[str, Any]:
        """What the card says of the data, `steps` into the run."""

    @abstractmethod
    def evaluate(self, model: HookedMTA, progress: Progress = tracing.ignore) -> dict[str, Any]:
        """What the card says of how well the written model does."""

    @abstractmethod
    def summary(self, card: dict[str, Any]) -> str:
        """What the model does and how well, in sentences."""

    @abstractmethod
    def named(self) -> dict[str, Any]:
        """What the card begins with: the task and the variant, which is its title's end."""

    def autocast(self, device: torch.device) -> bool:
        """Whether it is computed in bfloat16 with float32 weights."""
        return device.type == "cuda"

    def loss(self) -> training.Loss:
        """Of the model and a batch."""
        return training.weighted_loss

    def identity(self) -> dict[str, Any]:
        """What a run that goes on must have in common with the one that began."""
        return dataclasses.asdict(self.config)

    def settings(self) -> dict[str, Any]:
        """The settings as the card has them."""
        return dataclasses.asdict(self.config)

    def watch(self, trainer: Trainer, out: Path) -> Extras:
        """What is done before the first step and at every report; the answer goes into progress.json."""
        return lambda progress: {}

    def seal(self, trainer: Trainer, out: Path, card: Mapping[str, Any]) -> str:
        """Write what the card's numbers complete; returns the sha256 of the weights."""
        return sha256(out)

    def train(
        self,
        out: Path,
        *,
        device: str = "cpu",
        max_seconds: float | None = None,
        resume: bool = False,
        report: Report | None = None,
        evaluation_progress: Progress = tracing.ignore,
    ) -> dict[str, Any]:
        """Train, write the folder `out`, measure what was written; returns the card.

        `out` gets what `write` writes, card.json, README.md and, from the first step on, progress.json.
        While training, and when `max_seconds` stops the run early, it also holds the state that
        `resume=True` continues from. Raises `MtaVizError` for an `out` that exists (without `resume`), a
        missing device, or settings that describe no model, before any work.
        """
        refuse_all([*run_checks(out, device, max_seconds, resume), self.check], "The run")
        place = checked_device(device)
        prepare_folder(out)
        with self.batches(place) as batches:
            trainer = self._trainer(batches, out, place)
            if resume:
                trainer.resume()
            with _followed(trainer, out, self.watch(trainer, out), report) as follow:
                result = trainer.run(max_seconds=max_seconds, report=follow)
                self.write(trainer, result, out)
                card = self._card(result, place)
                card |= self.evaluate(self.written(out, place), evaluation_progress)
                card["sha256"] = self.seal(trainer, out, card)
                write_card(out, card, f"{self.title}: {card['variant']}", self.summary(card), result.whole)
                if result.whole:
                    (out / STATE_FILE).unlink()
        return card

    def _trainer(self, batches: Batches, out: Path, device: torch.device) -> Trainer:
        identity = {"device": device.type} | self.identity()
        return Trainer(
            self.start(device),
            batches,
            self.config,
            loss=self.loss(),
            autocast=self.autocast(device),
            state_file=out / STATE_FILE,
            identity=json.dumps(identity, sort_keys=True),
            after=self.measuring,
        )

    def precision(self, device: torch.device) -> str:
        """What was computed in, in words."""
        return "bfloat16 autocast" if self.autocast(device) else "float32"

    def _card(self, result: TrainingResult, device: torch.device) -> dict[str, Any]:
        config = self.config
        cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads used"
        cpu = f"CPU ({platform.machine()}, {cores})"
        return {
            **self.named(),
            "command": config.command(device.type),
            "config": self.settings(),
            **self.facts(result.steps_done),
            "seed": config.seed,
            "steps": result.steps_done,
            "planned_steps": config.steps,
            "seconds": round(result.seconds, 1),
            "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
            "torch": torch.__version__,
            "training_precision": self.precision(device),
            "loss_curve": loss_curve(result.losses),
        }


class ModelRecipe(Recipe):
    """A recipe that trains a model of its own, from random weights on, into a checkpoint folder."""

    config: RecipeSettings

    def check(self) -> None:
        """That there is such a model."""
        self.config.model_config()

    def named(self) -> dict[str, Any]:
        """The recipe's name, and whether it is the model or its twin."""
        return {"task": self.config.task, "variant": self.config.variant}

    def model_config(self) -> ModelConfig:
        """The model as it is trained."""
        return self.config.model_config()

    def start(self, device: torch.device) -> HookedMTA:
        """Random weights, of the seed alone."""
        return initial_model(self.model_config(), self.config.seed, device)

    def write_tokenizer(self, out: Path) -> tuple[str, Path | None]:
        """The tokenizer's name and, where it needs one, its file, which is put into `out`."""
        return "char", None

    def train(
        self,
        out: Path,
        *,
        lingua: Path | None = None,
        report: Report | None = None,
        evaluation_progress: Progress = tracing.ignore,
        **run: Any,
    ) -> dict[str, Any]:
        """As `Recipe.train`; `out` gets model.safetensors and params.json (float16) and, of models with
        kernels, kernel_history.safetensors. `lingua` is a folder, which must not exist, for the same weights
        in Lingua's format."""
        checks = [*run_checks(out, **run), *export_checks(lingua, out, run.get("resume", False)), self.check]
        export = [] if lingua is None else [partial(check_for_lingua, self.config.model_config())]
        refuse_all([*checks, *export], "The run")
        card = super().train(out, report=report, evaluation_progress=evaluation_progress, **run)
        if lingua is not None:
            write_lingua(lingua, read_checkpoint(out), overwrite=True)
        return card

    def write(self, trainer: Trainer, result: TrainingResult, out: Path) -> None:
        """The checkpoint and the history."""
        config = self.model_config()
        state = {name: value.detach().cpu() for name, value in trainer.model.state_dict().items()}
        name, file = self.write_tokenizer(out)
        write_native(
            out, config, state, tokenizer_name=name, tokenizer_path=file, dtype=FILE_DTYPE, overwrite=True
        )
        write_history(out / HISTORY_FILE, config, result.history)

    def written(self, out: Path, device: torch.device) -> HookedMTA:
        """In float32, rounded as the file is."""
        return tracing.load(out, device=str(device), dtype=torch.float32)


@contextmanager
def _followed(trainer: Trainer, out: Path, extras: Extras, report: Report | None) -> Iterator[Report]:
    """Keep `progress.json` at what the run does, however it ends; reports go on to `report`."""
    more = extras(trainer.progress)

    def follow(progress: TrainingProgress) -> None:
        nonlocal more
        more = extras(progress)
        write_progress(out, progress, "running", more)
        if report is not None:
            report(progress)

    write_progress(out, trainer.progress, "running", more)
    done = False
    try:
        yield follow
        done = trainer.finished
    finally:
        write_progress(out, trainer.progress, "done" if done else "stopped", more)


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


def write_history(
    path: Path, config: ModelConfig, history: Sequence[training.Snapshot], dtype: torch.dtype = FILE_DTYPE
) -> None:
    """Write every kernel as [snapshot, *shape in the checkpoint file]; `steps` is in the metadata.

    `steps` is a JSON list of training steps done, strictly increasing. A model without kernels
    gets no file: there is nothing to write.
    """
    entries = file_entries(config)
    stacked = {
        entries[name].key: torch.stack(
            [entries[name].layout.write(snapshot.kernels[name]) for snapshot in history]
        ).to(dtype)
        for name in history[0].kernels
    }
    if stacked:
        steps = json.dumps([snapshot.step for snapshot in history])
        with replacing(path) as partial:  # a reader never sees half of it
            save_file(stacked, partial, metadata={"steps": steps})


def loss_curve(losses: Sequence[float]) -> list[tuple[int, float]]:
    """At most CURVE_POINTS pairs (steps done, mean loss of the steps since the pair before)."""
    width = -(-len(losses) // CURVE_POINTS) or 1
    chunks = ((start, losses[start : start + width]) for start in range(0, len(losses), width))
    return [(start + len(chunk), sum(chunk) / len(chunk)) for start, chunk in chunks]


def write_card(folder: Path, card: dict[str, Any], title: str, summary: str, whole: bool) -> None:
    """Write `card.json` and a readable `README.md` of it: the curve's ends only, and `cells` left out."""
    write(folder / "card.json", json.dumps(card, indent=1) + "\n")
    stopped = "" if whole else f" Stopped early, after {card['steps']} steps."
    lines = [f"# {title}", "", summary + stopped, "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in card.items() if name != "loss_curve"]
    (first_step, first), (last_step, last) = card["loss_curve"][0], card["loss_curve"][-1]
    curve = f"Loss: {first:.3f} after {first_step} steps, {last:.4f} after {last_step} (card.json)."
    write(folder / "README.md", "\n".join([*lines, "", curve]) + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items() if name != "cells")
    if isinstance(value, list | tuple):
        return " ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_progress(
    folder: Path, progress: TrainingProgress, state: str, extras: Mapping[str, Any] | None = None
) -> None:
    """Replace the folder's progress.json; a reader never sees half of it.

    It holds `step` of `steps`, `loss` (nats, mean of the last steps), `seconds_left` to train and, of a
    finetuning, to measure the result, both null before they are known, `state`: running, stopped or done,
    and what the recipe adds.
    """
    left = 0.0 if state == "done" else progress.seconds_left
    known = {
        name: value if math.isfinite(value) else None
        for name, value in (("loss", progress.loss), ("seconds_left", left))
    }
    data = {"step": progress.steps_done, "steps": progress.steps, **known, "state": state}
    data |= extras or {}
    write(folder / PROGRESS_FILE, json.dumps(data) + "\n")


def print_progress(progress: TrainingProgress, left: str = "left") -> None:
    """Steps, loss and time left, on stderr; `left` says of what."""
    done = f"step {progress.steps_done} of {progress.steps}  loss {progress.loss:.4f}"
    print(f"{done}  {time_text(progress.seconds_left)} {left}", file=sys.stderr, flush=True)
