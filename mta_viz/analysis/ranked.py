"""Heads in order of one number: what `head_scores.ranking` gives."""

from collections.abc import Sequence
from dataclasses import dataclass

from mta_viz.printed import PrintedRows, Row, number


@dataclass(frozen=True)
class Ranked:
    """A head and its value."""

    layer: int
    head: int
    value: float


class Ranking(PrintedRows):
    """`Ranked` heads, the largest value first; `by` says by which number, with its unit."""

    by: str

    def _title(self) -> str:
        return f"{len(self)} heads by {self.by}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        return ("head", "value"), [(f"L{one.layer} H{one.head}", number(one.value)) for one in self]
