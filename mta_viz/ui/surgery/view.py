"""What the Surgery page draws: pickers, the plan beside the answer, three maps, and the tabs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import streamlit as st

from mta_viz.analysis.cause.effects import Absent, without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.figures.beside import EditedMaps
from mta_viz.model.plans import Plan
from mta_viz.ui.attention.head import spans_of
from mta_viz.ui.fields import bar, pick_place
from mta_viz.ui.kernels.parts import effects_of, select_kernel
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import WHOLE_UP_TO, Selected, on_cell, resolve
from mta_viz.ui.shell.show import show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import head_name, plain, side_by_side
from mta_viz.ui.surgery.answer import draw_board, draw_greedy_set, draw_patch, draw_sweep
from mta_viz.ui.surgery.attribution import draw_attribution
from mta_viz.ui.surgery.direct_effect import draw_direct_effect
from mta_viz.ui.surgery.paths import draw_paths
from mta_viz.ui.surgery.plan_list import draw_plan, draw_taps
from mta_viz.ui.surgery.worth import draw_worth

Draw = Callable[[Page, Selected], None]
TABS: dict[str, tuple[str, Draw]] = {  # in the address, and on the page
    "One kernel": ("One kernel", draw_taps),
    "Sweep": ("Sweep", draw_sweep),
    "Minimal set": ("Greedy set", draw_greedy_set),
    "Worth": ("Necessary, sufficient", draw_worth),
    "Paths": ("Paths", draw_paths),
    "Patch": ("Patch", draw_patch),
    "Attribution": ("Attribution", draw_attribution),
    "Responsibility": ("Direct effect", draw_direct_effect),
}
TAB = Setting("surgery tab", "One kernel")
Side = Literal["original", "edited", "difference"]
SIDES: dict[Side, str] = {"original": "Original", "edited": "Edited", "difference": "Edited minus original"}


def draw_surgery(page: Page) -> None:
    """The page's body. What cannot be run is said in its place; the plan stays there to be mended."""
    selected = resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    plan = plans.current_plan(page.model.config)
    _draw_top(page, selected)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        if not plans.plan_items():
            _draw_empty(page, selected)
        draw_plan(page, selected)
    with right, errors_as_messages():
        draw_board(page, plan)
    with errors_as_messages():
        _draw_maps(page, selected, plan)
    names = {name: words for name, (words, _) in TABS.items()}
    tab = bar("Surgery", names, TAB, label_visibility="collapsed")
    with errors_as_messages():
        TABS[tab][1](page, selected)


def _draw_top(page: Page, selected: Selected) -> None:
    name = head_name(selected.layer, selected.head, page.numbering)
    draw_address(f"{state.selection().checkpoint} · {name} · {selected.stage.value.long}")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_place(page, selected)
    if page.stale:
        st.warning("Prompt changed. What is shown is of the previous run; press Run.")


def _draw_empty(page: Page, selected: Selected) -> None:
    """Where to start: the kernel whose loss costs most at the task, else the chosen head's."""
    effects, kernels = effects_of(page), page.model.config.kernels(selected.layer)
    kernel = None
    if not isinstance(effects, Absent):
        kernel = next(iter(effects.of_each()), None)
    elif kernels.pre or kernels.post:
        kernel = KernelId(selected.layer, selected.head, "pre" if kernels.pre else "post")
    if kernel is None:
        st.info("Nothing is edited. This model has no kernels: add a head to switch off.")
        return
    name = kernel.name(page.numbering)
    st.info(plain(f"Nothing is edited. Add an intervention, or start from the strongest kernel: {name}."))
    st.button(plain(f"Start: {name} to identity"), key="plan.start", on_click=_start, args=(kernel,))


def _start(kernel: KernelId) -> None:
    plans.add(without(kernel))
    select_kernel(kernel)


def _draw_maps(page: Page, selected: Selected, plan: Plan) -> None:
    edited = plans.edited_page(page, plan)
    source = source_of(replace(page, key=edited.key), beside=source_of(edited))
    place, cell = (selected.layer, selected.head, selected.stage.value.key), (selected.query, selected.key)
    then = on_cell if len(page.trace.tokens) <= WHOLE_UP_TO else None
    with side_by_side("edited"):
        for side, heading in SIDES.items():
            with st.container():
                st.markdown(f"**{heading}**")
                spec = EditedMaps(*place, side, *cell, spans_of(page), page.first_token)
                name = f"edit.{side}.{plans.key_of(edited.key, spec, page.numbering)}"
                show(source, spec, then, widget=name, square=True)
