"""Named spans on figures over tokens: bars outside the plot along the axes, outlines, and their letters.

Never a fill: it would alter the cells' colours. Which span has which colour, on every page, is said here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

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
