"""Rows of a result, given once: CSV, JSON, a data frame, a printed table and a page's table come from them.

A result that has rows offers `table() -> Table`. Positions, layers and heads in rows count from 0, whatever a
page shows; a cell without a value is None.
"""

import csv
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from mta_viz.printed import csv_cell, is_number, safe

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[object, ...]


@dataclass(frozen=True)
class Table:
    """Named columns and rows of plain values: int, float, bool, str or None.

    `exact`: in CSV numbers have all their digits, and truth is a word, as pandas writes both.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    exact: bool = False

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Row]) -> "Table":
        """From any iterables."""
        return cls(tuple(columns), tuple(rows))

    def csv(self) -> str:
        """One header line; nine digits, which give a float32 back bit for bit; None is an empty cell.

        A text that a spreadsheet would run as a formula has an apostrophe before it.
        """
        cell = csv_cell if self.exact else _csv_cell
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(map(cell, row) for row in self.rows)
        return text.getvalue()

    def records(self) -> list[dict[str, Any]]:
        """One dict a row, for JSON: numbers JSON lacks (NaN, infinities) are None."""
        return [dict(zip(self.columns, map(finite, row), strict=True)) for row in self.rows]

    def frame(self) -> "pd.DataFrame":
        """As a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return f"{value:.9g}"
    return "" if value is None else csv_cell(value)


def finite(value: Any) -> Any:
    """The same without NaN and infinities, which JSON lacks: None in their places, at any depth."""
    if isinstance(value, Mapping):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


ROWS = 10  # of a table; how many more there are is said
CHARACTERS = 60  # of a prompt


class Printed(ABC):
    """A result with a `__repr__` and a `_repr_html_`: subclasses give `_title` and, with rows, `_table`."""

    @abstractmethod
    def _title(self) -> str:
        """."""

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Names of columns, and rows; without rows there is no table."""
        return (), ()

    def __repr__(self) -> str:
        columns, rows = self._table()
        return "\n".join([safe(self._title()), *text_lines(columns, rows)])

    def _repr_html_(self) -> str:
        columns, rows = self._table()
        return f"<div><p>{escape(safe(self._title()))}</p>{html_table(columns, rows)}</div>"


class PrintedRows(tuple, Printed):
    """A tuple of results that prints as a table."""

    __slots__ = ()
    __repr__ = Printed.__repr__


def number(value: float) -> str:
    """`+4.18`, `-0.0213`: three digits, with sign."""
    return f"{value:+.3g}"


def shortened(text: str) -> str:
    """A prompt on one line: quoted, line ends escaped, its middle left out when it is long."""
    half = CHARACTERS // 2
    return repr(text if len(text) <= CHARACTERS else f"{text[:half]} ... {text[-half:]}")


def text_lines(columns: Row, rows: Sequence[Row]) -> list[str]:
    """Rows under their names, columns aligned; words left, numbers right."""
    if not rows:
        return []
    shown = [list(map(_cell, row)) for row in (columns, *rows[:ROWS])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    right = [isinstance(value, int | float) or is_number(value) for value in rows[0]]
    lines = []
    for row in shown:
        cells = zip(row, widths, right, strict=True)
        padded = [cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in cells]
        lines.append("  " + "  ".join(padded).rstrip())
    return lines + ([f"  ... and {len(rows) - ROWS} more"] if len(rows) > ROWS else [])


def html_table(columns: Row, rows: Sequence[Row]) -> str:
    """The same as an HTML table."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(_cell(name))}</th>" for name in columns)
    cells = ("".join(f"<td>{escape(_cell(value))}</td>" for value in row) for row in rows[:ROWS])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = f"<p>... and {len(rows) - ROWS} more</p>" if len(rows) > ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    return "" if value is None else safe(str(value))
