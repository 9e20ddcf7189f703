"""Next token: the likeliest tokens after the selected query, the logit lens, the gate."""

from functools import partial

import streamlit as st

from mta_viz.analysis.predictions import LogitLens, lens_over_layers
from mta_viz.exporting.data import predictions_csv
from mta_viz.exporting.tables import lens_csv
from mta_viz.plots.gate import gate_map
from mta_viz.plots.lens import lens_lines, lens_tokens
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.drawn import Drawn, predictions, predictions_figure
from mta_viz.ui.widgets import caption, caption_with_save, chart

WIDTH = 460


def draw(drawn: Drawn) -> None:
    """Predictions at the left; at the right, when asked for, how they come up over the layers."""
    query = drawn.selected.query
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDTH):
            _draw_predictions(drawn, query)
        with st.container(width=WIDTH):
            if st.toggle("Logit lens", **state.kept("lens", False)):
                _draw_lens(drawn, query)
            if st.toggle("Gate of this layer", **state.kept("gate", False)):
                _draw_gate(drawn)


def _draw_predictions(drawn: Drawn, query: int) -> None:
    figure = predictions_figure(drawn.page, query)
    chart(figure, "next", alt="The ten likeliest next tokens with their probabilities")
    caption_with_save(
        f'Next token after {query} "{drawn.tokens.pieces[query]}".',
        (state.view().checkpoint, "next", query),
        figure,
        lambda: predictions_csv(predictions(drawn.page, query)),
        "next",
    )


def _draw_lens(drawn: Drawn, query: int) -> None:
    found: LogitLens = remember(
        lambda: lens_over_layers(drawn.page.trace, query), "lens", drawn.page.key, query
    )
    first = drawn.page.numbering
    for name, make in (("lens", lens_lines), ("lens.tokens", lens_tokens)):
        figure = remember(
            partial(make, found, numbering_from=first, width=WIDTH),
            name,
            drawn.page.key,
            query,
            first,
        )
        chart(figure, name, alt="What the residual stream would predict after each layer")
    caption_with_save(
        "Logit lens: the residual stream after each layer, read off by the final norm and the unembedding. "
        "The last layer is the model's own output.",
        (state.view().checkpoint, "lens", query),
        figure,
        lambda: lens_csv(found),
        "lens",
    )


def _draw_gate(drawn: Drawn) -> None:
    layer = drawn.selected.layer
    gate = remember(lambda: drawn.page.trace.gate(layer), "gate", drawn.page.key, layer)
    if gate is None:
        caption("This model has no gate: every head's output passes as it is.")
        return
    figure = remember(
        lambda: gate_map(
            gate.float().mean(-1).T.cpu().numpy(), drawn.tokens, layer=layer,
            selected=(drawn.selected.head, drawn.selected.query),
            numbering_from=drawn.page.numbering, width=WIDTH,
        ),
        "gate map", *drawn.head_key, drawn.selected.query, drawn.page.numbering,
    )  # fmt: skip
    chart(figure, "gate", alt="The gate of each head at each position")
    several = " (mean over the head's dimensions)" if gate.shape[-1] > 1 else ""
    caption(
        f"Gate{several}: what part of a head's normed output passes, 0 to 1. Rows: heads, columns: tokens."
    )
