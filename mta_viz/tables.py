"""Rows of a result, given once: CSV, JSON, a data frame, a printed table and a page's table come from them.

A result that has rows offers `table() -> Table`. Positions, layers and heads in rows count from 0, whatever a
page shows; a cell without a value is None.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mta_viz.printed import csv_cell

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
