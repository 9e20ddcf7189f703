"""What both kinds of card share: file names, and the ways to the attention page and to the definitions."""

import streamlit as st

from mta_viz.analysis.kernel_effect import MADE_BY
from mta_viz.analysis.kernels import KernelId
from mta_viz.ui import state


def file_parts(kernel: KernelId, what: str) -> tuple[object, ...]:
    """The parts of a saved file's name; counts from 0."""
    return state.view().checkpoint, f"L{kernel.layer}", f"H{kernel.head}", kernel.where, what


def open_in_attention(kernel: KernelId) -> None:
    """A button that goes to this head's map after the kernel, with the selection kept."""
    if st.button("Open in Attention", icon=":material/grid_on:", key="card.attention"):
        state.select(layer=kernel.layer, head=kernel.head, stage=MADE_BY[kernel.where].value.key)
        st.switch_page("pages/attention.py")


def open_definitions(key: str) -> None:
    """A button that goes to what the scores and names mean."""
    st.button(
        "Definitions", key=key, type="tertiary", icon=":material/menu_book:",
        on_click=state.put, args=("part", "Definitions"),
        help="What every score and name means, and how often each is wrong.",
    )  # fmt: skip
