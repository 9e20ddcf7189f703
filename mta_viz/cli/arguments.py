"""Commands and flags. Imports nothing heavy: `--help` answers at once."""

import argparse
from pathlib import Path
from typing import NoReturn

from mta_viz.config import DTYPES
from mta_viz.recipes.blocks_arguments import add_blocks_arguments, run_blocks
from mta_viz.recipes.needle_arguments import add_needle_arguments, run_needle

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
    _add_train(commands)
    _add_evaluate(commands)
    _add_effects(commands)
    _add_ablate(commands)
    _add_attribute(commands)
    _add_needle(commands)
    _add_paper_figures(commands)
    return parser


def _add_info(commands: argparse._SubParsersAction) -> None:
    info = commands.add_parser("info", help="what a checkpoint is: shapes, kernels, parameters")
    info.add_argument("path", type=Path, metavar="PATH", help="a checkpoint folder or a params.json")
    info.add_argument("--vocab-size", type=positive, metavar="N", help="when params.json leaves it open")


def _add_kernels(commands: argparse._SubParsersAction) -> None:
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


def _add_trace(commands: argparse._SubParsersAction) -> None:
    trace = commands.add_parser("trace", help="run a prompt and save what happened inside")
    _add_model(trace)
    _add_prompt(trace)
    trace.add_argument("--layers", type=layer_list, metavar="0,3", help="layers to save (default: all)")
    trace.add_argument(
        "--stages",
        type=name_list,
        metavar="NAMES",
        help="hooks to save, for example hook_scores_kq,hook_pattern (default: all)",
    )
    trace.add_argument("--out", type=Path, required=True, metavar="F.safetensors", help="file to write")
    trace.add_argument("--force", action="store_true", help="overwrite an existing file")
    trace.add_argument("--yes", action="store_true", help="write more than 4 GiB")


def _add_generate(commands: argparse._SubParsersAction) -> None:
    generate = commands.add_parser("generate", help="continue a prompt greedily, up to the end token")
    _add_model(generate)
    generate.add_argument("--prompt", required=True, metavar="TEXT")
    generate.add_argument("--max-new-tokens", type=positive, required=True, metavar="N")


def _add_train(commands: argparse._SubParsersAction) -> None:
    train = commands.add_parser("train", help="train a checkpoint like the shipped ones")
    recipes = train.add_subparsers(metavar="RECIPE", required=True)
    blocks = recipes.add_parser("blocks", help="block finding, the paper's toy task")
    add_blocks_arguments(blocks)
    blocks.set_defaults(recipe=run_blocks)
    needle = recipes.add_parser("needle", help="the needle language model, or its plain twin")
    add_needle_arguments(needle)
    needle.set_defaults(recipe=run_needle)


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    evaluate = commands.add_parser("evaluate", help="measure a checkpoint at its task")
    _add_model(evaluate, dtype="float32")
    evaluate.add_argument("--task", choices=TASKS, required=True, help="what to measure it at")
    evaluate.add_argument(
        "--samples", type=positive, metavar="N", help="blocks: 1000; needle: 50 for each of 18 settings"
    )
    evaluate.add_argument(
        "--corpus", type=Path, metavar="DIR", help="text: books (*.txt), measured on the end of each"
    )


def _add_effects(commands: argparse._SubParsersAction) -> None:
    effects = commands.add_parser("effects", help="what a task loses without each kernel")
    _add_model(effects, dtype="float32")
    effects.add_argument("--task", choices=("needle", "blocks"), required=True, help="what to measure it at")
    effects.add_argument("--samples", type=positive, metavar="N", help="needle: 120; blocks: 500")
    effects.add_argument("--heads", action="store_true", help="measure every head switched off as well")
    effects.add_argument("--seed", type=int, default=0, metavar="S", help="of the samples (default 0)")
    effects.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="default: effects.json beside the weights (the app reads it)",
    )
    effects.add_argument("--force", action="store_true", help="overwrite a file of another measurement")


def _add_ablate(commands: argparse._SubParsersAction) -> None:
    ablate = commands.add_parser("ablate", help="what changed kernels and heads do to a prompt's answer")
    _add_model(ablate)
    _add_prompt(ablate)
    ablate.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar='"L3 H5 pre"',
        help="to the identity; pre, post, head_pre or head_post; may be repeated",
    )
    ablate.add_argument(
        "--head", action="append", default=[], metavar='"L3 H5"', help="switched off; may be repeated"
    )
    ablate.add_argument(
        "--plan", type=Path, metavar="FILE", help="a JSON list of interventions, acting first"
    )
    ablate.add_argument(
        "--answer", metavar="TEXT", help="default: the number asked for, or the likeliest token"
    )
    ablate.add_argument("--sweep", action="store_true", help="also each kernel, mixing row and head alone")
    ablate.add_argument("--needed", action="store_true", help="also the smallest set of kernels it needs")
    ablate.add_argument("--out", type=Path, metavar="FILE", help="write the answer to a file as well")
    ablate.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_attribute(commands: argparse._SubParsersAction) -> None:
    attribute = commands.add_parser("attribute", help="what the answer after a prompt rests on")
    _add_model(attribute)
    _add_prompt(attribute)
    attribute.add_argument(
        "--answer", metavar="TEXT", help="default: the number asked for, or the likeliest token"
    )
    attribute.add_argument("--position", type=int, metavar="N", help="its last token (default: the prompt's)")
    attribute.add_argument("--method", choices=("gradients", "ablation"), default="gradients")
    attribute.add_argument("--baseline", metavar="B", help="zero, mean (default) or a token's id")
    attribute.add_argument("--spans", type=span_list, metavar="3:8,20:25", help="positions ablated together")
    attribute.add_argument("--layer", type=int, metavar="L", help="of this layer's maps, not of the tokens")
    attribute.add_argument("--stage", metavar="NAME", help="for example hook_scores_kq")
    attribute.add_argument("--out", type=Path, metavar="FILE", help="write the answer to a file as well")
    attribute.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_prompt(command: argparse.ArgumentParser) -> None:
    prompt = command.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="a text, encoded by the checkpoint's tokenizer")
    prompt.add_argument(
        "--tokens", type=Path, metavar="FILE", help="a JSON list of token ids, taken as it is"
    )


