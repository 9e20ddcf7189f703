"""A cell or a position of one run: why the cell has its value, and which tokens come next.

The window of a convolution as three tiles: kernel x values here = products. In every tile x is the key offset
and y the query offset from the cell, as in the kernel's own picture. Colours have one limit a tile, printed
over it. A head-mixed cell: one bar a source head, weight x value = product. A raw score: one bar a dimension
of the two vectors.

The most probable next tokens as bars. The logit lens: what each layer would say next, for chosen tokens and
for the most probable ones. The gate of a layer: what part of each head's output passes at each position.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from mta_viz.analysis.attention.cells import LogitLens, Prediction
from mta_viz.analysis.attention.decomposition import Convolved, Mixed, Scored, Term
from mta_viz.analysis.attention.maps import round_up
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.attention.stages import bars
from mta_viz.plots.kernels.mosaic import offset_ticks, tap_limit
from mta_viz.plots.parts import Parts, lying_bars
from mta_viz.printed import probability_text
from mta_viz.tokenizers.base import Tokens

_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP, _CAPTION = 46, 8, 40, 40, 24, 18
_MIN_CELL_PX, _MAX_CELL_PX, _ROOMY = 12.0, 34.0, 100.0
_LABEL_PX, _LABEL_CHAR_PX = 9, 5.2
_NUMBERS = (
    "query offset %{y}, key offset %{x}<br>"
    "tap %{customdata[0]:+.3g} × %{customdata[1]:+.4g} = %{customdata[2]:+.4g}"
)
_WORDS = {"outside": "outside", "future": "0: future"}


def convolution_window(convolved: Convolved, tokens: Tokens, *, width: int = 556) -> go.Figure:
    """Kernel, values and products of one cell; height follows from the kernel's shape.

    Cells outside the prompt and future cells, both read as 0, are hatched each in its own
    direction, and counted. Every cell takes clicks: the event's x and y are key and query offset,
    so its source is (query + y, key + x).
    """
    return _Figure(convolved, tokens, width).figure()


class _Figure:
    def __init__(self, convolved: Convolved, tokens: Tokens, width: int) -> None:
        self.convolved, self.window, self.tokens = convolved, convolved.window, tokens
        self.offsets = convolved.window.offsets
        self.c_q, self.c_k = convolved.window.kernel.shape
        self.plot_px = width - _LEFT - _RIGHT
        self.tile_px = (self.plot_px - 2 * _GAP) / 3
        self.cell_px = self.tile_px / self.c_k
        self.row_px = min(max(self.cell_px, _MIN_CELL_PX), _MAX_CELL_PX)
        self.masks = {"outside": convolved.window.outside.numpy(), "future": convolved.window.future.numpy()}
        self.caption_px = _CAPTION * any(mask.any() for mask in self.masks.values())
        height = round(self.c_q * self.row_px) + _TOP + _BOTTOM + self.caption_px
        margin = {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM + self.caption_px}
        self.parts = Parts((width, height), margin)

    def figure(self) -> go.Figure:
        for index, tile in enumerate(self._tiles()):
            self._add_tile(index, *tile)
        for index, sign in enumerate("×=", start=1):
            x = (index * (self.tile_px + _GAP) - _GAP / 2) / self.plot_px
            self.parts.add_words(sign, 16, x=x, y=0.5, xanchor="center")
        self.parts.add_axis_titles("key offset", "query offset", above_px=self.caption_px)
        n_outside, n_future = (int(mask.sum()) for mask in self.masks.values())
        counts = [f"{n_outside} outside the prompt"] * bool(n_outside)
        counts += [f"{n_future} future"] * bool(n_future)
        if counts:
            self.parts.add_caption(f"Hatched (0): {' · '.join(counts)}", below_px=_BOTTOM)
        self.parts.layout["dragmode"] = False
        return self.parts.figure()

    def _tiles(self) -> list[tuple[str, np.ndarray, float, theme.Scale]]:
        """Heading, values, limit and colour scale of the three pictures."""
        kernel, sources, products = (
            part.numpy() for part in (self.window.kernel, self.window.sources, self.window.products)
        )
        source, product = (round_up(cells.largest(part)) for part in (sources, products))
        tap = tap_limit(kernel[None], self.offsets.own)
        mass = self.convolved.stage_before is Stage.SOFTMAX
        name = "softmax here" if mass else "raw scores here"
        if self.tile_px < _ROOMY:
            name = "softmax" if mass else "scores"
        shown, scale = (f"0..{source:g}", theme.MASS_SCALE) if mass else (f"±{source:g}", theme.SIGNED_SCALE)
        return [
            (f"<b>kernel</b><br>±{tap:g}", kernel, tap, theme.SIGNED_SCALE),
            (f"<b>{name}</b><br>{shown}", sources, source, scale),
            (f"<b>products</b><br>±{product:g}", products, product, theme.SIGNED_SCALE),
        ]

    def _add_tile(
        self, index: int, heading: str, values: np.ndarray, limit: float, scale: theme.Scale
    ) -> None:
        """All but the kernel, the first, are hatched where they are read as 0."""
        suffix = str(index + 1) if index else ""
        on = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        left = index * (self.tile_px + _GAP) / self.plot_px
        domain = (left, left + self.tile_px / self.plot_px)
        self.parts.layout |= self._axes(suffix, domain, first=index == 0)
        masks = self.masks if index else {}
        z = np.where(np.any([*masks.values()], 0), np.nan, values) if index else values
        look = {"colorscale": scale, "showscale": False, "hoverinfo": "skip"}
        place = {"x0": self.offsets.key[0], "dx": 1, "y0": self.offsets.query[0], "dy": 1, **on}
        signed = scale != theme.MASS_SCALE
        self.parts.traces.append(cells.grid(z.astype(np.float32), limit, signed=signed, **look, **place))
        for name, mask in masks.items():
            self._add_hatched(name, mask, on)
        rows, columns = np.nonzero(~np.isfinite(values))
        x, y = np.asarray(self.offsets.key)[columns], np.asarray(self.offsets.query)[rows]
        self.parts.traces += [*cells.crosses(x, y, 8.0, **on), self._targets(on, words=index == 1)]
        refs: dict[str, Any] = {"xref": on["xaxis"], "yref": on["yaxis"]}
        self.parts.add_box((0, 0), color=theme.INK, width=2, **refs)
        corner = {"x": left, "y": 1, "xanchor": "left", "yanchor": "bottom"}
        self.parts.add_words(heading, 11, align="left", **corner)

    def _axes(self, suffix: str, domain: tuple[float, float], *, first: bool) -> dict[str, object]:
        keys, queries = offset_ticks(self.offsets, self.cell_px, self.row_px)
        bare = {"ticklen": 2, "fixedrange": True}
        x = {"domain": domain, "range": (self.offsets.key[0] - 0.5, self.offsets.key[-1] + 0.5)}
        y = {"range": (0.5, self.offsets.query[0] - 0.5), "showticklabels": first}
        return {
            f"xaxis{suffix}": theme.axis(anchor=f"y{suffix}", **x, **theme.ticks(keys), **bare),
            f"yaxis{suffix}": theme.axis(anchor=f"x{suffix}", **y, **theme.ticks(queries), **bare),
        }

    def _add_hatched(self, name: str, mask: Bool[np.ndarray, "c_q c_k"], on: dict[str, str]) -> None:
        if not mask.any():
            return
        first_row, first_column = self.offsets.query[0], self.offsets.key[0]
        squares = [
            (row + first_row, column + first_column, 1, 1) for row, column in np.argwhere(mask).tolist()
        ]
        for hatch in cells.hatched_boxes(squares, **on):
            self.parts.traces.append(hatch.update(fillpattern={"shape": "\\" if name == "outside" else "/"}))
        row, left, right = _widest_run(mask)
        if (right - left) * self.cell_px < len(_WORDS[name]) * _LABEL_CHAR_PX:
            return
        where = {"x": first_column + (left + right - 1) / 2, "y": self.offsets.query[row]}
        refs: dict[str, Any] = {"xref": on["xaxis"], "yref": on["yaxis"], "showarrow": False, "borderpad": 0}
        font = {"font": {"size": _LABEL_PX, "color": theme.INK}, "bgcolor": theme.MASKED_FILL}
        self.parts.annotations.append({"text": _WORDS[name], **where, **refs, **font})

    def _targets(self, on: dict[str, str], *, words: bool) -> go.Scatter:
        """With the tokens in words on one tile: they are most of what the figure sends; else with offsets."""
        terms = sorted(self.convolved.terms, key=lambda term: (term.query, term.key))
        x, y = np.meshgrid(*(np.array(part, np.int16) for part in (self.offsets.key, self.offsets.query)))
        place = (x.ravel(), y.ravel(), self.cell_px)
        if words:
            hovers = [_hover(term, self.tokens) for term in terms]
            return cells.targets(*place, "%{hovertext}").update(hovertext=hovers, **on)
        numbers = [(term.weight, term.source, term.product) for term in terms]
        return cells.targets(*place, _NUMBERS, np.array(numbers, np.float32)).update(on)


def _widest_run(mask: Bool[np.ndarray, "c_q c_k"]) -> tuple[int, int, int]:
    """(row, first column, column after the last) of the middle one of the longest runs in a row."""
    runs = []
    for row, flags in enumerate(mask):
        borders = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
        runs += [(row, int(left), int(right)) for left, right in borders.reshape(-1, 2)]
    longest = max(right - left for _, left, right in runs)
    best = [run for run in runs if run[2] - run[1] == longest]
    return best[len(best) // 2]


def _hover(term: Term, tokens: Tokens) -> str:
    tap = f"tap {theme.score_text(term.weight)}"
    if term.state == "outside":
        return f"{tap}<br>outside the prompt: read as 0"
    where = (
        f"query {theme.hover_label(term.query, tokens.pieces[term.query])}"
        f"<br>key {theme.hover_label(term.key, tokens.pieces[term.key])}"
    )
    if term.state == "future":
        return f"{where}<br>{tap}<br>masked: key {term.key} is after query {term.query}, read as 0"
    return f"{where}<br>{tap} × {term.source:+.4g} = {term.product:+.4g}"


_ROW_PX, _BARS_TOP, _ROOM = 22, 30, 0.3


def mixing_bars(mixed: Mixed, *, numbering: int = 0, width: int = 556) -> go.Figure:
    """Bars over source heads in their order, weight and value in front, product at the end.

    A click's y is the source head, counted from 0. Raised is red, lowered blue, as in the maps.
    """
    terms = sorted(mixed.terms, key=lambda term: term.head)
    heads = [term.head for term in terms]
    names = [f"H{term.head + numbering}{' own' * (term.head == mixed.head)}" for term in terms]
    factors = [f"{_number(term.weight)} × {_number(term.source)}" for term in terms]
    texts = [_number(term.product) for term in terms]
    labels = [f"{name}  {factor}" for name, factor in zip(names, factors, strict=True)]
    hovers = [
        f"source head {head + numbering}<br>{factor} = {text}"
        for head, factor, text in zip(heads, factors, texts, strict=True)
    ]
    size = (width, _ROW_PX * len(terms) + _BARS_TOP + _BOTTOM)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 14, "r": 10, "t": _BARS_TOP, "b": _BOTTOM})
    products = [term.product if math.isfinite(term.product) else math.nan for term in terms]
    colors = [theme.NEGATIVE_COLOR if term.product < 0 else theme.POSITIVE_COLOR for term in terms]
    parts.traces.append(lying_bars(products, heads, texts, colors, **theme.hover(hovers)))
    # From the lowest to the highest bar and 0, with room for the numbers at the ends.
    finite = [0.0, *(product for product in products if math.isfinite(product))]
    low, high = min(finite), max(finite)
    room = _ROOM * ((high - low) or 1.0)
    down = {"range": (heads[-1] + 0.5, heads[0] - 0.5), **theme.ticks(dict(zip(heads, labels, strict=True)))}
    ends = (low - room * (low < 0), high + room)
    parts.layout |= {
        "xaxis": theme.axis(range=ends, **theme.ZERO),
        "yaxis": theme.axis(**down, fixedrange=True),
    }
    return parts.figure(
        f"{_number(mixed.value)} = sum over {len(terms)} source heads",
        f"mixing weight × value = product ({mixed.stage.value.unit})",
    )


def _number(value: float) -> str:
    return theme.score_text(value).replace("-", "−")


def product_bars(scored: Scored, tokens: Tokens, *, width: int = 556) -> go.Figure:
    """A bar a dimension of both vectors; the bars sum to the raw score."""
    values = np.array(scored.products)
    x, limit = np.arange(len(values)), round_up(cells.largest(values))
    parts = Parts((width, 300), {"l": 64, "r": 14, "t": 40, "b": _BOTTOM})
    targets = cells.targets(x, 0 * x, 9.0, "dimension %{x}: %{customdata:+.4g}", values)
    parts.traces += [*bars(x, values, limit), targets]
    ends = theme.ticks({-limit: f"−{limit:g}", 0: "0", limit: f"+{limit:g}"})
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.7, len(values) - 0.3), fixedrange=True),
        "yaxis": theme.axis(range=(-1.08 * limit, 1.08 * limit), fixedrange=True, **ends, **theme.ZERO),
    }
    query, key = (theme.hover_label(place, tokens.pieces[place]) for place in (scored.query, scored.key))
    words = f"query {query} · key {key}: {len(values)} products sum to {_number(scored.value)}"
    return parts.figure(words, "dimension of both vectors", f"q × k / √{scored.d_head}")


_NEXT_TOP, NEXT_PX, LENS_PX = 8, 300, 460


def next_tokens(predictions: Sequence[Prediction]) -> go.Figure:
    """One bar a token, most probable on top, probability from 0 to 1 printed beside it.

    Bars lie at ranks, not at tokens: two tokens may read the same.
    """
    labels = [theme.escape(theme.cut(token.piece, 16)) for token in predictions]
    size = (NEXT_PX, _ROW_PX * max(len(predictions), 1) + _NEXT_TOP + _BOTTOM)
    parts = Parts(size, {"l": round(theme.text_px(labels)) + 16, "r": 12, "t": _NEXT_TOP, "b": _BOTTOM})
    shares = [probability_text(token.probability) for token in predictions]
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
_LENS_LEFT, _LENS_TOP, _LENS_BOTTOM = 60, 36, 62


def depth_names(lens: LogitLens, numbering: int = 0) -> list[str]:
    """`embed`, then the layer after which the stream is read."""
    return ["embed", *(f"L{layer + numbering}" for layer in range(len(lens.top) - 1))]


def lens_lines(lens: LogitLens, *, numbering: int = 0) -> go.Figure:
    """One line for each chosen token's probability over the depths; the last point is the model's own."""
    names = [theme.escape(theme.cut(piece, 16)) for piece in lens.pieces]
    right = round(theme.text_px(names)) + 60
    parts = Parts((LENS_PX, 300), {"l": _LENS_LEFT, "r": right, "t": _LENS_TOP, "b": _LENS_BOTTOM})
    parts.traces += [_line(lens, column, name) for column, name in enumerate(names)]
    depths = depth_names(lens, numbering)
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
        f"{token}<br>logit {theme.score_text(logit)} · probability {probability_text(p)} · rank {rank}"
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


def lens_tokens(lens: LogitLens, *, numbering: int = 0) -> go.Figure:
    """The most probable tokens of every depth: a row for each depth, the probability as colour."""
    z = np.array([[token.probability for token in row] for row in lens.top], np.float32)
    hovers = [
        [
            f'"{theme.escape(token.piece)}" (token {token.id})<br>'
            f"probability {probability_text(token.probability)}"
            for token in row
        ]
        for row in lens.top
    ]
    parts = Parts((LENS_PX, 24 * len(z) + 100), {"l": _LENS_LEFT, "r": 12, "t": 60, "b": 40})
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
        "yaxis": theme.listed(depth_names(lens, numbering), down=True),
    }
    return parts.figure(
        f"Most probable next tokens after position {lens.position}, by layer", "rank", "stream after layer"
    )


_GATE_LEFT, _GATE_RIGHT, _GATE_TOP, _GATE_ROW_PX = 48, 16, 66, 16


def gate_map(
    gate: Float[np.ndarray, "head position"],
    tokens: Tokens,
    *,
    layer: int,
    selected: tuple[int, int] | None = None,
    numbering: int = 0,
) -> go.Figure:
    """Heads down, positions across, colour the gate from 0 to 1.

    `selected`: (head, position) framed. A NaN is left blank and crossed.
    """
    n_heads, n_tokens = gate.shape
    ticks = theme.tick_positions(0, n_tokens, LENS_PX - _GATE_LEFT - _GATE_RIGHT)
    labels = {p: theme.tick_label(p, tokens.pieces[p]) for p in ticks}
    bottom = round(theme.text_px(labels.values())) + 24
    margin = {"l": _GATE_LEFT, "r": _GATE_RIGHT, "t": _GATE_TOP, "b": bottom}
    parts = Parts((LENS_PX, _GATE_ROW_PX * n_heads + _GATE_TOP + bottom), margin)
    heads = [f"H{head + numbering}" for head in range(n_heads)]
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
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, n_tokens - 0.5), tickangle=-90, **theme.ticks(labels)),
        "yaxis": theme.listed(heads, down=True),
    }
    if selected is not None:
        parts.add_box(selected, color=theme.INK, width=2)
    return parts.figure(f"L{layer + numbering} · gate (share that passes)", "position", "head")
