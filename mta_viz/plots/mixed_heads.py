"""Why a head-mixed cell has its value: one bar a source head, weight x value = product."""

import math

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.terms import Mixed, Term
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

_ROW_PX, _TOP, _BOTTOM, _ROOM = 22, 30, 40, 0.3


def mixing_bars(found: Mixed, *, numbering_from: int = 0, width: int = 556) -> go.Figure:
    """Bars over source heads in their order, weight and value in front, product at the end.

    A click's y is the source head, counted from 0. Raised is red, lowered blue, as in the maps.
    """
    terms = sorted(found.terms, key=lambda term: term.head)
    labels = [_label(term, found.head, numbering_from) for term in terms]
    size = (width, _ROW_PX * len(terms) + _TOP + _BOTTOM)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 14, "r": 10, "t": _TOP, "b": _BOTTOM})
    parts.traces.append(_bars(terms, numbering_from))
    heads = [term.head for term in terms]
    parts.layout |= {
        "xaxis": theme.axis(range=_range(terms), zeroline=True, zerolinecolor=theme.FRAME),
        "yaxis": theme.axis(
            range=(heads[-1] + 0.5, heads[0] - 0.5), tickvals=heads, ticktext=labels, fixedrange=True
        ),
    }
    unit = found.stage.value.unit
    parts.add_title(f"{_number(found.value)} = sum over {len(terms)} source heads")
    parts.add_axis_titles(f"mixing weight × value = product ({unit})")
    return parts.figure()


def _bars(terms: list[Term], numbering_from: int) -> go.Bar:
    return go.Bar(
        x=np.array([term.product if math.isfinite(term.product) else np.nan for term in terms]),
        y=[term.head for term in terms],
        orientation="h",
        marker={
            "color": [theme.NEGATIVE_COLOR if term.product < 0 else theme.POSITIVE_COLOR for term in terms]
        },
        text=[_number(term.product) for term in terms],
        textposition="outside",
        cliponaxis=False,
        textfont={"color": theme.INK, "size": 11},
        hovertext=[
            f"source head {term.head + numbering_from}<br>"
            f"{_number(term.weight)} × {_number(term.source)} = {_number(term.product)}"
            for term in terms
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _label(term: Term, target: int, numbering_from: int) -> str:
    own = " own" if term.head == target else ""
    return f"H{term.head + numbering_from}{own}  {_number(term.weight)} × {_number(term.source)}"


def _number(value: float) -> str:
    return theme.score_text(value).replace("-", "−")


def _range(terms: list[Term]) -> tuple[float, float]:
    """From the lowest to the highest bar and 0, with room for the numbers at the ends."""
    ends = [0.0, *(term.product for term in terms if math.isfinite(term.product))]
    room = _ROOM * ((max(ends) - min(ends)) or 1.0)
    return min(ends) - room * (min(ends) < 0), max(ends) + room
