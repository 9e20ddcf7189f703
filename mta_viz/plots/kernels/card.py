"""One kernel in large: its taps with their sums, its scores beside chance, its frequency response.

And at work: a probe's map before and after, the nearest kernels, a head-mixing row. Time runs down as in the
maps: the earliest query on top, the current one at the bottom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.probes import ProbeResult
from mta_viz.plots import cells, theme
from mta_viz.plots.kernels import mosaic
from mta_viz.plots.parts import Parts, lying_bars

WIDTH = 412  # with room for numbers in the cells of 11 keys
NUMBER_CELL_PX = 26
_LEFT, _RIGHT, _TOP, _BOTTOM, _SUMS, _GAP = 64, 8, 62, 44, 44, 6
_MIN_CELL_PX, _MAX_CELL_PX = 12.0, 40.0
_CAPTION_PX = 18
_BAR_PX = 22
_NUMBERS = {"color": theme.INK, "size": 10}


@dataclass(frozen=True)
class ScoreBar:
    """A score to draw: `chance` is the size that Gaussian kernels seldom reach, None where there is none."""

    label: str
    value: float
    chance: float | None


def kernel_picture(
    kernel: Float[np.ndarray, "c_q c_k"],
    offsets: Offsets,
    *,
    hide_own: bool = False,
    title: str | None = None,
    width: int = WIDTH,
) -> go.Figure:
    """The taps with numbers where they fit, sums over queries on top and over keys at the right.

    The colour limit comes from the taps other than the own one. `hide_own` leaves the own tap out of the
    cells and of the sums; its value is printed anyway, unless another `title` is given.
    """
    drawn = kernel.copy()
    if hide_own:
        drawn[offsets.own] = 0.0
    c_q, c_k = kernel.shape
    plot_px = width - _LEFT - _RIGHT
    cell = min((plot_px - _SUMS - _GAP) / c_k, _MAX_CELL_PX)
    row = min(max(cell, _MIN_CELL_PX), 28.0)
    bottom = _BOTTOM + _CAPTION_PX * mosaic.offsets_reach_later(offsets)
    height = round(c_q * row) + _SUMS + _GAP + _TOP + bottom
    parts = Parts((width, height), {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": bottom})
    share = (c_k * cell / plot_px, c_q * row / (height - _TOP - bottom))
    add_taps(parts, kernel, drawn, offsets, numbers=cell >= NUMBER_CELL_PX)
    _add_sums(parts, drawn, offsets)
    parts.layout |= _axes(offsets, cell, row, share, (plot_px, height - _TOP - bottom))
    own = f"own tap {theme.score_text(float(kernel[offsets.own]))}{' (hidden)' if hide_own else ''}"
    parts.add_axis_titles(mosaic.key_title(offsets), "query offset", above_px=bottom - _BOTTOM)
    if bottom > _BOTTOM:
        parts.add_caption(mosaic.LATER_KEYS, below_px=_BOTTOM)
    return parts.figure(own if title is None else title)


def add_taps(
    parts: Parts, kernel: np.ndarray, drawn: np.ndarray, offsets: Offsets, *, numbers: bool, **bar: object
) -> None:
    """The taps of `drawn` by their offsets, on a scale from those other than the own one, which is framed.

    Crossed: what is broken in `kernel`; dotted: the border to the later keys.
    """
    limit = mosaic.tap_limit(drawn[None], offsets.own)
    finite = np.where(np.isfinite(drawn), drawn, 0.0)
    colored = cells.grid(
        drawn,
        limit,
        x=list(offsets.key),
        y=list(offsets.query),
        colorbar=theme.color_bar(limit, signed=True, values=finite) | bar,
        hoverongaps=False,
        **theme.hover(mosaic.tap_hovers(drawn, offsets)),
    )
    if numbers:
        words = [[theme.short_text(value) for value in line] for line in drawn]
        colored.update(text=words, texttemplate="%{text}", textfont={"size": 9})
    rows, columns = np.nonzero(~np.isfinite(kernel))
    x, y = np.array(offsets.key)[columns], np.array(offsets.query)[rows]
    parts.traces += [colored, *cells.crosses(x, y, 9, **cells.BAD_TAP)]
    parts.add_box((0, 0), color=theme.INK, width=2)
    if mosaic.offsets_reach_later(offsets):
        parts.add_line((0.5, 0.5), (offsets.query[0] - 0.5, 0.5), mosaic.DOTTED)


def _colors(values: Sequence[float] | np.ndarray) -> list[str]:
    return [theme.NEGATIVE_COLOR if value < 0 else theme.POSITIVE_COLOR for value in values]


def _add_sums(parts: Parts, drawn: np.ndarray, offsets: Offsets) -> None:
    drawn = np.where(np.isfinite(drawn), drawn, np.nan)
    for axis, on, at, what in (
        (0, {"xaxis": "x", "yaxis": "y2", "orientation": "v"}, offsets.key, "key"),
        (1, {"xaxis": "x2", "yaxis": "y", "orientation": "h"}, offsets.query, "query"),
    ):
        sums = drawn.sum(axis)
        places = {"x": list(at), "y": sums} if axis == 0 else {"x": sums, "y": list(at)}
        texts = [
            f"sum of the taps at {what} offset {offset:+d}: {value:+.4g}"
            for offset, value in zip(at, sums, strict=True)
        ]
        parts.traces.append(go.Bar(**places, **on, marker={"color": _colors(sums)}, **theme.hover(texts)))


def _axes(
    offsets: Offsets, cell: float, row: float, share: tuple[float, float], px: tuple[int, int]
) -> dict[str, object]:
    keys, queries = mosaic.offset_ticks(offsets, cell, row)
    names = queries | {0: "0 (now)"}
    x = {"range": (offsets.key[0] - 0.5, offsets.key[-1] + 0.5), "domain": (0, share[0])}
    y = {"range": (0.5, offsets.query[0] - 0.5), "domain": (0, share[1])}
    bare = {"showticklabels": False, "ticks": "", **theme.ZERO}
    right = share[0] + _GAP / px[0]
    return {
        "xaxis": theme.axis(**x, **theme.ticks(keys), fixedrange=True),
        "yaxis": theme.axis(**y, **theme.ticks(names), fixedrange=True),
        "xaxis2": theme.axis(domain=(right, min(1.0, right + _SUMS / px[0])), anchor="y", **bare),
        "yaxis2": theme.axis(domain=(share[1] + _GAP / px[1], 1), anchor="x", **bare),
        "bargap": 0.2,
    }


def score_bars(bars: Sequence[ScoreBar]) -> go.Figure:
    """Shape scores from -1 to 1, a tick at the size that Gaussian kernels seldom reach.

    The numbers stand beside the names, where no tick meets them.
    """
    labels = [f"{bar.label} {bar.value:+.2f}".replace("-", "−") for bar in bars]
    size = (WIDTH, _BAR_PX * len(bars) + 74)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 14, "r": 14, "t": 30, "b": 44})
    values, places = [bar.value for bar in bars], list(range(len(bars)))
    hovers = [
        f"{bar.label} {bar.value:+.3f}"
        + ("" if bar.chance is None else f"<br>99 of 100 Gaussian kernels stay within ±{bar.chance:.2f}")
        for bar in bars
    ]
    parts.traces.append(lying_bars(values, places, (), _colors(values), **theme.hover(hovers)))
    for place, bar in zip(places, bars, strict=True):
        for mark in () if bar.chance is None else {bar.chance, -bar.chance}:
            tick = {"color": theme.INK, "width": 1.5}
            parts.add_line((mark, mark), (place - 0.42, place + 0.42), tick)
    parts.layout |= {
        "xaxis": theme.axis(range=(-1.2, 1.2), **theme.ZERO, tickvals=[-1, -0.5, 0, 0.5, 1]),
        "yaxis": theme.listed(labels, down=True, fixedrange=True),
    }
    return parts.figure("Shape scores", "score · ticks: 99 % of Gaussian kernels lie inside")


def frequency_picture(
    frequencies: Float[np.ndarray, " frequency"], response: Float[np.ndarray, "query_frequency key_frequency"]
) -> go.Figure:
    """The size of a kernel's answer to waves over queries (down) and keys (across)."""
    parts = Parts((WIDTH, WIDTH - 40), {"l": 56, "r": 12, "t": 56, "b": 44})
    limit = round_up(float(response.max()))
    colored = cells.grid(
        response,
        limit,
        signed=False,
        x=frequencies,
        y=frequencies,
        colorbar=theme.color_bar(limit, signed=False),
        hovertemplate="%{x:+.2f} cycles a key, %{y:+.2f} a query<br>answer %{z:.3g}<extra></extra>",
    )
    parts.traces.append(colored)
    ticks = theme.axis(**theme.ticks({-0.5: "−0.5", -0.25: "−0.25", 0: "0", 0.25: "0.25"}))
    parts.layout |= {"xaxis": ticks, "yaxis": ticks}
    return parts.figure("Frequency response", "cycles per token over keys", "cycles per token over queries")


