"""The prompt as text, coloured by what one query gives to its tokens or by what one key gets."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from mta_viz.analysis.cross_sections import CrossSection
from mta_viz.analysis.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import text_cells, theme
from mta_viz.plots.spans import add_spans_in_text
from mta_viz.plots.text_cells import Text
from mta_viz.tokenizers.base import Tokens

INCOMING_COLOR = "#D55E00"


def token_text(
    tokens: Tokens,
    section: CrossSection,
    stage: Stage,
    *,
    limit: float,
    distribution: bool = False,
    numbering_from: int = 0,
    spans: Sequence[Span] = (),
    width: int = 760,
) -> go.Figure:
    """The prompt in monospaced lines, each token on the colour of its value at `stage`.

    The frame is blue from a query, orange to a key; that token is boxed, masked tokens are hatched;
    `spans` are outlined and have their letters. Numbers at the left are the first token of each
    line. Every character takes clicks: the event's customdata is (token position, value).
    """
    text, parts = text_cells.written(tokens.pieces, _values(section, stage, len(tokens)), width)
    masked = (text.token < section.start) | (text.token >= section.stop)
    text_cells.add_cells(parts, text, limit, distribution, masked)
    parts.traces += _targets(text, masked, tokens, section, _value_line(stage, distribution))
    for line, left, right in text.runs(text.token == section.position):
        parts.add_box((line, left + 0.5), (1, round(right - left)), color=theme.INK, width=2)
    add_spans_in_text(
        parts, spans, lambda span: text.runs((text.token >= span.start) & (text.token < span.stop))
    )
    text_cells.add_axes(parts, text, theme.SELECTED_COLOR if section.along == "keys" else INCOMING_COLOR)
    parts.add_title(_title(tokens, section, stage, numbering_from))
    return parts.figure()


def _values(section: CrossSection, stage: Stage, n_tokens: int) -> Float[np.ndarray, " token"]:
    values = np.full(n_tokens, np.nan, np.float32)
    values[section.start : section.stop] = section.values[stage].numpy()
    return values


def _value_line(stage: Stage, distribution: bool) -> str:
    label = stage.value.long if stage.value.unit == "score" else f"{stage.value.long}: weight"
    return f"{label} %{{customdata[1]:{'' if distribution else '+'}.4g}}"


def _targets(
    text: Text, masked: Bool[np.ndarray, " glyph"], tokens: Tokens, section: CrossSection, value: str
) -> list[go.Scatter]:
    side, other = ("key", "query") if section.along == "keys" else ("query", "key")
    order = "after" if section.along == "keys" else "before"
    names = text_cells.hover_names(text, tokens.pieces)
    data = np.stack([text.token, np.nan_to_num(text.values)], 1)
    words = {False: f"{side} %{{text}}<br>{value}"}
    words[True] = f"masked: {side} %{{text}} is {order} {other} {section.position}"
    return [
        text_cells.targets(text, masked == hidden, names, template, data)
        for hidden, template in words.items()
        if (masked == hidden).any()
    ]


def _title(tokens: Tokens, section: CrossSection, stage: Stage, numbering_from: int) -> str:
    where = f"L{section.layer + numbering_from} H{section.head + numbering_from}"
    side = "from query" if section.along == "keys" else "to key"
    name = theme.tick_label(section.position, tokens.pieces[section.position])
    return f"{where} · {stage.value.long} ({stage.value.unit}) · {side} {name}"
