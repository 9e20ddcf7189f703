"""The plan as a list with switches, sliders and remove; and what can be added for the chosen head.

One kernel's taps in a grid that can be edited, beside the picture of what they are now.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import round_to_template
from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model import interventions
from mta_viz.model.editing import edited
from mta_viz.model.interventions import (
    Intervention,
    KernelPlace,
    OfKernel,
    ReplaceKernel,
    ScaleTowardsIdentity,
    Taps,
)
from mta_viz.model.plans import MAX_CHARACTERS, to_address
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.ui.shell import plan, state
from mta_viz.ui.shell import plan as plan_state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.plan import draw_switch
from mta_viz.ui.shell.widgets import caption, chart, head_label, plain

GRID_PX, COLUMN_PX, PICTURE_PX = 604, 46, 440
TAP_PLACES: dict[KernelPlace, str] = {"pre": "before the softmax", "post": "after the softmax"}


@dataclass(frozen=True)
class _Kernel:
    """A kernel as the plan leaves it."""

    at: OfKernel
    taps: np.ndarray
    offsets: Offsets


def draw_taps(page: Page, selected: Selected) -> None:
    """The kernel of the chosen head: its grid, the buttons, its picture; says where there is none."""
    kernels = page.model.config.kernels(selected.layer)
    places = [where for where in TAP_PLACES if getattr(kernels, where)]
    if not places:
        having = [at for at in range(page.model.config.n_layers) if _has_kernel(page, at)]
        named = ", ".join(f"L{at + page.numbering}" for at in having)
        st.info(
            plain(f"This layer has no key-query kernel. {f'Layers with one: {named}.' if having else ''}")
        )
        return
    where = st.segmented_control(
        "Kernel",
        places,
        format_func=TAP_PLACES.__getitem__,
        required=True,
        **state.kept("edited place", places[0], places),
    )
    kernel = _current(page, ReplaceKernel(selected.layer, selected.head, where, ((0.0,),)))
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=GRID_PX):
            _draw_grid(kernel)
            _draw_buttons(page, kernel)
        with st.container(width=PICTURE_PX):
            name = hashlib.sha256(kernel.taps.tobytes()).hexdigest()[:12]
            figure = remember(
                lambda: kernel_picture(kernel.taps, kernel.offsets, width=PICTURE_PX),
                "edited kernel",
                name,
                kernel.offsets,
            )
            chart(figure, f"edited.{name}", alt="The kernel's taps as the plan leaves them")
    caption(
        "Rows: the query's offset (0 = now), columns: the key's. Change a number and the plan gets these "
        "taps. A kernel cannot be transposed: its rows reach back only, its columns to both sides. Mirror "
        "is the nearest to it: earlier and later keys change places, so a diagonal becomes an anti-diagonal."
    )


def nearest_template(page: Page, at: OfKernel) -> tuple[str, Taps] | None:
    """(name, taps) of the kernel rounded, as the plan leaves it; None where no template fits."""
    kernel = _current(page, at)
    try:
        name, taps = round_to_template(kernel.taps, kernel.offsets)
    except ConfigError:
        return None
    return name, _as_taps(taps)


def _has_kernel(page: Page, layer: int) -> bool:
    return any(getattr(page.model.config.kernels(layer), where) for where in TAP_PLACES)


def _current(page: Page, at: OfKernel) -> _Kernel:
    """With what the plan's interventions on this layer's kernels make of it."""
    config = page.model.config
    plan = tuple(
        one for one in plan_state.current_plan(config) if isinstance(one, OfKernel) and one.layer == at.layer
    )

    def read() -> np.ndarray:
        model = edited(page.model, plan) if plan else page.model
        return model.state_dict()[f"blocks.{at.layer}.attn.kernel_{at.where}"][at.head].double().cpu().numpy()

    taps = remember(read, "current taps", page.key, at.layer, at.head, at.where, plan)
    return _Kernel(at, taps, kernel_offsets(config, *taps.shape))


def _as_taps(taps: np.ndarray) -> Taps:
    return tuple(map(tuple, np.asarray(taps, np.float32).tolist()))


def _draw_grid(kernel: _Kernel) -> None:
    word = hashlib.sha256(kernel.taps.tobytes()).hexdigest()[:12]
    key = f"taps.{kernel.at.where}.{kernel.at.layer}.{kernel.at.head}.{word}"  # other taps: another widget
    columns = [f"{offset:+d}" if offset else "0" for offset in kernel.offsets.key]
    rows = [f"{offset}" if offset else "0 now" for offset in kernel.offsets.query]

    def take() -> None:
        changed = kernel.taps.copy()
        for row, values in st.session_state[key]["edited_rows"].items():
            for name, value in values.items():
                if name in columns and value is not None and np.isfinite(value):
                    changed[int(row), columns.index(name)] = value
        _set_taps(kernel.at, changed)

    st.data_editor(
        pd.DataFrame(kernel.taps, index=pd.Index(rows, name="query"), columns=columns),
        key=key,
        on_change=take,
        num_rows="fixed",
        column_config={
            name: st.column_config.NumberColumn(name, format="%.3f", width=COLUMN_PX) for name in columns
        },
    )


def _draw_buttons(page: Page, kernel: _Kernel) -> None:
    template = nearest_template(page, kernel.at)
    mirrors = kernel.offsets.key == tuple(-offset for offset in reversed(kernel.offsets.key))
    round_to = () if template is None else (kernel.at, np.array(template[1]))
    with st.container(horizontal=True):
        st.button(
            "Reset",
            key="taps.reset",
            help="Take out all that the plan does to this kernel",
            on_click=_reset,
            args=(kernel.at,),
        )
        st.button(
            "Mirror",
            key="taps.mirror",
            disabled=not mirrors,
            help="Earlier and later keys swapped",
            on_click=_set_taps,
            args=(kernel.at, kernel.taps[:, ::-1]),
        )
        st.button(
            "Round to template" if template is None else f"Round to template: {template[0]}",
            key="taps.round",
            disabled=template is None,
            on_click=_set_taps,
            args=round_to,
        )


def _same_kernel(one: object, at: OfKernel) -> bool:
    return isinstance(one, OfKernel) and (one.layer, one.head, one.where) == (at.layer, at.head, at.where)


def _set_taps(at: OfKernel, taps: np.ndarray) -> None:
    """In place of all that the plan did to this kernel: the grid showed its outcome."""
    new = ReplaceKernel(at.layer, at.head, at.where, _as_taps(taps))
    rest = tuple(one for one in plan_state.plan_items() if not _same_kernel(one.intervention, at))
    plan_state.change((*rest, plan_state.Listed(new)))


def _reset(at: OfKernel) -> None:
    plan_state.change(tuple(one for one in plan_state.plan_items() if not _same_kernel(one.intervention, at)))


PLACES: dict[interventions.KernelPlace, str] = {
    "pre": "kernel before the softmax",
    "post": "kernel after the softmax",
}
MIXES: dict[interventions.MixingPlace, str] = {
    "head_pre": "head mixing before the softmax",
    "head_post": "head mixing after the softmax",
}
Make = Callable[[], Intervention]


def draw_plan(page: Page, selected: Selected) -> None:
    """History buttons, the list, and Add."""
    _draw_history()
    config = page.model.config
    for index, one in enumerate(plan.plan_items()):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False):
            with st.container():
                draw_switch(index, one, page.numbering, "list")
            st.button(
                "",
                icon=":material/close:",
                key=f"plan.x.{index}",
                help="Remove",
                on_click=plan.remove,
                args=(index,),
            )
        if isinstance(one.intervention, ScaleTowardsIdentity):
            _draw_strength(index, one.intervention)
        for problem in one.intervention.problems(config):
            st.warning(plain(f"Not done: {problem}."))
    if len(to_address(plan.plan_items())) > MAX_CHARACTERS:
        caption("This plan is too long for the link; what you copy holds the rest of the page.")
    _draw_add(page, selected)


def _draw_history() -> None:
    history = plan.history()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Plan**", width="content")
        st.button(
            "",
            icon=":material/undo:",
            key="plan.undo",
            help="Undo",
            disabled=not history.past,
            on_click=plan.undo,
        )
        st.button(
            "",
            icon=":material/redo:",
            key="plan.redo",
            help="Redo",
            disabled=not history.future,
            on_click=plan.redo,
        )
        st.button("Remove all", key="plan.clear", disabled=not history.now, on_click=plan.clear)


def _draw_strength(index: int, one: ScaleTowardsIdentity) -> None:
    key = f"plan.strength.{index}"

    def take() -> None:
        plan.put(index, replace(one, strength=st.session_state[key] / 100))

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
        st.button("Add", key="plan.add", icon=":material/add:", on_click=lambda: plan.add(found[chosen]()))


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
            found[row] = partial(interventions.MixingToIdentity, layer, mix, head)
            found[whole] = partial(interventions.MixingToIdentity, layer, mix)
    found["head off"] = partial(interventions.AblateHead, layer, head)
    if config.mta.group_norm:
        found["group norm of this layer bypassed"] = partial(interventions.BypassGroupNorm, layer)
    if config.mta.gate:
        found["gate of this layer held open"] = partial(interventions.BypassGate, layer)
    return found


def _of_kernel(
    page: Page, layer: int, head: int, where: interventions.KernelPlace, words: str
) -> dict[str, Make]:
    config: ModelConfig = page.model.config
    at = (layer, head, where)
    found: dict[str, Make] = {
        f"{words}: to identity": partial(interventions.KernelToIdentity, *at),
        f"{words}: part of the way to identity": partial(ScaleTowardsIdentity, *at, 0.5),
        f"{words}: to zero": partial(interventions.KernelToZero, *at),
    }
    if not interventions.MirrorKernel(*at).problems(config):
        found[f"{words}: mirrored (earlier and later keys swapped)"] = partial(
            interventions.MirrorKernel, *at
        )
    template = nearest_template(page, interventions.KernelToIdentity(*at))
    if template is not None:
        found[f"{words}: to its nearest template, {template[0]}"] = partial(
            interventions.ReplaceKernel, *at, template[1]
        )
    for other in range(config.n_heads):
        if other != head:
            name = f"{words}: to that of {head_label(other, page.numbering)}"
            found[name] = partial(interventions.KernelFrom, *at, other)
    return found
