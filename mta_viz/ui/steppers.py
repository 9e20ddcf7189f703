"""Pickers for layer, head, stage, query and key, each with a pair of keys that step along it."""

from collections.abc import Callable
from functools import partial

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

    _step("layer", layer, config.n_layers, label=label, shortcuts=("Up", "Down"), width=222)


def pick_head(config: ModelConfig, head: int, numbering: int) -> None:
    """Heads."""

    def label(index: int) -> str:
        return head_label(index, numbering)

    _step("head", head, config.n_heads, label=label, shortcuts=("Left", "Right"), width=182)


def _step(
    field: str, value: int, count: int, *, label: Callable[[int], str], shortcuts: tuple[str, str], width: int
) -> None:
    """A list between two arrows for the view's `field`, over 0..count-1; arrows stop at the ends."""

    def move(target: int) -> None:
        state.select(**{field: target})

    row = st.container(horizontal=True, wrap=False, width=width, gap="xsmall", vertical_alignment="bottom")
    with row:
        _arrow(field, value - 1, count, ":material/chevron_left:", shortcuts[0], move)
        state.put(field, value)
        st.selectbox(
            field.capitalize(),
            range(count),
            format_func=label,
            **state.kept(field, value, range(count), then=lambda: _take(field)),
        )
        _arrow(field, value + 1, count, ":material/chevron_right:", shortcuts[1], move)


def arrow(name: str, icon: str, shortcut: str, go: Callable[[], None] | None) -> None:
    """A button with a key of the keyboard that calls `go`; None: there is nothing that way."""
    st.button(
        icon, key=f"step.{name}.{shortcut}", shortcut=shortcut, disabled=go is None, on_click=go or _stay
    )


def _stay() -> None:
    """What a disabled arrow would do."""


def _arrow(
    field: str, target: int, count: int, icon: str, shortcut: str, move: Callable[[int], None]
) -> None:
    arrow(field, icon, shortcut, partial(move, target) if 0 <= target < count else None)


def _take(field: str) -> None:
    state.select(**{field: state.get(field)})


def pick_stage(config: ModelConfig, layer: int, stage: Stage) -> None:
    """The stages this layer computes, by their short names."""
    stages = layer_stages(config.kernels(layer))
    options = [one.value.key for one in stages]
    place = options.index(stage.value.key)

    def move(target: int) -> None:
        state.select(stage=options[target])

    state.put("stage", stage.value.key)
    with st.container(
        horizontal=True, wrap=False, width="content", gap="xsmall", vertical_alignment="bottom"
    ):
        _arrow("stage", place - 1, len(options), ":material/chevron_left:", "q", move)
        st.segmented_control(
            "Stage",
            options,
            required=True,
            format_func=lambda key: Stage.from_key(key).value.short,
            **state.kept("stage", options[0], options, then=lambda: _take("stage")),
        )
        _arrow("stage", place + 1, len(options), ":material/chevron_right:", "w", move)


def pick_position(field: str, position: int, count: int, shortcuts: tuple[str, str]) -> None:
    """A query or key by its position; a new query has its own largest key."""

    def move(target: int) -> None:
        go_to(**{field: target}, **({"key": None} if field == "query" else {}))

    row = st.container(horizontal=True, wrap=False, width=220, gap="xsmall", vertical_alignment="bottom")
    with row:
        _arrow(field, position - 1, count, ":material/chevron_left:", shortcuts[0], move)
        state.put(field, position)
        st.number_input(
            field.capitalize(),
            min_value=0,
            max_value=count - 1,
            step=1,
            **state.kept(field, position, then=lambda: move(state.get(field))),
        )
        _arrow(field, position + 1, count, ":material/chevron_right:", shortcuts[1], move)
