"""Where every character of a prompt lies when it is written in columns, line by line."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mta_viz.plots import theme

NEWLINE, SPACE = "⏎", "␣"  # as token labels write them


@dataclass(frozen=True)
class Glyph:
    """A character with the marks on it: its token, and the cell it begins in; `width` columns wide."""

    text: str
    token: int
    line: int
    column: int
    width: int


def lay_out(pieces: Sequence[str], columns: int) -> list[Glyph]:
    """The labels of all tokens, one after the other, wrapped at `columns`.

    A line ends after a newline; a token goes to the next line rather than over the edge, and is cut
    only when it is longer than a line. Each token has at least one glyph: labels are never blank.
    """
    found: list[Glyph] = []
    line = column = 0
    for token, piece in enumerate(pieces):
        glyphs = [(text, theme.columns(text[0])) for text in _clusters(piece)]
        if column and column + sum(width for _, width in glyphs) > columns:
            line, column = line + 1, 0
        for text, width in glyphs:
            if column and column + width > columns:
                line, column = line + 1, 0
            found.append(Glyph(text, token, line, column, width))
            column += width
            if text == NEWLINE:
                line, column = line + 1, 0
    return found


def _clusters(piece: str) -> Iterator[str]:
    """Characters, each with the combining marks after it."""
    start = 0
    for end in range(1, len(piece) + 1):
        if end == len(piece) or unicodedata.category(piece[end])[0] != "M":
            yield piece[start:end]
            start = end
