"""Colours, number formats, token labels, ticks and the frame every figure shares.

The paper around a plot is transparent and text has no colour of its own, so that a page's light or
dark theme sets both; the plotting area is white in every theme, and text on it is dark.
"""

import html
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import UInt8
from plotly.colors import get_colorscale, make_colorscale, sample_colorscale, unlabel_rgb

from mta_viz.printed import safe
from mta_viz.tables import number

Figure = go.Figure  # so that code above plots can name what it hands on
Scale = str | tuple[str, ...]  # of colours: plotly's name for it, or its colours from the low end to the high

# One meaning a hue, everywhere: blue is below 0 and red above it; what cannot be below 0 is purple.
SIGNED_SCALE = "RdBu_r"
MASS_SCALE: Scale = ("#FFFFFF", "#F0E1F2", "#D9B3DE", "#BC7FC4", "#97489F", "#6B1B74", "#3A0041")
NO_TEMPLATE = {"data": {"scatter": [{"type": "scatter"}]}}  # what plotly makes of "none"
DIFFERENCE_SCALE = "BrBG"  # another hue family: nobody reads a difference as a value
POSITIVE_COLOR, NEGATIVE_COLOR = "#B2182B", "#2166AC"  # as the arms of the signed scale
RAISED_COLOR, LOWERED_COLOR = "#01665E", "#8C510A"  # as the arms of the difference scale
BAD_COLOR = "#D0006F"
MASKED_LINE, MASKED_FILL = "#B9BEC5", "#F3F4F6"
INK, FRAME, PALE = "#1F2933", "#8A9099", "#6B7280"
SELECTED_COLOR, INCOMING_COLOR = "#0072B2", "#D55E00"
LINE_COLORS = (SELECTED_COLOR, INCOMING_COLOR, "#009E73", "#CC79A7")  # Okabe-Ito: stand out as thin lines
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"
LABEL_PX, LABEL_CHAR_PX, TICK_SPACING = 10, 6.1, 12
MAX_TOKEN_CHARS = 10
# A fixed order of small steps keeps labels at round positions.
_STEPS = tuple(base * 10**power for power in range(7) for base in (1, 2, 5))
HOVER = {"align": "left", "bgcolor": "#FFFFFF", "font": {"family": MONO, "size": 12, "color": INK}}
PX_PER_MM = 96 / 25.4
PIXELS: dict[str, Any] = {"len": 240, "lenmode": "pixels"}  # a colour bar as long on every figure
OWN_LIMIT = ["− own limit", "0", "+ own limit"]
_BIDI = {"R", "AL", "RLE", "RLO", "LRE", "LRO", "RLI", "LRI", "FSI", "PDF", "PDI"}


def escape(text: str) -> str:
    """Text as plotly shows it letter by letter: no markup, no entities, no TeX."""
    text = html.escape(safe(text), quote=False).replace("$", "&#36;")
    # Isolated, or a right-to-left token would swap places with the position before it.
    return f"\u2068{text}\u2069" if any(unicodedata.bidirectional(c) in _BIDI for c in text) else text


def cut(piece: str, limit: int = MAX_TOKEN_CHARS) -> str:
    """At most `limit` characters, the last one an ellipsis when some are left out."""
    return piece if len(piece) <= limit else piece[: limit - 1] + "…"


def tick_label(position: int, piece: str) -> str:
    """Axis label of a token: position and at most ten characters, escaped."""
    return f"{position} {escape(cut(piece))}"


def hover_label(position: int, piece: str) -> str:
    """The whole token with its position, escaped, for hover texts."""
    return f'{position} "{escape(piece)}"'


def pale(text: str) -> str:
    """Text in a figure that says nothing stands out here; 4.8 to 1 on white."""
    return f'<span style="color:{PALE}">{text}</span>'


def text_px(labels: Iterable[str]) -> float:
    """Width of the widest tick label in pixels, wide characters counted twice."""
    widths = (sum(columns(char) for char in html.unescape(label)) for label in labels)
    return max(widths, default=0) * LABEL_CHAR_PX


def columns(char: str) -> int:
    """Columns a character takes in monospaced text: East Asian wide ones take two."""
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def tick_positions(start: int, stop: int, axis_px: int, always: Sequence[int] = ()) -> list[int]:
    """Positions in [start, stop) to label: at most one per 12 pixels, at round steps.

    Those of `always` come first, then the first and the last position, then round ones; what would
    touch a label that came before it is left out.
    """
    if stop <= start:
        return []
    px = axis_px / (stop - start)
    step = next(step for step in _STEPS if step * px >= TICK_SPACING or step >= stop - start)
    chosen: list[int] = []

    def apart(position: int) -> bool:
        return all(abs(position - other) * px >= TICK_SPACING for other in chosen)

    for position in [*(p for p in always if start <= p < stop), start, stop - 1]:
        if apart(position):
            chosen.append(position)
    return sorted([*chosen, *(p for p in range(start, stop) if p % step == 0 and apart(p))])


