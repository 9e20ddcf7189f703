"""The tabs under the map: only the open one is computed."""

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.ui import state
from mta_viz.ui.drawn import Drawn
from mta_viz.ui.tabs import cells, difference, heads, next_token, rows, text
from mta_viz.ui.widgets import plain

TABS = {
    "Next token": next_token.draw,
    "Difference": difference.draw,
    "Row and column": rows.draw,
    "Text": text.draw,
    "Heads": heads.draw,
    "Cells": cells.draw,
}


def draw_tabs(drawn: Drawn) -> None:
    """The bar, and the chosen tab under it."""
    names = list(TABS)
    chosen = st.segmented_control(
        "Look at", names, required=True, label_visibility="collapsed", **state.kept("tab", names[0], names)
    )
    try:
        TABS[chosen](drawn)
    except MtaVizError as error:  # here, so that the maps of a broken model are still drawn
        st.error(plain(str(error)))
