"""How quantities and foreign text print: units, time left, labels, escapes, one line.

The one place that makes text from outside safe: `printable` a name, path or value in a sentence, `message` a
sentence or list of problems, `safe` a text that is shown whole, `csv_cell` a cell.
"""

import re
import reprlib
import time


def size_text(n_bytes: int) -> str:
    """`9.9 kB`, `6.8 MB`, `1.2 GB`: decimal units, as file managers show them."""
    for size, unit in ((1e9, "GB"), (1e6, "MB")):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes / 1e3:.1f} kB"


def time_text(seconds: float) -> str:
    """`40 s`, `4 min`, `3.5 hours`, `118 hours`."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:,.{0 if hours >= 9.95 else 1}f} hours"


class Pace:
    """The time that is left of something, told its share done, 0 to 1, as it goes.

    By what came after the first share above 0: what came before it, such as reading, a slow first run or what
    was done another time, says nothing of the rest.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)

    def tell(self, share: float) -> None:
        """How far it is now."""
        if share > 0:
            self._last = (time.monotonic(), share)
            self._first = self._first or self._last

    @property
    def seconds_left(self) -> float | None:
        """None before it stands on a second and 2 % of the whole."""
        (now, share), (start, before) = self._last, self._first or self._last
        if share - before < 0.02 or now - start < 1.0:
            return None
        return max((now - start) * (1 - share) / (share - before) - (time.monotonic() - now), 0.0)


def probability_text(value: float) -> str:
    """0.973; below 0.001 as 1.2e-4."""
    if value >= 0.001 or value == 0:
        return f"{value:.3f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def layer_label(layer: int, numbering: int = 0) -> str:
    """`L2`, counted from `numbering`."""
    return f"L{layer + numbering}"


def head_label(head: int, numbering: int = 0) -> str:
    """`H1`, counted from `numbering`."""
    return f"H{head + numbering}"


def head_name(layer: int, head: int, numbering: int = 0) -> str:
    """`L2 H1`, counted from `numbering`."""
    return f"{layer_label(layer, numbering)} {head_label(head, numbering)}"


MOST = 300  # characters of foreign text
LINES, LINE = 40, 2000  # of a message; characters of one of its lines, which may hold several foreign texts
# Controls (all but tab and line end), halves of characters, and what is no character; directions of writing.
_INVALID = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
_NOT_XML = re.compile(f"[{_INVALID}]")
_UNSAFE = re.compile(f"[{_INVALID}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LONG_WORD = re.compile(rf"\S{{{MOST + 1},}}")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", *"\uff1d\uff0b\uff0d\uff20")  # as OWASP lists them
_REPR = reprlib.Repr()
# Two levels of three: a list that holds itself, or is shared a billion times, stays short.
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple, _REPR.maxdict, _REPR.maxset = 2, 3, 3, 3, 3
_REPR.maxfrozenset = _REPR.maxdeque = _REPR.maxarray = 3


def printable(text: object, most: int = MOST) -> str:
    """`text` without control characters or broken UTF-8 (escaped, such as \\x1b), cut after `most`."""
    whole = str(text)
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in whole[: most + 1]
    )
    return escaped if len(whole) <= most and len(escaped) <= most else escaped[:most] + "..."


def safe(text: str) -> str:
    """`text` whole, each character that no terminal, page or XML should get written as \\u001b.

    Of JSON the same JSON.
    """
    return _UNSAFE.sub(_escaped, text)


def valid(text: str) -> str:
    """The same for a picture, whose drawing isolates directions of writing itself: what XML forbids."""
    return _NOT_XML.sub(_escaped, text)


def _escaped(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def message(text: object) -> str:
    """Lines that are each printable: at most `LINES` of about `LINE` characters, and how many more there are.

    A word is cut after `MOST`, and a line in its middle: what to do stands at its end.
    """
    lines = str(text).split("\n")
    more = [f"and {len(lines) - LINES:,} more lines"] * (len(lines) > LINES)
    return "\n".join([*map(_line, lines[:LINES]), *more])


def _line(text: str) -> str:
    short = _LONG_WORD.sub(lambda word: f"{word[0][:MOST]}...", text)
    if len(short) > LINE:
        short = f"{short[: LINE - MOST]} ... {short[-MOST:]}"
    return printable(short, 2 * LINE)


def csv_cell(value: object) -> object:
    """A text as no spreadsheet takes it for a formula: an apostrophe before one that would begin as such."""
    if not isinstance(value, str):
        return value
    shown = safe(value)
    return f"'{shown}" if value.startswith(_FORMULA) and not is_number(value) else shown


def short_repr(value: object) -> str:
    """A value of builtin types as Python writes it, cut in depth and length; never slow, never raises."""
    try:
        return printable(_REPR.repr(value), 100)
    except (ValueError, RecursionError):  # an int of thousands of digits
        return type(value).__name__


def is_number(value: object) -> bool:
    """Whether a cell reads as a number, or as one with a per cent sign."""
    try:
        float(str(value).removesuffix("%"))
    except ValueError:
        return False
    return True
