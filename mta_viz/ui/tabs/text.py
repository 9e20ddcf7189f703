"""Text: the prompt itself, coloured by attention from the query or to the key."""

import streamlit as st

from mta_viz.exporting.tables import section_csv
from mta_viz.model.stages import is_distribution
from mta_viz.plots.rows import section_limits
from mta_viz.plots.token_text import token_text
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_token
from mta_viz.ui.drawn import Drawn, file_parts
from mta_viz.ui.tabs.rows import column_of, row_of
from mta_viz.ui.widgets import caption_with_save, chart

WIDTH = 900
FROM, TO = SIDES = ("from the query", "to the key")


def draw(drawn: Drawn) -> None:
    """One picture of the whole prompt; a click makes a token the query, or the key."""
    side = st.segmented_control(
        "Attention",
        SIDES,
        required=True,
        label_visibility="collapsed",
        **state.kept("text side", FROM, SIDES),
    )
    section, field = (row_of(drawn), "query") if side == FROM else (column_of(drawn), "key")
    stage, first, numbering = drawn.selected.stage, drawn.page.first_token, drawn.page.numbering
    limit = section_limits(section, first_token=first)[stage.value.unit]
    mass = is_distribution(stage, drawn.page.trace.model.config.kernels(drawn.selected.layer))
    figure = remember(
        lambda: token_text(
            drawn.tokens, section, stage, limit=limit, distribution=mass, numbering_from=numbering,
            spans=drawn.spans, width=WIDTH,
        ),
        "text", side, *drawn.head_key, stage, section.position, first, numbering, drawn.spans,
    )  # fmt: skip
    name = f"text.{drawn.page.key}.{side}.{stage.value.key}.{section.position}"
    chart(figure, name, on_token(field), alt="The prompt coloured by attention")
    caption_with_save(
        f"Each token has the colour of its {stage.value.unit} at this stage, {side}; limits of this row "
        f"alone: {'0 to ' if mass else '±'}{limit:g}. Hatched: masked. Dotted underneath: negative. "
        f"{'Outlined: the named spans. ' if drawn.spans else ''}Point at a token to read its "
        f"{stage.value.unit}; click it to make it the {field}: the colours of all tokens take a new row "
        "from the model, so they change at a click and not while the pointer moves.",
        (*file_parts(drawn), "text", section.along, section.position),
        figure,
        lambda: section_csv(section, drawn.tokens),
        "text",
    )
