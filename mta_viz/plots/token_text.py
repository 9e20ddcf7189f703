"""The prompt as text, coloured by what one query gives to its tokens or by what one key gets."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.cross_sections import CrossSection
from mta_viz.analysis.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import theme
from mta_viz.plots.colored_text import colored_text
from mta_viz.plots.text_cells import Coloring
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

    The frame is blue from a query, orange to a key; that token is boxed, masked tokens are hatched.
    The rest as in `colored_text`.
    """
    values = np.full(len(tokens), np.nan, np.float32)
    values[section.start : section.stop] = section.values[stage].numpy()
    place = np.arange(len(tokens))
    return colored_text(
        tokens,
        values,
        (place >= section.start) & (place < section.stop),
        Coloring(theme.MASS_SCALE if distribution else theme.SIGNED_SCALE, limit, not distribution),
        title=_title(tokens, section, stage, numbering_from),
        told=_told(section, stage, distribution),
        boxed=section.position,
        frame=theme.SELECTED_COLOR if section.along == "keys" else INCOMING_COLOR,
        spans=spans,
        width=width,
    )


def _told(section: CrossSection, stage: Stage, distribution: bool) -> tuple[str, str]:
    side, other = ("key", "query") if section.along == "keys" else ("query", "key")
    order = "after" if section.along == "keys" else "before"
    label = stage.value.long if stage.value.unit == "score" else f"{stage.value.long}: weight"
    value = f"{label} %{{customdata[1]:{'' if distribution else '+'}.4g}}"
    masked = f"masked: {side} %{{text}} is {order} {other} {section.position}"
    return f"{side} %{{text}}<br>{value}", masked


def _title(tokens: Tokens, section: CrossSection, stage: Stage, numbering_from: int) -> str:
    where = f"L{section.layer + numbering_from} H{section.head + numbering_from}"
    side = "from query" if section.along == "keys" else "to key"
    name = theme.tick_label(section.position, tokens.pieces[section.position])
    return f"{where} · {stage.value.long} ({stage.value.unit}) · {side} {name}"
