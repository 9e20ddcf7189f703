"""The most probable next tokens as bars.

The logit lens: what each layer would say next, for chosen tokens and for the most probable ones.
The gate of a layer: what part of each head's output passes at each position.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.predictions import LogitLens, Prediction
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts, lying_bars
from mta_viz.tokenizers.base import Tokens

_ROW_PX, _TOP, _BOTTOM = 22, 8, 40


def next_tokens(predictions: Sequence[Prediction], *, width: int = 460) -> go.Figure:
    """One bar a token, most probable on top, probability from 0 to 1 printed beside it.

    Bars lie at ranks, not at tokens: two tokens may read the same.
    """
    labels = [theme.escape(theme.cut(token.piece, 16)) for token in predictions]
    size = (width, _ROW_PX * max(len(predictions), 1) + _TOP + _BOTTOM)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 16, "r": 12, "t": _TOP, "b": _BOTTOM})
    shares = [theme.probability_text(token.probability) for token in predictions]
    hovers = [
        f'"{theme.escape(token.piece)}" (token {token.id})<br>probability {share}'
        for token, share in zip(predictions, shares, strict=True)
    ]
    lengths, ranks = [token.probability for token in predictions], list(range(len(predictions)))
    parts.traces.append(lying_bars(lengths, ranks, shares, theme.SELECTED_COLOR, **theme.hover(hovers)))
    parts.layout |= {
        "xaxis": theme.axis(range=(0, 1.15), tickvals=[0, 0.5, 1]),
        "yaxis": theme.listed(labels, down=True, fixedrange=True),
    }
    return parts.figure("", "probability of the next token")


DASHES = ("solid", "dash", "dot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
_LEFT, _LENS_TOP, _LENS_BOTTOM = 60, 36, 62


def depth_names(lens: LogitLens, numbering_from: int = 0) -> list[str]:
    """`embed`, then the layer after which the stream is read."""
    return ["embed", *(f"L{layer + numbering_from}" for layer in range(len(lens.top) - 1))]


def lens_lines(lens: LogitLens, *, numbering_from: int = 0, width: int = 460) -> go.Figure:
    """One line for each chosen token's probability over the depths; the last point is the model's own."""
    names = [theme.escape(theme.cut(piece, 16)) for piece in lens.pieces]
    right = round(theme.text_px(names)) + 60
    parts = Parts((width, 300), {"l": _LEFT, "r": right, "t": _LENS_TOP, "b": _LENS_BOTTOM})
    parts.traces += [_line(lens, column, name) for column, name in enumerate(names)]
    depths = depth_names(lens, numbering_from)
    parts.layout |= {
        "xaxis": theme.listed(depths, tickangle=-90) | {"range": (-0.3, len(depths) - 0.7)},
        "yaxis": theme.axis(range=(-0.03, 1.03), tickvals=[0, 0.5, 1]),
        "showlegend": True,
        "legend": {"x": 1.02, "xanchor": "left", "y": 1, "font": {"family": theme.MONO, "size": 11}},
    }
    return parts.figure(f"Logit lens after position {lens.position}", "stream after layer", "probability")


def _line(lens: LogitLens, column: int, name: str) -> go.Scatter:
    facts = [part[:, column].tolist() for part in (lens.logits, lens.probabilities, lens.ranks)]
    token = f'"{theme.escape(lens.pieces[column])}" (token {lens.ids[column]})'
    texts = [
        f"{token}<br>logit {theme.score_text(logit)} · probability {theme.probability_text(p)} · rank {rank}"
        for logit, p, rank in zip(*facts, strict=True)
    ]
    turn, place = divmod(column, len(theme.LINE_COLORS))
    return go.Scatter(
        x=np.arange(len(texts)),
        y=facts[1],
        mode="lines+markers",
        name=name,
        line={"color": theme.LINE_COLORS[place], "dash": DASHES[turn % len(DASHES)]},
        marker={"symbol": SYMBOLS[column % len(SYMBOLS)], "size": 7},
        text=texts,
        hovertemplate="%{text}<extra></extra>",
    )


def lens_tokens(lens: LogitLens, *, numbering_from: int = 0, width: int = 460) -> go.Figure:
    """The most probable tokens of every depth: a row for each depth, the probability as colour."""
    z = np.array([[token.probability for token in row] for row in lens.top], np.float32)
    hovers = [
        [
            f'"{theme.escape(token.piece)}" (token {token.id})<br>'
            f"probability {theme.probability_text(token.probability)}"
            for token in row
        ]
        for row in lens.top
    ]
    parts = Parts((width, 24 * len(z) + 100), {"l": _LEFT, "r": 12, "t": 60, "b": 40})
    colored = cells.grid(
        z,
        1.0,
        signed=False,
        colorbar=theme.color_bar(1.0, signed=False),
        text=[[theme.escape(theme.cut(token.piece)) for token in row] for row in lens.top],
        texttemplate="%{text}",
        textfont={"family": theme.MONO, "size": theme.LABEL_PX},
        **theme.hover(hovers),
    )
    parts.traces.append(colored)
    parts.layout |= {
        "xaxis": theme.axis(**theme.ticks({rank: str(rank + 1) for rank in range(z.shape[1])})),
        "yaxis": theme.listed(depth_names(lens, numbering_from), down=True),
    }
    return parts.figure(
        f"Most probable next tokens after position {lens.position}, by layer", "rank", "stream after layer"
    )


_GATE_LEFT, _RIGHT, _GATE_TOP, _GATE_BOTTOM, _GATE_ROW_PX = 48, 16, 66, 84, 16


def gate_map(
    gate: Float[np.ndarray, "head position"],
    tokens: Tokens,
    *,
    layer: int,
    selected: tuple[int, int] | None = None,
    numbering_from: int = 0,
    width: int = 460,
) -> go.Figure:
    """Heads down, positions across, colour the gate from 0 to 1.

    `selected`: (head, position) framed. A NaN is left blank and crossed.
    """
    n_heads, n_tokens = gate.shape
    margin = {"l": _GATE_LEFT, "r": _RIGHT, "t": _GATE_TOP, "b": _GATE_BOTTOM}
    parts = Parts((width, _GATE_ROW_PX * n_heads + _GATE_TOP + _GATE_BOTTOM), margin)
    heads = [f"H{head + numbering_from}" for head in range(n_heads)]
    names = [theme.hover_label(position, piece) for position, piece in enumerate(tokens.pieces)]
    colored = cells.grid(
        gate.astype(np.float32),
        1.0,
        signed=False,
        colorbar=theme.color_bar(1.0, signed=False),
        hovertext=[[f"{head}<br>position {name}" for name in names] for head in heads],
        hovertemplate="%{hovertext}<br>gate %{z:.3f}<extra></extra>",
        hoverongaps=False,
    )
    rows, columns = np.nonzero(~np.isfinite(gate))
    parts.traces += [colored, *cells.crosses(columns, rows, 6.0)]
    ticks = theme.tick_positions(0, n_tokens, width - _GATE_LEFT - _RIGHT)
    labels = theme.ticks({p: theme.tick_label(p, tokens.pieces[p]) for p in ticks})
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, n_tokens - 0.5), tickangle=-90, **labels),
        "yaxis": theme.listed(heads, down=True),
    }
    if selected is not None:
        parts.add_box(selected, color=theme.INK, width=2)
    return parts.figure(f"L{layer + numbering_from} · gate (share that passes)", "position", "head")
