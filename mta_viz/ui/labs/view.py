"""What the Labs page draws: a bar of its labs, and the chosen one under it. A lab is a line in `LABS`."""

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.ui.labs import blocks, conjunction, needle, questions, text
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import plain

LABS = {
    "Needle": needle.draw_needle,
    "Blocks": blocks.draw_blocks,
    "Questions": questions.draw_questions,
    "Conjunction": conjunction.draw_conjunction,
    "Text": text.draw_text,
}


LAB = Setting("lab", "Needle")


def draw_labs(page: Page) -> None:
    """The page's body: only the chosen lab is computed. At first the one this model has a vocabulary for."""
    names = list(LABS)
    first = "Blocks" if blocks.writes_blocks(page) else "Needle"
    chosen = st.segmented_control(
        "Lab", names, required=True, label_visibility="collapsed", **LAB.widget(names, default=first)
    )
    draw_address(f"{state.selection().checkpoint} · {chosen} lab")
    try:
        LABS[chosen](page)
    except MtaVizError as error:
        st.error(plain(str(error)))
