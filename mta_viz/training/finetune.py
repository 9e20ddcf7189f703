"""Finetuning: kernels put into a base and trained on a task, beside a loss that keeps the base as it was.

Owns what is trained, what is measured before and after, and the folder that a run leaves; losses are
finetune_loss.py's, prompts and text finetune_data.py's.
"""

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.checkpoint import door
from mta_viz.checkpoint.adapter import ADAPTER, AdapterAbout, AdapterBase, read_adapter, write_adapter
from mta_viz.checkpoint.history import HISTORY_FILE
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_merged
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.checkpoint.relatives import base_of
from mta_viz.checkpoint.types import Checkpoint
from mta_viz.errors import ConfigError, FileError, refuse_all
from mta_viz.model.editing import edited, insert_mta, usual_layers
from mta_viz.model.transformer import HookedMTA, build_model
from mta_viz.printed import size_text
from mta_viz.run.devices import check_fits, checked_device, free_bytes, kernel_training
from mta_viz.run.tracing import Progress, ignore, load
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.written import WrittenTask
from mta_viz.training import finetune_loss
from mta_viz.training.finetune_data import FinetuneBatches, Text, held_out_samples, read_named, read_text
from mta_viz.training.finetune_settings import FinetuneConfig
from mta_viz.training.recipe import (
    PROGRESS_FILE,
    Batches,
    Extras,
    Recipe,
    loss_curve,
    run_checks,
    write_history,
)
from mta_viz.training.trainer import (
    Loss,
    Prefetched,
    Trainer,
    TrainingProgress,
    TrainingResult,
    is_kernel,
    trained_parameters,
)

GLANCE = 20  # held-out samples that are looked at on the way
GLANCE_SHARE = 0.05  # of the time, at most
LIVE_SECONDS = 5.0  # between two states of the kernels that others can read
ROUGHLY = 2  # by which the estimate of a step's memory may be too large
# settings that runs on one base have in common, and what of it is known once it was asked for
SHARED = (
    *("base", "dtype", "corpus", "task", "names", "cities", "lengths"),
    *("evaluation_samples", "evaluation_seed", "evaluation_tokens"),
)
KEPT = ("before", "about")
MEASURED = ("perplexity", "held_out", "most_changed")
Tell = Callable[[str], None]


def finetune(
    config: FinetuneConfig,
    out: Path,
    *,
    device: str = "cpu",
    tell: Tell = lambda text: None,
    evaluation_progress: Progress = ignore,
    **options: Any,
) -> dict[str, Any]:
    """Put kernels into the model at `config.base` and train them into the folder `out`; returns the card.

    `out` gets adapter.safetensors (with `train` "all" a whole checkpoint), kernel_history.safetensors,
    card.json and README.md; adapter, history and progress.json are there from the first steps on, and
    replaced whole. `tell` gets sentences: what is prepared, how long it will take, how well it does. The
    rest as in `Recipe.train`; how long a run takes stands in `config`. Raises `MtaVizError` for a base that
    cannot be used or has kernels already, a corpus without text, a task that does not fit the base.
    """
    run = run_checks(out, device, resume=options.get("resume", False))
    refuse_all([*run, partial(check_dtype, config, device)], config.subject)
    recipe = FinetuneRecipe.of(config, device, tell, evaluation_progress)
    return recipe.train(out, device=device, evaluation_progress=evaluation_progress, **options)


def check_dtype(config: FinetuneConfig, device: str) -> None:
    """Raises ConfigError for a dtype in which all parameters cannot be trained there."""
    if config.train == "all" and config.dtype != "float32" and not device.startswith("cuda"):
        problem = f"all parameters are trained in {config.dtype} on a GPU alone; take float32 on {device}"
        raise ConfigError([problem], config.subject)


