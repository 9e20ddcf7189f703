"""What the text of a flag is turned into: numbers, sizes, layers, positions, names, a stage, a file.

Each raises what argparse prints as the flag's problem, in one line.
"""

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage

LAST_POSITION = 10**6  # of a span, in tokens; no prompt is as long


def output_path(text: str) -> Path:
    """A place to write to; `-` is none, since stdout has the answer."""
    if text == "-":
        raise ArgumentTypeError("- is no file, and stdout has the answer anyway; name a file, or ./-")
    return Path(text)


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """What reads a whole number of at least `least`, and at most `most` where that is given."""
    expected, most = f"of at least {least}" if most is None else f"from {least} to {most:,}", most or 10**40

    def number(text: str) -> int:
        if not text.isdecimal() or len(text) > 40 or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text[:40]!r} is not a whole number {expected}")
        return int(text)

    return number


positive = whole(1, 10**7)  # lists are made of so many


def number_list(text: str) -> tuple[int, ...]:
    """`192,256` -> (192, 256), each at least 1."""
    return tuple(positive(part.strip()) for part in text.split(","))


def span_list(text: str) -> tuple[tuple[int, ...], ...]:
    """`3:8,20:25` -> the positions 3 to 7, and 20 to 24."""
    spans = []
    for part in text.split(","):
        start, _, stop = part.strip().partition(":")
        if not (start.isdecimal() and stop.isdecimal() and int(start) < int(stop) <= LAST_POSITION):
            raise ArgumentTypeError(f"{part!r} is no span; write 3:8 for the positions 3 to 7")
        spans.append(tuple(range(int(start), int(stop))))
    return tuple(spans)


def sizes(most: int, example: str, other: str | None = None) -> Callable[[str], tuple[int, int] | None]:
    """What reads `6x11` as (6, 11), each 1 to `most`, and the word `other`, if there is one, as None."""

    def two(text: str) -> tuple[int, int] | None:
        if text == other:
            return None
        first, _, second = text.lower().partition("x")
        numbers = [int(size) if size.isdecimal() and len(size) < 10 else 0 for size in (first, second)]
        if not all(1 <= number <= most for number in numbers):
            expected = f"two numbers of 1 to {most}, such as {example}" + (f", or {other}" if other else "")
            raise ArgumentTypeError(f"{text[:40]!r} is no size; write {expected}")
        return numbers[0], numbers[1]

    return two


def layer_list(text: str) -> tuple[int, ...]:
    """`0,3` -> (0, 3)."""
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise ArgumentTypeError(f"{text!r} is not a list of layers such as 0,3")
    return tuple(sorted({int(part) for part in text.split(",")}))


def name_list(text: str) -> tuple[str, ...] | None:
    """`hook_z,hook_pattern` -> both names; `all` -> None."""
    names = tuple(part.strip() for part in text.split(","))
    return None if names == ("all",) else names


def stage_named(name: str) -> Stage:
    """The stage of that hook, with `hook_` or without it, or key (`kq`). PromptError for another name."""
    for stage in Stage:
        if name in (stage.value.hook, stage.value.hook.removeprefix("hook_"), stage.value.key):
            return stage
    raise PromptError(f"{name!r} is no stage; expected {', '.join(stage.value.hook for stage in Stage)}")