_PROBE_LEFT, _PROBE_RIGHT, _PROBE_TOP, _PROBE_BOTTOM, _PROBE_GAP = 46, 8, 36, 40, 30


def probe_picture(result: ProbeResult) -> go.Figure:
    """Synthetic scores, and what the kernel makes of them; the cells the number is read off are framed."""
    # The keys at which something is to be seen, and one more at either side.
    seen = np.flatnonzero((result.before != 0).any(0) | (result.after != 0).any(0))
    shown = slice(max(int(seen[0]) - 1, 0), int(seen[-1]) + 2)
    rows, columns = len(result.before), shown.stop - shown.start
    plot_px = WIDTH - _PROBE_LEFT - _PROBE_RIGHT
    cell = (plot_px - _PROBE_GAP) / 2 / columns
    height = round(max(rows * cell, 90)) + _PROBE_TOP + _PROBE_BOTTOM
    parts = Parts((WIDTH, height), {"l": _PROBE_LEFT, "r": _PROBE_RIGHT, "t": _PROBE_TOP, "b": _PROBE_BOTTOM})
    half = (plot_px - _PROBE_GAP) / 2 / plot_px
    for suffix, values, name, left in (
        ("", result.before, "<b>before</b>: the probe's scores", 0.0),
        ("2", result.after, "<b>after</b> the kernel", 1 - half),
    ):
        limit = round_up(float(np.abs(values).max()) or 1.0)
        on: dict[str, Any] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        hover = "row %{y}, column %{x}<br>score %{z:+.3g}<extra></extra>"
        parts.traces.append(cells.grid(values[:, shown], limit, showscale=False, hovertemplate=hover, **on))
        bare = {"showticklabels": False, "ticks": "", "fixedrange": True}
        across = {"domain": (left, left + half), "anchor": on["yaxis"], "range": (-0.5, columns - 0.5)}
        parts.layout |= {
            f"xaxis{suffix}": theme.axis(**across, **bare),
            f"yaxis{suffix}": theme.axis(anchor=on["xaxis"], range=(rows - 0.5, -0.5), **bare),
        }
        parts.add_words(f"{name}, ±{limit:g}", 11, x=left, y=1, xanchor="left", yanchor="bottom")
        for row, column in result.read_at:
            refs: dict[str, Any] = {"xref": on["xaxis"], "yref": on["yaxis"]}
            parts.add_box((row, column - shown.start), color=theme.INK, width=2, **refs)
    return parts.figure("", "key →", "query ↓")


