"""Commands and flags. Imports nothing heavy: `--help` answers at once."""

import argparse
from pathlib import Path
from typing import NoReturn

from mta_viz.cli.arguments_cause import (
    add_ablate,
    add_attribute,
    add_compare,
    add_effects,
    add_responsibility,
)
from mta_viz.cli.arguments_figures import add_figure, add_paper_figures
from mta_viz.cli.arguments_labs import add_conjunction, add_needle, add_perplexity, add_questions
from mta_viz.cli.arguments_look import add_cells, add_decompose, add_heads, add_lens
from mta_viz.cli.flags import Commands, add_model, add_prompt, layer_list, name_list, positive
from mta_viz.cli.train import add_blocks_arguments, add_needle_arguments, run_blocks, run_needle

TASKS = ("blocks", "needle", "text")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one `error: ...` line, like all others."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    """The parser of `python -m mta_viz`; `arguments.command` names the command's module."""
    parser = Parser(
        prog="python -m mta_viz",
        description="Look inside a Multi-Token Attention checkpoint. Answers are JSON on stdout.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_info(commands)
    _add_kernels(commands)
    _add_trace(commands)
    _add_generate(commands)
    add_heads(commands)
    add_cells(commands)
    add_decompose(commands)
    add_lens(commands)
    _add_train(commands)
    _add_evaluate(commands)
    add_effects(commands)
    add_ablate(commands)
    add_attribute(commands)
    add_compare(commands)
    add_responsibility(commands)
    add_needle(commands)
    add_perplexity(commands)
    add_conjunction(commands)
    add_questions(commands)
    add_paper_figures(commands)
    add_figure(commands)
    return parser


def _add_info(commands: Commands) -> None:
    info = commands.add_parser("info", help="what a checkpoint is: shapes, kernels, parameters")
    info.add_argument("path", type=Path, metavar="PATH", help="a checkpoint folder or a params.json")
    info.add_argument("--vocab-size", type=positive, metavar="N", help="when params.json leaves it open")


def _add_kernels(commands: Commands) -> None:
    kernels = commands.add_parser("kernels", help="what every kernel learned: shapes, scores, significance")
    kernels.add_argument("path", type=Path, metavar="PATH", help="a checkpoint folder")
    kernels.add_argument(
        "--format", choices=("json", "csv"), default="json", help="json (default): rows and counts; csv: rows"
    )
    kernels.add_argument(
        "--save",
        type=Path,
        metavar="FOLDER",
        help="also write the kernels alone, to be opened without the model",
    )


def _add_trace(commands: Commands) -> None:
    trace = commands.add_parser("trace", help="run a prompt and save what happened inside, or the run itself")
    add_model(trace)
    add_prompt(trace)
    trace.add_argument("--layers", type=layer_list, metavar="0,3", help="layers to save (default: all)")
    trace.add_argument(
        "--stages",
        type=name_list,
        metavar="NAMES",
        help="hooks to save, for example hook_scores_kq,hook_pattern (default: all; of a run maps, or none)",
    )
    trace.add_argument(
        "--format",
        choices=("hooks", "run"),
        default="hooks",
        help="hooks (default): tensors for other programs; run: a file the app and open_trace open again",
    )
    trace.add_argument("--out", type=Path, required=True, metavar="F.safetensors", help="file to write")
    trace.add_argument("--force", action="store_true", help="overwrite an existing file")
    trace.add_argument("--yes", action="store_true", help="write more than 4 GiB")


def _add_generate(commands: Commands) -> None:
    generate = commands.add_parser("generate", help="continue a prompt greedily, up to the end token")
    add_model(generate)
    generate.add_argument("--prompt", required=True, metavar="TEXT")
    generate.add_argument("--max-new-tokens", type=positive, required=True, metavar="N")


def _add_train(commands: Commands) -> None:
    train = commands.add_parser("train", help="train a checkpoint like the shipped ones")
    recipes = train.add_subparsers(metavar="RECIPE", required=True)
    blocks = recipes.add_parser("blocks", help="block finding, the paper's toy task")
    add_blocks_arguments(blocks)
    blocks.set_defaults(recipe=run_blocks)
    needle = recipes.add_parser("needle", help="the needle language model, or its plain twin")
    add_needle_arguments(needle)
    needle.set_defaults(recipe=run_needle)


def _add_evaluate(commands: Commands) -> None:
    evaluate = commands.add_parser("evaluate", help="measure a checkpoint at its task")
    add_model(evaluate, dtype="float32")
    evaluate.add_argument("--task", choices=TASKS, required=True, help="what to measure it at")
    evaluate.add_argument(
        "--samples", type=positive, metavar="N", help="blocks: 1000; needle: 50 for each of 18 settings"
    )
    evaluate.add_argument(
        "--corpus", type=Path, metavar="DIR", help="text: books (*.txt), measured on the end of each"
    )
