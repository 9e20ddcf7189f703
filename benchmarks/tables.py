"""The tables in docs/reliability.md that `make fuzz`, `make load` and `make faults` write."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def replace_table(name: str, words: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print the table and put it between its two marks, `words` and today's date before it."""
    lines = [head, ["---"] * len(head), *([f"{cell}" for cell in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    block = f"{words} ({time.strftime('%Y-%m-%d', time.gmtime())}):\n\n{table}"
    print(block)
    first, last = f"<!-- {name}: written by make {name} -->", f"<!-- {name} ends -->"
    before, rest = PAGE.read_text("utf-8").split(first)
    PAGE.write_text(f"{before}{first}\n{block}\n{last}{rest.split(last)[1]}", "utf-8")
