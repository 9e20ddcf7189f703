"""The components on a page: `draw_text`, `draw_maps`, `draw_beside`, `draw_pointer`; the bytes they are sent.

All are Streamlit components of plain JavaScript. The text brings the message, which holds no chosen cell, so
that it stays the same, and is not sent again, while cells are chosen; the maps take it from the text, those
beside bring their own; the pointer's is small and sent at every choice.

The message is of up to three maps. A number (4 bytes, little-endian) says how long the header is, JSON in
UTF-8. Then come the colour scales, 256 colours of 3 bytes each; then each map's cells row by row: of whole
maps the keys each query sees, of a part all its cells; behind them, where cells besides the future are
masked, a bit a cell that says which. Smaller maps are filled up with masked cells, each piece to a multiple
of 4 bytes, the header with spaces. Up to `EXACT_UP_TO` tokens a cell is a float32; above, a float16 of the
value times its map's `factor`, a power of two.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import streamlit as st
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.changes import DifferenceMap
from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.spans import Span
from mta_viz.figures.attention.maps import Range
from mta_viz.plots import theme
from mta_viz.plots.cells import color_bar, largest
from mta_viz.plots.parts import colors_of
from mta_viz.printed import head_name
from mta_viz.tokenizers.base import Tokens, split_characters
from mta_viz.ui.shell import cache, state

EXACT_UP_TO = 512  # tokens a side: a triangle of float32 has half a megabyte
TEXT_UP_TO = 4096  # tokens that are written out; beyond, those of the map's rows and columns
PAINT = 0.06  # seconds in which the browser paints the maps: what comes with them would delay the frame
WHOLE = "whole"  # the name of a crop the view adds itself, as it does "window", around the chosen cell
Crop = tuple[Range, Range]  # queries and keys


@dataclass(frozen=True)
class Panel:
    """One map: what stands over it ("before", "edited" ...), its exact cells, and the end of its colours.

    `tokens`: those of a run that stands beside the text's.
    """

    heading: str
    shown: AttentionMap
    limit: float
    tokens: Tokens | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What its part of the message hangs on, the run apart."""
        shown = self.shown
        part = (shown.query_start, shown.key_start, tuple(shown.values.shape))
        less = (shown.before, getattr(shown, "other", None)) if isinstance(shown, DifferenceMap) else None
        return (self.heading, self.limit, less, shown.layer, shown.head, shown.stage, *part)


@dataclass(frozen=True)
class KernelPanel:
    """The kernel between the first two maps: its taps, the offsets of the first row and column, its limit."""

    taps: Float[Tensor, "c_q c_k"]
    first_query: int
    first_key: int
    limit: float
    title: str


