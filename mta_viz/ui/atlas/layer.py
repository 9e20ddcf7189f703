"""One layer's key-query kernels of all heads, and its head-mixing matrices, with their offsets."""

import streamlit as st

from mta_viz.analysis.kernels import WHERE, LayerKernelSet, MixPlace, Place, layer_kernels
from mta_viz.config import ModelConfig
from mta_viz.exporting.data import kernels_csv
from mta_viz.plots.kernels import Scale, head_mixing, kernel_grid
from mta_viz.ui import state
from mta_viz.ui.address import draw_address
from mta_viz.ui.cache import remember
from mta_viz.ui.numbering import layer_label, layer_list
from mta_viz.ui.open_page import Page
from mta_viz.ui.registry import VARIANTS
from mta_viz.ui.steppers import pick_layer
from mta_viz.ui.widgets import caption, caption_with_save, chart, plain

READING = (
    "Each kernel reads the cells around the one it is read for: rows are earlier queries (0 = now), columns "
    "are keys to its left and right. The own tap is framed."
)


def draw_layer(page: Page) -> None:
    """The layer's pickers, kernels and matrices."""
    config = page.model.config
    layers = layers_with_kernels(config)
    if not any(config.kernels(layer).any for layer in range(config.n_layers)):
        st.info(plain(no_kernels_text(config)))
        return
    layer = _layer(config, layers)
    state.select(layer=layer)
    draw_address(f"{state.view().checkpoint} · {layer_label(layer, page.numbering)} · kernels of all heads")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        scale: Scale = st.segmented_control(
            "Scale",
            ("shared", "own"),
            required=True,
            help="shared: one colour scale for all heads; own: each head its own.",
            **state.kept("kernel_scale", "shared", ("shared", "own")),
        )
    weights = page.model.state_dict()
    kernels = remember(lambda: layer_kernels(weights, config, layer), "kernels", page.key, layer)
    _draw_place(page, layer, kernels, "pre", scale)
    _draw_mixing(page, layer, kernels, "head_pre")
    _draw_place(page, layer, kernels, "post", scale)
    _draw_mixing(page, layer, kernels, "head_post")


def layers_with_kernels(config: ModelConfig) -> list[int]:
    """Layers with a key-query kernel before or after the softmax."""
    shapes = {layer: config.kernels(layer) for layer in range(config.n_layers)}
    return [layer for layer, kernels in shapes.items() if kernels.pre or kernels.post]


def no_kernels_text(config: ModelConfig) -> str:
    """What to say of a model with neither kernels nor head mixing."""
    return (
        f"This checkpoint has no key-query kernels (plain {VARIANTS[config.variant]}). Head mixing: none. "
        "Choose another checkpoint to see kernels."
    )


def _layer(config: ModelConfig, layers: list[int]) -> int:
    """The chosen layer; without a choice the first that has kernels."""
    chosen = state.view().layer
    if chosen is not None and chosen < config.n_layers:
        return chosen
    return layers[0] if layers else 0


def _draw_place(page: Page, layer: int, kernels: LayerKernelSet, where: Place, scale: Scale) -> None:
    taps = kernels.taps(where)
    if taps is None:
        caption(missing_text(page, layer, where))
        return
    figure = remember(
        lambda: kernel_grid(kernels, where, scale=scale, layer=layer, numbering_from=page.numbering),
        "kernel grid", page.key, layer, where, scale, page.numbering,
    )  # fmt: skip
    chart(figure, f"kernels.{where}", alt=f"Kernels of all heads {WHERE[where]}")
    words = f"{taps.shape[0]} kernels of {taps.shape[1]} queries x {taps.shape[2]} keys. {READING}"
    caption_with_save(words, _name(layer, where), figure, lambda: kernels_csv(kernels), where)


def missing_text(page: Page, layer: int, where: Place) -> str:
    """What to say of a layer without such kernels: which layers have some."""
    config = page.model.config
    having = [at for at in range(config.n_layers) if getattr(config.kernels(at), where)]
    others = f"Layers that have one: {layer_list(having, page.numbering)}." if having else "No layer has one."
    return f"{layer_label(layer, page.numbering)} has no key-query kernel {WHERE[where]}. {others}"


def _draw_mixing(page: Page, layer: int, kernels: LayerKernelSet, where: MixPlace) -> None:
    matrix = kernels.mixing(where)
    if matrix is None:
        caption(f"Heads are not mixed {WHERE[where]} in this model.")
        return
    figure = remember(
        lambda: head_mixing(kernels, where, layer=layer, numbering_from=page.numbering),
        "head mixing", page.key, layer, where, page.numbering,
    )  # fmt: skip
    chart(figure, f"mixing.{where}", alt=f"Head mixing {WHERE[where]}: target heads down, sources across")
    words = "Rows: what this target head receives; columns: the source heads it takes from."
    caption_with_save(words, _name(layer, where), figure, lambda: kernels_csv(kernels), where)


def _name(layer: int, where: str) -> tuple[object, ...]:
    return state.view().checkpoint, f"L{layer}", "kernels", where
