"""`perplexity PATH (--prompt TEXT | --file F) [--last-word]`: how well a text or last words are predicted."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.cli.flags import add_file, add_model, add_on, open_model
from mta_viz.cli.kept import form_of, kept_beside
from mta_viz.cli.output import ProgressLine, note
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.tasks.written import parse_passages
from mta_viz.writing import write

HELP = "how well a text, or passages' last words, are predicted"


def add_flags(parser: ArgumentParser) -> None:
    add_model(parser)
    add_on(parser)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--prompt", metavar="TEXT", help="a text, or with --last-word one passage")
    about = 'a text; with --last-word passages: paragraphs, or {"text": ...} lines'
    given.add_argument("--file", type=Path, metavar="FILE", help=about)
    about = "ask for the last word of each passage, as LAMBADA does"
    parser.add_argument("--last-word", action="store_true", help=about)
    add_file(parser, "--csv", "write every token, or passage, as a table", ending=".csv")


def run(arguments: Namespace) -> dict[str, Any]:
    """The numbers of the whole; with `--csv` those of every token or passage in a file."""
    text = arguments.prompt if arguments.file is None else door.read_text(arguments.file)
    if arguments.last_word:
        passages = (text,) if arguments.file is None else parse_passages(text, str(arguments.file))
        return _last_words(arguments, passages)
    if arguments.on:
        raise MtaVizError("--on is of --last-word, whose passages are independent; leave it out")
    if arguments.file is not None and arguments.file.suffix == ".jsonl":
        note(f"{arguments.file.name} is one text, its JSON too; with --last-word its lines are passages")
    return _whole(arguments, text)


def _whole(arguments: Namespace, text: str) -> dict[str, Any]:
    from mta_viz.analysis.labs.text import text_losses

    model = open_model(arguments)
    with ProgressLine("reading the text") as progress:
        losses = text_losses(model, text, progress=progress)
    if arguments.out:
        write(arguments.out, losses.table().csv())
    same = {name: getattr(losses, name) for name in ("loss", "perplexity", "window", "windows")}
    return {"tokens": len(losses.tokens), "predicted": losses.n, **same}


def _last_words(arguments: Namespace, passages: tuple[str, ...]) -> dict[str, Any]:
    from mta_viz.analysis.labs.text import PassageScores, score_passages

    model = open_model(arguments)
    with (
        kept_beside(arguments.out, form_of(PassageScores), [model], passages) as kept,
        ProgressLine("reading the passages") as progress,
    ):
        how: dict[str, Any] = {"progress": progress, "on": arguments.on, "kept": kept.of("passages")}
        scores = score_passages(model, passages, **how)
    if not scores.words:
        raise PromptError(f"no passage can be asked; passage 1: {scores.left_out[0].reason}")
    for passage in scores.left_out:
        note(f"passage {passage.number} is left out: {passage.reason}")
    if arguments.out:
        write(arguments.out, scores.table().csv())
    answer = {"passages": scores.n, **asdict(scores.accuracy), "perplexity": scores.perplexity}
    if scores.n == 1:
        answer |= {**asdict(scores.words[0]), "probability": scores.words[0].probability}
    return answer | {"left_out": list(map(asdict, scores.left_out))}
