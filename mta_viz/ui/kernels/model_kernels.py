"""The kernels of the page's model: their table, made once for the weights, their names, choosing one.

Every kernel of the model in one file: a PDF with a page a layer, or a ZIP of its pictures and numbers.
"""

from collections.abc import Hashable
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.kernels.table import Row, kernel_table
from mta_viz.errors import MtaVizError
from mta_viz.exporting.paper import every_kernel
from mta_viz.exporting.pictures import limits
from mta_viz.exporting.provenance import Provenance
from mta_viz.exporting.saved import Form, Saved, file_name, together
from mta_viz.plots.kernels.figures import Width
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import changed, remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.shown import facts
from mta_viz.ui.shell.widgets import MIME_TYPES, caption, head_label, layer_label, plain

SHORT = {"pre": "pre", "post": "post", "head_pre": "mix pre", "head_post": "mix post"}


def weights_key(page: Page) -> tuple[Hashable, ...]:
    """Equal only for equal weights: the file and its time; the run's key for a model from no file."""
    source = page.model.source
    return (page.key,) if source is None else (str(source.path), changed(source.path), str(page.model.dtype))


def rows_of(page: Page) -> tuple[Row, ...]:
    """`kernel_table` of the page's model; the same for every prompt."""
    weights, config = page.model.state_dict(), page.model.config
    return remember(lambda: kernel_table(weights, config), "kernel table", *weights_key(page))


def kernel_of(row: Row) -> KernelId:
    """Which kernel a row of the table is about."""
    return KernelId(row["layer"], row["head"], row["where"])


def short_name(kernel: KernelId, numbering: int) -> str:
    """`L2 H1 pre`, as the visitor counts."""
    layer, head = layer_label(kernel.layer, numbering), head_label(kernel.head, numbering)
    return f"{layer} {head} {SHORT[kernel.where]}"


def select_kernel(kernel: KernelId) -> None:
    """Make a kernel the chosen one, here and on the other pages."""
    state.select(layer=kernel.layer, head=kernel.head, place=kernel.where)


FORMS: dict[Form, str] = {"pdf": "one PDF, a page a layer", "zip": "ZIP: PDF, numbers and caption of each"}


def draw_all_kernels(page: Page, width: Width) -> None:
    """Which form, a button that makes the file, and the file."""
    with st.expander("All kernels in one file", icon=":material/folder_zip:"):
        form: Form = st.radio(
            "As", list(FORMS), format_func=FORMS.__getitem__, **state.kept("all kernels", "pdf", list(FORMS))
        )
        if st.button("Make the file", key="all_kernels.make"):
            _make(page, width, form)


def _make(page: Page, width: Width, form: Form) -> None:
    bar = st.progress(0.0, text="Drawing")
    try:
        figures = _figures(page, width)
        content = together(figures, form, progress=partial(_show, bar))
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    bar.empty()
    caption(f"{len(figures)} figures: one for each layer and place with kernels, and head mixing.")
    st.download_button(
        f"Save ({len(content) / 1e6:.1f} MB)",
        content,
        file_name(state.selection().checkpoint, "kernels", suffix=form),
        MIME_TYPES[form],
        key="all_kernels.save",
        on_click="ignore",
    )


def _show(bar: DeltaGenerator, done: float) -> None:
    bar.progress(done, text="Drawing")


def _figures(page: Page, width: Width) -> list[Saved]:
    """Each says by which view of this page it is made again. Raises MtaVizError where there are none."""
    model, shared = state.selection().checkpoint or "this model", facts()
    made = every_kernel(
        page.model.state_dict(), page.model.config, model, width=width, numbering_from=page.numbering
    )
    found = []
    for one in made:
        view = {"view": shared["view"] | one.view(width)}
        said = Provenance(figure="paper", limits=limits(one.figure), **shared | view)
        found.append(Saved((model, *one.name), one.figure, one.caption, one.csv, said))
    if not found:
        raise MtaVizError("This model has neither key-query kernels nor head mixing: nothing to draw.")
    return found
