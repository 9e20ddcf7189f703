"""What the Attention page draws, in which order: pickers, strip, map, the selected cell, and the open tab."""

from dataclasses import dataclass

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.ui.attention import heads, tabs
from mta_viz.ui.attention.head import SCALE, SCALES, Head, draw_cell, draw_map, draw_strip, draw_why
from mta_viz.ui.attention.spans import draw_spans, spans_of
from mta_viz.ui.shell import show as shown
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected, pick_head, pick_layer, pick_stage, resolve
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_label, layer_label, plain

TABS = {
    "Next token": tabs.draw_next_token,
    "Difference": tabs.draw_difference,
    "Row and column": tabs.draw_rows,
    "Text": tabs.draw_text,
    "Heads": heads.draw_heads,
    "Cells": tabs.draw_cells,
}
TAB = Setting("tab", next(iter(TABS)))


@dataclass
class _Opened:
    """Why the page opened at a head that nobody chose."""

    at: tuple[str, int, int] | None = None
    why: str = ""


def draw_tabs(head: Head) -> None:
    """The bar, and the chosen tab under it; only that one is computed."""
    names = list(TABS)
    chosen = st.segmented_control(
        "Look at", names, required=True, label_visibility="collapsed", **TAB.widget(names)
    )
    try:
        TABS[chosen](head)
    except MtaVizError as error:  # here, so that the maps of a broken model are still drawn
        st.error(plain(str(error)))


@st.fragment
def draw_attention(page: Page) -> None:
    """The page's body. Its own widgets run it alone: the sidebar does not change with the selection."""
    shown.begin()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    """Top to bottom in places made first; the map a visitor waits for is filled in, and sent, first."""
    selected = resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    head = Head(page, selected, spans_of(page))
    top = st.container()
    with st.container(key="stale" if page.stale else "fresh"):
        strip, search = st.container(), st.container()
        with st.container(key="single" if head.part is None else "pair"):
            draw_map(head)
            cell, why = st.container(), st.container()
        below = st.container()
    with top:
        _draw_top(page, selected)
    with cell:
        draw_cell(head)
    with strip:
        draw_strip(head)
    with search:
        draw_spans(head)
    with why:
        draw_why(head)
    with below:
        draw_tabs(head)


def _draw_top(page: Page, selected: Selected) -> None:
    draw_address(_place(page, selected))
    _draw_pickers(page, selected)
    if page.stale:
        st.warning("Prompt changed. These maps are of the previous run.")
    if len(page.trace.tokens) == 1:
        st.info("A one-token prompt attends only to itself: nothing to see. Add text.")


def _place(page: Page, selected: Selected) -> str:
    pieces, (query, key) = page.trace.tokens.pieces, (selected.query, selected.key)
    head = (layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering))
    cell = (f'query {query} "{pieces[query]}"', f'key {key} "{pieces[key]}"')
    return " · ".join([str(state.selection().checkpoint), *head, selected.stage.value.long, *cell])


def _draw_pickers(page: Page, selected: Selected) -> None:
    """Layer, head, stage, scale."""
    config = page.trace.model.config
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, selected.layer, page.numbering)
        pick_head(config, selected.head, page.numbering)
        pick_stage(config, selected.layer, selected.stage)
        st.selectbox(
            "Scale",
            SCALES,
            width=110,
            help="Colour limits of the large map: its own, or those all stages of the strip share.",
            **SCALE.widget(SCALES),
        )
    opened, here = state.part(_Opened), (page.key, selected.layer, selected.head)
    if selected.why:
        opened.at, opened.why = here, selected.why
    if opened.at == here:
        caption(f"Opened at this head: {opened.why}.")
