"""Views of the same selection under the panels, chosen by question, only the open one computed."""

from collections.abc import Callable

import streamlit as st

from mta_viz.ui.attention import tabs
from mta_viz.ui.attention.head import Head
from mta_viz.ui.compare.view import draw_compare
from mta_viz.ui.fields import bar
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import BESIDE, RESTS, TAPS, VIEW, Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.surgery.answer import draw_greedy_set, draw_patch, draw_sweep
from mta_viz.ui.surgery.attribution import draw_attribution
from mta_viz.ui.surgery.direct_effect import draw_direct_effect
from mta_viz.ui.surgery.paths import draw_paths
from mta_viz.ui.surgery.plan_list import draw_taps
from mta_viz.ui.surgery.worth import draw_worth
from mta_viz.ui.workspace.panels import Desk

OF_HEAD: dict[str, tuple[str, Callable[[Head], None]]] = {  # in the address, and on the page
    "Next token": ("What it predicts", tabs.draw_next_token),
    "Difference": ("What changed", tabs.draw_difference),
    "Row and column": ("Row and column", tabs.draw_rows),
    "Heads": ("Which heads", tabs.draw_heads),
    "Cells": ("Cells", tabs.draw_cells),
}
OF_ANSWER: dict[str, tuple[str, Callable[[Page, Selected], None]]] = {
    "Responsibility": ("Direct effect", draw_direct_effect),
    "Attribution": ("Attribution", draw_attribution),
    "Paths": ("Paths", draw_paths),
    "Worth": ("Necessary, sufficient", draw_worth),
    "Sweep": ("Sweep", draw_sweep),
    "Minimal set": ("Greedy set", draw_greedy_set),
    "Patch": ("Patch", draw_patch),
}
ANSWER_BY = Setting("surgery tab", next(iter(OF_ANSWER)))


def draw_views(desk: Desk) -> None:
    """The bar and the open view."""
    state.retire(VIEW.name, "Text")
    state.retire(ANSWER_BY.name, "One kernel")
    names = {name: words for name, (words, _) in OF_HEAD.items()}
    names |= {RESTS: "What the answer rests on", TAPS: "Edit taps", BESIDE: "Beside another"}
    chosen = bar("Look at", names, VIEW, label_visibility="collapsed")
    with (
        st.container(key="view"),
        errors_as_messages(),
    ):  # here, so that the maps of a broken model are still drawn
        if chosen == RESTS:
            _draw_answer(desk)
        elif chosen == TAPS:
            draw_taps(desk.original, desk.head.selected)
        elif chosen == BESIDE:
            draw_compare(desk.original, desk.head.selected)
        else:
            OF_HEAD[chosen][1](desk.head)


def _draw_answer(desk: Desk) -> None:
    names = {name: words for name, (words, _) in OF_ANSWER.items()}
    chosen = bar("By", names, ANSWER_BY, label_visibility="collapsed")
    with st.container(), errors_as_messages():
        OF_ANSWER[chosen][1](desk.original, desk.head.selected)
