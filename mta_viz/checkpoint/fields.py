"""Typed values out of one block of params.json. Faults are collected, not raised, so all are reported.

Knows JSON types and ranges; which fields a model has is params.py's business.
"""

import json
from collections.abc import Mapping
from typing import Any

from mta_viz.errors import first_problems

LARGEST = 2**31 - 1


class FieldReader:
    """Takes typed values out of one JSON object.

    `stand_ins` gives, for a field at fault, the value that the tensors beside the file call for;
    reading goes on with it (else with the default), so that later checks still mean something.
    `problems` grows with every fault. `seen` holds the names asked for; the rest is unknown.
    """

    def __init__(self, block: object, where: str, stand_ins: Mapping[str, Any]) -> None:
        self.where, self.stand_ins = where, stand_ins
        self.problems: list[str] = []
        self.seen: set[str] = set()
        self.block: dict[str, Any] = {}
        if isinstance(block, dict):
            self.block = block
        else:
            self.problems.append(f"{where} is {show(block)}; expected a JSON object")

    def whole(self, name: str, default: int | None, *, low: int = 1, high: int = LARGEST) -> int | None:
        """A whole number from `low` to `high`; null only where the default is None."""
        value = self._take(name, default)
        if value is None and default is None:
            return None
        if type(value) is int and low <= value <= high:
            return value
        return self.fault(name, value, f"a whole number from {low} to {high}", default)

    def positive(self, name: str, default: float | None, *, high: float = 1e12) -> float | None:
        """A finite number above 0; null only where the default is None."""
        value = self._take(name, default)
        if value is None and default is None:
            return None
        if type(value) in (int, float) and 0 < value <= high:
            return float(value)
        return self.fault(name, value, f"a number above 0, up to {high:g}", default)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._take(name, default)
        return value if isinstance(value, bool) else self.fault(name, value, "true or false", default)

    def word(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of a few words."""
        value = self._take(name, default)
        if isinstance(value, str) and value in choices:
            return value
        return self.fault(name, value, " or ".join(map(show, choices)), default)

    def text(self, name: str) -> str | None:
        """Any string, or null."""
        value = self._take(name, None)
        return value if value is None or isinstance(value, str) else self.fault(name, value, "a string", None)

    def anything(self, name: str) -> Any:
        """The value as it is (null when absent)."""
        return self._take(name, None)

    def fault(self, name: str, value: object, expected: str, default: Any) -> Any:
        """Note a fault of a field and give the value to go on with."""
        stand_in = self.stand_ins.get(name)
        fits = f" (the tensors fit {show(stand_in)})" if stand_in is not None else ""
        null = ", or null" if default is None else ""
        self.problems.append(f"{self.where}.{name} is {show(value)}; expected {expected}{null}{fits}")
        return default if stand_in is None else stand_in

    def refuse_unknown(self, ignored: frozenset[str]) -> None:
        """Every name that was neither asked for nor is known to be without effect is a fault."""
        unknown = [name for name in self.block if name not in self.seen and name not in ignored]
        told = [
            f"{self.where}.{show(name)[1:-1]} ({show(self.block[name])}) is not a field this program "
            "knows; it might change the computation. Remove it if it does not"
            for name in unknown
        ]
        self.problems += first_problems(told, f"fields of {self.where} this program does not know")

    def _take(self, name: str, default: Any) -> Any:
        self.seen.add(name)
        return self.block.get(name, default)


def show(value: object) -> str:
    """A JSON value as it is written in the file, cut after 60 characters."""
    try:
        text = json.dumps(value, default=repr)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
