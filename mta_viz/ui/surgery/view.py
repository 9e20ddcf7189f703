"""What the Surgery page draws: pickers, the plan beside the answer, three maps, and the tabs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import streamlit as st

from mta_viz.analysis.cause.effects import Absent, without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.errors import MtaVizError
from mta_viz.figures.beside import EditedMaps
from mta_viz.model.plans import Plan
from mta_viz.ui.attention.spans import spans_of
from mta_viz.ui.kernels.matters import effects_of
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import (
    WHOLE_UP_TO,
    Selected,
    on_cell,
    pick_head,
    pick_layer,
    pick_stage,
    resolve,
)
from mta_viz.ui.shell.show import show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import head_name, plain, side_by_side
from mta_viz.ui.surgery.attribution import draw_attribution, draw_responsibility
from mta_viz.ui.surgery.board import draw_board
from mta_viz.ui.surgery.many import draw_greedy_set, draw_patch, draw_sweep
from mta_viz.ui.surgery.plan_list import draw_plan, draw_taps

Draw = Callable[[Page, Selected], None]
TABS: dict[str, tuple[str, Draw]] = {  # in the address, and on the page
    "One kernel": ("One kernel", draw_taps),
    "Sweep": ("Sweep", draw_sweep),
    "Minimal set": ("Greedy set", draw_greedy_set),
    "Patch": ("Patch", draw_patch),
    "Attribution": ("Attribution", draw_attribution),
    "Responsibility": ("Responsibility", draw_responsibility),
}
TAB = Setting("surgery tab", "One kernel")
Side = Literal["original", "edited", "difference"]
SIDES: dict[Side, str] = {
    "original": "Original",
    "edited": "Edited",
    "difference": "Edited minus original",
}


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
    with right:
        _guarded(lambda: draw_board(page, plan))
    _guarded(lambda: _draw_maps(page, selected, plan))
    tab = st.segmented_control(
        "Surgery",
        list(TABS),
        format_func=lambda name: TABS[name][0],
        required=True,
        label_visibility="collapsed",
        **TAB.widget(list(TABS)),
    )
    _guarded(lambda: TABS[tab][1](page, selected))


def _guarded(draw: Callable[[], None]) -> None:
    try:
        draw()
    except MtaVizError as error:
        st.error(plain(str(error)))


def _draw_top(page: Page, selected: Selected) -> None:
    name = head_name(selected.layer, selected.head, page.numbering)
    draw_address(f"{state.selection().checkpoint} · {name} · {selected.stage.value.long}")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(page.model.config, selected.layer, page.numbering)
        pick_head(page.model.config, selected.head, page.numbering)
        pick_stage(page.model.config, selected.layer, selected.stage)
    if page.stale:
        st.warning("Prompt changed. What is shown is of the previous run; press Run.")


def _draw_empty(page: Page, selected: Selected) -> None:
    """Where to start: the kernel whose loss costs most at the task, else the chosen head's."""
    kernel = _strongest(page, selected)
    if kernel is None:
        st.info("Nothing is edited. This model has no kernels: add a head to switch off.")
        return
    name = kernel.name(page.numbering)
    st.info(plain(f"Nothing is edited. Add an intervention, or start from the strongest kernel: {name}."))
    st.button(plain(f"Start: {name} to identity"), key="plan.start", on_click=_start, args=(kernel,))


def _strongest(page: Page, selected: Selected) -> KernelId | None:
    effects = effects_of(page)
    if not isinstance(effects, Absent):
        return next(iter(effects.of_each()), None)
    kernels = page.model.config.kernels(selected.layer)
    if kernels.pre or kernels.post:
        return KernelId(selected.layer, selected.head, "pre" if kernels.pre else "post")
    return None


def _start(kernel: KernelId) -> None:
    plans.add(without(kernel))
    state.select(layer=kernel.layer, head=kernel.head, place=kernel.where)


def _draw_maps(page: Page, selected: Selected, plan: Plan) -> None:
    """The chosen head's map in the original run, in the edited one, and what changed."""
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
