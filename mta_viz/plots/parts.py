"""What a figure is put together from, and the words and frames figures share.

Plotly checks a whole figure at every change, so a figure is collected here and made at once. Its traces are
checked as they are made, its layout by the tests of every figure, since that takes half of the drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

from mta_viz.plots import theme

Annotation = dict[str, object]
Number = int | float


def _in_lists(value: Any) -> Any:
    """A layout with lists for tuples: of what it has not checked, plotly reads lists alone."""
    if isinstance(value, dict):
        return {name: _in_lists(part) for name, part in value.items()}
    return [_in_lists(part) for part in value] if isinstance(value, list | tuple) else value


@dataclass
class Parts:
    """A figure in the making, `size` = width and height in pixels, `margin` with t, r, b and l."""

    size: tuple[int, int]
    margin: dict[str, int]
    traces: list[BaseTraceType] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    shapes: list[dict[str, object]] = field(default_factory=list)
    layout: dict[str, object] = field(default_factory=dict)

    def figure(self, title: str = "", x: str = "", y: str = "") -> go.Figure:
        """The figure with its title and those of its axes."""
        if x:
            self.add_axis_titles(x, y)
        if title:
            # A small heading in the top left corner of the figure, beside nothing else.
            corner = {"x": 0, "y": 1, "xanchor": "left", "yanchor": "top"}
            shift = {"xshift": 6 - self.margin["l"], "yshift": self.margin["t"] - 2}
            self.add_words(title, 13, **corner, **shift)
        margin = {"pad": 0, "autoexpand": False} | self.margin
        layout = theme.frame(*self.size) | {"margin": margin} | self.layout
        added = {"annotations": self.annotations, "shapes": self.shapes}
        layout |= {name: parts for name, parts in added.items() if parts}
        return go.Figure(data=self.traces, layout=_in_lists(layout), _validate=False)

    def add_axis_titles(self, x: str, y: str = "", *, above_px: int = 0) -> None:
        """Axis titles at the edges of the figure, the lower one `above_px` over the edge.

        Plotly's own meet the labels, and to place them it measures every label, which is slow.
        """
        below = {"x": 0.5, "y": 0, "xanchor": "center", "yanchor": "bottom"}
        self.add_words(x, 12, **below, yshift=1 - self.margin["b"] + above_px)
        if y:
            beside = {"x": 0, "y": 0.5, "xanchor": "left", "yanchor": "middle", "textangle": -90}
            self.add_words(y, 12, **beside, xshift=1 - self.margin["l"])

    def add_caption(self, text: str, below_px: int) -> None:
        """One line of words `below_px` under the plotting area."""
        self.add_words(text, 11, x=0, y=0, xanchor="left", yanchor="top", yshift=-below_px)

    def add_words(self, text: str, size: int, **where: object) -> None:
        """Words at a place on the figure, counted in plotting areas unless `where` says otherwise."""
        paper = {"xref": "paper", "yref": "paper", "showarrow": False, "font": {"size": size}}
        self.annotations.append({"text": text, **paper, **where})

    def add_box(
        self, top_left: tuple[Number, Number], shape: tuple[int, int] = (1, 1), **look: object
    ) -> None:
        """A frame around `shape` (rows, columns) cells from `top_left` (row, column); `look`: of its line."""
        (row, column), (rows, columns) = top_left, shape
        refs: dict[str, object] = {name: look.pop(name) for name in ("xref", "yref") if name in look}
        corners = {"x0": column - 0.5, "x1": column + columns - 0.5, "y0": row - 0.5, "y1": row + rows - 0.5}
        self.shapes.append({"type": "rect", **corners, "line": look, **refs})

    def add_line(
        self, x: tuple[Number, Number], y: tuple[Number, Number], line: dict[str, object], **refs: object
    ) -> None:
        """A straight line from one end to the other."""
        ends = {"x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1]}
        self.shapes.append({"type": "line", "line": line, **ends, **refs})


def lying_bars(
    lengths: object, places: Sequence[int], texts: Sequence[str], color: object, **options: object
) -> go.Bar:
    """Bars to the right of their places, with their numbers at the ends."""
    look = {"marker": {"color": color}, "textfont": {"color": theme.INK, "size": 11}} | options
    return go.Bar(
        x=np.asarray(lengths),
        y=places,
        orientation="h",
        text=texts,
        textposition="outside",
        cliponaxis=False,
        **look,
    )


def nothing_yet(height: int) -> go.Figure:
    """A figure with a heat map and nothing to see."""
    clear, hidden = "rgba(0,0,0,0)", {"visible": False}
    layout = {"paper_bgcolor": clear, "plot_bgcolor": clear, "xaxis": hidden, "yaxis": hidden}
    return go.Figure(go.Heatmap(z=[[None]], showscale=False), {"height": height, **layout})
