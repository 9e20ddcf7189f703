"""Where every character of a prompt lies when it is written in columns, line by line.

Tokens as text, each on the colour of a value: attention, attribution, or any other number a token has.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from mta_viz.analysis.attention.cells import CrossSection
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts, add_spans_in_text
from mta_viz.printed import head_name
from mta_viz.tokenizers.base import Tokens

NEWLINE, SPACE = "⏎", "␣"  # as token labels write them


@dataclass(frozen=True)
class Glyph:
    """A character with the marks on it: its token, and the cell it begins in; `width` columns wide."""

    text: str
    token: int
    line: int
    column: int
    width: int


def lay_out(pieces: Sequence[str], columns: int) -> list[Glyph]:
    """The labels of all tokens, one after the other, wrapped at `columns`.

    A line ends after a newline; a token goes to the next line rather than over the edge, and is cut
    only when it is longer than a line. Each token has at least one glyph: labels are never blank.
    """
    glyphs: list[Glyph] = []
    line = column = 0
    for token, piece in enumerate(pieces):
        clusters = [(text, theme.columns(text[0])) for text in _clusters(piece)]
        if column and column + sum(width for _, width in clusters) > columns:
            line, column = line + 1, 0
        for text, width in clusters:
            if column and column + width > columns:
                line, column = line + 1, 0
            glyphs.append(Glyph(text, token, line, column, width))
            column += width
            if text == NEWLINE:
                line, column = line + 1, 0
    return glyphs


def _clusters(piece: str) -> Iterator[str]:
    start = 0
    for end in range(1, len(piece) + 1):
        if end == len(piece) or unicodedata.category(piece[end])[0] != "M":
            yield piece[start:end]
            start = end


# Fonts whose letters are all 0.6 of their size wide: a whole line is one string, and must fit its cells.
FONT = "DejaVu Sans Mono, Menlo, Liberation Mono, Courier New, monospace"
FONT_PX, CHAR_PX, LINE_PX = 13, 13 * 0.602, 22
TEXT_PX, LEFT, RIGHT, TOP, BOTTOM = 900, 44, 10, 66, 10
MAX_NAMED = 20_000  # letters: beyond them hovers give positions only, the figure stays under 2 MB
_BRACKET = ((-0.3, 0.18), (-0.3, 0.3), (0.3, 0.3), (0.3, 0.18))
_UNDERLINED_FROM = 0.02  # of the limit: below it the colour of a negative weight is not seen either


@dataclass(frozen=True)
class Coloring:
    """Colours of values: `scale` from -`limit` (from 0 where not `signed`) to `limit`."""

    scale: theme.Scale
    limit: float
    signed: bool = True


def written(
    pieces: Sequence[str], values: Float[np.ndarray, " token"], width: int = TEXT_PX
) -> tuple["Text", Parts]:
    """The labels laid out in monospaced lines `width` pixels wide in all, and the figure's frame for them."""
    columns = int((width - LEFT - RIGHT) / CHAR_PX)
    text = Text(lay_out(pieces, columns), values, columns)
    spare = width - LEFT - round(columns * CHAR_PX)
    size = (width, LINE_PX * text.n_lines + TOP + BOTTOM)
    return text, Parts(size, {"l": LEFT, "r": spare, "t": TOP, "b": BOTTOM})


class Text:
    """Glyphs with the value of each one's token; NaN where it has none."""

    def __init__(self, glyphs: list[Glyph], values: Float[np.ndarray, " token"], columns: int) -> None:
        self.glyphs, self.columns = glyphs, columns
        self.n_lines = glyphs[-1].line + 1
        self.line, self.column, self.width, self.token = (
            np.array([getattr(glyph, name) for glyph in glyphs])
            for name in ("line", "column", "width", "token")
        )
        self.values = values[self.token]
        self.first = np.diff(self.token, prepend=-1) > 0  # each token's first glyph

    def runs(self, chosen: np.ndarray) -> Iterable[tuple[int, float, float]]:
        """(line, left edge, right edge) of neighbouring chosen glyphs together."""
        here, ends = np.flatnonzero(chosen), self.column + self.width
        joined = (np.diff(self.line[here]) == 0) & (self.column[here[1:]] == ends[here[:-1]])
        for run in np.split(here, np.flatnonzero(~joined) + 1):
            if run.size:
                yield int(self.line[run[0]]), self.column[run[0]] - 0.5, ends[run[-1]] - 0.5


def add_cells(parts: Parts, text: Text, coloring: Coloring, masked: Bool[np.ndarray, " glyph"]) -> None:
    """Colours, marks and letters. Negative values are dotted underneath, `masked` ones hatched.

    Spaces are drawn as brackets, newlines end a line, a value that is not finite is crossed out.
    """
    z, limit = np.full((text.n_lines, text.columns), np.nan, np.float32), coloring.limit
    for extra in range(2):  # wide characters colour their second cell too
        here = text.width > extra
        z[text.line[here], np.minimum(text.column[here] + extra, text.columns - 1)] = text.values[here]
    finite = text.values[np.isfinite(text.values)]
    colored = cells.grid(
        z,
        limit,
        signed=coloring.signed,
        colorscale=coloring.scale,
        colorbar=theme.color_bar(limit, signed=coloring.signed, values=finite, **theme.PIXELS),
        hoverinfo="skip",
    )
    parts.traces += [colored, *_marks(text, masked, limit), *_letters(text, coloring)]


