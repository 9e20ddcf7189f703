"""A text whose tokens stand on the colours of their losses: what a model expected, and what not."""

import math

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.labs.text_losses import TextLosses
from mta_viz.plots import text_cells, theme
from mta_viz.plots.text_cells import Coloring


def loss_text(found: TextLosses, shown: range, *, limit: float, width: int = 900) -> go.Figure:
    """The tokens `shown` in monospaced lines on their losses in nats, 0 light to `limit` dark.

    Hatched: nothing predicts the token. The hover tells its probability, rank and loss, and which token
    was the likeliest instead. Numbers at the left are the first token of each line.
    """
    part = slice(shown.start, shown.stop)
    pieces, ranks = found.tokens.pieces[part], found.ranks[part].tolist()
    losses = found.losses[part].numpy().astype(np.float32)
    text, parts = text_cells.written(pieces, losses, width)
    hidden = np.array(ranks)[text.token] == 0
    text_cells.add_cells(parts, text, Coloring(theme.MASS_SCALE, limit, signed=False), hidden)
    names = text_cells.hover_names(text, pieces, shown.start)
    told = map(_told, losses.tolist(), ranks, found.expected[part])
    words = [f"{name}<br>{line}" for name, line in zip(names, told, strict=True)]
    data = np.stack([shown.start + text.token, np.nan_to_num(text.values)], 1)
    parts.traces.append(text_cells.targets(text, np.ones(len(text.glyphs), bool), words, "%{text}", data))
    text_cells.add_axes(parts, text, theme.FRAME, shown.start)
    parts.add_title(f"Loss in nats · tokens {shown.start:,} to {shown.stop - 1:,}")
    return parts.figure()


def _told(loss: float, rank: int, expected: str) -> str:
    if not rank:
        return "nothing predicts it"
    line = f"probability {theme.probability_text(math.exp(-loss))} · rank {rank:,}<br>loss {loss:.3f} nats"
    return line if rank == 1 else f'{line}<br>likeliest: "{theme.escape(expected)}"'
