"""The plain text somebody has: one file, or the files of a folder; `training` owns what of it is held out."""

from collections.abc import Sequence
from pathlib import Path

from mta_viz.checkpoint import door
from mta_viz.errors import MtaVizError
from mta_viz.printed import printable

PROSE, VERBATIM = ".txt", (".md", ".py")  # of a folder; VERBATIM keep their line breaks
BEGINNING = 4096  # bytes by which a file that is no text is told


def corpus_files(corpus: Path, endings: Sequence[str] = (PROSE, *VERBATIM)) -> list[Path]:
    """The file itself, or those of a folder that end so. Raises MtaVizError where there are none."""
    if corpus.is_file():
        return [corpus]
    if files := [file for ending in endings for file in sorted(corpus.glob(f"*{ending}"))]:
        return files
    kinds = " or ".join(endings)
    state = f"itself holds no {kinds} file" if corpus.is_dir() else "is neither a folder nor a file"
    raise MtaVizError(
        f"The corpus {printable(corpus)} {state}. Give a plain-text file, or a folder of such ({kinds})"
    )


def check_corpus(corpus: Path) -> None:
    """Raises MtaVizError for a corpus without files, and for files that begin as no text does."""
    for file in corpus_files(corpus):
        with door.opened(file, door.TEXT) as opened:
            _check_text(file, opened.read(BEGINNING))


def read_plain(file: Path) -> str:
    """A file's text, in UTF-8 or else Latin-1, as old books are. Raises MtaVizError for what is no text."""
    data = door.read_bytes(file, door.TEXT)
    _check_text(file, data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # never fails


def _check_text(file: Path, data: bytes) -> None:
    if b"\0" in data:
        raise MtaVizError(
            f"{printable(file)} is no plain text: it holds zero bytes; save it as UTF-8, or take it out"
        )
