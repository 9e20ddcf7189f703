"""What of a run's places an address holds: the exact part of a long map, and spans a visitor named."""

import json
from collections.abc import Mapping, Sequence

from mta_viz.analysis.spans import Span
from mta_viz.errors import PromptError
from mta_viz.ui.crops import CROP_SIZE, Crop

NAMES = ("crop", "spans")
MAX_CHARACTERS = 1000
MAX_NAME = 200  # characters of a span's name


def parameters(crop: Crop | None, spans: Sequence[Span] | None) -> dict[str, str]:
    """`crop=q0,q1,k0,k1` and `spans=[["Oslo","A",3,9]]`; what is None or too long is left out."""
    found = {}
    if crop is not None:
        found["crop"] = f"{crop.query_start},{crop.query_stop},{crop.key_start},{crop.key_stop}"
    if spans is not None:
        rows = [[span.name, span.letter, span.start, span.stop] for span in spans]
        found["spans"] = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return {name: text for name, text in found.items() if len(text) <= MAX_CHARACTERS}


def read_crop(found: Mapping[str, str]) -> Crop | None:
    """The crop an address names; None for none, or for what is none."""
    parts = found.get("crop", "").split(",")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    crop = Crop(*map(int, parts))
    sizes = (crop.query_stop - crop.query_start, crop.key_stop - crop.key_start)
    return crop if all(0 < size <= CROP_SIZE for size in sizes) else None


def read_spans(found: Mapping[str, str], n_tokens: int) -> tuple[Span, ...] | None:
    """The spans an address names, all within the prompt; None for none, or for what are none."""
    text = found.get("spans", "")
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        spans = tuple(_span(row, n_tokens) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, PromptError):
        return None
    return spans


def _span(row: object, n_tokens: int) -> Span:
    if not isinstance(row, list) or [type(value) for value in row] != [str, str, int, int]:
        raise ValueError("a span is a name, a letter, its first token and the one after its last")
    name, letter, start, stop = row
    (name + letter).encode()  # a UnicodeEncodeError, which is a ValueError, for halves of characters
    if stop > n_tokens or len(letter) != 1 or len(name) > MAX_NAME:
        raise ValueError("outside the prompt")
    return Span(name, letter, start, stop)
