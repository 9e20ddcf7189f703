"""`perplexity PATH (--prompt TEXT | --file F) [--last-word]`: how well a text or last words are predicted."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.text import PassageScores, TextLosses, score_passages, text_losses
from mta_viz.checkpoint.files import replacing
from mta_viz.cli.loading import open_model, valid_text
from mta_viz.cli.output import ProgressLine, check_output, note
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.exporting.results import losses_csv, words_csv
from mta_viz.tasks.passages import parse_passages


def run(arguments: Namespace) -> dict[str, Any]:
    """The numbers of the whole; with `--csv` those of every token or passage in a file."""
    if arguments.csv is not None:
        check_output(arguments.csv, arguments.force)
    text = valid_text(arguments.prompt) if arguments.file is None else _text(arguments.file)
    if arguments.last_word:
        passages = (text,) if arguments.file is None else parse_passages(text, str(arguments.file))
        return _last_words(arguments, passages)
    return _whole(arguments, text)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MtaVizError(f"{file} is not UTF-8 text ({error}); save it as UTF-8") from error


def _whole(arguments: Namespace, text: str) -> dict[str, Any]:
    model = open_model(arguments)
    with ProgressLine("reading the text") as progress:
        found = text_losses(model, text, progress=progress)
    _write(arguments.csv, found)
    return {
        "tokens": len(found.tokens),
        "predicted": found.n,
        "loss": found.loss,
        "perplexity": found.perplexity,
        "window": found.window,
        "windows": found.windows,
    }


def _last_words(arguments: Namespace, passages: tuple[str, ...]) -> dict[str, Any]:
    model = open_model(arguments)
    with ProgressLine("reading the passages") as progress:
        found = score_passages(model, passages, progress=progress)
    if not found.words:
        raise PromptError(f"no passage can be asked; passage 1: {found.left_out[0].reason}")
    for one in found.left_out:
        note(f"passage {one.number} is left out: {one.reason}")
    _write(arguments.csv, found)
    answer = {"passages": found.n, **asdict(found.accuracy), "perplexity": found.perplexity}
    if found.n == 1:
        answer |= {**asdict(found.words[0]), "probability": found.words[0].probability}
    return answer | {"left_out": [asdict(one) for one in found.left_out]}


def _write(file: Path | None, found: TextLosses | PassageScores) -> None:
    if file is not None:
        text = losses_csv(found) if isinstance(found, TextLosses) else words_csv(found)
        with replacing(file) as partial:
            partial.write_text(text, encoding="utf-8")
