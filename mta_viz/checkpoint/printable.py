"""Text of unknown origin (names of files and tensors, pickled values) made fit for a message."""

import reprlib

MOST = 300
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


def short_repr(value: object) -> str:
    """A value of builtin types as Python writes it, cut in depth and length; never slow, never raises."""
    try:
        return printable(_REPR.repr(value), 100)
    except (ValueError, RecursionError):  # an int of thousands of digits
        return type(value).__name__
