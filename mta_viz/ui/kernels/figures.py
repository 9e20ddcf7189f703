"""Paper figures: the paper's pictures of kernels for the page's model, at the size they are printed.

Owns the pickers and the preview; the map's own pickers are `figures_map.py`'s.

The pickers of the figure with a kernel beside its map: which prompt, which tokens of it, which head.
"""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.kernel_map import (
    KernelBesideMap,
    Preset,
    asked_span,
    kernel_beside_map,
    needle_sample,
    question_span,
    strongest_head,
)
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.kernels.kernels import (
    KernelId,
    MixPlace,
    Place,
    kernel_places,
    layer_picture,
    layers_having,
    mixing_places,
)
from mta_viz.analysis.kernels.mixing import mixing_by_layer, mixing_over_layers
from mta_viz.errors import MtaVizError
from mta_viz.exporting.paper import PaperFigure, Result, paper_figure, span_words
from mta_viz.plots.kernels.figures import PX_PER_MM, WIDTH_MM, Width
from mta_viz.ui.attention.spans import spans_of
from mta_viz.ui.kernels.layer import missing_text
from mta_viz.ui.kernels.model_kernels import SHORT, draw_all_kernels, select_kernel
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import pick_head, pick_layer
from mta_viz.ui.shell.shown import Shown
from mta_viz.ui.shell.sidebar import use_prompt
from mta_viz.ui.shell.widgets import caption, chart, head_label, layer_label, plain, save_button

NAME_A_SPAN = (
    "This prompt has no named span to cut the map to. On the Attention page find a text in it and name it; "
    "its keys are then offered here"
)


def kernel_and_map(page: Page) -> KernelBesideMap | None:
    """The chosen kernel with its map on the prompt that was run; None: it was said what is missing."""
    places = kernel_places(page.model.config)
    if page.trace is None:
        st.info(plain(page.empty))
        _offer_needles(page)
        return None
    spans = spans_of(page)
    if not spans:
        st.info(plain(f"{NAME_A_SPAN}."))
        _offer_needles(page)
        return None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        where: Place = pick_place("figure_where", places)
        rows, keys = _pick_spans(page, spans, where)
    strongest = remember(
        lambda: strongest_head(page.trace, rows, keys, where), "strongest head", page.key, rows, keys, where
    )
    layer, head = _pick_head(page, where, strongest, keys)
    if layer not in layers_having(page.model.config, where):
        st.info(plain(missing_text(page, layer, where)))
        return None
    kernel = KernelId(layer, head, where)
    return remember(
        lambda: kernel_beside_map(page.trace, kernel, rows, keys),
        "kernel and map",
        page.key,
        kernel,
        rows,
        keys,
    )


def pick_place(name: str, places: tuple[Place, ...] | tuple[MixPlace, ...]) -> Any:
    """Before or after the softmax, as far as the model has it."""
    return st.segmented_control(
        "Softmax",
        places,
        required=True,
        format_func=lambda place: SHORT[place],
        **state.kept(name, places[0], places),
    )


def _pick_spans(page: Page, spans: Sequence[Span], where: Place) -> tuple[Span, Span]:
    """Rows and keys: at first the question and the asked needle, or what comes closest to them."""
    mta = page.model.config.mta
    n_queries, _ = (mta.pre_kernel if where == "pre" else mta.post_kernel) or (1, 1)
    last = question_span(spans, len(page.trace.tokens), n_queries)
    rows = {span_words(span): span for span in (last, *spans)}
    keys = {span_words(span): span for span in spans}
    first = span_words(asked_span(spans) or spans[0])
    chosen_rows = st.selectbox(
        "Rows (queries)", list(rows), width=280, **state.kept("figure_rows", span_words(last), list(rows))
    )
    chosen_keys = st.selectbox(
        "Columns (keys)", list(keys), width=280, **state.kept("figure_keys", first, list(keys))
    )
    return rows[chosen_rows], keys[chosen_keys]


def _pick_head(page: Page, where: Place, strongest: tuple[int, int], keys: Span) -> tuple[int, int]:
    """The selected head, where this page was given one; else the one that attends most to the keys."""
    config, view = page.model.config, state.selection()
    of = state.get("figure head", (page.key, where) if _opened_with_head() else None)
    chosen = of == (page.key, where) and view.layer is not None
    layer, head = (view.layer or 0, view.head or 0) if chosen else strongest
    layer, head = min(layer, config.n_layers - 1), min(head, config.n_heads - 1)
    state.put("figure head", (page.key, where))
    state.select(layer=layer, head=head)
    name = f"{layer_label(strongest[0], page.numbering)} {head_label(strongest[1], page.numbering)}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        pick_head(config, head, page.numbering)
        if (layer, head) != strongest:
            target = KernelId(*strongest, where)
            st.button(f"Go to {name}", key="figure.strongest", on_click=select_kernel, args=(target,))
    caption(
        f"Of all heads with such a kernel {name} attends most to “{keys.name}” from the last of the rows."
    )
    return layer, head


