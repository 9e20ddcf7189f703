"""What a figure is put together from, the words and frames figures share, named spans, figures side by side.

Plotly checks a whole figure at every change, so a figure is collected here and made at once. Its traces are
checked as they are made, its layout by the tests of every figure, since that takes half of the drawing.
Of figures that are the panels of one each keeps its size, axes, words and colour bars. That one has no
margins, so that its paper is all of it; what a panel places on its own plotting area finds its place there.

Named spans on figures over tokens are bars outside the plot along the axes, outlines, and letters; never
a fill: it would alter the cells' colours. Which span has which colour, on every page, is said here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.plots import theme

Annotation = dict[str, object]
Number = int | float
Ends = tuple[Number, Number]
# Where a name may stand beside its point, the best first, and the pixels that a point and a letter take.
_SIDES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)])
_POINT_PX, _ASIDE_PX, _NAME_PX, _NAME_HIGH = 5, 8, 6.0, 13


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
        import pandas  # noqa: F401  # here: a page's first picture is none of these, and need not wait for it

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

    def add_names(
        self, names: Sequence[str], points: Sequence[Sequence[Number]], ends: Sequence[Ends]
    ) -> None:
        """A name beside each of the first `points`, where it meets neither a point nor another name.

        `points`: (x, y) of all, those with a name first; `ends`: of both axes. Without room there is no name.
        """
        margin, (low, high) = self.margin, np.array(ends, float).T
        plot = np.array(self.size) - (margin["l"] + margin["r"], margin["t"] + margin["b"])
        at = (
            (np.array(points, float).reshape(-1, 2) - low) / (high - low) * plot
        )  # pixels from the lower corner
        taken = [*np.hstack([at - _POINT_PX, at + _POINT_PX])]
        for name, place, point in zip(names, at, points, strict=False):
            shape = np.array([_NAME_PX * len(name), _NAME_HIGH])
            for side in _SIDES:
                corner = place + _ASIDE_PX * side - shape * (1 - side) / 2
                box = np.hstack([corner, corner + shape])
                inside = (box[:2] >= 0).all() and (box[2:] <= plot).all()
                if inside and not any(
                    ((box[:2] < other[2:]) & (other[:2] < box[2:])).all() for other in taken
                ):
                    taken.append(box)
                    self.add_words(name, 10, **_beside(point, side))
                    break

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


def _beside(point: Sequence[Number], side: np.ndarray) -> Annotation:
    x, y = side.tolist()
    anchors = {"xanchor": ("center", "left", "right")[x], "yanchor": ("middle", "bottom", "top")[y]}
    shift = {"xshift": _ASIDE_PX * x, "yshift": _ASIDE_PX * y}
    look = {"font": {"size": 10, "color": theme.INK}, "borderpad": 0, "bgcolor": "#FFFFFF"}
    return {"x": point[0], "y": point[1], "xref": "x", "yref": "y", **anchors, **shift, **look}


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


Run = tuple[int, float, float]

_NEAR_PX, _FAR_PX = 2, 8
BAR_PX = _FAR_PX  # what labels leave free for the bars
_LETTER_PX = 11  # letters closer than that would touch


@dataclass(frozen=True)
class Color:
    """Of lines and letters, and the name of the pale one behind text in Streamlit's markdown."""

    line: str
    name: str


ASKED, ASKING = Color("#009E73", "green"), Color("#0072B2", "blue")
OTHERS = (Color("#D55E00", "orange"), Color("#CC79A7", "violet"))  # the letter tells them apart as well


def colors_of(spans: Sequence[Span]) -> tuple[Color, ...]:
    """One for each: what is asked for and the question have their own, the others theirs in turn."""
    roles = [_role(span) for span in spans]
    return tuple(role or OTHERS[roles[:at].count(None) % len(OTHERS)] for at, role in enumerate(roles))


def _role(span: Span) -> Color | None:
    if span.letter == QUESTION:
        return ASKING
    return ASKED if span.name.endswith(("(asked)", "(support)")) else None


def _colored(spans: Sequence[Span]) -> list[tuple[Span, str]]:
    """Spans with their colours, those with a role first: they keep their letter where there is no room."""
    pairs = [(span, color.line) for span, color in zip(spans, colors_of(spans), strict=True)]
    return sorted(pairs, key=lambda pair: _role(pair[0]) is None)


