"""Named spans on figures over tokens: bars outside the plot along the axes, outlines, and their letters.

Never a fill: it would alter the cells' colours.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle

from mta_viz.analysis.attention.spans import Span
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

Run = tuple[int, float, float]

# Okabe-Ito colours that stand out as thin lines on white; the letter tells spans apart without them.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_NEAR_PX, _FAR_PX = 2, 8
BAR_PX = _FAR_PX  # what labels leave free for the bars


def add_spans(
    parts: Parts, spans: Sequence[Span], queries: range, keys: range, query: int | None = None
) -> None:
    """Mark every span's part inside the drawn `queries` and `keys`, with its letter at the upper edge.

    `query`: the selected row, in which the span's keys are outlined.
    """
    for span, color in _colored(spans):
        down, across = _inside(span, queries), _inside(span, keys)
        if down:
            side = {"xref": "paper", "xsizemode": "pixel", "xanchor": 0, "x0": -_FAR_PX, "x1": -_NEAR_PX}
            _add_bar(parts, color, side | {"yref": "y", "y0": down.start - 0.5, "y1": down.stop - 0.5})
        if across:
            _add_bar_below(parts, color, across)
            _add_letter(parts, span.letter, color, across, {"yanchor": "top", "yshift": 2})
        if across and query is not None and query in queries:
            parts.add_box((query, across.start), (1, len(across)), color=color, width=1.5)


def add_spans_across(parts: Parts, spans: Sequence[Span], positions: range) -> None:
    """Mark spans along one axis of tokens: bars under it, and an outline over the figure's whole height."""
    for span, color in _colored(spans):
        inside = _inside(span, positions)
        if inside:
            _add_bar_below(parts, color, inside)
            _add_letter(parts, span.letter, color, inside, {"yanchor": "bottom", "yshift": -2})
            ends = {"xref": "x", "x0": inside.start - 0.5, "x1": inside.stop - 0.5}
            frame = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": color, "width": 1}}
            parts.shapes.append(frame | ends)


def add_spans_in_text(parts: Parts, spans: Sequence[Span], runs: Callable[[Span], Iterable[Run]]) -> None:
    """Outline spans in written text; `runs` tells their (line, left edge, right edge), line by line."""
    for span, color in _colored(spans):
        for part, (line, left, right) in enumerate(runs(span)):
            parts.add_box((line, left + 0.5), (1, round(right - left)), color=color, width=1.5)
            if part == 0:
                font = {"size": 10, "color": color, "weight": 700}
                corner = {"x": left, "y": line - 0.5, "xanchor": "center", "yanchor": "middle"}
                shown = {"text": theme.escape(span.letter), "showarrow": False, "bgcolor": "white"}
                parts.annotations.append(shown | {"font": font, "borderpad": 0} | corner)


def _colored(spans: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    return zip(spans, cycle(COLORS), strict=False)


def _add_bar_below(parts: Parts, color: str, across: range) -> None:
    side = {"yref": "paper", "ysizemode": "pixel", "yanchor": 0, "y0": -_FAR_PX, "y1": -_NEAR_PX}
    _add_bar(parts, color, side | {"xref": "x", "x0": across.start - 0.5, "x1": across.stop - 0.5})


def _inside(span: Span, drawn: range) -> range:
    return range(max(span.start, drawn.start), min(span.stop, drawn.stop))


def _add_bar(parts: Parts, color: str, where: dict[str, object]) -> None:
    parts.shapes.append({"type": "rect", "fillcolor": color, "line": {"width": 0}} | where)


def _add_letter(parts: Parts, letter: str, color: str, across: range, at: dict[str, object]) -> None:
    """Over the middle of the span, at the upper edge of the plot; `at` says which side of it."""
    font = {"size": 11, "color": color, "weight": 700}
    place = {"x": (across.start + across.stop - 1) / 2, "xref": "x", "y": 1, "yref": "paper"} | at
    parts.annotations.append({"text": theme.escape(letter), "showarrow": False, "font": font} | place)
