"""Paper figures: the paper's pictures of kernels for the page's model, at the size they are printed.

Owns the pickers and the preview; the map's own pickers are `figures_map.py`'s.
"""

from collections.abc import Callable

import streamlit as st

from mta_viz.analysis.kernels import MixPlace, Place
from mta_viz.analysis.paper_figures import (
    Preset,
    kernel_places,
    layer_picture,
    layers_having,
    mixing_by_layer,
    mixing_over_layers,
    mixing_places,
)
from mta_viz.errors import MtaVizError
from mta_viz.exporting.paper import PaperFigure, Result, paper_figure
from mta_viz.plots.paper_figures import PX_PER_MM, WIDTH_MM, Width
from mta_viz.ui import state
from mta_viz.ui.address import draw_address
from mta_viz.ui.atlas.all_kernels import draw_all_kernels
from mta_viz.ui.atlas.figures_map import kernel_and_map, pick_place
from mta_viz.ui.atlas.layer import missing_text
from mta_viz.ui.numbering import layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.shown import Shown
from mta_viz.ui.steppers import pick_layer
from mta_viz.ui.widgets import caption, chart, plain, save_button

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
    draw_address(f"{state.view().checkpoint} · paper figure: {NAMES[preset].lower()}")
    try:
        result = RESULTS[preset](page)
    except MtaVizError as error:
        st.info(plain(f"{NAMES[preset]}: {str(error).rstrip('.')}."))
        return
    if result is not None:
        _draw(page, preset, width, result)
    draw_all_kernels(page, width)


def _draw(page: Page, preset: Preset, width: Width, result: Result) -> None:
    model = state.view().checkpoint or "this model"
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
    layer = state.view().layer
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
