"""The block-finding recipe: sequences of random letter blocks, and how often the answer is wrong."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mta_viz.analysis.labs.blocks import evaluate_blocks
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.blocks import BlockTask, stream_generator
from mta_viz.tasks.sources import stream_seed
from mta_viz.training.recipe import Batches, ModelRecipe, Progress
from mta_viz.training.settings import BlocksConfig
from mta_viz.training.trainer import Batch


def train_blocks(config: BlocksConfig, out: Path, **options: Any) -> dict[str, Any]:
    """Train a block-finding model into the folder `out`, as `ModelRecipe.train` says; returns the card.

    Raises `MtaVizError` also for settings that describe no task.
    """
    return BlocksRecipe(config, block_task(config)).train(out, **options)


def block_task(config: BlocksConfig) -> BlockTask:
    """The task at full length."""
    return BlockTask(config.n_letters, config.n_query, config.n_blocks, config.output)


@dataclass(frozen=True)
class BlocksRecipe(ModelRecipe):
    """Block finding, on sequences of the lengths in the mixture."""

    config: BlocksConfig
    task: BlockTask
    title = "Block finding"

    @contextmanager
    def batches(self, device: torch.device) -> Iterator[Batches]:
        """Drawn on the device, whose type they depend on too."""
        config = self.config
        tasks = [dataclasses.replace(self.task, n_blocks=count) for count in config.block_mixture]

        def batch(step: int) -> Batch:
            task = tasks[stream_seed("blocks training length", config.seed, step) % len(tasks)]
            generator = stream_generator("blocks training", config.seed, step, device=device)
            drawn = task.batch(config.batch_size, generator)
            return Batch(drawn.tokens, drawn.answer.float())

        yield batch

    def facts(self, steps: int) -> dict[str, Any]:
        """Where the sequences come from, and how many were seen."""
        source = "random letter blocks made by mta_viz.tasks.blocks"
        data = f"{source}; training and evaluation are separate random streams"
        return {"data": data, "sequences": steps * self.config.batch_size}

    def evaluate(self, model: HookedMTA, progress: Progress = lambda share: None) -> dict[str, Any]:
        """The error on full-length sequences."""
        n, seed = self.config.evaluation_samples, self.config.evaluation_seed
        evaluation = evaluate_blocks(model, self.task, n=n, seed=seed, progress=progress)
        return {"evaluation": dataclasses.asdict(evaluation)}

    def summary(self, card: dict[str, Any]) -> str:
        """The task, and the error with its interval."""
        config, evaluation = self.config, card["evaluation"]
        low, high = evaluation["interval"]
        return (
            f"Finds the one block of {config.n_letters} letters (of {config.n_blocks}) that holds "
            f"{config.n_query} query letters, and answers its letters ({config.output}). Wrong in "
            f"{evaluation['wrong']} of {evaluation['n']} unseen full-length sequences: error "
            f"{evaluation['error']:.2%}, 95 % interval {low:.2%} to {high:.2%}."
        )
