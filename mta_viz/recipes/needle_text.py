"""The text a needle model is trained and tested on: books given by the user, and the grammar.

Owns reading the corpus, what is held out, and tables of encoded sentences; needle_data.py makes
batches of them.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Library

from mta_viz.errors import MtaVizError
from mta_viz.tasks import grammar
from mta_viz.tasks.cities import HELD_OUT_CITIES, is_held_out
from mta_viz.tasks.haystack import split_sentences

HELD_OUT_SHARE = 0.05  # the end of each book
LONGEST = 128  # tokens
TRAINING_STREAM, HELD_OUT_STREAM = "needle training", "needle held out"
_HELD_OUT_CITY = re.compile(r"\b(?:" + "|".join(map(re.escape, HELD_OUT_CITIES)) + r")\b")
_NUMBER = re.compile(r"\d+")

Paragraph = tuple[str, ...]


@dataclass(frozen=True)
class Book:
    """One book's paragraphs, cut where its held-out end begins."""

    name: str
    training: tuple[Paragraph, ...]
    held_out: tuple[Paragraph, ...]


@dataclass(frozen=True)
class SentenceTable:
    """Encoded sentences end to end, each beginning with its separator.

    `ids` [token]; sentence s is ids[starts[s]:starts[s + 1]]; `is_start` [token + 1] marks starts and
    the end.
    """

    ids: np.ndarray
    starts: np.ndarray
    is_start: np.ndarray


def read_books(folder: Path) -> tuple[Book, ...]:
    """Every `*.txt` of a folder, by name. Raises `MtaVizError` when there is none or one is empty."""
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        state = "is not a folder" if not folder.is_dir() else "holds no .txt file"
        raise MtaVizError(
            f"The corpus {folder} {state}. Give --corpus a folder of plain-text books (*.txt), "
            "for example from Project Gutenberg."
        )
    return tuple(_read_book(file) for file in files)


def _read_book(file: Path) -> Book:
    data = file.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # never fails; old Project Gutenberg files are Latin-1
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n"))
    paragraphs = [tuple(split_sentences(block)) for block in blocks if block.strip()]
    if len(paragraphs) < 2:
        raise MtaVizError(
            f"{file} holds {len(paragraphs)} paragraphs; at least 2 are needed to hold one out."
        )
    cut = _held_out_start(paragraphs)
    return Book(file.stem, tuple(paragraphs[:cut]), tuple(paragraphs[cut:]))


def _held_out_start(paragraphs: list[Paragraph]) -> int:
    """First of the last paragraphs, which hold about HELD_OUT_SHARE of the characters; at least one."""
    sizes = [sum(map(len, paragraph)) for paragraph in paragraphs]
    limit, done = (1 - HELD_OUT_SHARE) * sum(sizes), 0
    for index, size in enumerate(sizes):
        done += size
        if done > limit:
            return max(1, index)
    return len(sizes) - 1


def grammar_paragraphs(n_sentences: int, stream: str = TRAINING_STREAM) -> list[Paragraph]:
    """Paragraphs of the grammar with at least `n_sentences` sentences together."""
    paragraphs, count = [], 0
    for paragraph in grammar.paragraphs(0, stream):
        paragraphs.append(paragraph)
        count += len(paragraph)
        if count >= n_sentences:
            break
    return paragraphs


def may_train(sentence: str) -> bool:
    """Whether a sentence names no held-out city and no held-out number."""
    numbers = (int(match) for match in _NUMBER.findall(sentence) if len(match) < 4)
    return not _HELD_OUT_CITY.search(sentence) and not any(map(is_held_out, numbers))


def training_paragraphs(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    """The paragraphs without the sentences that `may_train` refuses."""
    kept = (tuple(filter(may_train, paragraph)) for paragraph in paragraphs)
    return [paragraph for paragraph in kept if paragraph]


def sentence_table(
    library: Library, paragraphs: Iterable[Paragraph], paragraph_break: str = "\n"
) -> SentenceTable:
    """Encode paragraphs; sentences of more than LONGEST tokens are left out."""
    texts = [
        (paragraph_break if index == 0 else " ", sentence)
        for paragraph in paragraphs
        for index, sentence in enumerate(paragraph)
    ]
    separators = {mark: library.encode(mark, add_special_tokens=False).ids for mark in ("\n", " ")}
    encodings = library.encode_batch([sentence for _, sentence in texts], add_special_tokens=False)
    rows = [
        separators[mark] + encoding.ids
        for (mark, _), encoding in zip(texts, encodings, strict=True)
        if 0 < len(encoding) <= LONGEST
    ]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    ids = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32, count=int(starts[-1]))
    is_start = np.zeros(len(ids) + 1, dtype=bool)
    is_start[starts] = True
    return SentenceTable(ids, starts, is_start)


def flowing_text(paragraphs: Iterable[Paragraph]) -> str:
    """Paragraphs as one text: sentences joined by spaces, paragraphs by newlines."""
    return "\n".join(" ".join(paragraph) for paragraph in paragraphs)
