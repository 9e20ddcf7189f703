"""A figure's colour scales in greys that print and photocopy: lightness follows the numbers.

A signed scale runs from black (negative) over a middle grey (zero) to white (positive), so that a sign is
never lost; a scale from zero runs from white to black.
"""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from PIL.ImageColor import getrgb

SIGNED = ((0.0, "rgb(10,10,10)"), (0.5, "rgb(150,150,150)"), (1.0, "rgb(255,255,255)"))
MASS = ((0.0, "rgb(255,255,255)"), (1.0, "rgb(10,10,10)"))
WHITE = 200  # of 255: what a signed scale's middle is lighter than


def has_scales(figure: go.Figure) -> bool:
    """Whether greys would change it: whether a colour in it stands for a number."""
    return bool(_holders(figure))


def in_greys(figure: go.Figure) -> go.Figure:
    """A copy with all its scales in greys."""
    copy = go.Figure(figure)
    for holder in _holders(copy):
        holder.colorscale = SIGNED if _is_signed(holder.colorscale) else MASS
    return copy


def _holders(figure: go.Figure) -> list[Any]:
    """Traces, markers and axes of colour that have a scale."""
    found = []
    for trace in figure.data:
        for holder in (trace, getattr(trace, "marker", None)):
            if holder is not None and getattr(holder, "colorscale", None) is not None:
                found.append(holder)
    axes = [figure.layout[name] for name in figure.layout if name.startswith("coloraxis")]
    return found + [axis for axis in axes if axis.colorscale is not None]


def _is_signed(scale: Sequence[tuple[float, str]]) -> bool:
    """Whether its middle is nearly white and both its ends are not."""
    nearest = [min(scale, key=lambda entry: abs(entry[0] - place)) for place in (0.0, 0.5, 1.0)]
    low, middle, high = (min(getrgb(color)[:3]) for _, color in nearest)
    return middle > WHITE and low < WHITE and high < WHITE