@dataclass(frozen=True)
class Linked:
    """One to three exact maps that begin at one cell, with what is drawn around them.

    `view` is the view's name; `map.beside` follows the pointer of `map`. `run` names the prompt, the models
    and what is edited. `marks` are the places found by a search. `crops` can be chosen by their names; `crop`
    is the one shown at first, which stays, or what a visitor makes of it, while the tokens stay.
    """

    view: str
    run: str
    panels: tuple[Panel, ...]
    tokens: Tokens
    numbering: int = 0
    spans: tuple[Span, ...] = ()
    marks: tuple[Range, ...] = ()
    kernel: KernelPanel | None = None
    crops: Mapping[str, Crop] = field(default_factory=dict)
    crop: str = WHOLE

    @property
    def shown(self) -> AttentionMap:
        """The map that gives the title: after a step, or an edit; of the text's run."""
        return next(panel.shown for panel in reversed(self.panels[:2]) if panel.tokens is None)

    @property
    def cells(self) -> Crop:
        """The queries and keys of the largest map."""
        starts = self.shown.query_start, self.shown.key_start
        sizes = map(max, zip(*(panel.shown.values.shape for panel in self.panels), strict=True))
        queries, keys = ((start, start + size) for start, size in zip(starts, sizes, strict=True))
        return queries, keys

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What the message hangs on."""
        drawn = (self.numbering, self.spans, self.marks, tuple(self.crops.items()), self.crop)
        kernel = self.kernel
        taps = None if kernel is None else (kernel.title, kernel.limit, str(kernel.taps.tolist()))
        return (self.view, self.run, *(panel.key for panel in self.panels), taps, *drawn)


def opening_of(tokens: Tokens, cells: Crop, crop: str, crops: Mapping[str, Crop]) -> str:
    """Names what a view opens on: the tokens, the cells that it holds, the crop it shows at first."""
    return hashlib.sha256(json.dumps([tokens.pieces, cells, crop, crops.get(crop)]).encode()).hexdigest()[:16]


def payload(linked: Linked) -> bytes:
    """The message for shared.js."""
    scales = list(dict.fromkeys([theme.SIGNED_SCALE, *(_scale(panel.shown) for panel in linked.panels)]))
    pieces, panels = [theme.color_table(scale).tobytes() for scale in scales], []
    for panel in linked.panels:
        facts, cells = _cells(panel.shown, linked.cells)
        panels.append(
            _described(panel, linked.tokens) | facts | {"palette": scales.index(_scale(panel.shown))}
        )
        pieces += cells
    body = b"".join(_filled(piece) for piece in pieces)
    kernel = None if linked.kernel is None else _taps(linked.kernel, scales.index(theme.SIGNED_SCALE))
    header = _header(linked) | {"palettes": len(scales), "panels": panels, "kernel": kernel}
    header["id"] = hashlib.sha256(json.dumps(header).encode() + body).hexdigest()[:16]
    text = _filled(json.dumps(header, ensure_ascii=False).encode(), b" ")
    return struct.pack("<I", len(text)) + text + body


def _filled(piece: bytes, filling: bytes = b"\0") -> bytes:
    return piece + filling * (-len(piece) % 4)


def _scale(shown: AttentionMap) -> theme.Scale:
    if isinstance(shown, DifferenceMap):
        return theme.DIFFERENCE_SCALE
    return theme.MASS_SCALE if shown.distribution else theme.SIGNED_SCALE


def _cells(shown: AttentionMap, of: Crop) -> tuple[dict[str, Any], list[bytes]]:
    """How they are written, and their bytes with those of the mask."""
    queries, keys = (np.arange(*side) for side in of)
    fill = [(0, len(side) - count) for side, count in zip((queries, keys), shown.values.shape, strict=True)]
    values = np.pad(shown.values.numpy().astype(np.float32), fill)
    cells = values[np.tril_indices(len(values))] if _is_triangle(of) else values.ravel()
    kind, factor = ("f4", 1.0) if max(values.shape) <= EXACT_UP_TO else ("f2", _factor(cells))
    with np.errstate(over="ignore"):  # infinite cells stay so
        body = [(cells * np.float32(factor)).astype(f"<{kind}").tobytes()]
    masked = np.pad(shown.masked.numpy(), fill, constant_values=True) & (keys <= queries[:, None])
    if masked.any():
        body.append(np.packbits(masked).tobytes())
    return {"kind": kind, "factor": factor, "masked": bool(masked.any())}, body


def _is_triangle(cells: Crop) -> bool:
    return cells[0] == cells[1] and cells[0][0] == 0


def _factor(cells: np.ndarray) -> float:
    """Has the largest cell just fit a float16, so that as few small ones as can be become 0."""
    most = largest(cells)
    return float(2.0 ** np.clip(15 - np.ceil(np.log2(most)), -100, 100)) if most > 0 else 1.0


def _described(panel: Panel, text: Tokens) -> dict[str, Any]:
    shown, stage, own = panel.shown, panel.shown.stage.value, panel.tokens
    bar: Any = color_bar(shown, panel.limit)["ticktext"]
    return {
        "heading": panel.heading,
        "stage": _words(shown),
        "unit": stage.unit,
        "signed": not shown.distribution,
        "difference": isinstance(shown, DifferenceMap),
        "limit": panel.limit,
        "bar": [bar[0], bar[-1]],
        "pieces": None if own is None or own.pieces == text.pieces else own.pieces,
    }


def _words(shown: AttentionMap) -> str:
    """The stage; of a difference of two stages, both."""
    if isinstance(shown, DifferenceMap) and shown.before is not shown.stage:
        return f"{shown.stage.value.short} minus {shown.before.value.short}"
    return shown.stage.value.long


def _taps(kernel: KernelPanel, palette: int) -> dict[str, Any]:
    values = kernel.taps.numpy()
    bar: Any = theme.color_bar(kernel.limit, signed=True, values=values)["ticktext"]
    return {
        "taps": [[tap if math.isfinite(tap) else None for tap in line] for line in values.tolist()],
        "query": kernel.first_query,
        "key": kernel.first_key,
        "limit": kernel.limit,
        "title": kernel.title,
        "bar": [bar[0], bar[-1]],
        "palette": palette,
    }


def _header(linked: Linked) -> dict[str, Any]:
    shown, cells = linked.shown, linked.cells
    ranges = list(_written(cells, len(linked.tokens)))
    parts, stage = split_characters(linked.tokens.pieces), shown.stage.value
    head = head_name(shown.layer, shown.head, linked.numbering)
    return {
        "view": linked.view,
        "run": linked.run,
        "head": head,
        "title": f"{head} · {stage.long} ({stage.unit})",
        "start": [shown.query_start, shown.key_start],
        "shape": [stop - start for start, stop in cells],
        "triangle": _is_triangle(cells),
        "tokens": len(linked.tokens),
        "crops": linked.crops,
        "crop": linked.crop,
        "opening": opening_of(linked.tokens, cells, linked.crop, linked.crops),
        "text": [[start, linked.tokens.pieces[start:stop]] for start, stop in ranges],
        "parts": {at: parts[at] for start, stop in ranges for at in range(start, stop) if at in parts},
        "spans": [
            asdict(span) | {"color": color.line}
            for span, color in zip(linked.spans, colors_of(linked.spans), strict=True)
        ],
        "marks": linked.marks,
        "colors": {"masked": theme.MASKED_LINE, "ground": theme.MASKED_FILL, "bad": theme.BAD_COLOR},
    }  # fmt: skip


def _written(cells: Crop, n_tokens: int) -> Iterable[Range]:
    """The ranges of tokens that are written as text."""
    if n_tokens <= TEXT_UP_TO:
        return [(0, n_tokens)]
    first, second = sorted(cells)
    return [(first[0], max(first[1], second[1]))] if second[0] <= first[1] else [first, second]


Side = Literal["from the query", "to the key"]
SIDES: tuple[Side, ...] = get_args(Side)


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def _view(name: str) -> Any:
    look = {"html": _text(f"{name}.html"), "css": _text("linked.css")}
    js = _text("shared.js") + _text(f"{name}.js")
    return st.components.v2.component(f"mta_viz.{name}", **look, js=js, isolate_styles=False)


_TEXT, _MAPS = _view("text"), _view("maps")
_POINTER = st.components.v2.component("mta_viz.pointer", js=_text("pointer.js"), isolate_styles=False)


@dataclass(frozen=True)
class Choice:
    """A cell, and whether the text is coloured by the query's row or the key's column."""

    query: int
    key: int
    side: Side


@dataclass
class _Turns:
    """The number of a visitor's last choice: an answer to an earlier one does not move the view back."""

    last: int = 0


