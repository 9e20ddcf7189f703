"""Attribution in pictures: a value a token as bars and as text, and maps of what single cells bring.

Green is for the answer, brown against it: another hue family than attention has.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.maps import AttentionMap, round_up
from mta_viz.analysis.spans import Span
from mta_viz.plots import attention, cells, hover, theme
from mta_viz.plots.colored_text import colored_text
from mta_viz.plots.parts import Parts
from mta_viz.plots.rows import add_token_axes, bars, beyond_and_bad
from mta_viz.plots.spans import BAR_PX, add_spans_across
from mta_viz.plots.text_cells import Coloring
from mta_viz.tokenizers.base import Tokens

_PLOT_PX, _TOP, _LEFT, _RIGHT = 150, 44, 64, 14
_COLORS = (theme.RAISED_COLOR, theme.LOWERED_COLOR)
NOT_TRIED = "token %{text} was not replaced"


def value_limit(values: Float[np.ndarray, " token"]) -> float:
    """A round limit that holds every finite value."""
    return round_up(float(np.abs(values[np.isfinite(values)]).max(initial=0.0)))


def attribution_bars(
    values: Float[np.ndarray, " token"],
    tokens: Tokens,
    *,
    title: str,
    limit: float,
    spans: Sequence[Span] = (),
    width: int = 900,
) -> go.Figure:
    """A bar a token in nats; none where the value is NaN. The largest six are always labelled.

    Clicks: the event's x is the token's position.
    """
    parts = Parts((width, 0), {"l": _LEFT, "r": _RIGHT, "t": _TOP})
    largest = np.argsort(-np.abs(np.nan_to_num(values)), kind="stable")[:6].tolist()
    ticks = theme.tick_positions(0, len(tokens), width - _LEFT - _RIGHT, largest)
    labels = [theme.tick_label(place, tokens.pieces[place]) for place in ticks]
    parts.margin["b"] = round(theme.text_px(labels)) + 14 + BAR_PX
    parts.size = (width, _PLOT_PX + _TOP + parts.margin["b"])
    x = np.flatnonzero(~np.isnan(values)).astype(np.int32)
    known = values[x].astype(np.float32)
    told = "token %{x}<br>%{customdata:+.4g} nats"
    parts.traces += [
        *(bars(x, known, limit, _COLORS) if x.size else ()),
        *beyond_and_bad(x, known, limit),
        cells.targets(x, np.zeros(len(x), np.int8), 9.0, told, known),
        go.Scatter(x=[None], y=[None], xaxis="x2", yaxis="y", hoverinfo="skip"),
    ]
    add_token_axes(parts, tokens, (0, len(tokens)), "y", (ticks, labels))
    parts.layout["yaxis"] = _value_axis(limit)
    add_spans_across(parts, spans, range(len(tokens)))
    parts.add_title(title)
    return parts.figure()


def _value_axis(limit: float) -> dict[str, object]:
    return theme.axis(
        range=(-1.08 * limit, 1.08 * limit),
        tickvals=[-limit, 0, limit],
        ticktext=[f"−{theme.limit_text(limit)}", "0", f"+{theme.limit_text(limit)}"],
        zeroline=True,
        zerolinecolor=theme.FRAME,
        fixedrange=True,
        mirror=False,
        anchor="x",
    )


def attribution_text(
    values: Float[np.ndarray, " token"],
    tokens: Tokens,
    *,
    title: str,
    limit: float,
    spans: Sequence[Span] = (),
    width: int = 900,
) -> go.Figure:
    """The prompt in lines, each token on the colour of its value in nats; hatched where it is NaN."""
    return colored_text(
        tokens,
        values.astype(np.float32),
        ~np.isnan(values),
        Coloring(theme.DIFFERENCE_SCALE, limit),
        title=title,
        told=("token %{text}<br>%{customdata[1]:+.4g} nats", NOT_TRIED),
        spans=spans,
        width=width,
    )


def _look(name: str, unit: str) -> attention.Look:
    """Maps of contributions in `unit`; `name` may hold the stage as {stage}."""

    def title(drawn: AttentionMap, numbering_from: int) -> str:
        what = name.format(stage=drawn.stage.value.short)
        where = attention.where_title(drawn, numbering_from)
        return f"{where} · {what} ({unit}){attention.blocks_title(drawn)}"

    def value_line(drawn: AttentionMap, field: str) -> str:
        largest = "largest " if drawn.block > 1 else ""
        return f"{largest}contribution %{{{field}:+.4g}} ({unit})"

    def cell_text(
        drawn: AttentionMap, before: AttentionMap | None
    ) -> tuple[str, Float[np.ndarray, "row column field"]]:
        return hover.one_value(drawn, value_line(drawn, "customdata[0]"))

    return attention.Look(title, value_line, cell_text, theme.DIFFERENCE_SCALE)


ATTRIBUTED = _look("attribution of {stage}", "nats")
RESPONSIBLE = _look("responsibility of softmax cells", "logit")
