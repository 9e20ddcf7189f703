"""What the Kernels page draws: a bar of its parts, and the chosen part under it."""

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.ui.kernels import definitions, figures, gallery, layer
from mta_viz.ui.kernels import layer as training
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import plain

PARTS = {
    "Gallery": gallery.draw_gallery,
    "One layer": layer.draw_layer,
    "Over training": training.draw_training,
    "Paper figures": figures.draw_figures,
    "Definitions": definitions.draw_definitions,
}


def draw_kernels(page: Page) -> None:
    """The page's body: only the chosen part is computed."""
    names = list(PARTS)
    chosen = st.segmented_control(
        "Part", names, required=True, label_visibility="collapsed", **state.kept("part", names[0], names)
    )
    try:
        PARTS[chosen](page)
    except MtaVizError as error:
        st.error(plain(str(error)))
