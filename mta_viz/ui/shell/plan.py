"""The visitor's plan: a list of interventions for each checkpoint, with undo, and in the address as `e`.

A plan acts where it is on and the model has what it names. Every page says when one is active.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.cause.answers import rerun
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model.interventions import Intervention
from mta_viz.model.plans import MAX_CHARACTERS, Listed, Plan, active, from_address, to_address
from mta_viz.run.tracing import Trace
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import stores
from mta_viz.ui.shell.page import INSPECTOR, WORKSPACE, Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import plain

NAME = "e"
EDITED, ORIGINAL, DIFFERENCE = "edited model", "original model", "difference"  # in the address
SHOWN = {ORIGINAL: "original", EDITED: "edited", DIFFERENCE: "difference"}
NAMED = 2  # interventions named in the strip
PLAN_SHOWN = Setting("plan shown", EDITED)
ANSWER = Setting("answer", "")
Listing = tuple[Listed, ...]


@dataclass(frozen=True)
class History:
    """The list, what it was before, and what undo took back; the latest at the end of each."""

    now: Listing = ()
    past: tuple[Listing, ...] = ()
    future: tuple[Listing, ...] = ()


@dataclass
class Plans:
    """The lists by checkpoint, whether and how the address's was read, and the one that the sidebar shows."""

    of: dict[str | None, History] = field(default_factory=dict)
    read: bool = False
    problem: str = ""
    in_sidebar: Listing = ()


def history() -> History:
    """Of the chosen checkpoint."""
    return state.part(Plans).of.get(state.selection().checkpoint, History())


def _keep(*changed: Any) -> None:
    state.part(Plans).of[state.selection().checkpoint] = History(*changed)


def plan_items() -> Listing:
    """All interventions, also those that are off."""
    return history().now


def current_plan(config: ModelConfig) -> Plan:
    """What acts: those that are on and can be done to the model."""
    return tuple(part for part in active(plan_items()) if not part.problems(config))


def change(listing: Listing) -> None:
    """Another list; the old one can be got back."""
    old = history()
    if listing != old.now:
        _keep(listing, (*old.past, old.now))


def undo() -> None:
    """The list as it was before the last change."""
    old = history()
    if old.past:
        _keep(old.past[-1], old.past[:-1], (*old.future, old.now))


def redo() -> None:
    """The list as it was before the last undo."""
    old = history()
    if old.future:
        _keep(old.future[-1], (*old.past, old.now), old.future[:-1])


def add(intervention: Intervention) -> None:
    """Put it at the end, switched on; once only."""
    rest = tuple(item for item in plan_items() if item.intervention != intervention)
    change((*rest, Listed(intervention)))


def splice(index: int, *items: Listed) -> None:
    """Other interventions, or none, in the place of one."""
    now = plan_items()
    change((*now[:index], *items, *now[index + 1 :]))


def plan_words(plan: Plan, numbering: int) -> str:
    """Its first interventions, and how many more there are."""
    words = ", ".join(part.text(numbering) for part in plan[:NAMED])
    return words + (f" and {len(plan) - NAMED} more" if len(plan) > NAMED else "")


def say_plan(page: Page) -> None:
    """Over a page that shows the original model: that a plan is active, and a way to be rid of it."""
    plan = current_plan(page.model.config)
    if not plan:
        return
    words = plan_words(plan, page.numbering)
    with st.container(horizontal=True, vertical_alignment="center", key="plan-strip"):
        shown = "this shows the original model. The Workspace shows the edited one."
        st.warning(plain(f"A plan is active ({words}), {shown}"))
        st.button("Undo all", key="strip.clear", icon=":material/undo:", on_click=change, args=((),))


def key_of(*what: object) -> str:
    """A short string that is equal only for equal things."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def edited_page(page: Page, plan: Plan) -> Page:
    """What may be drawn of the edited model; the page itself without a plan."""
    if not plan:
        return page
    run = edited_run(page, plan)
    return replace(page, model=run.model, trace=run, key=key_of(page.key, plan))


def edited_run(page: Page, plan: Plan) -> Trace:
    """The page's prompt through the edited model; run once."""
    key = ("edited", page.key, plan)
    if (known := stores().traces.get(key)) is not None:
        return known
    with st.spinner("Running the prompt through the edited model ..."):
        return stores().traces.get_or_make(key, lambda: rerun(page.trace, plan))


def draw_answer(**look: Any) -> None:
    """The field for the answer that is looked at."""
    look |= ANSWER.widget() | {"placeholder": "empty: what the prompt asks for"}
    help = (
        "What should follow the prompt: empty, the number or block asked for, or the likeliest token. Type a "
        "space first where a word would have one."
    )
    st.text_input("Answer", help=help, **look)


def draw_interventions(numbering: int) -> None:
    """The sidebar's part: every intervention with its switch; and the plan's way from and to the link."""
    plans, linked, again = state.part(Plans), st.query_params.get(NAME), state.session().restoring
    if again or (linked and not plans.read):
        try:
            (change if again else _keep)(from_address(linked) if linked else ())
        except ConfigError as error:
            plans.problem = f"The link's plan was left out. {error}"
    plans.read = True
    listed = plans.in_sidebar = plan_items()
    text = to_address(listed)
    state.session().link.plan = {NAME: text} if text and len(text) <= MAX_CHARACTERS else {}
    if plans.problem:
        st.warning(plain(plans.problem))
    if not listed:
        return
    n_active = sum(item.on for item in listed)
    with st.expander(f"Interventions: {n_active} of {len(listed)} active", icon=":material/science:"):
        for index, item in enumerate(listed):
            draw_switch(index, item, numbering, "sidebar")


def follow_plan() -> None:
    """In a part of the page that runs alone: once the plan is another one, sidebar and address follow."""
    if state.part(Plans).in_sidebar != plan_items():
        st.rerun()


def draw_switch(index: int, item: Listed, numbering: int, where: str) -> None:
    """An intervention's words with its switch; `where` tells equal ones on a page apart."""
    key = f"plan.{where}.{index}.{key_of(to_address((replace(item, on=True),)))}"
    state.set_widget(key, item.on)
    switched = replace(item, on=not item.on)
    st.toggle(plain(item.intervention.text(numbering)), key=key, on_change=splice, args=(index, switched))


def draw_test_button(kernel: KernelId, key: str) -> None:
    """`Test: set this kernel to identity`, of a mixing row where that is meant."""
    what = "kernel" if kernel.where in ("pre", "post") else "row of head mixing"
    look: Any = {"icon": ":material/science:", "on_click": _test, "args": (kernel,)}
    st.button(f"Test: set this {what} to identity", key=key, **look)


def _test(kernel: KernelId) -> None:
    add(without(kernel))
    state.select(layer=kernel.layer, head=kernel.head, place=kernel.where)
    INSPECTOR.put("Effect")
    st.switch_page(WORKSPACE)
