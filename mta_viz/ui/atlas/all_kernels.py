"""Every kernel of the model in one file: a PDF with a page a layer, or a ZIP of its pictures and numbers."""

from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.errors import MtaVizError
from mta_viz.exporting.limits import limits
from mta_viz.exporting.names import file_name
from mta_viz.exporting.paper import every_kernel
from mta_viz.exporting.provenance import Provenance
from mta_viz.exporting.saved import Saved
from mta_viz.exporting.together import Form, together
from mta_viz.plots.paper_figures import Width
from mta_viz.ui import state
from mta_viz.ui.open_page import Page
from mta_viz.ui.shown import facts
from mta_viz.ui.widgets import MIME_TYPES, caption, plain

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
        file_name(state.view().checkpoint, "kernels", suffix=form),
        MIME_TYPES[form],
        key="all_kernels.save",
        on_click="ignore",
    )


def _show(bar: DeltaGenerator, done: float) -> None:
    bar.progress(done, text="Drawing")


def _figures(page: Page, width: Width) -> list[Saved]:
    """Each says by which view of this page it is made again. Raises MtaVizError where there are none."""
    model, shared = state.view().checkpoint or "this model", facts()
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
