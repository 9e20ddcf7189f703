"""What the second dimension of a kernel adds: full kernels, either axis alone, a factor a head, norm gains.

    python -m benchmarks.finetune_arms BASE --layers 2,6,10 --out DIR [--arms 6x11,1x11,6x1,1x1,norms]
        [--seeds 0,1,2] [--seconds 150 | --steps 400] [--corpus DIR] [--keep base] [--dtype bfloat16]
        [--device cuda]

Every arm of a seed sees the same data in the same order; with `--steps` also as much of it. A folder each in
DIR; one that is finished is not run again, so the same command goes on after an interruption, and arms that
several processes ran side by side are put together by one command with all of them. Prints a line an arm and
seed, then how much more the first arm has right than each other; writes DIR/arms.json.
"""

import argparse
import itertools
import json
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.cards import read_arms
from mta_viz.training.finetune import FinetuneRecipe
from mta_viz.training.finetune_loss import right_answers
from mta_viz.training.finetune_settings import FinetuneConfig, finetune_config
from mta_viz.training.recipe import STATE_FILE, print_progress

ARMS = "6x11,1x11,6x1,1x1,norms"
RIGHT_FILE = "right.json"  # which held-out samples a run answers right, in their order


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


class Runs:
    """The runs of a command. The base is read and measured once, where something is left to train."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.seeds = list(map(int, arguments.seeds.split(",")))
        self.arms = arguments.arms.split(",")

    @cached_property
    def recipe(self) -> FinetuneRecipe:
        """Of the first arm and seed; the others share its base."""
        config = config_of(self.arguments, self.arms[0], self.seeds[0])
        return FinetuneRecipe.of(config, self.arguments.device, tell)

    def row(self, arm: str, seed: int) -> dict[str, Any]:
        """The numbers of one run, from its folder where it is finished."""
        folder = self.arguments.out / f"{arm}-seed{seed}"
        if not (folder / RIGHT_FILE).exists():
            self.run(arm, seed, folder)
        right = json.loads((folder / RIGHT_FILE).read_text())
        return line(arm, seed, json.loads((folder / "card.json").read_text())) | {"right": right}

    def run(self, arm: str, seed: int, folder: Path) -> None:
        """Train what is not trained yet, and keep which samples are right."""
        recipe = self.recipe.under(config_of(self.arguments, arm, seed))
        resume = (folder / STATE_FILE).exists()
        if resume or not (folder / "card.json").exists():
            recipe.train(folder, device=self.arguments.device, resume=resume, report=print_progress)
        right = right_answers(recipe.written(folder, recipe.base.device), recipe.samples)
        (folder / RIGHT_FILE).write_text(json.dumps(right) + "\n")


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
    runs, rows = Runs(parser.parse_args()), []
    out = runs.arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for seed, arm in itertools.product(runs.seeds, runs.arms):
        rows.append(runs.row(arm, seed))
        print(json.dumps({name: value for name, value in rows[-1].items() if name != "right"}), flush=True)
        (out / "arms.json").write_text(json.dumps(rows) + "\n")
    for difference in read_arms(out / "arms.json").differences():
        print(difference.text)


if __name__ == "__main__":
    main()