def draw_text(linked: Linked) -> None:
    """The prompt as text, and all that its maps need; made once for each run, maps and spans."""
    _TEXT(key=f"text.{linked.view}", data=_message(linked))


def draw_beside(linked: Linked) -> None:
    """Maps beside those of the text: they bring their message, and answer its pointer."""
    _MAPS(key=f"maps.{linked.view}", data=_message(linked))


def _message(linked: Linked) -> bytes:
    return cache.remember(lambda: payload(linked), "linked", *linked.key)


@dataclass
class Seen:
    """The part of the maps that a visitor looks at, where it is not the crop that they opened on."""

    opening: str = ""
    part: Crop | None = None


@st.fragment
def draw_maps(linked: Linked) -> None:
    """The maps of a text that stands on the page too; what tells which part is seen draws this alone."""
    key = f"maps.{linked.view}"

    def take() -> None:
        seen = dict(state.widget_value(key) or {}).get("seen")
        seen = seen if isinstance(seen, dict) else {}
        part = seen.get("part")
        sides = [_whole(side) for side in part] if isinstance(part, list) else []
        state.session().parts[Seen] = Seen()
        if len(sides) == 4 and sides[0] < sides[1] and sides[2] < sides[3]:
            queries, keys = (sides[0], sides[1]), (sides[2], sides[3])
            state.session().parts[Seen] = Seen(str(seen.get("opening")), (queries, keys))

    _MAPS(key=key, data={"view": linked.view}, on_seen_change=take)


def draw_pointer(view: str, chosen: Choice, n_tokens: int, choose: Callable[[Choice], None]) -> None:
    """Has the view show the chosen cell; `choose` is called with another one that exists."""
    turns, key = state.part(_Turns), f"pointer.{view}"

    def take() -> None:
        choice = dict(state.widget_value(key) or {}).get("choice")
        if not isinstance(choice, dict):
            return
        turns.last = _whole(choice.get("turn"))
        query, cell_key, side = _whole(choice.get("query")), _whole(choice.get("key")), choice.get("side")
        if query < n_tokens and cell_key < n_tokens and side in SIDES:
            choose(Choice(query, cell_key, side))

    data = {"view": view, "query": chosen.query, "key": chosen.key, "side": chosen.side, "turn": turns.last}
    with st.container(key="pointer"):
        _POINTER(key=key, data=data, on_choice_change=take)


def _whole(value: object) -> int:
    """What the browser sent as a number, which may be anything; the largest where it is none."""
    return value if isinstance(value, int) and 0 <= value <= state.LARGEST else state.LARGEST
