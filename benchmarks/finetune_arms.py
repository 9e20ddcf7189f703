"""What the second dimension of a kernel adds: full kernels, either axis alone, a factor a head, norm gains.

    python -m benchmarks.finetune_arms BASE --layers 2,6,10 --out DIR [--arms 6x11,1x11,6x1,1x1,norms]
        [--seeds 0,1,2] [--seconds 150 | --steps 400] [--corpus DIR] [--keep base] [--dtype bfloat16]
        [--device cuda]

Every arm of a seed sees the same data in the same order; with `--steps` also as much of it. A folder each in
DIR; one that is finished is not run again, so the same command goes on after an interruption. Prints a line
an arm and seed, and writes them to DIR/arms.json.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from mta_viz.training.finetune import FinetuneRecipe
from mta_viz.training.finetune_settings import FinetuneConfig, finetune_config
from mta_viz.training.recipe import STATE_FILE, print_progress

ARMS = "6x11,1x11,6x1,1x1,norms"


def arm_settings(arm: str) -> dict[str, Any]:
    """What an arm changes."""
    if arm == "norms":
        return {"train": "norms"}
    return {"kernel": tuple(map(int, arm.split("x")))}


def tell(text: str) -> None:
    """On stderr."""
    print(text, file=sys.stderr, flush=True)


def config_of(arguments: argparse.Namespace, arm: str, seed: int) -> FinetuneConfig:
    """The settings of one arm and seed."""
    return finetune_config(
        arguments.config,
        base=arguments.base,
        layers=tuple(map(int, arguments.layers.split(","))),
        corpus=arguments.corpus,
        keep=arguments.keep,
        dtype=arguments.dtype,
        steps=arguments.steps,
        max_seconds=arguments.seconds,
        evaluation_samples=arguments.samples,
        seed=seed,
        **arm_settings(arm),
    )


def run(recipe: FinetuneRecipe, out: Path, device: str) -> dict[str, Any]:
    """The card of one run, from its folder where it is finished."""
    resume = (out / STATE_FILE).exists()
    if (out / "card.json").exists() and not resume:
        return json.loads((out / "card.json").read_text())
    return recipe.train(out, device=device, resume=resume, report=print_progress)


def line(arm: str, seed: int, card: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one run."""
    numbers = {name: card[name] for name in ("parameters_trained", "steps", "seconds", "perplexity")}
    return {"arm": arm, "seed": seed, **numbers, "held_out": card.get("held_out")}


def main() -> None:
    """Seeds outermost, so that an interrupted run has whole comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    for flag in ("layers", "corpus", "keep", "dtype"):
        parser.add_argument(f"--{flag}", required=flag == "layers")
    parser.add_argument("--arms", default=ARMS)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    arguments, rows = parser.parse_args(), []
    arguments.out.mkdir(parents=True, exist_ok=True)
    recipe: FinetuneRecipe | None = None
    for seed, arm in itertools.product(map(int, arguments.seeds.split(",")), arguments.arms.split(",")):
        config = config_of(arguments, arm, seed)
        recipe = recipe.under(config) if recipe else FinetuneRecipe.of(config, arguments.device, tell)
        card = run(recipe, arguments.out / f"{arm}-seed{seed}", arguments.device)
        rows.append(line(arm, seed, card))
        print(json.dumps(rows[-1]), flush=True)
        (arguments.out / "arms.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
