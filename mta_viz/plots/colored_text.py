"""Tokens as text, each on the colour of a value: attention, attribution, or any other number a token has."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from mta_viz.analysis.spans import Span
from mta_viz.plots import text_cells, theme
from mta_viz.plots.spans import add_spans_in_text
from mta_viz.plots.text_cells import Coloring
from mta_viz.tokenizers.base import Tokens


def colored_text(
    tokens: Tokens,
    values: Float[np.ndarray, " token"],
    there: Bool[np.ndarray, " token"],
    coloring: Coloring,
    *,
    title: str,
    told: tuple[str, str],
    boxed: int | None = None,
    frame: str = theme.FRAME,
    spans: Sequence[Span] = (),
    width: int = 760,
) -> go.Figure:
    """Text in monospaced lines, each token on the colour of its value; hatched where it is not `there`.

    `told`: hover templates of tokens with a value (customdata[1]) and without. `boxed`: a token in a black
    frame; `spans` are outlined and have their letters. Numbers at the left are the first token of each line.
    Every character takes clicks: the event's customdata is (token position, value).
    """
    text, parts = text_cells.written(tokens.pieces, values, width)
    without = ~there[text.token]
    text_cells.add_cells(parts, text, coloring, without)
    names = text_cells.hover_names(text, tokens.pieces)
    data = np.stack([text.token, np.nan_to_num(text.values)], 1)
    for hidden, template in zip((False, True), told, strict=True):
        if (without == hidden).any():
            parts.traces.append(text_cells.targets(text, without == hidden, names, template, data))
    for line, left, right in text.runs(text.token == boxed) if boxed is not None else ():
        parts.add_box((line, left + 0.5), (1, round(right - left)), color=theme.INK, width=2)
    add_spans_in_text(
        parts, spans, lambda span: text.runs((text.token >= span.start) & (text.token < span.stop))
    )
    text_cells.add_axes(parts, text, frame)
    parts.add_title(title)
    return parts.figure()
