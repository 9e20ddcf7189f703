"""The inspector at the right: why the cell has its value, the kernel, what can be changed, what that does."""

from collections.abc import Callable

import streamlit as st

from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, WHERE, KernelId
from mta_viz.figures.kernels.card import card_kernel
from mta_viz.figures.kernels.gallery import measured_effects
from mta_viz.model.interventions import AblateHead, Intervention
from mta_viz.model.plans import OF_KERNEL, OF_MIXING, Listed
from mta_viz.ui.attention import head as heads
from mta_viz.ui.fields import bar
from mta_viz.ui.kernels import parts
from mta_viz.ui.kernels.card import broken, kernel_name, looks
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import EDIT, INSPECTOR
from mta_viz.ui.shell.widgets import head_name, plain
from mta_viz.ui.surgery.answer import draw_board
from mta_viz.ui.surgery.plan_list import draw_plan
from mta_viz.ui.workspace.panels import Desk

LEARNED = "learned"
EDITS: dict[str, str] = {LEARNED: "learned", "own-tap": "own tap", "identity": "identity", "zero": "zero"}


def draw_inspector(desk: Desk) -> None:
    """One of the four, chosen by what is asked."""
    chosen = bar("Inspector", [*TABS], INSPECTOR, label_visibility="collapsed")
    TABS[chosen](desk)


def _draw_why(desk: Desk) -> None:
    heads.draw_cell(desk.head)
    heads.draw_why(desk.head)


def _draw_kernel(desk: Desk) -> None:
    page, kernel = desk.original, desk.kernel
    if kernel is None:
        st.info(plain(parts.missing_text(page, desk.head.selected.layer, "pre")))
        return
    source = parts.weights_source(page)
    card = card_kernel(source, kernel)
    st.markdown(f"**{plain(kernel_name(kernel, page.numbering))}**")
    st.markdown(plain(broken(card.row, card.taps) or looks(card.row, None, card.offsets)))
    st.markdown(plain(parts.matters_sentence(measured_effects(source), kernel)))
    if st.button("Open its card", icon=":material/apps:", key="inspector.card"):
        parts.select_kernel(kernel)
        st.switch_page("pages/kernels.py")


def _draw_edit(desk: Desk) -> None:
    """A switch for each kernel and row of mixing of the head, one for the head, then the whole plan."""
    page, selected = desk.original, desk.head.selected
    kernels = page.model.config.kernels(selected.layer)
    for where in (*KEY_QUERY, *MIXING):
        if getattr(kernels, where):
            _draw_switch(KernelId(selected.layer, selected.head, where), page.numbering)
    off = AblateHead(selected.layer, selected.head)
    key = state.borrow(f"switch.off.{selected.layer}.{selected.head}", _is_listed(off))
    name = head_name(selected.layer, selected.head, page.numbering)
    st.toggle(
        plain(f"{name} off"),
        _is_listed(off),
        key=key,
        on_change=lambda: _put((off,), off if state.widget_value(key) else None),
    )
    draw_plan(page, selected)


def _draw_switch(kernel: KernelId, numbering: int) -> None:
    offered = OF_MIXING if kernel.where in MIXING else OF_KERNEL
    edits: dict[str, Intervention] = {edit: without(kernel, edit) for edit in offered}
    now = next((edit for edit, part in edits.items() if _is_listed(part)), LEARNED)
    key = state.borrow(f"switch.{kernel.name()}", now)
    names = {edit: words for edit, words in EDITS.items() if edit == LEARNED or edit in edits}
    what = "Head mixing" if kernel.where in MIXING else "Kernel"

    def take() -> None:
        _put(tuple(edits.values()), edits.get(state.widget_value(key)))

    st.segmented_control(
        plain(f"{what} {WHERE[kernel.where]}"),
        [*names],
        format_func=names.__getitem__,
        default=now,
        required=True,
        key=key,
        on_change=take,
    )


def _is_listed(part: Intervention) -> bool:
    return any(item.on and item.intervention == part for item in plans.plan_items())


def _put(instead_of: tuple[Intervention, ...], part: Intervention | None) -> None:
    """In place of the other edits of the same thing."""
    rest = tuple(item for item in plans.plan_items() if item.intervention not in instead_of)
    plans.change(rest if part is None else (*rest, Listed(part)))


def _draw_effect(desk: Desk) -> None:
    draw_board(desk.original, desk.plan)


TABS: dict[str, Callable[[Desk], None]] = {
    "Why": _draw_why,
    "Kernel": _draw_kernel,
    EDIT: _draw_edit,
    "Effect": _draw_effect,
}
