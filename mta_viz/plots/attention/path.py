"""Pictures of single steps of the computation: a score's products, and a kernel between two maps."""

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention.decomposition import Scored
from mta_viz.analysis.attention.maps import AttentionMap, round_up
from mta_viz.analysis.attention.playing import Played
from mta_viz.plots import cells, theme
from mta_viz.plots.attention.stages import bars
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.parts import Parts
from mta_viz.plots.side_by_side import side_by_side
from mta_viz.tokenizers.base import Tokens

MAP_PX, KERNEL_PX = 300, 330


def product_bars(scored: Scored, tokens: Tokens, *, size: tuple[int, int]) -> go.Figure:
    """A bar a dimension of the head's vectors; the bars sum to the score."""
    values = np.array(scored.products)
    x, limit = np.arange(len(values)), round_up(cells.largest(values))
    parts = Parts(size, {"l": 64, "r": 14, "t": 40, "b": 44})
    targets = cells.targets(x, 0 * x, 9.0, "dimension %{x}: %{customdata:+.4g}", values)
    parts.traces += [*bars(x, values, limit), targets]
    ends = theme.ticks({-limit: f"−{limit:g}", 0: "0", limit: f"+{limit:g}"})
    middle = {"zeroline": True, "zerolinecolor": theme.FRAME, "fixedrange": True}
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.7, len(values) - 0.3), fixedrange=True),
        "yaxis": theme.axis(range=(-1.08 * limit, 1.08 * limit), **ends, **middle),
    }
    query, key = (theme.hover_label(place, tokens.pieces[place]) for place in (scored.query, scored.key))
    total = f"{len(values)} products sum to {theme.score_text(scored.value)}"
    return parts.figure(
        f"query {query} · key {key}: {total}", "dimension of both vectors", f"q·k / √{scored.d_head}"
    )


def painted_panels(played: Played, tokens: Tokens | None, *, limit: float, title: str) -> go.Figure:
    """Scores before | kernel | scores after on one scale; `tokens` name the queries and keys of a run."""
    before, after = (
        _square(shown, f"<b>{name}</b> ±{limit:g}", tokens, limit)
        for name, shown in (("before", played.before), ("after", played.after))
    )
    kernel = kernel_picture(played.taps, played.offsets, title="kernel", width=KERNEL_PX)
    return side_by_side([before, kernel, after], title)


def _square(shown: AttentionMap, heading: str, tokens: Tokens | None, limit: float) -> go.Figure:
    """A small map whose axes name positions; its hovers the tokens too, where there are some."""
    parts = Parts((MAP_PX, MAP_PX), {"l": 46, "r": 6, "t": 26, "b": 38})
    rows, columns = (
        [theme.hover_label(at, tokens.pieces[at]) if tokens else str(at) for at in side.tolist()]
        for side in (shown.queries, shown.keys)
    )
    hovers = [
        [f"query {row}<br>key {column}<br>score {value:+.4g}" for column, value in zip(columns, line, strict=True)]
        for row, line in zip(rows, shown.values.tolist(), strict=True)
    ]
    parts.traces += [cells.heatmap(shown, limit, showscale=False, **theme.hover(hovers)), *cells.future(shown)]
    (high, wide), starts = shown.values.shape, (shown.query_start, shown.key_start)
    x, y = cells.edges(starts[1], wide, 1), cells.edges(starts[0], high, 1)
    parts.layout |= {
        "xaxis": theme.axis(range=x, fixedrange=True),
        "yaxis": theme.axis(range=y[::-1], fixedrange=True),
    }
    return parts.figure(heading, "key", "query")
