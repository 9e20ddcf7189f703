"""What the Surgery page draws: pickers, the plan beside the answer, the maps, and the tabs."""

from collections.abc import Callable

import streamlit as st

from mta_viz.analysis.cause.effects import Absent, to_identity
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.errors import MtaVizError
from mta_viz.model.plans import plan_as_data
from mta_viz.ui.kernels.matters import effects_of
from mta_viz.ui.shell import plan as plan_state
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, pick_head, pick_layer, pick_stage, resolve
from mta_viz.ui.shell.widgets import head_label, layer_label, plain
from mta_viz.ui.surgery.attribution import draw_attribution
from mta_viz.ui.surgery.board import draw_board
from mta_viz.ui.surgery.maps import draw_maps, draw_patch
from mta_viz.ui.surgery.plan_list import draw_plan, draw_taps
from mta_viz.ui.surgery.responsibility import draw_responsibility
from mta_viz.ui.surgery.sweeps import draw_needed, draw_sweep

TABS = ("One kernel", "Sweep", "Minimal set", "Patch", "Attribution", "Responsibility")


def draw_surgery(page: Page) -> None:
    """The page's body. What cannot be run is said in its place; the plan stays there to be mended."""
    selected = resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    plan = plan_state.current_plan(page.model.config)
    state.put("plan as data", plan_as_data(plan))
    _draw_top(page, selected)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        if not plan_state.plan_items():
            _draw_empty(page, selected)
        draw_plan(page, selected)
    with right:
        _guarded(lambda: draw_board(page, plan))
    _guarded(lambda: draw_maps(page, selected, plan))
    state.put("plan as data", [])  # what the tabs show is of the original model
    _draw_tab(page, selected)
    state.put("plan as data", plan_as_data(plan))


def _guarded(draw: Callable[[], None]) -> None:
    try:
        draw()
    except MtaVizError as error:
        st.error(plain(str(error)))


def _draw_top(page: Page, selected: Selected) -> None:
    layer, head = layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering)
    draw_address(f"{state.selection().checkpoint} · {layer} · {head} · {selected.stage.value.long}")
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
    found = effects_of(page)
    if not isinstance(found, Absent):
        return next(iter(found.of_each()), None)
    kernels = page.model.config.kernels(selected.layer)
    if kernels.pre or kernels.post:
        return KernelId(selected.layer, selected.head, "pre" if kernels.pre else "post")
    return None


def _start(kernel: KernelId) -> None:
    plan_state.add(to_identity(kernel))
    state.select(layer=kernel.layer, head=kernel.head, place=kernel.where)


def _draw_tab(page: Page, selected: Selected) -> None:
    """The bar, and the chosen tab under it: only that one is computed."""
    chosen = st.segmented_control(
        "Surgery",
        TABS,
        required=True,
        label_visibility="collapsed",
        **state.kept("surgery tab", TABS[0], TABS),
    )
    draw = {
        "One kernel": lambda: draw_taps(page, selected),
        "Sweep": lambda: draw_sweep(page, selected),
        "Minimal set": lambda: draw_needed(page),
        "Patch": lambda: draw_patch(page, selected),
        "Attribution": lambda: draw_attribution(page, selected),
        "Responsibility": lambda: draw_responsibility(page, selected),
    }
    _guarded(draw[chosen])
