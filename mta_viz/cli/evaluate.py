"""`evaluate PATH --task TASK`: a checkpoint's numbers again, on sequences training never saw."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import from_data
from mta_viz.cli.flags import add_model, add_task, note_seconds, open_model
from mta_viz.cli.output import ProgressLine
from mta_viz.cli.values import positive
from mta_viz.errors import FileError, MtaVizError, TokenizerError
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.training.settings import BlocksConfig

if TYPE_CHECKING:
    from mta_viz.model.transformer import HookedMTA
    from mta_viz.training.needle_data import Book

HELP = "measure a checkpoint at its task"
CARD = "card.json"
BLOCK_SAMPLES, NEEDLE_SAMPLES = 1000, 50  # the latter for each of 18 settings
PAIRS_SAMPLES = 200  # of known words, and of words held out
SENTENCES = 2000  # of the grammar
SEED = 1_000_000  # of pairs: far from the samples everything else begins at


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser)
    add_task(parser, "blocks", "text", required=True)
    about = (
        "blocks: 1000; needle: 50 for each of 18 settings; pairs: 200 of known words, 200 held out; a file's"
    )
    add("--samples", type=positive, metavar="N", help=f"{about}: all")
    add("--length", type=positive, metavar="T", help="pairs: tokens of a prompt (default: half the trained)")
    add("--corpus", type=Path, metavar="DIR", help="text: books (*.txt), measured on the end of each")


def run(arguments: Namespace) -> dict[str, Any]:
    """Measure the checkpoint at `arguments.task`."""
    from mta_viz.training.needle_data import read_books

    if arguments.length and arguments.task != "pairs":
        raise MtaVizError("--length is of the pairs task; leave it out")
    books = read_books(arguments.corpus) if arguments.corpus else ()
    model = open_model(arguments)
    if arguments.task == "blocks":
        return _blocks(model, arguments.path, arguments.samples or BLOCK_SAMPLES)
    if model.tokenizer is None:
        raise TokenizerError(f"--task {arguments.task} needs the checkpoint's tokenizer: --tokenizer FILE")
    if arguments.task == "needle":
        return _needle(model, model.tokenizer, arguments.samples or NEEDLE_SAMPLES)
    if arguments.task == "pairs":
        length = arguments.length or model.config.n_ctx // 2
        return _pairs(model, model.tokenizer, arguments.samples or PAIRS_SAMPLES, length)
    if arguments.task != "text":
        return _file(model, model.tokenizer, arguments.task, arguments.samples)
    return _text(model, model.tokenizer, books)


def _blocks(model: "HookedMTA", folder: Path, samples: int) -> dict[str, Any]:
    """Block finding as the checkpoint's card says it was trained, else with the recipe's defaults."""
    from mta_viz.analysis.labs.blocks import evaluate_blocks
    from mta_viz.training.from_scratch import block_task

    config = recipe_of(folder)
    task = block_task(config)
    note_seconds(model, f"{samples:,} sequences", [task.n_tokens] * samples)
    with ProgressLine("evaluating") as progress:
        evaluation = evaluate_blocks(model, task, n=samples, seed=config.evaluation_seed, progress=progress)
    return {"task": "blocks", **asdict(task), **asdict(evaluation)}


def _needle(model: "HookedMTA", tokenizer: Tokenizer, samples: int) -> dict[str, Any]:
    """Needles at half of and at the whole trained length, `samples` for each setting."""
    from mta_viz.analysis.labs.evaluation import evaluate_needles, full_plan

    plan = full_plan(samples, (model.config.n_ctx // 2, model.config.n_ctx))
    lengths = [length for _, length, _ in plan.settings] * samples
    note_seconds(model, f"{len(lengths):,} sequences", lengths)
    with ProgressLine("evaluating") as progress:
        evaluation = evaluate_needles(model, tokenizer, plan, progress=progress)
    return {"task": "needle", "samples": samples, **asdict(evaluation)}


def _pairs(model: "HookedMTA", tokenizer: Tokenizer, samples: int, length: int) -> dict[str, Any]:
    """Pairs of words that training may have seen, and of names, cities and numbers held out."""
    from mta_viz.analysis.labs.evaluation import evaluate_task
    from mta_viz.tasks.facts import in_turn
    from mta_viz.tasks.needles import HELD_OUT, KNOWN, PairsTask, shared_word

    note_seconds(model, f"{2 * samples:,} sequences", [length] * 2 * samples)
    scores = {}
    for name, words in (("known", KNOWN), ("held_out", HELD_OUT)):
        task = PairsTask(length=length, **vars(words))
        with ProgressLine(name) as progress:
            drawn = in_turn(tokenizer, [task], samples, SEED)
            scores[name] = asdict(evaluate_task(model, drawn, shared_word, progress=progress))
    grid = {"n_names": task.n_names, "n_cities": task.n_cities, "length": length}
    chance = {"one_word": 1 / task.n_names, "any_number": 1 / (task.n_names * task.n_cities)}
    return {"task": "pairs", "samples": samples, "seed": SEED, **grid, "chance": chance, **scores}


def _file(model: "HookedMTA", tokenizer: Tokenizer, file: str, wanted: int | None) -> dict[str, Any]:
    """The prompts of a file."""
    from mta_viz.analysis.labs.evaluation import evaluate_task
    from mta_viz.run.named_tasks import series_of

    series = series_of(file, 0)
    drawn = series.samples(tokenizer, series.count(wanted, series.most or 0), 0)
    note_seconds(model, f"{len(drawn):,} sequences", [len(sample.tokens) for sample in drawn])
    with ProgressLine("evaluating") as progress:
        score = evaluate_task(model, drawn, progress=progress)
    return {"task": "file", "setting": series.setting, "samples": len(drawn), **asdict(score)}


def _text(model: "HookedMTA", tokenizer: Tokenizer, books: "tuple[Book, ...]") -> dict[str, Any]:
    """`text_losses` of the grammar's held-out paragraphs, and of the held-out ends of the books."""
    from mta_viz.analysis.labs.text import text_losses
    from mta_viz.training.needle_data import HELD_OUT_STREAM, flowing_text, grammar_paragraphs

    texts = {"grammar": flowing_text(grammar_paragraphs(SENTENCES, HELD_OUT_STREAM))}
    if books:
        texts["books"] = flowing_text(paragraph for book in books for paragraph in book.held_out)
    window, scores = model.config.n_ctx, {}
    n_windows = sum(2 * len(tokenizer.encode(text)) // window for text in texts.values())
    note_seconds(model, f"{n_windows:,} windows", [window] * n_windows)
    for name, text in texts.items():
        with ProgressLine(name) as progress:
            scores[name] = text_losses(model, text, progress=progress).perplexity
    return {"task": "text", "window": window, "perplexity": scores}


def recipe_of(folder: Path) -> BlocksConfig:
    """How the card in a folder says its block-finding model was trained; without a card the defaults.

    Raises MtaVizError for a file that is no card.
    """
    try:
        card = door.read_json(folder / CARD)
    except FileError as error:
        if error.missing:
            return BlocksConfig()
        raise
    config = card.get("config") if isinstance(card, dict) else None
    if not isinstance(config, dict):
        raise MtaVizError(f"{folder / CARD} is no model card; restore it or move it away")
    return from_data(BlocksConfig, asdict(BlocksConfig()) | config, f"The model card {folder / CARD}")