def hover_names(text: Text, pieces: Sequence[str], first: int = 0) -> list[str]:
    """Position and label of every token; positions alone where the text is long."""
    if len(text.glyphs) > MAX_NAMED:
        return [str(first + place) for place in range(len(pieces))]
    return [theme.hover_label(first + place, piece) for place, piece in enumerate(pieces)]


def targets(
    text: Text, here: Bool[np.ndarray, " glyph"], names: Sequence[str], template: str, data: np.ndarray
) -> go.Scatter:
    """Click and hover targets of the glyphs `here`; `names` by token, `data` by glyph."""
    x = (text.column + (text.width - 1) / 2)[here].astype(np.float32)
    trace = cells.targets(
        x, text.line[here].astype(np.int16), CHAR_PX, template, data[here].astype(np.float32)
    )
    return trace.update(text=[names[token] for token in text.token[here].tolist()])


def add_axes(parts: Parts, text: Text, frame: str, first_token: int = 0) -> None:
    """The frame's colour, and at the left the position of each line's first token."""
    first = {int(line): int(token) for line, token in zip(text.line[::-1], text.token[::-1], strict=True)}
    bare = {"linecolor": frame, "linewidth": 2, "fixedrange": True}
    ticks = {"tickvals": list(first), "ticktext": [str(first_token + token) for token in first.values()]}
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.5, text.columns - 0.5), showticklabels=False, ticks="", **bare),
        "yaxis": theme.axis(range=(text.n_lines - 0.5, -0.5), **ticks, **bare),
        "dragmode": False,
        "hoverdistance": LINE_PX,
    }


def _marks(text: Text, masked: np.ndarray, limit: float) -> list[go.Scatter | go.Scattergl]:
    hatch = [(line, left + 0.5, 1, right - left) for line, left, right in text.runs(masked)]
    starts = [glyph for glyph, first in zip(text.glyphs, text.first, strict=True) if first]
    spaces = [glyph for glyph in text.glyphs if glyph.text == SPACE]
    below = text.runs(text.values < -_UNDERLINED_FROM * limit)
    borders = [[(g.column - 0.5, g.line + dy) for dy in (-0.45, 0.45)] for g in starts]
    brackets = [[(g.column + dx, g.line + dy) for dx, dy in _BRACKET] for g in spaces]
    dotted = [[(left + 0.1, line + 0.42), (right - 0.1, line + 0.42)] for line, left, right in below]
    bad = text.first & ~np.isfinite(text.values) & ~masked
    return [
        *cells.hatched_boxes(hatch),
        *_path(borders, theme.MASKED_LINE),
        *_path(brackets, theme.FRAME),
        *_path(dotted, theme.INK, dash="dot", width=1.5),
        *cells.crosses(text.column[bad], text.line[bad], 8.0),
    ]


def _path(
    lines: list[list[tuple[float, float]]], color: str, dash: str = "solid", width: float = 1
) -> list[go.Scatter]:
    if not lines:
        return []
    points = np.array([point for line in lines for point in (*line, (np.nan, np.nan))], np.float32)
    style = {"color": color, "width": width, "dash": dash}
    return [go.Scatter(x=points[:, 0], y=points[:, 1], mode="lines", line=style, hoverinfo="skip")]


def _letters(text: Text, coloring: Coloring) -> list[go.Scatter]:
    """Plain letters a line at a time, all others each in its own cell; one pair of traces per ink."""
    inks = _inks(text.values, coloring)
    traces = []
    for ink in dict.fromkeys(inks):
        mine = [glyph for glyph, own in zip(text.glyphs, inks, strict=True) if own == ink]
        plain = [glyph for glyph in mine if _in_line(glyph.text)]
        odd = [glyph for glyph in mine if not _in_line(glyph.text) and glyph.text != SPACE]
        places = [
            (glyph.column + (glyph.width - 1) / 2, glyph.line, theme.escape(glyph.text)) for glyph in odd
        ]
        style = {"textfont": {"family": FONT, "size": FONT_PX, "color": ink}, "cliponaxis": False}
        for texts, anchor in ((_lines(plain), "middle right"), (places, "middle center")):
            if texts:
                x, y, words = zip(*texts, strict=True)
                look = {"mode": "text", "textposition": anchor, "hoverinfo": "skip", **style}
                traces.append(go.Scatter(x=x, y=y, text=words, **look))
    return traces


