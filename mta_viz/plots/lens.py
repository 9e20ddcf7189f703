"""The logit lens: what each layer would say next, for chosen tokens and for the most probable ones."""

from typing import Literal

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.predictions import LogitLens
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

Quantity = Literal["probability", "logit", "rank"]
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
DASHES = ("solid", "dash", "dot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
_LEFT, _TOP, _BOTTOM = 60, 36, 62


def depth_names(lens: LogitLens, numbering_from: int = 0) -> list[str]:
    """`embed`, then the layer after which the stream is read."""
    return ["embed", *(f"L{layer + numbering_from}" for layer in range(len(lens.top) - 1))]


def lens_lines(
    lens: LogitLens, quantity: Quantity = "probability", *, numbering_from: int = 0, width: int = 460
) -> go.Figure:
    """One line for each chosen token over the depths; the last point is the model's own output.

    Ranks are drawn on a logarithmic axis, 1 on top.
    """
    names = [theme.escape(theme.cut(piece, 16)) for piece in lens.pieces]
    right = round(theme.text_px(names)) + 60
    parts = Parts((width, 300), {"l": _LEFT, "r": right, "t": _TOP, "b": _BOTTOM})
    for column, name in enumerate(names):
        parts.traces.append(_line(lens, quantity, column, name))
    depths = depth_names(lens, numbering_from)
    parts.layout |= {
        "xaxis": theme.axis(
            range=(-0.3, len(depths) - 0.7), tickvals=list(range(len(depths))), ticktext=depths, tickangle=-90
        ),
        "yaxis": theme.axis(**_scale(lens, quantity)),
        "showlegend": True,
        "legend": {"x": 1.02, "xanchor": "left", "y": 1, "font": {"family": theme.MONO, "size": 11}},
    }
    parts.add_axis_titles("stream after layer", quantity)
    parts.add_title(f"Logit lens after position {lens.position}")
    return parts.figure()


def _line(lens: LogitLens, quantity: Quantity, column: int, name: str) -> go.Scatter:
    logits, probabilities, ranks = (
        part[:, column].numpy() for part in (lens.logits, lens.probabilities, lens.ranks)
    )
    drawn = {"logit": logits, "probability": probabilities, "rank": ranks}[quantity]
    return go.Scatter(
        x=np.arange(len(drawn)),
        y=drawn,
        mode="lines+markers",
        name=name,
        line={"color": COLORS[column % len(COLORS)], "dash": DASHES[column // len(COLORS) % len(DASHES)]},
        marker={"symbol": SYMBOLS[column % len(SYMBOLS)], "size": 7},
        text=[
            f'"{theme.escape(lens.pieces[column])}" (token {lens.ids[column]})<br>logit {theme.score_text(a)}'
            f" · probability {theme.probability_text(p)} · rank {r}"
            for a, p, r in zip(logits.tolist(), probabilities.tolist(), ranks.tolist(), strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )


def _scale(lens: LogitLens, quantity: Quantity) -> dict[str, object]:
    if quantity == "probability":
        return {"range": (-0.03, 1.03), "tickvals": [0, 0.5, 1]}
    if quantity == "logit":
        return {"nticks": 6}
    worst = np.log10(float(lens.ranks.max()))
    return {"type": "log", "range": (worst + 0.1, -0.1), "dtick": 1, "tickformat": "d"}


def lens_tokens(lens: LogitLens, *, numbering_from: int = 0, width: int = 460) -> go.Figure:
    """The most probable tokens of every depth: a row for each depth, the probability as colour."""
    z = np.array([[one.probability for one in row] for row in lens.top], np.float32)
    labels = [[theme.escape(theme.cut(one.piece)) for one in row] for row in lens.top]
    parts = Parts((width, 24 * len(z) + 100), {"l": _LEFT, "r": 12, "t": 60, "b": 40})
    parts.traces.append(
        go.Heatmap(
            z=z,
            zmin=0,
            zmax=1,
            colorscale=theme.MASS_SCALE,
            colorbar=theme.color_bar(1.0, signed=False),
            text=labels,
            texttemplate="%{text}",
            textfont={"family": theme.MONO, "size": theme.LABEL_PX},
            hovertext=[
                [
                    f'"{theme.escape(one.piece)}" (token {one.id})<br>'
                    f"probability {theme.probability_text(one.probability)}"
                    for one in row
                ]
                for row in lens.top
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    ranks = list(range(z.shape[1]))
    parts.layout |= {
        "xaxis": theme.axis(tickvals=ranks, ticktext=[str(rank + 1) for rank in ranks]),
        "yaxis": theme.axis(
            range=(len(z) - 0.5, -0.5),
            tickvals=list(range(len(z))),
            ticktext=depth_names(lens, numbering_from),
        ),
    }
    parts.add_axis_titles("rank", "stream after layer")
    parts.add_title(f"Most probable next tokens after position {lens.position}, by layer")
    return parts.figure()
