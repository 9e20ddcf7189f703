"""One layer's key-query kernels of all heads, and its head-mixing matrices, with their offsets.

Over training: a layer's kernels at any snapshot of their history, and their scores as curves.
"""

from pathlib import Path
from typing import get_args

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.analysis.kernels.kernels import WHERE, LayerKernelSet, MixPlace, Place, layer_kernels
from mta_viz.analysis.kernels.table import FROM_START, KernelCurves, kernel_curves
from mta_viz.checkpoint.history import HISTORY_FILE, KernelHistory, read_history, read_run_history
from mta_viz.config import ModelConfig
from mta_viz.exporting.data import curves_csv, kernels_csv
from mta_viz.plots.kernels.kernels import Scale, head_mixing, kernel_grid, training_curves
from mta_viz.plots.kernels.mosaic import tap_limit
from mta_viz.ui.kernels.model_kernels import weights_key
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_snapshot, pick_head, pick_layer
from mta_viz.ui.shell.widgets import (
    caption,
    caption_with_save,
    chart,
    head_label,
    layer_label,
    layer_list,
    plain,
)

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
    draw_address(
        f"{state.selection().checkpoint} · {layer_label(layer, page.numbering)} · kernels of all heads"
    )
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
    chosen = state.selection().layer
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
    return state.selection().checkpoint, f"L{layer}", "kernels", where


SCORES = (
    *("distance_from_identity", FROM_START, "energy_off_identity", "diagonal", "induction", "anti_diagonal"),
    *("priming", "smoothing", "edge_first", "edge_last", "dominant_share"),
)
NO_HISTORY = (
    f"This checkpoint came without {HISTORY_FILE} and is no step of a run with several, so nothing is known "
    "of its kernels earlier in training. Open a run folder (checkpoints/0000010000/ and so on), or train "
    "with `python -m mta_viz train`, which writes that file beside the weights."
)
FOREIGN = (
    f"{HISTORY_FILE} does not hold this model's kernels: it belongs to another checkpoint, or these "
    "weights were trained on. It is not drawn."
)


def draw_training(page: Page) -> None:
    """Pickers and slider, the kernels at that step, the curves."""
    config, layers = page.model.config, layers_with_kernels(page.model.config)
    history = _history(page)
    if not layers or history is None:
        st.info(plain(NO_HISTORY if layers else no_kernels_text(config)))
        return
    if not remember(lambda: history.holds(page.model.state_dict()), "history fits", *weights_key(page)):
        st.warning(plain(FOREIGN))
        return
    view = state.selection()
    layer, head = view.layer if view.layer in layers else layers[0], min(view.head or 0, config.n_heads - 1)
    state.select(layer=layer, head=head)
    draw_address(f"{view.checkpoint} · {_training_name(page, layer, head)} · kernels over training")
    where, score, snapshot = _pick(page, history, layer, head)
    _draw_kernels(page, history, layer, where, snapshot)
    curves = remember(
        lambda: kernel_curves(history, config, layer, where), "curves", *weights_key(page), layer, where
    )
    if curves is not None:
        _draw_curves(page, curves, score, snapshot)


def _history(page: Page) -> KernelHistory | None:
    """The file beside the weights, else the steps of the run they are one of."""
    source, config = page.model.source, page.model.config
    if source is None:
        return None

    def read() -> KernelHistory | None:
        return read_history(source.path, config) or _from_run(source.path, config)

    return remember(read, "history", *weights_key(page))


def _from_run(folder: Path, config: ModelConfig) -> KernelHistory | None:
    bar = st.empty()
    try:
        return read_run_history(folder, config, lambda done: _tell(bar, done))
    finally:
        bar.empty()


def _tell(bar: DeltaGenerator, done: float) -> None:
    bar.progress(done, "Reading the kernels of every step of this run")


def _training_name(page: Page, layer: int, head: int) -> str:
    return f"{layer_label(layer, page.numbering)} {head_label(head, page.numbering)}"


def _pick(page: Page, history: KernelHistory, layer: int, head: int) -> tuple[Place, str, int]:
    config, shapes = page.model.config, page.model.config.kernels(layer)
    places = [place for place in get_args(Place) if getattr(shapes, place)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        pick_head(config, head, page.numbering)
        where: Place = st.segmented_control(
            "Softmax", places, required=True, **state.kept("training_where", places[0], places)
        )
        score = st.selectbox(
            "Score", SCORES, width=220, format_func=lambda name: name.replace("_", " "),
            **state.kept("training_score", SCORES[0], SCORES),
        )  # fmt: skip
    last = history.steps[-1]
    step = st.select_slider(
        "Training step",
        history.steps,
        format_func=lambda step: f"{step:,}",
        help="Drag it, or move it with the arrow keys.",
        **state.kept("training_step", last, history.steps),
    )
    return where, score, history.steps.index(step)


def _draw_kernels(page: Page, history: KernelHistory, layer: int, where: Place, snapshot: int) -> None:
    """The kernels at one snapshot, on the colours of the largest tap they ever had."""
    config, step = page.model.config, history.steps[snapshot]
    kernels = layer_kernels(history.at(snapshot), config, layer)
    offsets = kernels.offsets(where)
    if offsets is None:
        return
    every = history.kernels[f"blocks.{layer}.attn.kernel_{where}"]
    limit = remember(
        lambda: tap_limit(every.flatten(0, 1).numpy(), offsets.own), "history limit", *weights_key(page),
        layer, where,
    )  # fmt: skip
    figure = remember(
        lambda: kernel_grid(kernels, where, layer=layer, numbering_from=page.numbering, limit=limit),
        "history grid", *weights_key(page), layer, where, snapshot, page.numbering,
    )  # fmt: skip
    chart(figure, f"training.{where}", alt=f"Kernels of all heads at step {step}")
    caption_with_save(
        f"The kernels {WHERE[where]} after {step:,} training steps. The colours mean the same at every step.",
        (state.selection().checkpoint, f"L{layer}", where, f"step{step}"),
        figure,
        lambda: kernels_csv(kernels),
        "training.kernels",
    )


def _draw_curves(page: Page, curves: KernelCurves, score: str, snapshot: int) -> None:
    view = state.selection()
    layer, head, words = view.layer or 0, view.head or 0, score.replace("_", " ")
    figure = training_curves(
        curves,
        score,
        head=head,
        snapshot=snapshot,
        title=f"{layer_label(layer, page.numbering)}: {words}",
        numbering_from=page.numbering,
    )
    name = f"training.curves.{view.checkpoint}.{layer}.{score}.{head}.{snapshot}"  # an old click stays old
    chart(figure, name, on_snapshot(curves.steps), alt=f"{words} of every head over training")
    caption_with_save(
        f"One line a head, {head_label(head, page.numbering)} thick; hover names the others, a click chooses "
        "head and step. Dotted: the step chosen above. A line has a gap where the score means nothing.",
        (view.checkpoint, f"L{layer}", "training"),
        figure,
        lambda: curves_csv(curves),
        "training.curves",
    )