@dataclass(frozen=True)
class FinetuneRecipe(Recipe):
    """A base, where it came from, and what it is trained and measured on. `tell` gets sentences.

    `base_progress` gets the share of the base's own measurement that is done.
    """

    config: FinetuneConfig
    checkpoint: Checkpoint
    base: HookedMTA
    text: Text
    task: str | WrittenTask
    samples: tuple[NeedleSample, ...]
    tell: Tell
    base_progress: Progress = ignore
    title = "Finetuning"

    @classmethod
    def of(
        cls, config: FinetuneConfig, device: str, tell: Tell, base_progress: Progress = ignore
    ) -> "FinetuneRecipe":
        """Read the base, the corpus and the task, and refuse what cannot be trained."""
        place, dtype = checked_device(device), getattr(torch, config.dtype)
        check_dtype(config, device)
        checkpoint = read_checkpoint(config.base)
        check_fits(checkpoint, place, dtype)
        base = build_model(checkpoint, device=place, dtype=dtype)
        if not config.layers and config.train != "all":
            config = dataclasses.replace(config, layers=tuple(usual_layers(base.config)))
        with_mta(base, config)
        tokenizer = check_vocabulary(base, base.tokenizer)
        text = read_text(Path(config.corpus) if config.corpus else None, config.evaluation_tokens)
        task = read_named(config.task)
        batches = FinetuneBatches(config, tokenizer, text, task)
        check_memory(base, config, batches.longest())  # before prompts of any length are made
        batches.check()
        samples = tuple(held_out_samples(config, tokenizer, task))
        return cls(config, checkpoint, base, text, task, samples, tell, base_progress)

    def under(self, config: FinetuneConfig) -> "FinetuneRecipe":
        """Another run of the same base, task and text: nothing is read or measured anew.

        Raises ConfigError where these differ, and for what cannot be put into the base.
        """
        own = [name for name in SHARED if getattr(config, name) != getattr(self.config, name)]
        if own:
            raise ConfigError([f"{name} differs from the run before" for name in own], config.subject)
        with_mta(self.base, config)
        recipe = dataclasses.replace(self, config=config)
        recipe.__dict__.update({name: self.__dict__[name] for name in KEPT if name in self.__dict__})
        return recipe

    def check(self) -> None:
        """Everything was checked when it was read."""

    @cached_property
    def about(self) -> AdapterBase:
        """The base by name, digest and place."""
        return base_of(self.checkpoint.source)

    def start(self, device: torch.device) -> HookedMTA:
        """The base with kernels at the identity, what is trained in float32 and with memory of its own."""
        samples = f"{len(self.samples)} samples, " if self.samples else ""
        self.tell(f"measuring the base: {samples}text of {', '.join(self.text.held_out)}")
        self.tell(finetune_loss.base_words(self.before))
        return trainable(with_mta(self.base, self.config), self.config)

    @cached_property
    def before(self) -> finetune_loss.Measured:
        """What the base does."""
        return finetune_loss.measure(self.base, self.samples, self.text.held_out, self.base_progress)

    @property
    def measuring(self) -> float:
        """As long as the base took."""
        return self.before.seconds

    def batches(self, device: torch.device) -> AbstractContextManager[Batches]:
        """Made ahead in a thread, which ends with the context."""
        tokenizer = check_vocabulary(self.base, self.base.tokenizer)
        return closing(Prefetched(FinetuneBatches(self.config, tokenizer, self.text, self.task), device))

    def loss(self) -> Loss:
        """Answers, and what keeps the base as it was."""
        return finetune_loss.FinetuneLoss(self.config, self.base)

    def autocast(self, device: torch.device) -> bool:
        """A frozen base is in its dtype itself."""
        return self.config.train == "all" and self.config.dtype != "float32"

    def precision(self, device: torch.device) -> str:
        """The base's dtype; what is trained is float32 always."""
        return f"{self.config.dtype}, what is trained in float32"

    def identity(self) -> dict[str, Any]:
        """The settings, with the base and the text themselves in place of their paths."""
        text = self.text.prose + self.text.others + tuple(self.text.held_out.values())
        digests = [hashlib.blake2b(part.encode(), digest_size=8).hexdigest() for part in text]
        data = {"base": self.about.sha256, "corpus": digests}
        if isinstance(self.task, WrittenTask):
            data["task"] = self.task.digest
        return dataclasses.asdict(self.config) | data

    def watch(self, trainer: Trainer, out: Path) -> Extras:
        """Say how long it will take; then look at held-out samples now and then, and write the kernels."""
        if not trainer.finished:  # else only the measuring of the result was cut short
            self.tell("timing a step")
            times, so_far = (trainer.time_step(), self.measuring), trainer.progress
            self.tell(finetune_loss.time_words(self.config, *times, self.base.device.type, so_far))
        return Watch(self, trainer, out)

    def write(self, trainer: Trainer, result: TrainingResult, out: Path) -> None:
        """The adapter, or with "all" the whole model, and the history."""
        model = trained_model(trainer)
        if self.config.train == "all":
            dtype = getattr(torch, self.config.dtype)
            state = {name: value.detach().to("cpu", dtype) for name, value in model.state_dict().items()}
            write_merged(out, self.checkpoint, model.config, state, overwrite=True)
        else:
            self.write_adapter(model, out, {"steps": result.steps_done})
        write_history(out / HISTORY_FILE, model.config, result.history, torch.float32)

    def write_adapter(self, model: HookedMTA, out: Path, numbers: Mapping[str, Any]) -> None:
        """What was added to the base or changed in it."""
        about = AdapterAbout(self.about, model.config.mta, self.settings(), numbers)
        tensors = {name: value.detach() for name, value in trained_parameters(model).items()}
        write_adapter(out / ADAPTER, model.config, tensors, about, overwrite=True)

    def written(self, out: Path, device: torch.device) -> HookedMTA:
        """The adapter on the base that is there already, or the whole checkpoint, in the run's dtype."""
        dtype = getattr(torch, self.config.dtype)
        if self.config.train == "all":
            return load(out, device=str(device), dtype=dtype)
        tensors = read_adapter(out / ADAPTER).tensors
        model = with_mta(self.base, self.config)
        own = {name: value.to(device, dtype) for name, value in tensors.items()}
        model.load_state_dict(own, strict=False, assign=True)
        return model.requires_grad_(False)

    def settings(self) -> dict[str, Any]:
        """Base and corpus by their names alone: where they lay says nothing elsewhere."""
        corpus = self.config.corpus
        names = {"base": self.about.name, "corpus": Path(corpus).absolute().name if corpus else None}
        return dataclasses.asdict(self.config) | names

    def named(self) -> dict[str, Any]:
        """The task, the base and what of it was trained."""
        base = dataclasses.asdict(dataclasses.replace(self.about, path=None))
        variant = f"{self.about.name}, {self.config.train}"
        return {"task": self.config.task, "variant": variant, "base": base}

    def facts(self, steps: int) -> dict[str, Any]:
        """How much was trained on what."""
        config, model = self.config, trainable(with_mta(self.base, self.config), self.config)
        count = sum(value.numel() for value in trained_parameters(model).values())
        reads = config.task == "text" or config.keep != "none"
        text_tokens = sum(math.prod(config.pieces(step)) for step in range(steps)) if reads else 0
        prompts = steps * config.batch_size if config.task != "text" else 0
        return {"parameters_trained": count, "prompts": prompts, "text_tokens": text_tokens}

    def evaluate(self, model: HookedMTA, progress: Progress = ignore) -> dict[str, Any]:
        """Base and result on the same held-out samples and texts, and the difference."""
        after = finetune_loss.measure(model, self.samples, self.text.held_out, progress)
        numbers = finetune_loss.compared(self.before, after) | (
            finetune_loss.most_changed(model) if self.config.with_kernels else {}
        )
        self.tell(finetune_loss.change_words(numbers))
        return numbers

    def seal(self, trainer: Trainer, out: Path, card: Mapping[str, Any]) -> str:
        """The numbers go into the adapter too."""
        if self.config.train == "all":
            return sha256(out)
        kept = ("steps", "seconds", "hardware", "parameters_trained", *MEASURED)
        self.write_adapter(trained_model(trainer), out, {name: card[name] for name in kept if name in card})
        return sha256(out / ADAPTER)

    def summary(self, card: dict[str, Any]) -> str:
        """What was trained into what, and the numbers before and after."""
        config = self.config
        size = " x ".join(map(str, config.kernel))
        what = f"Kernels of {size} in layers {', '.join(map(str, config.layers))} of {self.about.name}"
        if not config.with_kernels:
            what = f"{self.about.name} without kernels"
        return f"{what}; trained: {config.train}, on {config.task}. {finetune_loss.change_words(card)}"


