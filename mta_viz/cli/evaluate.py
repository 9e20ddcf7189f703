"""`evaluate PATH --task TASK`: a checkpoint's numbers again, on sequences training never saw."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mta_viz.cli.loading import open_model
from mta_viz.cli.progress import ProgressLine
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.recipes.blocks import block_task
from mta_viz.recipes.blocks_config import BlocksConfig, blocks_config
from mta_viz.recipes.blocks_evaluation import evaluate_blocks

CARD = "card.json"


def run(arguments: Namespace) -> dict[str, Any]:
    """Measure the checkpoint at the one task there is so far."""
    return _blocks(open_model(arguments), arguments.path, arguments.samples)


def _blocks(model: HookedMTA, folder: Path, samples: int) -> dict[str, Any]:
    """Block finding as the checkpoint's card says it was trained, else with the recipe's defaults."""
    config = _recipe(folder)
    task = block_task(config)
    with ProgressLine("evaluating") as progress:
        evaluation = evaluate_blocks(model, task, n=samples, seed=config.evaluation_seed, progress=progress)
    return {"task": "blocks", **asdict(task), **asdict(evaluation)}


def _recipe(folder: Path) -> BlocksConfig:
    try:
        fields = json.loads((folder / CARD).read_text("utf-8"))["config"]
    except (FileNotFoundError, NotADirectoryError):
        return BlocksConfig()
    except (ValueError, KeyError, TypeError) as error:
        raise MtaVizError(
            f"{folder / CARD} is no model card ({error}); restore it or move it away"
        ) from error
    return blocks_config(**fields)
