"""Whole figures as the panels of one: each keeps its size, axes, words and colour bars.

The new figure has no margins, so that its paper is all of it; what a panel places on its own plotting area
finds its place on that paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from mta_viz.plots import theme
from mta_viz.plots.parts import Number, Parts

_LINE_PX, _CHARACTER_PX, _EDGE_PX = 19, 7.0, 6
_PANELS_OWN = ("width", "height", "margin", "annotations", "shapes", "template")
_ON_FIRST = {"xref": "x", "yref": "y"}  # where a shape lies that does not say


@dataclass(frozen=True)
class _Panel:
    """A figure's layout, where its left upper corner comes to lie, and how many axes stand before its own."""

    layout: dict[str, Any]
    corner: tuple[int, int]
    whole: tuple[int, int]
    axes: int

    @property
    def plot(self) -> tuple[int, int]:
        """Width and height of the plotting area in pixels."""
        margin = self.layout["margin"]
        across, down = margin["l"] + margin["r"], margin["t"] + margin["b"]
        return self.layout["width"] - across, self.layout["height"] - down

    def x(self, share: Number) -> float:
        """A place on the panel's plotting area on the new paper."""
        return (self.corner[0] + self.layout["margin"]["l"] + share * self.plot[0]) / self.whole[0]

    def y(self, share: Number) -> float:
        """The same from the bottom up."""
        down = self.corner[1] + self.layout["margin"]["t"] + (1 - share) * self.plot[1]
        return 1 - down / self.whole[1]

    def axis(self, name: str) -> str:
        """`x2`, `x2 domain` or `xaxis2` with its new number; anything else, such as `paper`, as it is."""
        stem, _, rest = name.partition(" ")
        letters = stem.rstrip("0123456789")
        if letters not in ("x", "y", "xaxis", "yaxis"):
            return name
        at = int(stem[len(letters) :] or 1) + self.axes
        return f"{letters}{'' if at == 1 else at}{' ' * bool(rest)}{rest}"


def side_by_side(figures: Sequence[go.Figure], title: str) -> go.Figure:
    """The figures from left to right, their upper edges in line, under a title in lines as wide as they."""
    layouts = [figure.layout.to_plotly_json() for figure in figures]
    width = sum(layout["width"] for layout in layouts)
    lines = [theme.escape(line) for line in wrap(title, int((width - 2 * _EDGE_PX) / _CHARACTER_PX))]
    top = _LINE_PX * len(lines) + 2 * _EDGE_PX
    size = (width, top + max(layout["height"] for layout in layouts))
    parts, left, axes = Parts(size, dict.fromkeys("lrtb", 0)), 0, 0
    for figure, layout in zip(figures, layouts, strict=True):
        panel = _Panel(layout, (left, top), size, axes)
        _add(parts, panel, figure)
        left += layout["width"]
        axes += max(sum(name.startswith(side) for name in layout) for side in ("xaxis", "yaxis"))
    corner = {"x": 0, "y": 1, "xanchor": "left", "yanchor": "top", "xshift": _EDGE_PX, "yshift": -_EDGE_PX}
    parts.add_words("<br>".join(lines), 14, align="left", **corner)
    return parts.figure()


def _add(parts: Parts, panel: _Panel, figure: go.Figure) -> None:
    for trace in figure.data:
        if trace.type == "heatmap" and trace.showscale is not False:
            bar, share = trace.colorbar, panel.plot[0] / panel.whole[0]
            length = {} if bar.lenmode == "pixels" else {"len": bar.len * share}
            trace.update(colorbar={"x": panel.x(bar.x), "y": panel.y(bar.y), **length})
        parts.traces.append(
            trace.update(xaxis=panel.axis(trace.xaxis or "x"), yaxis=panel.axis(trace.yaxis or "y"))
        )
    for name, value in panel.layout.items():
        if name.startswith(("xaxis", "yaxis")):
            parts.layout[panel.axis(name)] = _axis(panel, name[0], value)
        elif name not in _PANELS_OWN:
            parts.layout[name] = value
    parts.annotations += [_placed(panel, words) for words in panel.layout.get("annotations", ())]
    parts.shapes += [_placed(panel, _ON_FIRST | shape) for shape in panel.layout.get("shapes", ())]


def _axis(panel: _Panel, letter: str, own: dict[str, Any]) -> dict[str, Any]:
    place = panel.x if letter == "x" else panel.y
    refs = {"anchor": "y" if letter == "x" else "x"} | {
        name: own[name] for name in ("anchor", "overlaying", "matches") if name in own
    }
    ends = [place(share) for share in own.get("domain", (0, 1))]
    return own | {name: panel.axis(ref) for name, ref in refs.items()} | {"domain": ends}


def _placed(panel: _Panel, own: dict[str, Any]) -> dict[str, Any]:
    """An annotation or a shape at its place on the new paper, or on its axes under their new names."""
    placed = dict(own)
    for letter, place in (("x", panel.x), ("y", panel.y)):
        ref = own.get(f"{letter}ref")
        if ref == "paper":
            sized = own.get(f"{letter}sizemode") == "pixel"
            names = (f"{letter}anchor",) if sized else (letter, f"{letter}0", f"{letter}1")
            placed |= {name: place(own[name]) for name in names if name in own}
        elif ref is not None:
            placed[f"{letter}ref"] = panel.axis(ref)
    return placed
