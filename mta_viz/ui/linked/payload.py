"""What the browser is sent of a map: one message of bytes.

A number (4 bytes, little-endian) says how long the header is, JSON in UTF-8 filled up with spaces to a
multiple of 4; then come the 256 colours of the scale, 3 bytes each, and the cells row by row: of a whole map
the keys each query sees, of a part all its cells. Up to `EXACT_UP_TO` tokens a cell is a float32; above, a
float16 of the value times the header's `factor`, a power of two.
"""

import hashlib
import json
import struct
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.spans import Span
from mta_viz.plots import theme
from mta_viz.plots.cells import color_bar, largest
from mta_viz.plots.spans import colors_of
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.labels import split_characters

EXACT_UP_TO = 512  # tokens a side: a triangle of float32 has half a megabyte
TEXT_UP_TO = 4096  # tokens that are written out; beyond, those of the map's rows and columns
Range = tuple[int, int]


@dataclass(frozen=True)
class Linked:
    """An exact map with what is drawn around it.

    `view` is the view's name; `run` names the prompt and model: the zoom stays while it stays. `limit` is the
    end of the colours; `marks` are the places found by a search; `window`: the queries and keys shown at
    first, None: all.
    """

    view: str
    run: str
    shown: AttentionMap
    tokens: Tokens
    limit: float
    numbering: int = 0
    spans: tuple[Span, ...] = ()
    marks: tuple[Range, ...] = ()
    window: tuple[Range, Range] | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What the message hangs on."""
        shown = self.shown
        part = (shown.query_start, shown.key_start, tuple(shown.values.shape))
        drawn = (self.limit, self.numbering, self.spans, self.marks, self.window)
        return (self.view, self.run, shown.layer, shown.head, shown.stage, *part, *drawn)


def payload(linked: Linked) -> bytes:
    """The message for view.js."""
    shown, whole = linked.shown, _is_triangle(linked.shown)
    values = shown.values.numpy().astype(np.float32)
    cells = values[np.tril_indices(len(values))] if whole else values.ravel()
    kind, factor = ("f4", 1.0) if max(values.shape) <= EXACT_UP_TO else ("f2", _factor(cells))
    with np.errstate(over="ignore"):  # infinite cells stay so
        body = (cells * np.float32(factor)).astype(f"<{kind}").tobytes()
    scale = theme.MASS_SCALE if shown.distribution else theme.SIGNED_SCALE
    body = theme.color_table(scale).tobytes() + body
    header = _header(linked) | {"kind": kind, "factor": factor, "triangle": whole}
    header["id"] = hashlib.sha256(json.dumps(header).encode() + body).hexdigest()[:16]
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + body


def _is_triangle(shown: AttentionMap) -> bool:
    rows, columns = shown.values.shape
    return shown.query_start == shown.key_start == 0 and rows == columns


def _factor(cells: np.ndarray) -> float:
    """Has the largest cell just fit a float16, so that as few small ones as can be become 0."""
    most = largest(cells)
    return float(2.0 ** np.clip(15 - np.ceil(np.log2(most)), -100, 100)) if most > 0 else 1.0


def _header(linked: Linked) -> dict[str, Any]:
    shown, stage = linked.shown, linked.shown.stage.value
    bar: Any = color_bar(shown, linked.limit)["ticktext"]
    ranges = list(_written(shown, len(linked.tokens)))
    parts = split_characters(linked.tokens.pieces)
    head = theme.head_name(shown.layer, shown.head, linked.numbering)
    return {
        "view": linked.view,
        "run": linked.run,
        "title": f"{head} · {stage.long} ({stage.unit})",
        "stage": stage.long,
        "unit": stage.unit,
        "signed": not shown.distribution,
        "limit": linked.limit,
        "bar": [bar[0], bar[-1]],
        "start": [shown.query_start, shown.key_start],
        "shape": list(shown.values.shape),
        "window": linked.window,
        "text": [[start, linked.tokens.pieces[start:stop]] for start, stop in ranges],
        "parts": {at: parts[at] for start, stop in ranges for at in range(start, stop) if at in parts},
        "spans": [
            asdict(span) | {"color": color.line}
            for span, color in zip(linked.spans, colors_of(linked.spans), strict=True)
        ],
        "marks": linked.marks,
        "colors": {"masked": theme.MASKED_LINE, "ground": theme.MASKED_FILL, "bad": theme.BAD_COLOR},
    }  # fmt: skip


def _written(shown: AttentionMap, n_tokens: int) -> Iterable[Range]:
    """The ranges of tokens that are written as text."""
    if n_tokens <= TEXT_UP_TO:
        return [(0, n_tokens)]
    rows, columns = shown.values.shape
    sides: Sequence[Range] = (
        (shown.key_start, shown.key_start + columns), (shown.query_start, shown.query_start + rows),
    )  # fmt: skip
    first, second = sorted(sides)
    return [(first[0], max(first[1], second[1]))] if second[0] <= first[1] else [first, second]
