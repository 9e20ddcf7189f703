"""Every page says when a plan is active: a part of the sidebar, and a strip over the page.

Attention shows the edited run, the other pages the original model; each says which.
"""

import hashlib
from dataclasses import replace

import streamlit as st

from mta_viz.analysis.operations import rerun
from mta_viz.interventions.addresses import Listed, to_address
from mta_viz.interventions.plans import Plan, plan_as_data
from mta_viz.tracing import Trace
from mta_viz.ui import state
from mta_viz.ui.cache import stores
from mta_viz.ui.open_page import Page
from mta_viz.ui.surgery import plan_state
from mta_viz.ui.widgets import plain

EDITED, ORIGINAL = RUNS = ("edited model", "original model")
TOLD = 2  # interventions named in the strip


def apply_plan(page: Page, *, follows: bool) -> Page:
    """The page of the edited run where it `follows` the plan and the visitor wants it; says which it is."""
    plan = plan_state.plan(page.model.config)
    state.put("plan as data", [])
    if not plan:
        return page
    can_show = follows and page.trace is not None
    with st.container(horizontal=True, vertical_alignment="center", key="plan-strip"):
        place = st.container()
        shown = _choose() if can_show else ORIGINAL
        st.button("Undo all", key="strip.clear", icon=":material/undo:", on_click=plan_state.clear)
    words = _words(plan, page.numbering)
    if shown is ORIGINAL:
        where = "" if can_show else " The Surgery and Attention pages show the edited one."
        place.warning(plain(f"A plan is active ({words}), this shows the original model.{where}"))
        return page
    place.warning(plain(f"Showing an edited model: {words}"))
    state.put("plan as data", plan_as_data(plan))
    key = hashlib.sha256(repr((page.key, plan)).encode()).hexdigest()[:16]
    run = edited_run(page, plan)
    return replace(page, model=run.model, trace=run, key=key)


def edited_run(page: Page, plan: Plan) -> Trace:
    """The page's prompt through the edited model; run once."""
    key = ("edited", page.key, plan)
    found = stores().traces.get(key)
    if found is not None:
        return found
    with st.spinner("Running the prompt through the edited model ..."):
        return stores().traces.get_or_make(key, lambda: rerun(page.trace, plan))


def _choose() -> str:
    return st.segmented_control(
        "Show",
        RUNS,
        required=True,
        label_visibility="collapsed",
        **state.kept("plan shown", EDITED, RUNS),
    )


def _words(plan: Plan, numbering: int) -> str:
    more = f" and {len(plan) - TOLD} more" if len(plan) > TOLD else ""
    return ", ".join(one.text(numbering) for one in plan[:TOLD]) + more


def draw_interventions(numbering: int) -> None:
    """The sidebar's part: every intervention with its switch; and the plan's way to the link."""
    plan_state.restore()
    state.put("plan in link", plan_state.parameters())
    if plan_state.problem():
        st.warning(plain(plan_state.problem()))
    listed = plan_state.listed()
    if not listed:
        return
    n_active = sum(one.on for one in listed)
    with st.expander(f"Interventions: {n_active} of {len(listed)} active", icon=":material/science:"):
        for index, one in enumerate(listed):
            draw_switch(index, one, numbering, "sidebar")


def draw_switch(index: int, one: Listed, numbering: int, where: str) -> None:
    """One intervention's words with its switch; `where` tells equal ones on a page apart."""
    word = hashlib.sha256(to_address((replace(one, on=True),)).encode()).hexdigest()[:8]
    key = f"plan.{where}.{index}.{word}"
    st.session_state[key] = one.on
    st.toggle(plain(one.intervention.text(numbering)), key=key, on_change=plan_state.switch, args=(index,))
