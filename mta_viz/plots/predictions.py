"""The most probable next tokens as bars."""

from collections.abc import Sequence

import plotly.graph_objects as go

from mta_viz.analysis.predictions import Prediction
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

_ROW_PX, _TOP, _BOTTOM = 22, 8, 40


def next_tokens(predictions: Sequence[Prediction], *, width: int = 460) -> go.Figure:
    """One bar a token, most probable on top, probability from 0 to 1 printed beside it.

    Bars lie at ranks, not at tokens: two tokens may read the same.
    """
    labels = [theme.escape(theme.cut(one.piece, 16)) for one in predictions]
    size = (width, _ROW_PX * max(len(predictions), 1) + _TOP + _BOTTOM)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 16, "r": 12, "t": _TOP, "b": _BOTTOM})
    ranks = list(range(len(predictions)))
    parts.traces.append(
        go.Bar(
            x=[one.probability for one in predictions],
            y=ranks,
            orientation="h",
            marker={"color": theme.SELECTED_COLOR},
            text=[theme.probability_text(one.probability) for one in predictions],
            textposition="outside",
            cliponaxis=False,
            textfont={"color": theme.INK, "size": 11},
            hovertext=[
                f'"{theme.escape(one.piece)}" (token {one.id})<br>'
                f"probability {theme.probability_text(one.probability)}"
                for one in predictions
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    parts.layout |= {
        "xaxis": theme.axis(range=(0, 1.15), tickvals=[0, 0.5, 1]),
        "yaxis": theme.axis(
            range=(len(predictions) - 0.5, -0.5), tickvals=ranks, ticktext=labels, fixedrange=True
        ),
    }
    parts.add_axis_titles("probability of the next token")
    return parts.figure()