class Watch:
    """What is done at every report: a glance at held-out samples, kernels for others to read.

    Its answer, for progress.json, is the loss so far as a curve, `accuracy`: after how many steps how
    many of how many samples were right, and what the base does: how many of all samples, and perplexity.
    """

    def __init__(self, recipe: FinetuneRecipe, trainer: Trainer, out: Path) -> None:
        self._recipe, self._trainer, self._out = recipe, trainer, out
        self._accuracy = _accuracy_so_far(out)
        if not self._accuracy and recipe.samples:
            first = recipe.before.right[:GLANCE]
            self._accuracy.append((0, sum(first), len(first)))
        self._looked = self._wrote = time.monotonic()
        self._cost = 0.0

    def __call__(self, progress: TrainingProgress) -> dict[str, Any]:
        """At a report."""
        now = time.monotonic()
        if now - self._wrote >= LIVE_SECONDS:
            self._write()
            self._wrote = now
        if progress.steps_done and now - self._looked >= self._cost / GLANCE_SHARE:
            self._look(progress.steps_done)
        before, curve = self._recipe.before, loss_curve(self._trainer.losses)
        counted = (sum(before.right), len(before.right)) if before.right else None
        base = {"right_before": counted, "perplexity_before": before.perplexity}
        return {"loss_curve": curve, "accuracy": self._accuracy, **base}

    def _write(self) -> None:
        history, model = self._trainer.snapshots(), trained_model(self._trainer)
        write_history(self._out / HISTORY_FILE, model.config, history, torch.float32)
        if self._recipe.config.train != "all":
            self._recipe.write_adapter(model, self._out, {"steps": history[-1].step, "state": "running"})

    def _look(self, step: int) -> None:
        start, samples = time.monotonic(), self._recipe.samples[:GLANCE]
        if samples:
            right = finetune_loss.right_answers(trained_model(self._trainer), samples)
            self._accuracy.append((step, sum(right), len(right)))
            self._recipe.tell(f"held-out: {sum(right)} of {len(right)} right")
        self._looked = time.monotonic()
        self._cost = self._looked - start


