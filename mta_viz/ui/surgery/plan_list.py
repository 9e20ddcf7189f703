"""The plan as a list with switches, sliders and remove; and what can be added for the chosen head."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import streamlit as st

from mta_viz.config import ModelConfig
from mta_viz.interventions import kinds
from mta_viz.interventions.addresses import MAX_CHARACTERS, to_address
from mta_viz.interventions.kinds import Intervention, ScaleTowardsIdentity
from mta_viz.ui import state
from mta_viz.ui.numbering import head_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.surgery import plan_state
from mta_viz.ui.surgery.strip import draw_switch
from mta_viz.ui.surgery.taps import nearest_template
from mta_viz.ui.widgets import caption, plain

PLACES: dict[kinds.KernelPlace, str] = {
    "pre": "kernel before the softmax",
    "post": "kernel after the softmax",
}
MIXES: dict[kinds.MixingPlace, str] = {
    "head_pre": "head mixing before the softmax",
    "head_post": "head mixing after the softmax",
}
Make = Callable[[], Intervention]


def draw_plan(page: Page, selected: Selected) -> None:
    """History buttons, the list, and Add."""
    _draw_history()
    config = page.model.config
    for index, one in enumerate(plan_state.listed()):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False):
            with st.container():
                draw_switch(index, one, page.numbering, "list")
            st.button(
                "",
                icon=":material/close:",
                key=f"plan.x.{index}",
                help="Remove",
                on_click=plan_state.remove,
                args=(index,),
            )
        if isinstance(one.intervention, ScaleTowardsIdentity):
            _draw_strength(index, one.intervention)
        for problem in one.intervention.problems(config):
            st.warning(plain(f"Not done: {problem}."))
    if len(to_address(plan_state.listed())) > MAX_CHARACTERS:
        caption("This plan is too long for the link; what you copy holds the rest of the page.")
    _draw_add(page, selected)


def _draw_history() -> None:
    history = plan_state.history()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Plan**", width="content")
        st.button(
            "",
            icon=":material/undo:",
            key="plan.undo",
            help="Undo",
            disabled=not history.past,
            on_click=plan_state.undo,
        )
        st.button(
            "",
            icon=":material/redo:",
            key="plan.redo",
            help="Redo",
            disabled=not history.future,
            on_click=plan_state.redo,
        )
        st.button("Remove all", key="plan.clear", disabled=not history.now, on_click=plan_state.clear)


def _draw_strength(index: int, one: ScaleTowardsIdentity) -> None:
    key = f"plan.strength.{index}"

    def take() -> None:
        plan_state.put(index, replace(one, strength=st.session_state[key] / 100))

    st.session_state[key] = round(100 * one.strength)
    st.slider(
        "Strength: 0 % as learned, 100 % identity", 0, 100, step=5, format="%d %%", key=key, on_change=take
    )


def _draw_add(page: Page, selected: Selected) -> None:
    """The actions for the head that is chosen above."""
    found = actions(page, selected.layer, selected.head)
    names = list(found)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Add, for the head chosen above", names, **state.kept("action", names[0], names)
        )
        st.button(
            "Add", key="plan.add", icon=":material/add:", on_click=lambda: plan_state.add(found[chosen]())
        )


def actions(page: Page, layer: int, head: int) -> dict[str, Make]:
    """What can be done at a head of this model, by its words."""
    config, found = page.model.config, dict[str, Make]()
    kernels = config.kernels(layer)
    for where, words in PLACES.items():
        if getattr(kernels, where):
            found |= _of_kernel(page, layer, head, where, words)
    for mix, words in MIXES.items():
        if getattr(kernels, mix):
            row, whole = f"{words}: this head's row to identity", f"{words}: the whole layer to identity"
            found[row] = partial(kinds.MixingToIdentity, layer, mix, head)
            found[whole] = partial(kinds.MixingToIdentity, layer, mix)
    found["head off"] = partial(kinds.AblateHead, layer, head)
    if config.mta.group_norm:
        found["group norm of this layer bypassed"] = partial(kinds.BypassGroupNorm, layer)
    if config.mta.gate:
        found["gate of this layer held open"] = partial(kinds.BypassGate, layer)
    return found


def _of_kernel(page: Page, layer: int, head: int, where: kinds.KernelPlace, words: str) -> dict[str, Make]:
    config: ModelConfig = page.model.config
    at = (layer, head, where)
    found: dict[str, Make] = {
        f"{words}: to identity": partial(kinds.KernelToIdentity, *at),
        f"{words}: part of the way to identity": partial(ScaleTowardsIdentity, *at, 0.5),
        f"{words}: to zero": partial(kinds.KernelToZero, *at),
    }
    if not kinds.MirrorKernel(*at).problems(config):
        found[f"{words}: mirrored (earlier and later keys swapped)"] = partial(kinds.MirrorKernel, *at)
    template = nearest_template(page, kinds.KernelToIdentity(*at))
    if template is not None:
        found[f"{words}: to its nearest template, {template[0]}"] = partial(
            kinds.ReplaceKernel, *at, template[1]
        )
    for other in range(config.n_heads):
        if other != head:
            name = f"{words}: to that of {head_label(other, page.numbering)}"
            found[name] = partial(kinds.KernelFrom, *at, other)
    return found
