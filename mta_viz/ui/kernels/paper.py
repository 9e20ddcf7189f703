"""Paper figures: the paper's pictures of kernels for the page's model, at the size they are printed.

Owns the pickers and the preview; and every kernel of the model in one file.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.kernel_map import question_span, strongest_head
from mta_viz.analysis.attention.spans import Span, asked_span
from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.kernels import WHERE, KernelId
from mta_viz.config import KernelPlace, MixingPlace
from mta_viz.errors import MtaVizError
from mta_viz.exporting.saved import Form, file_name, saved, together
from mta_viz.figures.base import NamedFigure, Source, drawn
from mta_viz.figures.kernels import paper as figures
from mta_viz.plots.kernels.paper import WIDTH_MM, Width
from mta_viz.plots.theme import PX_PER_MM
from mta_viz.printed import head_name, layer_label
from mta_viz.ui.attention.head import spans_of
from mta_viz.ui.kernels.parts import missing_text, select_kernel, weights_source
from mta_viz.ui.shell import address, show, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import pick_head, pick_layer
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import MIME_TYPES, bar, caption, chart, menu, plain, pressed

Spec = NamedFigure[Any]
FIGURES: dict[str, str] = {
    "kernels": "Kernels of a layer",
    "kernel-map": "Kernel and map",
    "head-kernels": "Head mixing",
    "head-diagonal": "Mean diagonal",
    "head-ratio": "Off-diagonal ratio",
}
FORMS: dict[Form, str] = {"pdf": "one PDF, a page a layer", "zip": "ZIP: PDF, numbers and caption of each"}
FIGURE = Setting("figure", "kernels")
WIDTH = Setting[Width]("figure_width", "page")
WHERE_DRAWN = Setting[KernelPlace]("figure_where", "pre")
MIXING_DRAWN = Setting[MixingPlace]("figure_mixing", "head_pre")
LAYERS = Setting[Any]("figure_layers", [])
ROWS, KEYS = Setting("figure_rows", ""), Setting("figure_keys", "")
FORM = Setting[Form]("all kernels", "pdf")
NAME_A_SPAN = (
    "This prompt has no named span to cut the map to. In the workspace find a text in it and name it, or run "
    "an example with needles; its keys are then offered here."
)


def draw_figures(page: Page) -> None:
    """The bar of figures, this figure's pickers, the figure, its caption and its files."""
    widths = {name: f"{name}, {mm} mm" for name, mm in WIDTH_MM.items()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = bar("Figure", FIGURES, FIGURE)
        width: Width = bar("Width", widths, WIDTH, help="One column of a paper in two, or the whole page.")
    address.draw_address(f"{state.selection().checkpoint} · paper figure: {FIGURES[name].lower()}")
    try:
        spec = PICKERS[name](page, width)
        if spec is not None:
            _draw(show.source_of(page) if isinstance(spec, figures.KernelMap) else weights_source(page), spec)
    except MtaVizError as error:
        st.info(plain(f"{FIGURES[name]}: {str(error).rstrip('.')}."))
        return
    with st.expander("All kernels in one file", icon=":material/folder_zip:"):
        form: Form = st.radio("As", list(FORMS), format_func=FORMS.__getitem__, **FORM.widget(list(FORMS)))
        if pressed("Make the file", "all_kernels.make"):
            _make(page, width, form)


def _draw(source: Source, spec: Spec) -> None:
    figure = show.draw(source, spec)
    with st.container(key="paper"):
        # Another figure is another widget: plotly would keep the axes of the one before.
        chart(figure.figure, f"paper.{hash((spec.name, spec, source.name))}", alt=FIGURES[spec.name])
    with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
        layout: Any = figure.figure and figure.figure.layout
        wide, high = (round(px / PX_PER_MM) for px in (layout.width, layout.height))
        caption(f"{wide} x {high} mm, shown at its true size. Its caption, with a button to copy it:")
        show.save_button(figure)
    st.code(figure.caption, language=None, wrap_lines=True)


def _pick_place(setting: Setting[Any], places: Sequence[KernelPlace] | Sequence[MixingPlace]) -> Any:
    return bar("Kernels", {place: WHERE[place] for place in places}, setting, default=places[0])


def _kernels(page: Page, width: Width) -> Spec | None:
    config = page.model.config
    places, layer = kernels.kernel_places(config), state.selection().layer
    if layer is None or layer >= config.n_layers:
        layer = kernels.layers_having(config, places[0])[0]
        state.select(layer=layer)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        where: KernelPlace = _pick_place(WHERE_DRAWN, places)
    if layer not in kernels.layers_having(config, where):
        st.info(plain(missing_text(page, layer, where)))
        return None
    return figures.Kernels(layer, where, width)


def _mixing(page: Page, width: Width) -> Spec:
    places = kernels.mixing_places(page.model.config)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        where: MixingPlace = _pick_place(MIXING_DRAWN, places)
        every = range(page.model.config.n_layers)
        look: Any = {"placeholder": "all layers", "width": 420, **LAYERS.widget(every)}
        names = [layer_label(at, page.numbering) for at in every]
        layers = st.multiselect("Layers", every, format_func=names.__getitem__, **look)
    return figures.HeadKernels(where, tuple(sorted(layers)), width)


def _kernel_map(page: Page, width: Width) -> Spec | None:
    places = kernels.kernel_places(page.model.config)
    spans = () if page.trace is None else spans_of(page)
    if not spans:
        st.info(plain(page.empty if page.trace is None else NAME_A_SPAN))
        return None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        where: KernelPlace = _pick_place(WHERE_DRAWN, places)
        rows, keys = _pick_spans(page, spans, where)
    layer, head = _pick_head(page, where, rows, keys)
    if layer not in kernels.layers_having(page.model.config, where):
        st.info(plain(missing_text(page, layer, where)))
        return None
    return figures.KernelMap(layer, head, where, (rows.start, rows.stop), (keys.start, keys.stop), width)


def _span_words(span: Span) -> str:
    return f"{span.letter} {span.name}, {span.start}–{span.stop - 1}"


def _pick_spans(page: Page, spans: Sequence[Span], where: KernelPlace) -> tuple[Span, Span]:
    mta = page.model.config.mta
    n_queries, _ = (mta.pre_kernel if where == "pre" else mta.post_kernel) or (1, 1)
    question = question_span(spans, len(page.trace.tokens), n_queries)
    rows = {_span_words(span): span for span in (question, *spans)}
    keys = {_span_words(span): span for span in spans}
    asked = _span_words(asked_span(spans) or spans[0])
    chosen_rows = menu("Rows (queries)", [*rows], ROWS, default=_span_words(question), width=280)
    chosen_keys = menu("Columns (keys)", [*keys], KEYS, default=asked, width=280)
    return rows[chosen_rows], keys[chosen_keys]


def _pick_head(page: Page, where: KernelPlace, rows: Span, keys: Span) -> tuple[int, int]:
    """The chosen head, where one is chosen; else the one that attends most to the keys."""
    config, view = page.model.config, state.selection()
    strongest = show.source_of(page).remember(
        lambda: strongest_head(page.trace, rows, keys, where), "strongest head", rows, keys, where
    )
    layer, head = strongest if view.layer is None or view.head is None else (view.layer, view.head)
    layer, head = min(layer, config.n_layers - 1), min(head, config.n_heads - 1)
    state.select(layer=layer, head=head)
    name = head_name(strongest[0], strongest[1], page.numbering)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        pick_head(config, head, page.numbering)
        if (layer, head) != strongest:
            target = KernelId(strongest[0], strongest[1], where)
            st.button(f"Go to {name}", key="figure.strongest", on_click=select_kernel, args=(target,))
    words = f"Of all heads with such a kernel {name} attends most to {keys.words}"
    caption(f"{words} from the last of the rows.")
    return layer, head


PICKERS: dict[str, Callable[[Page, Width], Spec | None]] = {
    "kernels": _kernels,
    "kernel-map": _kernel_map,
    "head-kernels": _mixing,
    "head-diagonal": lambda page, width: figures.HeadDiagonal(width),
    "head-ratio": lambda page, width: figures.HeadRatio(width),
}


def _make(page: Page, width: Width, form: Form) -> None:
    progress = st.progress(0.0, text="Drawing")
    source = replace(weights_source(page), remember=lambda make, *key: make())  # each is drawn only here
    specs = figures.every_kernel(page.model.config, width)
    files = [saved(drawn(spec, source), show.digest_of) for spec in specs]
    if not files:
        progress.empty()
        st.error("This model has neither key-query kernels nor head mixing: nothing to draw.")
        return

    def tell(done: float) -> None:
        progress.progress(done, text="Drawing")

    try:
        content = together(files, form, progress=tell)
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    progress.empty()
    caption(f"{len(files)} figures: one for each layer and place with kernels, and head mixing.")
    label, name = f"Save ({len(content) / 1e6:.1f} MB)", file_name(source.name, "kernels", suffix=form)
    look: Any = {"key": "all_kernels.save", "on_click": "ignore"}
    st.download_button(label, content, name, MIME_TYPES[form], **look)
