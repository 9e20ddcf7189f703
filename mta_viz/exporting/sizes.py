"""A figure at the size it is printed or shown at: one or two columns of a paper, a slide.

Owns how a figure shrinks: its letters keep a size that can be read, the plot between them gives way, and of
labels that would touch only some stay. Owns no colours (`greys`) and no files (`figures`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from mta_viz.plots.paper_figures import PX_PER_MM

SizeName = Literal["screen", "column", "page", "slide"]
PX_PER_PT = 96 / 72
LEAST_SHARE, LEAST_SHARE_OF_PANELS = 0.5, 0.8  # of its own width: narrower, titles lie over each other
LABEL_PITCH = 1.2  # of the letters' height
DEFAULT_FONT, DEFAULT_MARGINS = 12.0, {"l": 80, "r": 80, "t": 100, "b": 80}


@dataclass(frozen=True)
class Size:
    """`mm` wide, None: as on the screen. `least_pt`: how small letters may be there."""

    words: str
    mm: int | None
    least_pt: int


SIZES: dict[SizeName, Size] = {
    "screen": Size("as on the screen", None, 0),
    "column": Size("one column, 84 mm", 84, 7),
    "page": Size("two columns, 174 mm", 174, 7),
    "slide": Size("slide, 254 mm", 254, 14),
}


@dataclass(frozen=True)
class Sized:
    """The figure laid out anew; drawn `scale` times as large as its layout it has the size asked for.

    `smallest_pt`: its smallest letters, in points, once scaled. `left_out`: labels that had no room.
    """

    figure: go.Figure
    scale: float
    smallest_pt: float
    left_out: int = 0

    @property
    def mm(self) -> tuple[float, float]:
        """Width and height once scaled."""
        layout = self.figure.layout
        return layout.width * self.scale / PX_PER_MM, layout.height * self.scale / PX_PER_MM


def sized(figure: go.Figure, name: SizeName = "screen") -> Sized:
    """The figure for one of `SIZES`; the one given stays as it is."""
    copy, size = go.Figure(figure), SIZES[name]
    letters = min(_font_sizes(copy.to_plotly_json()), default=DEFAULT_FONT)
    if size.mm is None:
        return Sized(copy, 1.0, letters / PX_PER_PT)
    target = size.mm * PX_PER_MM
    wanted = target / (size.least_pt * PX_PER_PT / letters)
    own = copy.layout.width or 700
    width = float(min(max(wanted, own * _least_share(copy)), own))
    copy.update_layout(width=round(width), height=round(_height(copy, width)))
    left_out = sum(_thin(copy, axis) for axis in (*copy.select_xaxes(), *copy.select_yaxes()))
    scale = target / copy.layout.width
    return Sized(copy, scale, letters * scale / PX_PER_PT, left_out)


def _font_sizes(part: Any, under: str = "") -> Iterator[float]:
    """Sizes of all fonts but those of hover labels and of hidden tick labels."""
    if isinstance(part, Mapping):
        if under.endswith("font") and isinstance(part.get("size"), int | float):
            yield float(part["size"])
        for name, inner in part.items():
            hidden = name == "tickfont" and part.get("showticklabels") is False
            if name != "hoverlabel" and not hidden:
                yield from _font_sizes(inner, name)
    elif isinstance(part, list | tuple):
        for inner in part:
            if isinstance(inner, Mapping):
                yield from _font_sizes(inner, under)


def _least_share(figure: go.Figure) -> float:
    panels = any(
        axis.domain and axis.domain[1] - axis.domain[0] < LEAST_SHARE for axis in figure.select_xaxes()
    )
    return LEAST_SHARE_OF_PANELS if panels else LEAST_SHARE


def _margins(figure: go.Figure) -> tuple[float, float]:
    """Left and right together, top and bottom together."""
    given = {side: figure.layout.margin[side] for side in DEFAULT_MARGINS}
    margin = {side: float(DEFAULT_MARGINS[side] if width is None else width) for side, width in given.items()}
    return margin["l"] + margin["r"], margin["t"] + margin["b"]


def _height(figure: go.Figure, width: float) -> float:
    """That gives the plot between the margins the proportions it had."""
    across, down = _margins(figure)
    own_width, own_height = figure.layout.width or 700, figure.layout.height or 450
    share = max(width - across, 1) / max(own_width - across, 1)
    return down + (own_height - down) * share


def _thin(figure: go.Figure, axis: Any) -> int:
    """Leave out every second label until those that stay have room; how many went."""
    if axis.showticklabels is False or axis.tickvals is None or axis.ticktext is None or axis.range is None:
        return 0
    along = axis.plotly_name.startswith("xaxis")
    if along and axis.tickangle not in (-90, 90):
        return 0  # labels that lie need room by their length, which their figure saw to
    across, down = _margins(figure)
    length = figure.layout.width - across if along else figure.layout.height - down
    first, last = axis.domain or (0, 1)
    px = length * (last - first) / max(abs(axis.range[1] - axis.range[0]), 1e-9)
    pitch = (axis.tickfont.size or DEFAULT_FONT) * LABEL_PITCH
    stay: list[int] = []
    for index in sorted(range(len(axis.tickvals)), key=lambda index: axis.tickvals[index]):
        if not stay or abs(axis.tickvals[index] - axis.tickvals[stay[-1]]) * px >= pitch:
            stay.append(index)
    gone = len(axis.tickvals) - len(stay)
    if gone:
        axis.tickvals, axis.ticktext = (
            [values[index] for index in stay] for values in (axis.tickvals, axis.ticktext)
        )
    return gone
