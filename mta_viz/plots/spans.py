"""Named spans on a map: bars outside the plot along both axes, and an outline in the query's row.

Never a fill: it would alter the cells' colours.
"""

from collections.abc import Sequence

from mta_viz.analysis.spans import Span
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

# Okabe-Ito colours that stand out as thin lines on white; the letter tells spans apart without them.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_NEAR_PX, _FAR_PX = 2, 8


def add_spans(
    parts: Parts, spans: Sequence[Span], queries: range, keys: range, query: int | None = None
) -> None:
    """Mark every span's part inside the drawn `queries` and `keys`, with its letter at the upper edge.

    `query`: the selected row, in which the span's keys are outlined.
    """
    for index, span in enumerate(spans):
        color = COLORS[index % len(COLORS)]
        down, across = _inside(span, queries), _inside(span, keys)
        if down:
            side = {"xref": "paper", "xsizemode": "pixel", "xanchor": 0, "x0": -_FAR_PX, "x1": -_NEAR_PX}
            _add_bar(parts, color, side | {"yref": "y", "y0": down.start - 0.5, "y1": down.stop - 0.5})
        if across:
            side = {"yref": "paper", "ysizemode": "pixel", "yanchor": 0, "y0": -_FAR_PX, "y1": -_NEAR_PX}
            _add_bar(parts, color, side | {"xref": "x", "x0": across.start - 0.5, "x1": across.stop - 0.5})
            _add_letter(parts, span.letter, color, (across.start + across.stop - 1) / 2)
        if across and query is not None and query in queries:
            parts.add_box((query, across.start), (1, len(across)), color=color, width=1.5)


def _inside(span: Span, drawn: range) -> range:
    return range(max(span.start, drawn.start), min(span.stop, drawn.stop))


def _add_bar(parts: Parts, color: str, where: dict[str, object]) -> None:
    parts.shapes.append({"type": "rect", "fillcolor": color, "line": {"width": 0}} | where)


def _add_letter(parts: Parts, letter: str, color: str, x: float) -> None:
    font = {"size": 11, "color": color, "weight": 700}
    above = {"x": x, "xref": "x", "y": 1, "yref": "paper", "yanchor": "top", "yshift": 2}
    parts.annotations.append({"text": theme.escape(letter), "showarrow": False, "font": font} | above)
