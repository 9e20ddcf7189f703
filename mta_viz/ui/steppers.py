"""Pickers for layer, head, stage, query and key."""

from collections.abc import Callable

import streamlit as st

from mta_viz.config import ModelConfig
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.ui import state
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.selection import go_to


def pick_layer(config: ModelConfig, layer: int, numbering: int) -> None:
    """Layers, those with key-query kernels marked."""

    def label(index: int) -> str:
        kernels = config.kernels(index)
        return layer_label(index, numbering) + (" · kernel" if kernels.pre or kernels.post else "")

    _step("layer", layer, config.n_layers, label=label, shortcuts=("Up", "Down"), width=250)


def pick_head(config: ModelConfig, head: int, numbering: int) -> None:
    """Heads."""

    def label(index: int) -> str:
        return head_label(index, numbering)

    _step("head", head, config.n_heads, label=label, shortcuts=("Left", "Right"), width=200)


def _step(
    field: str, value: int, count: int, *, label: Callable[[int], str], shortcuts: tuple[str, str], width: int
) -> None:
    """A list between two arrows for the view's `field`, over 0..count-1; arrows stop at the ends."""
    row = st.container(horizontal=True, wrap=False, width=width, gap="xsmall", vertical_alignment="bottom")
    with row:
        _arrow(field, value - 1, count, ":material/chevron_left:", shortcuts[0])
        state.put(field, value)
        st.selectbox(
            field.capitalize(),
            range(count),
            format_func=label,
            **state.kept(field, value, range(count), then=lambda: _take(field)),
        )
        _arrow(field, value + 1, count, ":material/chevron_right:", shortcuts[1])


def arrow(name: str, icon: str, shortcut: str, target: dict[str, object] | None) -> None:
    """A button with a key of the keyboard that selects `target`, parts of the view; None: nothing there."""
    st.button(
        icon,
        key=f"step.{name}.{shortcut}",
        shortcut=shortcut,
        disabled=target is None,
        on_click=lambda: state.select(**(target or {})),
    )


def _arrow(field: str, target: int, count: int, icon: str, shortcut: str) -> None:
    arrow(field, icon, shortcut, {field: target} if 0 <= target < count else None)


def _take(field: str) -> None:
    state.select(**{field: state.get(field)})


def pick_stage(config: ModelConfig, layer: int, stage: Stage) -> None:
    """The stages this layer computes, by their short names."""
    stages = layer_stages(config.kernels(layer))
    options = [one.value.key for one in stages]
    state.put("stage", stage.value.key)
    st.segmented_control(
        "Stage",
        options,
        required=True,
        format_func=lambda key: Stage.from_key(key).value.short,
        **state.kept("stage", options[0], options, then=lambda: _take("stage")),
    )


def pick_position(field: str, position: int, count: int) -> None:
    """A query or key by its position; a new query has its own largest key."""

    def take() -> None:
        go_to(**{field: state.get(field)}, **({"key": None} if field == "query" else {}))

    state.put(field, position)
    st.number_input(
        field.capitalize(), min_value=0, max_value=count - 1, step=1, **state.kept(field, position, then=take)
    )