def _add_needle(commands: argparse._SubParsersAction) -> None:
    needle = commands.add_parser("needle", help="needles x lengths x depths, several checkpoints, resumable")
    needle.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="checkpoint folders")
    _add_running(needle, dtype="float32")
    needle.add_argument(
        "--needles", type=number_list, default=(4,), metavar="2,4,6", help="1 to 8 (default 4)"
    )
    needle.add_argument(
        "--lengths", type=number_list, default=(512,), metavar="512,1024", help="of the prompt, in tokens"
    )
    needle.add_argument(
        "--depths",
        type=depth_list,
        default=(0, 25, 50, 75, 100),
        metavar="0,50,100",
        help="per cent of the haystack before the asked needle (default 0,25,50,75,100)",
    )
    needle.add_argument("--samples", type=positive, default=20, metavar="N", help="of each combination")
    needle.add_argument("--seed", type=int, default=0, metavar="S", help="number of the first sample")
    needle.add_argument("--template", choices=("paper", "ruler"), default="paper", help="needle and question")
    needle.add_argument("--needle", metavar="TEXT", help="a sentence of your own with {city} and {value}")
    needle.add_argument("--question", metavar="TEXT", help="with {city}; default: the needle up to its value")
    needle.add_argument("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    needle.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="results; what it holds is not run again"
    )
    needle.add_argument("--force", action="store_true", help="replace a file of another measurement")


def _add_paper_figures(commands: argparse._SubParsersAction) -> None:
    figures = commands.add_parser("paper-figures", help="the paper's figures of kernels, ready to print")
    _add_model(figures, dtype="float32")
    figures.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files")
    figures.add_argument(
        "--which",
        type=name_list,
        metavar="A,B",
        help="kernels, kernel-map, head-kernels, head-diagonal, head-ratio (default: all there is)",
    )
    figures.add_argument("--format", choices=("pdf", "svg", "png", "html"), default="pdf")
    figures.add_argument("--width", choices=("column", "page"), default="page", help="84 or 174 mm (default)")
    figures.add_argument("--layer", type=layer_list, metavar="0,3", help="layers to draw (default: all)")
    figures.add_argument("--head", type=layer_and_head, metavar="L,H", help="the kernel beside its map")
    figures.add_argument("--prompt", metavar="TEXT", help="for the map (default: a needle prompt)")
    figures.add_argument("--keys", metavar="TEXT", help="part of the prompt whose keys the map shows")
    figures.add_argument("--rows", metavar="TEXT", help="part whose queries it shows (default: the question)")
    figures.add_argument("--force", action="store_true", help="replace files of the same names")


def _add_model(command: argparse.ArgumentParser, dtype: str | None = None) -> None:
    command.add_argument("path", type=Path, metavar="PATH", help="a checkpoint folder")
    _add_running(command, dtype)


def _add_running(command: argparse.ArgumentParser, dtype: str | None = None) -> None:
    command.add_argument("--device", default="cpu", metavar="D", help="cpu (default), cuda, cuda:1 ...")
    own = dtype or "the file's own"
    command.add_argument("--dtype", choices=DTYPES, default=dtype, help=f"to compute in (default: {own})")
    command.add_argument("--tokenizer", type=Path, metavar="FILE", help="the tokenizer's file")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def number_list(text: str) -> tuple[int, ...]:
    """`2,4` -> (2, 4)."""
    return tuple(positive(part.strip()) for part in text.split(","))


def depth_list(text: str) -> tuple[float | int, ...]:
    """`0,12.5` -> (0, 12.5)."""
    try:
        depths = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of depths such as 0,50,100") from None
    return tuple(int(depth) if depth.is_integer() else depth for depth in depths)


def span_list(text: str) -> tuple[tuple[int, ...], ...]:
    """`3:8,20:25` -> the positions 3 to 7, and 20 to 24."""
    found = []
    for part in text.split(","):
        start, _, stop = part.strip().partition(":")
        if not (start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
            raise argparse.ArgumentTypeError(f"{part!r} is no span; write 3:8 for the positions 3 to 7")
        found.append(tuple(range(int(start), int(stop))))
    return tuple(found)


def layer_list(text: str) -> tuple[int, ...]:
    """`0,3` -> (0, 3)."""
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of layers such as 0,3")
    return tuple(sorted({int(part) for part in text.split(",")}))


def layer_and_head(text: str) -> tuple[int, int]:
    """`5,7` -> (5, 7)."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a layer and a head such as 5,7")
    return int(parts[0]), int(parts[1])


def name_list(text: str) -> tuple[str, ...] | None:
    """`hook_z,hook_pattern` -> both names; `all` -> None."""
    names = tuple(part.strip() for part in text.split(","))
    return None if names == ("all",) else names