def _opened_with_head() -> bool:
    """Whether the address this session was opened with names the head of this figure."""
    opened = state.get("opened with", {})
    return opened.get("figure") == "kernel-map" and {"l", "h"} <= set(opened)


def _offer_needles(page: Page) -> None:
    """A button that runs a prompt of the needle task, if the model can be given one."""
    if page.model.kernels_only:  # it was said that no prompt can be run
        return
    try:
        sample = remember(lambda: needle_sample(page.model), "needle sample", page.key)
    except MtaVizError as error:
        caption(f"The needle task does not fit this model: {str(error).rstrip('.')}.")
        return
    st.button(
        f"Run a needle prompt, {len(sample.tokens)} tokens",
        key="figure.needles",
        on_click=use_prompt,
        args=(sample.tokens.text,),
        help="Four needles and a question about one of them; it takes the place of the prompt at the left.",
    )


NAMES: dict[Preset, str] = {
    "kernels": "Kernels of a layer",
    "kernel-map": "Kernel and map",
    "head-kernels": "Head mixing",
    "head-diagonal": "Mean diagonal",
    "head-ratio": "Off-diagonal ratio",
}


def draw_figures(page: Page) -> None:
    """The bar of figures, this figure's pickers, the figure, its caption and its files."""
    presets = list(NAMES)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        preset: Preset = st.segmented_control(
            "Figure",
            presets,
            required=True,
            format_func=lambda one: NAMES[one],
            **state.kept("figure", presets[0], presets),
        )
        width: Width = st.segmented_control(
            "Width",
            list(WIDTH_MM),
            required=True,
            format_func=lambda one: f"{one}, {WIDTH_MM[one]} mm",
            help="One column of a paper in two, or the whole page.",
            **state.kept("figure_width", "page", list(WIDTH_MM)),
        )
    draw_address(f"{state.selection().checkpoint} · paper figure: {NAMES[preset].lower()}")
    try:
        result = RESULTS[preset](page)
    except MtaVizError as error:
        st.info(plain(f"{NAMES[preset]}: {str(error).rstrip('.')}."))
        return
    if result is not None:
        _draw(page, preset, width, result)
    draw_all_kernels(page, width)


def _draw(page: Page, preset: Preset, width: Width, result: Result) -> None:
    model = state.selection().checkpoint or "this model"
    made = paper_figure(preset, result, model, width=width, numbering_from=page.numbering)
    with st.container(key="paper"):
        # Another figure is another widget: plotly would keep the axes of the one before.
        chart(made.figure, ".".join(map(str, (*made.name, width, page.key))), alt=NAMES[preset])
    with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
        caption(_size(made))
        save_button(Shown("paper", (model, *made.name), made.figure, made.caption, lambda: made.csv))
    st.code(made.caption, language=None, wrap_lines=True)


def _size(made: PaperFigure) -> str:
    layout = made.figure.layout
    wide, high = (round(px / PX_PER_MM) for px in (layout.width, layout.height))
    return f"{wide} x {high} mm, shown at its true size. Its caption, with a button to copy it:"


def _kernels(page: Page) -> Result | None:
    config = page.model.config
    places = kernel_places(config)
    layer = state.selection().layer
    if layer is None or layer >= config.n_layers:
        layer = layers_having(config, places[0])[0]
        state.select(layer=layer)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        where: Place = pick_place("figure_where", places)
    if layer not in layers_having(config, where):
        st.info(plain(missing_text(page, layer, where)))
        return None
    return layer_picture(page.model.state_dict(), config, layer, where)


def _mixing(page: Page) -> Result | None:
    config = page.model.config
    places = mixing_places(config)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        where: MixPlace = pick_place("figure_mixing", places)
        layers = st.multiselect(
            "Layers",
            range(config.n_layers),
            placeholder="all layers",
            format_func=lambda at: layer_label(at, page.numbering),
            width=420,
            **state.kept("figure_layers", [], range(config.n_layers)),
        )
    return mixing_over_layers(page.model.state_dict(), config, where, sorted(layers) or None)


def _bars(page: Page, *, off_diagonal: bool) -> Result | None:
    return mixing_by_layer(page.model.state_dict(), page.model.config, off_diagonal=off_diagonal)


RESULTS: dict[Preset, Callable[[Page], Result | None]] = {
    "kernels": _kernels,
    "kernel-map": kernel_and_map,
    "head-kernels": _mixing,
    "head-diagonal": lambda page: _bars(page, off_diagonal=False),
    "head-ratio": lambda page: _bars(page, off_diagonal=True),
}
