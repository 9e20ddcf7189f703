"""The window in which a figure is exported: format, size, colours, part of the prompt; preview and files."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.checkpoint.types import Source as Origin
from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import SIZES, Format, Sized, SizeName, has_scales
from mta_viz.exporting.provenance import Range
from mta_viz.exporting.saved import (
    Choices,
    Colours,
    Saved,
    all_files,
    laid_out,
    picture,
    saved,
    sidecar,
    zipped,
)
from mta_viz.figures.base import Drawn
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import changed, remember, weights_digest
from mta_viz.ui.shell.pickers import NamedSpans
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import MIME_TYPES, caption, plain

FORMATS: tuple[Format, ...] = ("png", "svg", "pdf", "html")
COLOURS: dict[Colours, str] = {"colour": "colour-blind safe colours", "greys": "greys"}
DPI = (96, 150, 300, 600)
FORMAT = Setting[Format]("export format", FORMATS[0], private=True)
SIZE = Setting[SizeName]("export size", "screen", private=True)
COLOUR = Setting[Colours]("export colours", "colour", private=True)
RESOLUTION = Setting("export dpi", 300, private=True)
SMALL_PT = 6.0  # print asks for no less
WHOLE = "as shown"
QUERIES = Setting("export queries", WHOLE, private=True)
KEYS = Setting("export keys", WHOLE, private=True)


@st.dialog("Export", width="large")
def export_figure(figure: Drawn) -> None:
    """Everything about one figure's files; the page behind stays as it is."""
    left, right = st.columns([2, 3])
    with left:
        format, choices = _pick_looks(figure.figure)
        part = _pick_part(figure)
    try:
        made = saved(figure if part is None else figure.cropped(*part), digest_of)
    except MtaVizError as error:
        right.error(plain(str(error)))
        return
    with right:
        _draw_preview(made, choices)
        st.code(made.caption, language=None, wrap_lines=True)
    with left:
        _draw_files(made, format, choices)


@st.dialog("Save the table")
def export_numbers(figure: Drawn) -> None:
    """A table's numbers, and where they come from."""
    _draw_table_files(saved(figure, digest_of))


def export_drawn(figure: Drawn) -> None:
    """The window of a named figure, or of a table."""
    (export_numbers if figure.figure is None else export_figure)(figure)


def digest_of(origin: Origin) -> str:
    """The sha256 of a model's weights, read once for each state of its files."""
    return weights_digest(str(origin.path), changed(origin.path))


def _pick_part(figure: Drawn) -> tuple[Range | None, Range | None] | None:
    """Named spans of the prompt as rows and columns, where the figure can be cropped."""
    spans = state.part(NamedSpans).spans
    if figure.spec.cropped(None, None) is None or not spans:
        return None
    names = {f"{span.letter} {span.name}": (span.start, span.stop) for span in spans}
    options = [WHOLE, *names]
    rows = st.selectbox("Rows (queries)", options, **QUERIES.widget(options))
    columns = st.selectbox("Columns (keys)", options, **KEYS.widget(options))
    return None if rows == columns == WHOLE else (names.get(rows), names.get(columns))


def _draw_table_files(saved: Saved) -> None:
    origin = partial(sidecar, saved, Choices())
    _file_button(saved, "Numbers (CSV)", "csv", saved.csv.encode, type="primary")
    _file_button(saved, "Sidecar (JSON)", "json", origin)
    both = {saved.file("csv"): saved.csv.encode(), saved.file("json"): origin()}
    _file_button(saved, "Both (ZIP)", "zip", partial(zipped, both.items()))
    _say_command("the table", "the sidecar")


def _pick_looks(figure: Any) -> tuple[Format, Choices]:
    format, size, dpi = pick_format(), pick_size(), 300
    colours: Colours = "colour"
    if has_scales(figure):
        colours = pick_colours()
    if format == "png":
        dpi = st.selectbox("Dots to the inch", DPI, **RESOLUTION.widget(DPI))
    return format, Choices(size, colours, dpi)


def pick_format() -> Format:
    """Of pictures."""
    return st.segmented_control(
        "Format",
        FORMATS,
        required=True,
        format_func=str.upper,
        help="SVG and PDF are drawn in lines, their text can be selected. HTML keeps the hover texts and "
        "works offline.",
        **FORMAT.widget(FORMATS),
    )


def pick_size() -> SizeName:
    """On paper or on a slide."""
    return st.selectbox(
        "Size",
        list(SIZES),
        format_func=lambda name: SIZES[name].words,
        **SIZE.widget(list(SIZES)),
    )


def pick_colours() -> Colours:
    """In colour, or in greys."""
    return st.selectbox(
        "Colours",
        list(COLOURS),
        format_func=COLOURS.__getitem__,
        help="Greys print and photocopy: negative is dark, zero grey, positive light.",
        **COLOUR.widget(list(COLOURS)),
    )


def _draw_preview(saved: Saved, choices: Choices) -> None:
    """The picture at its true size, drawn as it will be in the file."""
    made = laid_out(saved.figure, choices)
    wide, high = (round(mm) for mm in made.mm)
    try:
        svg = _svg(saved, choices)
    except MtaVizError as error:
        st.info(plain(f"No preview: {error}"))
    else:
        with st.container(height=460, key="preview"):
            st.image(svg, width=round(wide * 96 / 25.4))
    caption(f"{wide} x {high} mm at true size, smallest letters {made.smallest_pt:.1f} pt.{_warnings(made)}")


def _svg(saved: Saved, choices: Choices) -> str:
    """Drawn once for each figure, size and colours: another format asks for no other picture."""
    key = ("preview", saved.provenance.text(), hash(saved.csv), choices.size, choices.colours)
    with st.spinner("Drawing ..."):
        return remember(lambda: picture(saved, "svg", choices).decode(), *key)


def _warnings(made: Sized) -> str:
    words = ""
    if made.smallest_pt < SMALL_PT:
        words += f" That is small for print, where {SMALL_PT:g} pt is little: choose a larger size."
    if made.left_out:
        words += f" {made.left_out} labels had no room and are left out."
    return words


def _draw_files(saved: Saved, format: Format, choices: Choices) -> None:
    button = partial(_file_button, saved)
    button(f"Save {format.upper()}", format, lambda: picture(saved, format, choices), type="primary")
    with st.container(horizontal=True):
        button("Numbers (CSV)", "csv", saved.csv.encode)
        button("Sidecar (JSON)", "json", lambda: sidecar(saved, choices))
    button("All of these and the caption (ZIP)", "zip", lambda: zipped(all_files(saved, format, choices)))
    _say_command("the picture", "the picture or its sidecar")


def _file_button(saved: Saved, label: str, suffix: str, make: Callable[[], bytes], **look: Any) -> None:
    st.download_button(
        label,
        data=make,
        file_name=saved.file(suffix),
        mime=MIME_TYPES[suffix],
        key=f"export.{label}",
        on_click="ignore",
        width="stretch",
        **look,
    )


def _say_command(what: str, source: str) -> None:
    st.html(
        f"<small>{source.capitalize()} says where {what} comes from: checkpoint, prompt, selection. "
        f"<code>python -m mta_viz figure --from FILE</code> makes {what} again from it.</small>"
    )