def neighbour_tiles(
    taps: Float[np.ndarray, "kernel c_q c_k"], offsets: Offsets, headings: Sequence[str]
) -> go.Figure:
    """A few kernels side by side, each on its own scale."""
    look: dict[str, Any] = {"width": WIDTH, "numbering": 0, "headings": headings}
    tiles = mosaic.Mosaic(taps, offsets, own_scale=True, **look)
    return tiles.figure("Nearest kernels by cosine, own taps left out")


def mixing_row(
    weights: Float[np.ndarray, " source"], labels: Sequence[str], own: int, *, unit: str = "weight"
) -> go.Figure:
    """What a target head takes from each source head of its group; the own head's bar is framed."""
    size = (WIDTH, _BAR_PX * len(weights) + 74)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 20, "r": 10, "t": 30, "b": 44})
    finite = np.where(np.isfinite(weights), weights, 0.0)
    fractions = [
        "" if place == own or value * finite[own] >= 0 else f" ({-value / finite[own]:.2f} subtracted)"
        for place, value in enumerate(finite)
    ]
    texts = [
        f"{value:+.2f}{subtracted}".replace("-", "−") if np.isfinite(value) else "NaN"
        for value, subtracted in zip(weights, fractions, strict=True)
    ]
    places = list(range(len(weights)))
    rims = {"color": theme.INK, "width": [2 * (place == own) for place in places]}
    bars = lying_bars(finite, places, texts, _colors(finite), textfont=_NUMBERS, hoverinfo="skip")
    parts.traces.append(bars.update(marker={"line": rims}))
    low, high = min(finite.min(), 0.0), max(finite.max(), 0.0)
    room = 0.45 * ((high - low) or 1.0)
    ends = (low - 1.6 * room * (low < 0), high + room)
    parts.layout |= {"xaxis": theme.axis(range=ends, **theme.ZERO), "yaxis": theme.listed(labels, down=True)}
    return parts.figure("What this head takes from each head", unit)