def _in_line(text: str) -> bool:
    """Latin, Greek and Cyrillic letters and ASCII: as wide as a cell in every font of `FONT`."""
    code = ord(text[0])
    return len(text) == 1 and (0x20 <= code <= 0x7E or 0xA1 <= code <= 0x17F or 0x370 <= code <= 0x52F)


def _lines(glyphs: list[Glyph]) -> list[tuple[float, int, str]]:
    """(left edge, line, string) of every line; no-break spaces hold the places between letters."""
    lines = []
    for line, group in groupby(glyphs, lambda glyph: glyph.line):
        row = list(group)
        letters = ["\u00a0"] * (row[-1].column + 1 - row[0].column)
        for glyph in row:
            letters[glyph.column - row[0].column] = glyph.text.replace(" ", "\u00a0")
        lines.append((row[0].column - 0.5, line, theme.escape("".join(letters))))
    return lines


def _inks(values: Float[np.ndarray, " glyph"], coloring: Coloring) -> list[str]:
    """Dark letters on light cells, white ones on dark cells, grey ones where there is no value."""
    low = -coloring.limit if coloring.signed else 0.0
    share = np.clip((np.nan_to_num(values) - low) / (coloring.limit - low), 0, 1)
    dark = np.array(_dark_steps(coloring.scale))[np.round(share * 100).astype(int)]
    inks = np.where(dark, "#FFFFFF", theme.INK)
    return np.where(np.isfinite(values), inks, theme.FRAME).tolist()


@lru_cache
def _dark_steps(scale: theme.Scale) -> tuple[bool, ...]:
    """Whether white text is easier to read, at 0, 1, ..., 100 per cent of a scale.

    By relative luminance (WCAG); at 0.18 black and white text have equal contrast.
    """
    rgb = theme.color_table(scale, 101) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return tuple((linear @ (0.2126, 0.7152, 0.0722) < 0.18).tolist())


def colored_text(
    tokens: Tokens,
    values: Float[np.ndarray, " token"],
    there: Bool[np.ndarray, " token"],
    coloring: Coloring,
    *,
    title: str,
    hovers: tuple[str, str],
    boxed: int | None = None,
    frame: str = theme.FRAME,
    spans: Sequence[Span] = (),
    width: int = TEXT_PX,
) -> go.Figure:
    """Text in monospaced lines, each token on the colour of its value; hatched where it is not `there`.

    `hovers`: templates of tokens with a value (customdata[1]) and without. `boxed`: a token in a black
    frame; `spans` are outlined and have their letters. Numbers at the left are the first token of each line.
    Every character takes clicks: the event's customdata is (token position, value).
    """
    text, parts = written(tokens.pieces, values, width)
    without = ~there[text.token]
    add_cells(parts, text, coloring, without)
    names = hover_names(text, tokens.pieces)
    data = np.stack([text.token, np.nan_to_num(text.values)], 1)
    for hidden, template in zip((False, True), hovers, strict=True):
        if (without == hidden).any():
            parts.traces.append(targets(text, without == hidden, names, template, data))
    for line, left, right in text.runs(text.token == boxed) if boxed is not None else ():
        parts.add_box((line, left + 0.5), (1, round(right - left)), color=theme.INK, width=2)
    add_spans_in_text(
        parts, spans, lambda span: text.runs((text.token >= span.start) & (text.token < span.stop))
    )
    add_axes(parts, text, frame)
    return parts.figure(title)


def token_text(
    tokens: Tokens,
    section: CrossSection,
    stage: Stage,
    *,
    limit: float,
    distribution: bool = False,
    numbering: int = 0,
    spans: Sequence[Span] = (),
    width: int = TEXT_PX,
) -> go.Figure:
    """The prompt in monospaced lines, each token on the colour of its value at `stage`.

    The frame is blue from a query, orange to a key; that token is boxed, masked tokens are hatched.
    The rest as in `colored_text`.
    """
    values = np.full(len(tokens), np.nan, np.float32)
    values[section.start : section.stop] = section.values[stage].numpy()
    place, info = np.arange(len(tokens)), stage.value
    side, other, order, direction, frame = (
        ("key", "query", "after", "from query", theme.SELECTED_COLOR)
        if section.along == "keys"
        else ("query", "key", "before", "to key", theme.INCOMING_COLOR)
    )
    where = head_name(section.layer, section.head, numbering)
    name = theme.tick_label(section.position, tokens.pieces[section.position])
    label = info.long if info.unit == "score" else f"{info.long}: weight"
    hovers = (
        f"{side} %{{text}}<br>{label} %{{customdata[1]:{'' if distribution else '+'}.4g}}",
        f"masked: {side} %{{text}} is {order} {other} {section.position}",
    )
    return colored_text(
        tokens,
        values,
        (place >= section.start) & (place < section.stop),
        Coloring(theme.MASS_SCALE if distribution else theme.SIGNED_SCALE, limit, not distribution),
        title=f"{where} · {info.long} ({info.unit}) · {direction} {name}",
        hovers=hovers,
        boxed=section.position,
        frame=frame,
        spans=spans,
        width=width,
    )