score_text = number  # of scores, logits and taps


def short_text(value: float) -> str:
    """A number of at most five characters: .43 for 0.43; nothing where there is nothing."""
    if not np.isfinite(value) or value == 0:
        return ""
    if 0.005 <= abs(value) < 9.995:
        text = f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}"
        return text.replace("0.", ".", 1).replace("-", "−")
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def weight_text(value: float) -> str:
    """Attention weights and shares: three decimals."""
    return f"{value:.3f}"


def limit_text(limit: float) -> str:
    """A colour limit, which is a round number: no padding zeros."""
    return f"{limit:g}"


def color_bar(
    limit: float, *, signed: bool, values: np.ndarray | None = None, **options: object
) -> dict[str, object]:
    """A thin bar over the plot with its limits printed; an arrow where some of `values` lie beyond an end."""
    shown, end = np.zeros(1) if values is None else values, limit_text(limit)
    top, bottom = f"+{end}" if signed else end, f"−{end}"
    top = f"> {top} ▶" if (shown > limit).any() else top
    bottom = f"◀ < {bottom}" if (shown < -limit).any() else bottom
    return {
        "orientation": "h",
        "thickness": 8,
        "len": 0.8,
        "x": 0.5,
        "xanchor": "center",
        "y": 1.0,
        "yanchor": "bottom",
        "ypad": 8,
        "outlinewidth": 1,
        "outlinecolor": FRAME,
        "tickvals": [-limit, 0.0, limit] if signed else [0.0, limit / 2, limit],
        "ticktext": [bottom, "0", top] if signed else ["0", limit_text(limit / 2), top],
        "tickfont": {"size": LABEL_PX},
        **options,
    }


def color_table(scale: Scale, steps: int = 256) -> UInt8[np.ndarray, "step rgb"]:
    """A scale as `steps` colours from its low end to its high one, bytes."""
    pairs = get_colorscale(scale) if isinstance(scale, str) else make_colorscale(scale)
    colors = sample_colorscale(pairs, np.linspace(0, 1, steps).tolist())
    return np.array([unlabel_rgb(color) for color in colors]).round().astype(np.uint8)


def frame(width: int, height: int) -> dict[str, object]:
    """Layout shared by all figures: transparent paper, white plot, exact size, no animation."""
    return {
        "template": NO_TEMPLATE,
        "width": width,
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "white",
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": HOVER,
        "dragmode": "zoom",
    }


def axis(**options: object) -> dict[str, object]:
    """A framed axis without grid, ticks in monospace at a readable size."""
    base: dict[str, object] = {
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "mirror": True,
        "linecolor": FRAME,
        "linewidth": 1,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": FRAME,
        # Anything else makes plotly measure every label at every drawing.
        "ticklabeloverflow": "allow",
        "tickfont": {"family": MONO, "size": LABEL_PX},
    }
    return base | options


def ticks(names: Mapping[int, str] | Mapping[float, str]) -> dict[str, object]:
    """An axis' names at their places."""
    return {"tickvals": list(names), "ticktext": list(names.values())}


def listed(names: Sequence[str], *, down: bool = False, **options: object) -> dict[str, object]:
    """An axis with a name at each of 0, 1, ...; `down`: from the top."""
    ends = (-0.5, len(names) - 0.5)
    return axis(range=ends[::-1] if down else ends, **ticks(dict(enumerate(names))), **options)


# Over the plot, of whose frame a white one would hide a part on white paper.
LEGEND = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": 11}}
LEGEND |= {"bgcolor": "rgba(0,0,0,0)"}
ZERO = {"zeroline": True, "zerolinecolor": FRAME}  # of an axis of values on both sides of 0


def whiskers(
    middles: Sequence[float], ends: Sequence[tuple[float, float]], **look: object
) -> dict[str, object]:
    """Error bars from each middle to the ends of its interval."""
    pairs = list(zip(middles, ends, strict=True))
    above, below = [high - at for at, (_, high) in pairs], [at - low for at, (low, _) in pairs]
    return {"array": above, "arrayminus": below, **look}


def hover(texts: object) -> dict[str, Any]:
    """What makes a trace show these texts alone."""
    return {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}
