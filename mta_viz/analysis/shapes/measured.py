"""How often the names and probes of the atlas err, as measured by `benchmarks.shape_rates` and shipped.

Owns the file and what a line of it means; the page that prints it is `ui/atlas/definitions.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files

FILE = "measured_rates.json"


@dataclass(frozen=True)
class MeasuredRate:
    """`hits` of `n` kernels of one kind and size, e.g. those with any name.

    `of_which`: how often each name was given, where several were.
    """

    kernels: str
    size: str
    n: int
    hits: int
    of_which: Mapping[str, int]

    @property
    def share(self) -> float:
        """hits / n."""
        return self.hits / self.n


@dataclass(frozen=True)
class MeasuredRates:
    """`false_names`: kernels of noise, hits have a name. `power`: planted shapes, hits have the right one,
    `of_which` counts the wrong ones. `probes`: kernels of noise, hits pass the probe of a claim."""

    false_names: tuple[MeasuredRate, ...]
    power: tuple[MeasuredRate, ...]
    probes: tuple[MeasuredRate, ...]

    def text(self) -> str:
        """The file's contents: a line a rate."""
        blocks = [f'"{name}": {_lines(rows)}' for name, rows in vars(self).items()]
        return "{\n" + ",\n".join(blocks) + "\n}\n"


def _lines(rows: Sequence[MeasuredRate]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(asdict(row))}" for row in rows) + "\n]"


@cache
def measured_rates() -> MeasuredRates:
    """The shipped rates."""
    stored = json.loads((files(__package__) / FILE).read_text(encoding="utf-8"))
    return MeasuredRates(
        **{name: tuple(MeasuredRate(**row) for row in rows) for name, rows in stored.items()}
    )
