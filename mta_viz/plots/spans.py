"""Named spans on figures over tokens: bars outside the plot along the axes, outlines, and their letters.

Never a fill: it would alter the cells' colours.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

from mta_viz.analysis.attention.spans import Span
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

Run = tuple[int, float, float]

COLORS = theme.LINE_COLORS  # the letter tells spans apart without them
_NEAR_PX, _FAR_PX = 2, 8
BAR_PX = _FAR_PX  # what labels leave free for the bars


def add_spans(
    parts: Parts, spans: Sequence[Span], queries: range, keys: range, query: int | None = None
) -> None:
    """Mark every span's part inside the drawn `queries` and `keys`, with its letter at the upper edge.

    `query`: the selected row, in which the span's keys are outlined.
    """
    for span, color in zip(spans, cycle(COLORS), strict=False):
        down, across = _inside(span, queries), _inside(span, keys)
        if down:
            side = {"xref": "paper", "xsizemode": "pixel", "xanchor": 0, "x0": -_FAR_PX, "x1": -_NEAR_PX}
            _add_bar(parts, color, side | {"yref": "y", "y0": down.start - 0.5, "y1": down.stop - 0.5})
        if across:
            _mark_across(parts, span.letter, color, across, {"yanchor": "top", "yshift": 2})
        if across and query is not None and query in queries:
            parts.add_box((query, across.start), (1, len(across)), color=color, width=1.5)


def add_spans_across(parts: Parts, spans: Sequence[Span], positions: range) -> None:
    """Mark spans along one axis of tokens: bars under it, and an outline over the figure's whole height."""
    for span, color in zip(spans, cycle(COLORS), strict=False):
        inside = _inside(span, positions)
        if inside:
            _mark_across(parts, span.letter, color, inside, {"yanchor": "bottom", "yshift": -2})
            ends = {"xref": "x", "x0": inside.start - 0.5, "x1": inside.stop - 0.5}
            frame = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": color, "width": 1}}
            parts.shapes.append(frame | ends)


def add_spans_in_text(parts: Parts, spans: Sequence[Span], runs: Callable[[Span], Iterable[Run]]) -> None:
    """Outline spans in written text; `runs` tells their (line, left edge, right edge), line by line."""
    for span, color in zip(spans, cycle(COLORS), strict=False):
        for part, (line, left, right) in enumerate(runs(span)):
            parts.add_box((line, left + 0.5), (1, round(right - left)), color=color, width=1.5)
            if part == 0:
                corner = {"x": left, "y": line - 0.5, "xanchor": "center", "yanchor": "middle"}
                _add_letter(parts, span.letter, color, 10, corner | {"bgcolor": "white", "borderpad": 0})


def _inside(span: Span, drawn: range) -> range:
    return range(max(span.start, drawn.start), min(span.stop, drawn.stop))


def _mark_across(parts: Parts, letter: str, color: str, across: range, at: dict[str, object]) -> None:
    """A bar below, and the letter over the middle at the upper edge; `at` says which side of the edge."""
    side = {"yref": "paper", "ysizemode": "pixel", "yanchor": 0, "y0": -_FAR_PX, "y1": -_NEAR_PX}
    _add_bar(parts, color, side | {"xref": "x", "x0": across.start - 0.5, "x1": across.stop - 0.5})
    place = {"x": (across.start + across.stop - 1) / 2, "xref": "x", "y": 1, "yref": "paper"}
    _add_letter(parts, letter, color, 11, place | at)


def _add_bar(parts: Parts, color: str, where: dict[str, object]) -> None:
    parts.shapes.append({"type": "rect", "fillcolor": color, "line": {"width": 0}} | where)


def _add_letter(parts: Parts, letter: str, color: str, size: int, where: dict[str, object]) -> None:
    font = {"size": size, "color": color, "weight": 700}
    parts.annotations.append({"text": theme.escape(letter), "showarrow": False, "font": font} | where)
