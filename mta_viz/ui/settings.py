"""The settings at the sidebar's end: device, dtype, numbering, scale; and the search for new models."""

import streamlit as st

from mta_viz.config import DTYPES
from mta_viz.ui import cache, state
from mta_viz.ui.link import GLOBAL
from mta_viz.ui.sidebar import Request


def draw_settings(request: Request, devices: list[str]) -> None:
    """Device, dtype, numbering and scale; drawn last, since naming GPUs needs torch."""
    with request.settings:
        st.selectbox("Device", devices, **state.kept("device", devices[0], devices))
        st.selectbox("Compute in", DTYPES, **state.kept("dtype", *GLOBAL["dtype"]))
        st.selectbox(
            "Layers and heads",
            (0, 1),
            format_func=lambda first: "from 0" if first == 0 else "from 1 (as in the paper)",
            **state.kept("numbering", *GLOBAL["numbering"]),
        )
        st.toggle(
            "First token sets the colour scale too",
            help="The first token often draws most of the attention; it is left out of the automatic limits.",
            **state.kept("first_token", *GLOBAL["first_token"]),
        )
        if st.button("Look for new models", icon=":material/refresh:"):
            cache.discovery.clear()
            st.rerun()
