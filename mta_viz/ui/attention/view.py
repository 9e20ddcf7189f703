"""The tabs under the map: only the open one is computed.

What the Attention page draws, in which order: pickers, strip, map, the selected cell, tabs.
"""

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.exporting.data import stages_csv
from mta_viz.model.stages import is_distribution
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.ui.attention import heads, tabs
from mta_viz.ui.attention.maps import SCALES, THIS_MAP, Drawn, draw_map, file_parts
from mta_viz.ui.attention.spans import draw_spans, spans_of
from mta_viz.ui.attention.why import draw_why
from mta_viz.ui.shell import pickers, shown, state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected, pick_head, pick_layer, pick_position, pick_stage, resolve
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, layer_label, lines, plain

TABS = {
    "Next token": tabs.draw_next_token,
    "Difference": tabs.draw_difference,
    "Row and column": tabs.draw_rows,
    "Text": tabs.draw_text,
    "Heads": heads.draw,
    "Cells": tabs.draw_cells,
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


@st.fragment
def draw_attention(page: Page) -> None:
    """The page's body. Its own widgets run it alone: the sidebar does not change with the selection."""
    shown.clear()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    """Top to bottom in places made first; the map a visitor waits for is filled in, and sent, first."""
    selected = resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    drawn = Drawn(page, selected, state.get("scale", THIS_MAP), spans_of(page))
    top = st.container()
    with st.container(key="stale" if page.stale else "fresh"):
        strip, search = st.container(), st.container()
        with st.container(key="single" if drawn.part is None else "pair"):
            draw_map(drawn)
            cell, why = st.container(), st.container()
        tabs = st.container()
    with top:
        _draw_top(page, selected)
    with cell:
        _draw_cell(drawn)
    with strip:
        _draw_strip(drawn)
    with search:
        draw_spans(drawn)
    with why:
        draw_why(drawn)
    with tabs:
        draw_tabs(drawn)


def _draw_top(page: Page, selected: Selected) -> None:
    draw_address(_place(page, selected))
    _draw_pickers(page, selected)
    if page.stale:
        st.warning("Prompt changed. These maps are of the previous run.")
    if len(page.trace.tokens) == 1:
        st.info("A one-token prompt attends only to itself: nothing to see. Add text.")


def _place(page: Page, selected: Selected) -> str:
    pieces = page.trace.tokens.pieces
    return " · ".join(
        [
            str(state.selection().checkpoint),
            layer_label(selected.layer, page.numbering),
            head_label(selected.head, page.numbering),
            selected.stage.value.long,
            f'query {selected.query} "{pieces[selected.query]}"',
            f'key {selected.key} "{pieces[selected.key]}"',
        ]
    )


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
            **state.kept("scale", THIS_MAP, SCALES),
        )
    if selected.why:
        state.put("why", (page.key, selected.layer, selected.head, selected.why))
    opened = state.get("why")
    if opened is not None and opened[:3] == (page.key, selected.layer, selected.head):
        caption(f"Opened at this head: {opened[3]}.")


def _draw_strip(drawn: Drawn) -> None:
    figure = drawn.strip_figure()
    chart(figure, "strip", pickers.on_stage, alt="All stages of this head as small maps", stretch=True)
    caption_with_save(
        f"All stages of this head. Scores share the limits ±{drawn.limits['score']:g}, weights share "
        f"±{drawn.limits['weight']:g}. Click one to see it large.",
        (*file_parts(drawn), "stages"),
        figure,
        lambda: stages_csv(drawn.maps, drawn.tokens),
        "strip",
    )


def _draw_cell(drawn: Drawn) -> None:
    """The selected query and key, and the cell's value at every stage of this head."""
    selected, tokens = drawn.selected, drawn.tokens
    with st.container(gap="xsmall"):
        pick_position("query", selected.query, len(tokens), ("n", "m"))
        pick_position("key", selected.key, len(tokens), ("j", "k"))
    pieces = tokens.pieces
    st.text(f'query {selected.query} "{pieces[selected.query]}"\nkey {selected.key} "{pieces[selected.key]}"')
    if selected.key > selected.query:
        caption(
            f"Key {selected.key} comes after query {selected.query}. The model never sees it: "
            "its weight is 0 by the mask."
        )
        return
    lines("\n".join(_cell_lines(drawn)), "cell")


def _cell_lines(drawn: Drawn) -> list[str]:
    kernels, found = drawn.page.trace.model.config.kernels(drawn.selected.layer), []
    for stage, value in reversed(drawn.values.items()):
        text = score_text(value) if stage.value.unit == "score" else weight_text(value)
        mark = "▸" if stage is drawn.selected.stage else "·"
        kind = "probability" if is_distribution(stage, kernels) else stage.value.unit
        found.append(f"{mark} {stage.value.short:<6}{text:>9} {kind}")
    return found
