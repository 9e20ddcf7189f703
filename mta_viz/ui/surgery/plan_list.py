"""The plan as a list with switches and sliders; what can be added for a head; a kernel's taps as a grid."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, WHERE, Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import round_to_template
from mta_viz.config import KernelPlace, ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model import interventions
from mta_viz.model.editing import edited
from mta_viz.model.interventions import Intervention, OfKernel
from mta_viz.model.plans import MAX_CHARACTERS, Listed, to_address
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.printed import head_label, layer_label
from mta_viz.ui.shell import cache, plan, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.plan import draw_switch, key_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, chart, icon_button, menu, plain

GRID_PX, COLUMN_PX, PICTURE_PX = 604, 46, 440
PLACE, ACTION = Setting[KernelPlace]("edited place", "pre"), Setting("action", "")
Make = Callable[[], Intervention]


def draw_plan(page: Page, selected: Selected) -> None:
    """History buttons, the list, and Add."""
    history = plan.history()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Plan**", width="content")
        icon_button("Undo", "undo", "plan.undo", plan.undo, disabled=not history.past)
        icon_button("Redo", "redo", "plan.redo", plan.redo, disabled=not history.future)
        st.button("Remove all", key="plan.clear", disabled=not history.now, on_click=plan.change, args=((),))
    for index, item in enumerate(plan.plan_items()):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False):
            with st.container():
                draw_switch(index, item, page.numbering, "list")
            icon_button("Remove", "close", f"plan.x.{index}", partial(plan.splice, index))
        if isinstance(item.intervention, interventions.ScaleTowardsIdentity):
            _draw_strength(index, item, item.intervention)
        for problem in item.intervention.problems(page.model.config):
            st.warning(plain(f"Not done: {problem}."))
    if len(to_address(plan.plan_items())) > MAX_CHARACTERS:
        caption("This plan is too long for the link; what you copy holds the rest of the page.")
    _draw_add(page, selected)


def _draw_strength(index: int, item: Listed, intervention: interventions.ScaleTowardsIdentity) -> None:
    strength = round(100 * intervention.strength)
    key = state.borrow(f"plan.strength.{index}", strength)

    def take(percent: int) -> None:
        plan.splice(index, replace(item, intervention=replace(intervention, strength=percent / 100)))

    words = "Strength: 0 % as learned, 100 % identity"
    st.slider(words, 0, 100, strength, step=5, format="%d %%", key=key, on_change=state.on_choice(key, take))


def _draw_add(page: Page, selected: Selected) -> None:
    offered = actions(page, selected.layer, selected.head)
    names = list(offered)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = menu("Add, for the head chosen above", names, ACTION, default=names[0])
        icon = ":material/add:"
        st.button("Add", key="plan.add", icon=icon, on_click=lambda: plan.add(offered[chosen]()))


def actions(page: Page, layer: int, head: int) -> dict[str, Make]:
    """What can be done at a head of this model, by its words."""
    config, offered = page.model.config, dict[str, Make]()
    kernels = config.kernels(layer)
    for where in KEY_QUERY:
        if getattr(kernels, where):
            offered |= _of_kernel(page, layer, head, where, f"kernel {WHERE[where]}")
    for mix in MIXING:
        if getattr(kernels, mix):
            words = f"head mixing {WHERE[mix]}"
            to_identity = partial(interventions.MixingToIdentity, layer, mix)
            own_weight = partial(interventions.MixingToOwnWeight, layer, mix)
            offered[f"{words}: this head's row to identity"] = partial(to_identity, head)
            offered[f"{words}: this head's row to its own weight only"] = partial(own_weight, head)
            offered[f"{words}: the whole layer to identity"] = to_identity
    offered["head off"] = partial(interventions.AblateHead, layer, head)
    if config.mta.group_norm:
        offered["group norm of this layer bypassed"] = partial(interventions.BypassGroupNorm, layer)
    if config.mta.gate:
        offered["gate of this layer held open"] = partial(interventions.BypassGate, layer)
    return offered


def _of_kernel(page: Page, layer: int, head: int, where: KernelPlace, words: str) -> dict[str, Make]:
    config: ModelConfig = page.model.config
    at = (layer, head, where)
    offered: dict[str, Make] = {
        f"{words}: to identity": partial(interventions.KernelToIdentity, *at),
        f"{words}: to its own tap only (gain and sign stay)": partial(interventions.KernelToOwnTap, *at),
        f"{words}: part of the way to identity": partial(interventions.ScaleTowardsIdentity, *at, 0.5),
        f"{words}: to zero": partial(interventions.KernelToZero, *at),
    }
    if not interventions.MirrorKernel(*at).problems(config):
        mirrored = f"{words}: mirrored (earlier and later keys swapped)"
        offered[mirrored] = partial(interventions.MirrorKernel, *at)
    template = _nearest_template(_current(page, interventions.KernelToIdentity(*at)))
    if template is not None:
        rounded = f"{words}: to its nearest template, {template[0]}"
        offered[rounded] = partial(interventions.ReplaceKernel, *at, template[1])
    for other in range(config.n_heads):
        if other != head:
            name = f"{words}: to that of {head_label(other, page.numbering)}"
            offered[name] = partial(interventions.KernelFrom, *at, other)
    return offered


@dataclass(frozen=True)
class _Kernel:
    at: OfKernel
    taps: np.ndarray
    offsets: Offsets

    @property
    def key(self) -> str:
        """Equal only for equal taps."""
        return key_of(self.taps.tolist(), self.offsets)


def draw_taps(page: Page, selected: Selected) -> None:
    """The kernel of the chosen head: its grid, the buttons, its picture; says where there is none."""
    config = page.model.config
    places = [where for where in KEY_QUERY if getattr(config.kernels(selected.layer), where)]
    if not places:
        there = [at for at in range(config.n_layers) if config.kernels(at).pre or config.kernels(at).post]
        layers = [layer_label(at, page.numbering) for at in there]
        having = f" Layers with one: {', '.join(layers)}." if layers else ""
        st.info(plain(f"This layer has no key-query kernel.{having}"))
        return
    where = bar("Kernel", {place: WHERE[place] for place in places}, PLACE, default=places[0])
    kernel = _current(page, interventions.ReplaceKernel(selected.layer, selected.head, where, ((0.0,),)))
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=GRID_PX):
            _draw_grid(kernel)
            words = "Take out all that the plan does to this kernel"
            st.button("Reset", key="taps.reset", help=words, on_click=lambda: plan.change(_others(kernel.at)))
        with st.container(width=PICTURE_PX):
            draw = partial(kernel_picture, kernel.taps, kernel.offsets, width=PICTURE_PX)
            figure = cache.remember(draw, "edited", kernel.key)
            chart(figure, f"edited.{kernel.key}", alt="The kernel's taps as the plan leaves them")
    caption(
        "Rows: the query's offset (0 = now), columns: the key's. Change a number and the plan gets these "
        "taps. A kernel cannot be transposed: its rows reach back only, its columns to both sides. The "
        "nearest to it, mirrored, and its nearest template are among what can be added to the plan."
    )


def _nearest_template(kernel: _Kernel) -> tuple[str, interventions.Taps] | None:
    try:
        name, taps = round_to_template(kernel.taps, kernel.offsets)
    except ConfigError:
        return None
    return name, _as_taps(taps)


def _current(page: Page, at: OfKernel) -> _Kernel:
    """With what the plan's interventions on this layer's kernels make of it."""
    config = page.model.config
    acting = plan.current_plan(config)
    own = tuple(part for part in acting if isinstance(part, OfKernel) and part.layer == at.layer)

    def read() -> np.ndarray:
        model = edited(page.model, own) if own else page.model
        return model.state_dict()[f"blocks.{at.layer}.attn.kernel_{at.where}"][at.head].double().cpu().numpy()

    taps = cache.remember(read, "current taps", page.key, at.layer, at.head, at.where, own)
    return _Kernel(at, taps, kernel_offsets(config, *taps.shape))


def _as_taps(taps: np.ndarray) -> interventions.Taps:
    return tuple(map(tuple, np.asarray(taps, np.float32).tolist()))


@dataclass
class _Grid:
    """The grid on the page: which one it is, the taps it began with, and of which kernel it shows what."""

    turn: int = 0
    begun: np.ndarray = field(default_factory=lambda: np.zeros((1, 1)))
    shows: tuple[OfKernel, str] | None = None

    @property
    def key(self) -> str:
        """Of the widget."""
        return f"taps.{self.turn}"


def _grid_of(kernel: _Kernel) -> _Grid:
    """The one that is there, with what was typed in it; another for what came about elsewhere.

    To replace it after each number would lose the next one that is typed meanwhile.
    """
    grid = state.part(_Grid)
    if grid.shows != (kernel.at, kernel.key) or state.widget_value(grid.key) is None:
        grid = _Grid(grid.turn + 1, kernel.taps, (kernel.at, kernel.key))
        state.session().parts[_Grid] = grid
    return grid


def _draw_grid(kernel: _Kernel) -> None:
    import pandas as pd  # here: the first map need not wait for it

    grid = _grid_of(kernel)
    columns = [f"{offset:+d}" if offset else "0" for offset in kernel.offsets.key]
    rows = [f"{offset}" if offset else "0 now" for offset in kernel.offsets.query]
    column = partial(st.column_config.NumberColumn, format="%.3f", width=COLUMN_PX)

    def take() -> None:
        changed = grid.begun.copy()
        for row, values in state.widget_value(grid.key)["edited_rows"].items():
            for name, value in values.items():
                if name in columns and value is not None and np.isfinite(value):
                    changed[int(row), columns.index(name)] = value
        taps = _as_taps(changed)
        grid.shows = (kernel.at, replace(kernel, taps=np.array(taps)).key)
        _set_taps(kernel.at, taps)

    shown = pd.DataFrame(grid.begun, index=pd.Index(rows, name="query"), columns=columns)
    look: dict[str, Any] = {"num_rows": "fixed", "column_config": {name: column(name) for name in columns}}
    st.data_editor(shown, key=grid.key, on_change=take, **look)


def _others(at: OfKernel) -> tuple[Listed, ...]:
    """What of the plan is not about this kernel."""
    place = (at.layer, at.head, at.where)
    return tuple(
        item
        for item in plan.plan_items()
        if not isinstance(item.intervention, OfKernel)
        or (item.intervention.layer, item.intervention.head, item.intervention.where) != place
    )


def _set_taps(at: OfKernel, taps: interventions.Taps) -> None:
    """In place of all that the plan did to this kernel: the grid showed its outcome."""
    new = interventions.ReplaceKernel(at.layer, at.head, at.where, taps)
    plan.change((*_others(at), Listed(new)))
