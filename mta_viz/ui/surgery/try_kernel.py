"""The way to the Surgery page from anywhere a kernel is shown: it goes to identity, and the page opens."""

import streamlit as st

from mta_viz.analysis.effects import to_identity
from mta_viz.analysis.kernels import KernelId
from mta_viz.ui import state
from mta_viz.ui.surgery import plan_state


def draw_test_button(kernel: KernelId, key: str) -> None:
    """`Test: set this kernel to identity`, of a mixing row where that is meant."""
    what = "kernel" if kernel.where in ("pre", "post") else "row of head mixing"
    if st.button(f"Test: set this {what} to identity", icon=":material/science:", key=key):
        plan_state.add(to_identity(kernel))
        state.select(layer=kernel.layer, head=kernel.head, where=kernel.where)
        st.switch_page("pages/surgery.py")
