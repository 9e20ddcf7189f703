"""Run A beside run B: the difference of two heads' maps, needle shares by layer, and two kernels.

A value is in the colours of its kind, a difference in those of differences: nobody reads one as the other.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.compare.maps import ComparedMap
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.plots import cells, theme
from mta_viz.plots.attention import maps
from mta_viz.plots.kernels.mosaic import Mosaic
from mta_viz.plots.parts import Parts
from mta_viz.printed import head_name
from mta_viz.tokenizers.base import Tokens

_MASKED = "not compared: key %{x} is after query %{y}, or a token of them differs in A and B"
LINES_PX, TRIO_PX = 600, 740  # beside a map of distances
_LINES = {"l": 58, "r": 14, "t": 34, "b": 44}
_LEGEND = {**theme.LEGEND, "x": 1, "xanchor": "right", "itemclick": False, "itemdoubleclick": False}


def compared_figure(difference: ComparedMap, tokens: Tokens, **options: Any) -> go.Figure:
    """A minus B, green where A has more, brown where B has; hatched where tokens differ, and the future.

    Options as of `attention_map`; `limit`: from `shared_limit` of the difference alone.
    """
    figure = maps.attention_map(difference, tokens, look=LOOK, **options)
    if difference.unlike and difference.block == 1:
        last = len(difference.values)
        boxes = [((at, 0, 1, at + 1), (at, at, last - at, 1)) for at in difference.unlike]
        figure.add_traces(cells.hatched_boxes(box for pair in boxes for box in pair))
    return figure


def compared_caption(difference: ComparedMap, limit: float) -> str:
    """The sentence under the map."""
    unit = difference.stage.value.unit.capitalize()
    words = f"{unit} in A minus {difference.stage.value.unit} in B."
    return f"{words} Green: A has more, brown: B has more. Limits ±{theme.limit_text(limit)}."


def share_lines(
    a: Float[np.ndarray, "layer head"],
    b: Float[np.ndarray, "other_layer other_head"],
    names: tuple[str, str],
    *,
    numbering: int = 0,
) -> go.Figure:
    """Each layer's largest share over its heads, a line for A and one for B; which is which is over them."""
    parts = Parts((LINES_PX, 240), _LINES)
    for letter, name, values, color, dash in zip(
        "AB", names, (a, b), theme.LINE_COLORS[:2], ("solid", "dash"), strict=True
    ):
        parts.traces.append(_line(letter, name, values, color, dash, numbering))
    last = max(len(a), len(b)) - 1
    names_of_layers = {at: f"L{at + numbering}" for at in range(0, last + 1, -(-(last + 1) // 12))}
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.3, last + 0.3), **theme.ticks(names_of_layers)),
        "yaxis": theme.axis(range=(-0.03, 1.03)),
        "dragmode": False,
        "showlegend": True,
        "legend": _LEGEND,
    }
    return parts.figure("Largest share of a head, by layer", "layer", "share")


def kernel_trio(
    a: Float[np.ndarray, "c_q c_k"],
    b: Float[np.ndarray, "c_q c_k"],
    offsets: Offsets,
    headings: tuple[str, str, str],
    title: str,
) -> go.Figure:
    """Kernel A, kernel B and A minus B on one scale, with their offsets; own taps are framed."""
    escaped = [theme.escape(words) for words in headings]
    taps = np.stack([a, b, a - b]).astype(np.float32)
    mosaic = Mosaic(taps, offsets, own_scale=False, width=TRIO_PX, numbering=0, headings=escaped)
    return mosaic.figure(theme.escape(title))


def _line(
    letter: str, name: str, values: Float[np.ndarray, "layer head"], color: str, dash: str, numbering: int
) -> go.Scatter:
    best = np.nan_to_num(values, nan=-1.0).argmax(1)
    largest = values[np.arange(len(values)), best]
    hover_text = [
        f"{letter}, {theme.escape(name)}: L{layer + numbering} H{head + numbering}"
        f"<br>share {theme.weight_text(share)}"
        for layer, (head, share) in enumerate(zip(best.tolist(), largest.tolist(), strict=True))
    ]
    return go.Scatter(
        x=np.arange(len(values)),
        y=largest,
        name=letter,
        mode="lines+markers",
        line={"color": color, "dash": dash, "width": 2},
        text=hover_text,
        hovertemplate="%{text}<extra></extra>",
    )


def _title(drawn: AttentionMap, numbering: int) -> str:
    other = f" − {head_name(*drawn.other, numbering)}" if isinstance(drawn, ComparedMap) else ""
    return f"{other} ({drawn.stage.value.unit})"


def _value_line(drawn: AttentionMap, field: str) -> str:
    words = "largest A − B" if drawn.block > 1 else "A − B"
    return f"{words}: %{{{field}:+.4g}} ({drawn.stage.value.unit})"


LOOK = maps.Look(_title, _value_line, theme.DIFFERENCE_SCALE, _MASKED)
