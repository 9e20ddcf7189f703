"""Train a block-finding model and leave a checkpoint folder with history and card.

Owns the recipe: its data stream, the order of the work, and what the card says. The loop is
trainer.py's, the measurement block_accuracy.py's.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mta_viz.analysis.labs.blocks import BlocksEvaluation, evaluate_blocks
from mta_viz.checkpoint.history import HISTORY_FILE
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.run import tracing
from mta_viz.run.devices import checked_device
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.seeding import stream_generator, stream_seed
from mta_viz.training.blocks_settings import BlocksConfig
from mta_viz.training.running import (
    check_export,
    check_seconds,
    export_lingua,
    hardware_name,
    loss_curve,
    prepare_folder,
    write_card,
    write_history,
)
from mta_viz.training.trainer import Batch, Report, Trainer, TrainingResult, initial_model

STATE_FILE = "training_state.pt"
FILE_DTYPE = torch.float16


def train_blocks(
    config: BlocksConfig,
    out: Path,
    *,
    lingua: Path | None = None,
    device: str = "cpu",
    max_seconds: float | None = None,
    resume: bool = False,
    report: Report | None = None,
    evaluation_progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Train, write the checkpoint folder `out`, measure what was written; returns the card.

    `out` gets model.safetensors and params.json (float16), kernel_history.safetensors (models
    with kernels), card.json and README.md. While training, and when `max_seconds` stops the run
    early, it also holds the state that `resume=True` continues from. `lingua` is a folder for the
    same weights in Lingua's format. Raises `MtaVizError` for an `out` or `lingua` that exists
    (without `resume`), a missing device, or a configuration that describes no task or model, before
    any work.
    """
    check_seconds(max_seconds)
    place = checked_device(device)
    check_export(lingua, out, resume)
    trainer = _trainer(config, out, place, resume)
    result = trainer.run(max_seconds=max_seconds, report=report)
    _write_model(out, config, trainer, result)
    export_lingua(lingua, out)
    evaluation = evaluate_blocks(
        tracing.load(out, device=device, dtype=torch.float32),
        block_task(config),
        n=config.evaluation_samples,
        seed=config.evaluation_seed,
        progress=evaluation_progress,
    )
    card = _card(out, config, result, evaluation, place)
    write_card(out, card, title=f"Block finding: {config.variant}", summary=_summary(config, card))
    if result.steps_done == config.steps:
        (out / STATE_FILE).unlink()
    return card


def _trainer(config: BlocksConfig, out: Path, device: torch.device, resume: bool) -> Trainer:
    """Everything that can be refused is refused here, the folder last, before the model is made."""
    model_config, settings = config.model_config(), config.trainer_settings()
    batches = block_batches(config, device)
    prepare_folder(out, resume)
    trainer = Trainer(
        initial_model(model_config, config.seed, device),
        batches,
        settings,
        state_file=out / STATE_FILE,
        identity=json.dumps({"device": device.type} | dataclasses.asdict(config), sort_keys=True),
    )
    if resume:
        trainer.resume()
    return trainer


def block_task(config: BlocksConfig) -> BlockTask:
    """The task at full length."""
    return BlockTask(config.n_letters, config.n_query, config.n_blocks, config.output)


def block_batches(config: BlocksConfig, device: torch.device) -> Callable[[int], Batch]:
    """Step -> its batch: a function of (seed, step) and the device type, whatever came before."""
    full = block_task(config)
    tasks = [dataclasses.replace(full, n_blocks=count) for count in config.block_mixture]

    def batch(step: int) -> Batch:
        task = tasks[stream_seed("blocks training length", config.seed, step) % len(tasks)]
        generator = stream_generator("blocks training", config.seed, step, device=device)
        drawn = task.batch(config.batch_size, generator)
        return Batch(drawn.tokens, drawn.answer.float())

    return batch


def _write_model(out: Path, config: BlocksConfig, trainer: Trainer, result: TrainingResult) -> None:
    model_config = config.model_config()
    state = {name: value.detach().cpu() for name, value in trainer.model.state_dict().items()}
    write_native(
        out,
        model_config,
        state,
        tokenizer_name="char",
        tokenizer_path=None,
        dtype=FILE_DTYPE,
        overwrite=True,  # what a run stopped by the clock left
    )
    write_history(out / HISTORY_FILE, model_config, result.history, FILE_DTYPE)


def _card(
    out: Path,
    config: BlocksConfig,
    result: TrainingResult,
    evaluation: BlocksEvaluation,
    device: torch.device,
) -> dict[str, Any]:
    return {
        "task": "blocks",
        "variant": config.variant,
        "command": command_line(config, device.type),
        "config": dataclasses.asdict(config),
        "data": "random letter blocks made by mta_viz.tasks.blocks; training and evaluation are "
        "separate random streams",
        "seed": config.seed,
        "steps": result.steps_done,
        "planned_steps": config.steps,
        "sequences": result.steps_done * config.batch_size,
        "seconds": round(result.seconds, 1),
        "hardware": hardware_name(device),
        "torch": torch.__version__,
        "training_precision": "bfloat16 autocast" if device.type == "cuda" else "float32",
        "evaluation": dataclasses.asdict(evaluation),
        "sha256": sha256(out),
        "loss_curve": loss_curve(result.losses),
    }


def command_line(config: BlocksConfig, device: str) -> str:
    """The command that repeats the run; fields without a flag go into a TOML file."""
    flags = {"variant": config.variant, "seed": config.seed, "steps": config.steps}
    command = "python -m mta_viz train blocks"
    if BlocksConfig(variant=config.variant, seed=config.seed, steps=config.steps) != config:
        command += " --config blocks.toml (the fields under config)"
    return command + "".join(f" --{name} {value}" for name, value in flags.items()) + f" --device {device}"


def _summary(config: BlocksConfig, card: dict[str, Any]) -> str:
    evaluation = card["evaluation"]
    low, high = evaluation["interval"]
    stopped = "" if card["steps"] == config.steps else f" Stopped early, after {card['steps']} steps."
    return (
        f"Finds the one block of {config.n_letters} letters (of {config.n_blocks}) that holds "
        f"{config.n_query} query letters, and answers its letters ({config.output}). Wrong in "
        f"{evaluation['wrong']} of {evaluation['n']} unseen full-length sequences: error "
        f"{evaluation['error']:.2%}, 95 % interval {low:.2%} to {high:.2%}.{stopped}"
    )
