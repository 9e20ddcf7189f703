"""What the workspace draws, in which order, and which parts of it run alone.

The first picture is the panels; text, answer and inspector follow. Under them are views of the same
selection, chosen by question, only the open one computed. The chosen cell's parts run alone.
"""

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.figures.base import NamedFigure
from mta_viz.printed import head_name
from mta_viz.ui.attention import head as heads
from mta_viz.ui.attention import tabs
from mta_viz.ui.attention.head import Head
from mta_viz.ui.compare.view import draw_compare
from mta_viz.ui.linked.component import PAINT, Linked, draw_maps, draw_text
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell.address import draw_address, draw_report_button, draw_stale
from mta_viz.ui.shell.page import BESIDE, RESTS, TAPS, VIEW, Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.plan import EDITED, ORIGINAL, PLAN_SHOWN, SHOWN
from mta_viz.ui.shell.show import OnPage, begin
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, plain
from mta_viz.ui.surgery.answer import draw_greedy_set, draw_patch, draw_sweep
from mta_viz.ui.surgery.attribution import draw_attribution
from mta_viz.ui.surgery.direct_effect import draw_direct_effect
from mta_viz.ui.surgery.plan_list import draw_taps
from mta_viz.ui.surgery.worth import draw_paths, draw_worth
from mta_viz.ui.workspace.panels import BEFORE, Desk, draw_stages, draw_words, keep_figures, linked_of
from mta_viz.ui.workspace.sides import draw_heads, draw_inspector
from mta_viz.ui.workspace.story import choose_head, draw_answer, draw_plan_strip, draw_story, known_story

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
    with st.container(key="view"), errors_as_messages():  # here: maps of a broken model are still drawn
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


@st.fragment
def draw_workspace(page: Page) -> None:
    """The page's body. Its own widgets run it alone: the sidebar does not change with the selection."""
    plans.follow_plan()
    begin()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    """Top to bottom in places made first; the maps a visitor waits for are filled in, and sent, first.

    Those of a second run stand in the open view: it comes before what is said of the first one.
    """
    with errors_as_messages():
        choose_head(page)
    top, desk = st.container(gap="xsmall"), _desk(page)
    linked = linked_of(desk)
    with st.container(key="of-run", gap=None):
        draw_text(linked)
        with st.container(key="desk"):
            left = st.container(key="of-heads", gap="xsmall")
            with st.container(key="exact", gap="xsmall"):
                _draw_panels(desk, linked)
            of_cell = partial(_draw_of_cell, page, _outside(desk), tuple(state.part(OnPage)))
            if VIEW.value == BESIDE:
                of_cell()
            else:
                time.sleep(PAINT)
            with top:
                _draw_top(desk)
            with left:
                draw_heads(desk)
            if VIEW.value != BESIDE:
                of_cell()
    if not heads.is_pooled(desk.head):  # last: it takes a pass over the layer, and all else is on screen
        with top:
            heads.pool_layer(desk.head)


def _desk(page: Page) -> Desk:
    """What is looked at, of which everything exists."""
    heads.SCALE.declare(options=heads.SCALES)  # these count before their widgets are drawn
    BEFORE.declare()
    VIEW.declare()
    selected = pickers.resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    plan, story = plans.current_plan(page.model.config), known_story(page)
    shown = PLAN_SHOWN.declare(EDITED, [*SHOWN]) if plan else ORIGINAL
    try:
        run, problem = page if shown == ORIGINAL else plans.edited_page(page, plan), ""
    except MtaVizError as error:  # the plan stays there to be mended
        run, problem, plan, shown = page, str(error), (), ORIGINAL
    spans = heads.spans_of(page)
    if not spans and story is not None and story.asked is not None:
        spans = (story.asked, story.asking) if story.asking in story.spans else (story.asked,)
    return Desk(page, Head(run, selected, spans), plan, shown, story, problem)


def _outside(desk: Desk) -> Hashable:
    """What is drawn outside the parts of a cell: when it is another one, the page is drawn anew."""
    return desk.head.view, plans.plan_items(), desk.shown, plans.ANSWER.value


def _draw_top(desk: Desk) -> None:
    page, selected = desk.original, desk.head.selected
    name = head_name(selected.layer, selected.head, page.numbering)
    where = f"{state.selection().checkpoint} · {name} · {selected.stage.value.long}"
    draw_address(where, partial(_draw_beside_address, page))
    if len(page.trace.tokens) == 1:
        st.info("A one-token prompt attends only to itself: nothing to see. Add text.")
    if desk.problem:
        st.error(plain(desk.problem))
    with errors_as_messages(), st.container(key="standing"):
        if desk.plan:
            draw_plan_strip(desk)
        draw_answer(desk)
        if desk.story is None and heads.is_pooled(desk.head):
            with st.container(key="story"):
                is_there = draw_story(page)
            if is_there:  # within the moment that a quick story is waited for
                st.rerun()


def _draw_beside_address(page: Page) -> None:
    draw_stale(page)
    draw_report_button(page)


def _draw_panels(desk: Desk, linked: Linked) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="stages"):
        draw_stages(desk)
        with st.popover("Find, name"):
            heads.draw_spans(desk.head)
    with st.container(key="overview"):  # there every time, so that what follows stays in its place
        if desk.head.has_overview and heads.is_pooled(desk.head):
            heads.draw_overview(desk.head)
    draw_maps(linked)
    draw_words(desk, linked)


def _draw_side(desk: Desk) -> None:
    with errors_as_messages():
        draw_inspector(desk)
    heads.point_view(desk.head)


@st.fragment
def _draw_of_cell(page: Page, outside: Hashable, kept: tuple[NamedFigure[Any], ...]) -> None:
    """What hangs on the chosen cell: a choice of another one runs this alone.

    `outside`: what is drawn besides; where that changes here, the page is drawn anew. `kept`: its figures.
    """
    with errors_as_messages():
        desk = _desk(page)
        if _outside(desk) != outside:
            st.rerun()
        begin(kept)
        keep_figures(desk)
        side, below = (st.container(key=name, gap="xsmall") for name in ("inspector", "views"))
        parts = [(side, _draw_side), (below, draw_views)]
        for place, draw in parts[:: -1 if VIEW.value == BESIDE else 1]:
            with place:
                draw(desk)
    state.mirror()