def add_spans(
    parts: Parts, spans: Sequence[Span], queries: range, keys: range, query: int | None = None
) -> None:
    """Mark every span's part inside the drawn `queries` and `keys`, with its letter at the upper edge.

    `query`: the selected row, in which the span's keys are outlined.
    """
    free = _Free(parts, len(keys))
    for span, color in _colored(spans):
        down, across = _inside(span, queries), _inside(span, keys)
        if down:
            side = {"xref": "paper", "xsizemode": "pixel", "xanchor": 0, "x0": -_FAR_PX, "x1": -_NEAR_PX}
            _add_bar(parts, color, side | {"yref": "y", "y0": down.start - 0.5, "y1": down.stop - 0.5})
        if across:
            _mark_across(parts, free.letter(span, across), color, across, {"yanchor": "top", "yshift": 2})
        if across and query is not None and query in queries:
            parts.add_box((query, across.start), (1, len(across)), color=color, width=1.5)


def add_spans_across(parts: Parts, spans: Sequence[Span], positions: range) -> None:
    """Mark spans along one axis of tokens: bars under it, and an outline over the figure's whole height."""
    free = _Free(parts, len(positions))
    for span, color in _colored(spans):
        inside = _inside(span, positions)
        if inside:
            _mark_across(parts, free.letter(span, inside), color, inside, {"yanchor": "bottom", "yshift": -2})
            ends = {"xref": "x", "x0": inside.start - 0.5, "x1": inside.stop - 0.5}
            frame = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": color, "width": 1}}
            parts.shapes.append(frame | ends)


def add_spans_in_text(parts: Parts, spans: Sequence[Span], runs: Callable[[Span], Iterable[Run]]) -> None:
    """Outline spans in written text; `runs` tells their (line, left edge, right edge), line by line."""
    for span, color in _colored(spans):
        for part, (line, left, right) in enumerate(runs(span)):
            parts.add_box((line, left + 0.5), (1, round(right - left)), color=color, width=1.5)
            if part == 0:
                corner = {"x": left, "y": line - 0.5, "xanchor": "center", "yanchor": "middle"}
                _add_letter(parts, span.letter, color, 10, corner | {"bgcolor": "white", "borderpad": 0})


class _Free:
    """The room for letters along an axis of `count` tokens; where they would touch, the later is left out."""

    def __init__(self, parts: Parts, count: int) -> None:
        self._px = (parts.size[0] - parts.margin["l"] - parts.margin["r"]) / max(count, 1)
        self._taken: list[float] = []

    def letter(self, span: Span, across: range) -> str:
        """The span's letter, "" where there is no room for it."""
        middle = self._px * (across.start + across.stop) / 2
        if any(abs(middle - other) < _LETTER_PX for other in self._taken):
            return ""
        self._taken.append(middle)
        return span.letter


def _inside(span: Span, drawn: range) -> range:
    return range(max(span.start, drawn.start), min(span.stop, drawn.stop))


def _mark_across(parts: Parts, letter: str, color: str, across: range, at: dict[str, object]) -> None:
    """A bar below, and the letter over the middle at the upper edge; `at` says which side of the edge."""
    side = {"yref": "paper", "ysizemode": "pixel", "yanchor": 0, "y0": -_FAR_PX, "y1": -_NEAR_PX}
    _add_bar(parts, color, side | {"xref": "x", "x0": across.start - 0.5, "x1": across.stop - 0.5})
    place = {"x": (across.start + across.stop - 1) / 2, "xref": "x", "y": 1, "yref": "paper"}
    if letter:
        _add_letter(parts, letter, color, 11, place | at)


def _add_bar(parts: Parts, color: str, where: dict[str, object]) -> None:
    parts.shapes.append({"type": "rect", "fillcolor": color, "line": {"width": 0}} | where)


def _add_letter(parts: Parts, letter: str, color: str, size: int, where: dict[str, object]) -> None:
    font = {"size": size, "color": color, "weight": 700}
    parts.annotations.append({"text": theme.escape(letter), "showarrow": False, "font": font} | where)