def check_memory(base: HookedMTA, config: FinetuneConfig, longest: int) -> None:
    """Raises ConfigError where a step on prompts of `longest` tokens takes far more memory than is free."""
    trained = with_mta(base, config).config
    first = 0 if config.train == "all" else min(config.layers)
    most = max(config.piece_lengths)
    prompts, text = (config.batch_size, longest), (config.n_pieces(most), most)
    size = getattr(torch, config.dtype).itemsize
    wanted = kernel_training(trained, first, prompts, text, dtype_bytes=size).n_bytes
    free = free_bytes(base.device)
    if free is not None and wanted > ROUGHLY * free:
        read = f"prompts {prompts[0]} x {longest:,} tokens, text {text[0]} x {most:,}"
        problem = f"a step needs about {size_text(wanted)} of memory ({read}), and {size_text(free)} are free"
        problem += "; take shorter prompts or pieces of text, or fewer a step"
        raise ConfigError([problem], config.subject)


def trained_model(trainer: Trainer) -> HookedMTA:
    """What a trainer of this recipe trains."""
    return cast(HookedMTA, trainer.model)


def with_mta(base: HookedMTA, config: FinetuneConfig) -> HookedMTA:
    """A model that shares the base's tensors, with the kernels of these settings at the identity.

    Raises ConfigError for a base that has kernels already, and layers that it has not.
    """
    kernel = (config.kernel[0], config.kernel[1])
    model = insert_mta(base, config.layers, kernel=kernel) if config.layers else edited(base, ())
    return model if config.with_kernels or not config.layers else edited(base, ())


def trainable(model: HookedMTA, config: FinetuneConfig) -> HookedMTA:
    """The model with what is trained as float32 parameters of its own; all else stays shared and fixed."""
    norms = {f"blocks.{layer}.ln1.weight" for layer in config.layers}
    for name, value in list(model.named_parameters()):
        of_kernels = is_kernel(name) and config.train != "norms"
        if of_kernels or config.train == "all" or ("norms" in config.train and name in norms):
            owner, _, leaf = name.rpartition(".")
            own = value.detach().clone().float()
            setattr(model.get_submodule(owner), leaf, nn.Parameter(own))
    return model


def _accuracy_so_far(out: Path) -> list[tuple[int, int, int]]:
    """What the run that is gone on with had seen; nothing where its file cannot be read."""
    try:
        rows = door.read_json(out / PROGRESS_FILE).get("accuracy", [])
        return [(int(step), int(right), int(n)) for step, right, n in rows]
    except (FileError, AttributeError, TypeError, ValueError):
        return []
