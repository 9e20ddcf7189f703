"""Over training: a layer's kernels at any snapshot of their history, and their scores as curves."""

from pathlib import Path
from typing import get_args

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.analysis.history import FROM_START, KernelCurves, kernel_curves
from mta_viz.analysis.kernels import WHERE, Place, layer_kernels
from mta_viz.checkpoint.kernel_history import HISTORY_FILE, KernelHistory, read_history
from mta_viz.checkpoint.run_history import read_run_history
from mta_viz.config import ModelConfig
from mta_viz.exporting.data import kernels_csv
from mta_viz.exporting.tables import curves_csv
from mta_viz.plots.history import training_curves
from mta_viz.plots.kernels import kernel_grid
from mta_viz.plots.mosaic import tap_limit
from mta_viz.ui import state
from mta_viz.ui.address import draw_address
from mta_viz.ui.atlas.layer import layers_with_kernels, no_kernels_text
from mta_viz.ui.atlas.model_kernels import weights_key
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_snapshot
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.steppers import pick_head, pick_layer
from mta_viz.ui.widgets import caption_with_save, chart, plain

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
    view = state.view()
    layer, head = view.layer if view.layer in layers else layers[0], min(view.head or 0, config.n_heads - 1)
    state.select(layer=layer, head=head)
    draw_address(f"{view.checkpoint} · {_name(page, layer, head)} · kernels over training")
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


def _name(page: Page, layer: int, head: int) -> str:
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
        (state.view().checkpoint, f"L{layer}", where, f"step{step}"),
        figure,
        lambda: kernels_csv(kernels),
        "training.kernels",
    )


def _draw_curves(page: Page, curves: KernelCurves, score: str, snapshot: int) -> None:
    view = state.view()
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
