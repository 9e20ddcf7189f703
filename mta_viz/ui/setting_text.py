"""A setting's value as text in an address, and back: `true`, `4`, `all stages`, `pre,post`."""

from collections.abc import Sequence
from typing import Any

MAX_CHARACTERS = 200
LARGEST = 2**53 - 1  # whole numbers a browser keeps
_WORDS = {True: "true", False: "false"}


def to_text(value: Any) -> str | None:
    """None for what has no text: nothing chosen, objects, and what is too long for an address."""
    text = _list_text(value) if isinstance(value, list | tuple) else _text(value)
    return text if text is not None and len(text) <= MAX_CHARACTERS else None


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return _WORDS[value]
    return str(value) if isinstance(value, int | float | str) else None


def _list_text(values: Sequence[Any]) -> str | None:
    parts = [_text(value) for value in values]
    if None in parts or any("," in part for part in parts if part):
        return None
    return ",".join(part for part in parts if part is not None)


def from_text(
    text: str, default: Any, options: Sequence[Any] | None = None, within: tuple[int, int] | None = None
) -> Any:
    """The value `text` stands for: one of `options` where there are some, else of the default's kind.

    Raises ValueError for what is none of the options, no such number, or outside `within`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{text[:40]}... is too long")
    if isinstance(default, list):
        return [_one(part, options, "", None) for part in text.split(",") if part]
    return _one(text, options, default, within)


def _one(text: str, options: Sequence[Any] | None, default: Any, within: tuple[int, int] | None) -> Any:
    if options is not None:
        found = [option for option in options if to_text(option) == text]
        if not found:
            raise ValueError(f"{text} is not on offer here")
        return found[0]
    if isinstance(default, bool):
        if text not in _WORDS.values():
            raise ValueError(f"{text} is neither true nor false")
        return text == _WORDS[True]
    if not isinstance(default, int | float):
        return text
    value = type(default)(text)
    if not abs(value) <= LARGEST:
        raise ValueError(f"{text[:40]} is no number this page can take")
    if within is not None and not within[0] <= value <= within[1]:
        raise ValueError(f"{text} is not between {within[0]:,} and {within[1]:,}")
    return value
