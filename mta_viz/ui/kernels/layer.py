"""One layer's kernels of all heads with its head mixing; and over training, at any snapshot and as curves."""

import streamlit as st

from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE, MixPlace, Place, layers_having
from mta_viz.config import ModelConfig
from mta_viz.figures.base import Source
from mta_viz.figures.kernels.layer import (
    TRAINING_SCORES,
    LayerKernels,
    LayerMixing,
    NoHistory,
    TrainingCurves,
    TrainingKernels,
    training_history,
)
from mta_viz.plots.kernels.mosaic import Scale
from mta_viz.ui.kernels.model import draw_scale, has_kernels, missing_text, no_kernels_text, weights_source
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import pair_of, pick_head, pick_layer
from mta_viz.ui.shell.show import show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_name, layer_label, plain

WHERE_TRAINED = Setting[Place]("training_where", "pre")
SCORE = Setting("training_score", TRAINING_SCORES[0])
STEP = Setting("training_step", 0)


def draw_layer(page: Page) -> None:
    """The layer's pickers, kernels and matrices."""
    config = page.model.config
    if not has_kernels(config):
        st.info(plain(no_kernels_text(config)))
        return
    layer = _layer(config)
    name = layer_label(layer, page.numbering)
    draw_address(f"{state.selection().checkpoint} · {name} · kernels of all heads")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        scale = draw_scale(labelled=True)
    for where, mixing in zip(KEY_QUERY, ("head_pre", "head_post"), strict=True):
        _draw_place(page, layer, where, scale)
        _draw_mixing(page, layer, "head_pre" if mixing == "head_pre" else "head_post")


def layers_with_kernels(config: ModelConfig) -> list[int]:
    """Layers with a key-query kernel before or after the softmax."""
    return sorted({layer for place in KEY_QUERY for layer in layers_having(config, place)})


def _layer(config: ModelConfig) -> int:
    """The chosen layer; without a choice the first that has kernels."""
    layer = state.selection().layer
    if layer is None or layer >= config.n_layers:
        layer = next(iter(layers_with_kernels(config)), 0)
    state.select(layer=layer)
    return layer


def _draw_place(page: Page, layer: int, where: Place, scale: Scale) -> None:
    if layer not in layers_having(page.model.config, where):
        caption(missing_text(page, layer, where))
        return
    show(weights_source(page), LayerKernels(layer, where, scale), widget=f"kernels.{where}")


def _draw_mixing(page: Page, layer: int, where: MixPlace) -> None:
    if layer not in layers_having(page.model.config, where):
        caption(f"Heads are not mixed {WHERE[where]} in this model.")
        return
    show(weights_source(page), LayerMixing(layer, where), widget=f"mixing.{where}")


def draw_training(page: Page) -> None:
    """Pickers and slider, the kernels at that step, the curves."""
    layers, source = layers_with_kernels(page.model.config), weights_source(page)
    if not layers:
        st.info(plain(no_kernels_text(page.model.config)))
        return
    try:
        steps = _history_steps(source)
    except NoHistory as reason:
        st.info(plain(str(reason)))
        return
    view = state.selection()
    layer = view.layer if view.layer in layers else layers[0]
    head = min(view.head or 0, page.model.config.n_heads - 1)
    state.select(layer=layer, head=head)
    draw_address(f"{view.checkpoint} · {head_name(layer, head, page.numbering)} · kernels over training")
    where, score, step = _pick(page, steps, layer, head)
    show(source, TrainingKernels(layer, where, step), widget=f"training.{where}")
    curves = TrainingCurves(layer, where, score, head, step)
    name = f"training.curves.{view.checkpoint}.{layer}.{score}.{head}.{step}"  # an old click stays old

    def choose(widget: str) -> None:
        """A click on a curve selects its head and moves the slider to its step."""
        place = pair_of(widget)
        if place is not None and 0 <= place[1] < len(steps):
            state.select(head=place[0])
            STEP.put(steps[place[1]])

    show(source, curves, choose, widget=name)


def _history_steps(source: Source) -> tuple[int, ...]:
    """Steps of the snapshots, which may take a while to read for a run folder. Raises NoHistory."""
    with st.spinner("Reading the kernels of every step of this run"):
        return training_history(source).steps


def _pick(page: Page, steps: tuple[int, ...], layer: int, head: int) -> tuple[Place, str, int]:
    config = page.model.config
    places = [place for place in KEY_QUERY if layer in layers_having(config, place)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        pick_head(config, head, page.numbering)
        where: Place = st.segmented_control(
            "Softmax", places, required=True, **WHERE_TRAINED.widget(places, default=places[0])
        )
        score = st.selectbox(
            "Score",
            TRAINING_SCORES,
            width=220,
            format_func=lambda name: name.replace("_", " "),
            **SCORE.widget(TRAINING_SCORES),
        )
    step = st.select_slider(
        "Training step",
        steps,
        format_func=lambda step: f"{step:,}",
        help="Drag it, or move it with the arrow keys.",
        **STEP.widget(steps, default=steps[-1]),
    )
    return where, score, step
