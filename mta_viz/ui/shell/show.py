"""A named figure on a page: its chart, its caption, and the window that saves it.

What a page shows is kept by its parameters, so that all of it can be saved at once.
"""

from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.checkpoint.locate import sha256_as_read
from mta_viz.checkpoint.types import Source as Origin
from mta_viz.errors import MtaVizError
from mta_viz.exporting import saved as files
from mta_viz.exporting.pictures import SIZES, Format, SizeName, has_scales
from mta_viz.exporting.saved import Choices, Colours, Saved
from mta_viz.figures.attention.maps import Range
from mta_viz.figures.base import Drawn, Measured, NamedFigure, Source, drawn
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import changed, remember, remember_with_run
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import NamedSpans
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import (
    HALF_LINE,
    bar,
    caption,
    chart,
    file_button,
    menu,
    plain,
    window,
    window_button,
)
from mta_viz.ui.shell.work import Work

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


class OnPage(dict[NamedFigure[Any], Drawn]):
    """The figures and tables the page shows, in the order in which they were drawn."""


def source_of(page: Page, beside: Source | None = None) -> Source:
    """What the page's figures are drawn from; results are kept by the page's run, or by its weights' file."""
    weights = weights_key(page)
    return Source(
        page.model,
        page.trace,
        beside,
        page.numbering,
        lambda make, *key: remember(make, page.key, *key),
        lambda make, *key: remember_with_run(make, page.key, *key),
        lambda make, *key: remember(make, *weights, *key),
    )


def weights_key(page: Page) -> tuple[str, ...]:
    """What results of the weights alone are kept by; an edited model's are those of its run."""
    folder = page.model.path
    if folder is None or page.model.plan:
        return (page.key,)
    return str(folder), str(changed(folder)), str(page.model.dtype)


def measured_beside(
    page: Page,
    name: str,
    spec: Measured[Any],
    label: str,
    measure: Callable[[Source, Keep], Any] | None = None,
    *more: Hashable,
    words: str = "",
    by_itself: bool = False,
) -> Any | None:
    """The figure's result; before it is there its button, or how far it is.

    `measure(source, keep)` stands for the figure's own, which keeps nothing by the way; `more` of the key.
    `words` stand beside the button; `by_itself` does without one.
    """
    source = source_of(page)

    def do(work: Work, keep: Keep) -> Any:
        own = replace(source, progress=work.report)
        return spec.measure(own) if measure is None else measure(own, keep)

    key = (*(weights_key(page) if spec.of_weights else (page.key,)), *spec.key, *more)
    return measured(Measurement(name, key, label, do, words, by_itself=by_itself))


def begin(kept: Collection[NamedFigure[Any]] = ()) -> None:
    """Before a page's figures are drawn anew, or those of a part of it: `kept` stay."""
    shown = state.part(OnPage)
    for spec in [spec for spec in shown if spec not in kept]:
        del shown[spec]


def keep(source: Source, spec: NamedFigure[Any]) -> Drawn:
    """Counts as shown what the page shows in another way: its parts are made when it is saved."""
    figure = state.part(OnPage)[spec] = Drawn(spec, source)
    return figure


def draw(source: Source, spec: NamedFigure[Any], result: Any = None) -> Drawn:
    """The figure, from now on counted as shown; `result`: of a measurement, as far as it came."""
    figure = drawn(spec, source, result)
    state.part(OnPage)[spec] = figure
    return figure


def show(
    source: Source,
    spec: NamedFigure[Any],
    then: Callable[[str], None] | None = None,
    *,
    result: Any = None,
    widget: str | None = None,
    words: str | None = None,
    **look: Any,
) -> Drawn:
    """The figure's chart with caption and Save. `then(widget key)` runs after a choice on it.

    `result`: of a measurement of the page. `widget` keys the chart, where one figure's choice must not be
    taken for one on the next; `words` stand for its line; `look` goes to `chart`.
    """
    figure = draw(source, spec, result)
    if figure.figure is not None:
        chart(figure.figure, widget or spec.name, then, alt=figure.caption, **look)
    save_line(figure, words)
    return figure


def save_line(figure: Drawn, words: str | None = None, most: int = HALF_LINE) -> None:
    """A line of at most `most` characters, behind its sign the caption, and the button that saves it all."""
    line = figure.line if words is None else words
    with st.container(horizontal=True, wrap=False, vertical_alignment="top"):
        with st.container():
            caption(line, most, figure.caption)
        save_button(figure)


def save_button(figure: Drawn, label: str = "Save") -> None:
    """Opens the window in which a figure or a table is saved. Each file is made only when it is asked for."""
    alike = [spec for spec in state.part(OnPage) if spec.name == figure.spec.name]
    number = alike.index(figure.spec)
    key = f"save.{figure.spec.name}" + (f".{number}" if number else "")
    export = _export_table if figure.figure is None else _export_figure
    window_button(label, key, partial(export, figure), icon=":material/download:")


@window("Export", width="large")
def _export_figure(figure: Drawn) -> None:
    left, right = st.columns([2, 3])
    with left:
        format, choices = pick_format(), Choices(pick_size())
        if has_scales(figure.figure):
            choices = replace(choices, colours=pick_colours())
        if format == "png":
            choices = replace(choices, dpi=menu("Dots to the inch", DPI, RESOLUTION))
        part = _pick_part(figure)
    try:
        made = files.saved(figure if part is None else figure.cropped(*part), digest_of)
    except MtaVizError as error:
        right.error(plain(str(error)))
        return
    with right:
        _draw_preview(made, choices)
        st.code(made.caption, language=None, wrap_lines=True)
    with left:
        _draw_files(made, format, choices)


@window("Save the table")
def _export_table(figure: Drawn) -> None:
    try:
        saved = files.saved(figure, digest_of)
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    origin = partial(files.sidecar, saved, Choices())
    _file_button(saved, "Numbers (CSV)", "csv", saved.csv.encode, type="primary")
    _file_button(saved, "Sidecar (JSON)", "json", origin)
    both = {saved.file("csv"): saved.csv.encode(), saved.file("json"): origin()}
    _file_button(saved, "Both (ZIP)", "zip", partial(files.zipped, both.items()))
    _say_command("the table", "the sidecar")


def digest_of(origin: Origin) -> str:
    """The sha256 of a model's weights as they were read: what is drawn is of these."""
    with st.spinner("Reading the weights for their sha256 ..."):
        return sha256_as_read(origin)


def _pick_part(figure: Drawn) -> tuple[Range | None, Range | None] | None:
    spans = state.part(NamedSpans).spans
    if figure.spec.cropped(None, None) is None or not spans:
        return None
    names = {f"{span.letter} {span.name}": (span.start, span.stop) for span in spans}
    options = [WHOLE, *names]
    rows, columns = menu("Rows (queries)", options, QUERIES), menu("Columns (keys)", options, KEYS)
    return None if rows == columns == WHOLE else (names.get(rows), names.get(columns))


def pick_format() -> Format:
    """Of pictures."""
    help = (
        "SVG and PDF are drawn in lines, their text can be selected. HTML keeps the hover texts and works "
        "offline."
    )
    return bar("Format", {name: name.upper() for name in FORMATS}, FORMAT, help=help)


def pick_size() -> SizeName:
    """On paper or on a slide."""
    return menu("Size", {name: size.words for name, size in SIZES.items()}, SIZE)


def pick_colours() -> Colours:
    """In colour, or in greys."""
    help = "Greys print and photocopy: negative is dark, zero grey, positive light."
    return menu("Colours", COLOURS, COLOUR, help=help)


def _draw_preview(saved: Saved, choices: Choices) -> None:
    """The picture at its true size, drawn once for each figure, size and colours."""
    made = files.laid_out(saved.figure, choices)
    wide, high = (round(mm) for mm in made.mm)
    key = ("preview", saved.provenance.text(), hash(saved.csv), choices.size, choices.colours)
    try:
        with st.spinner("Drawing ..."):
            svg = remember(lambda: files.picture(saved, "svg", choices).decode(), *key)
    except MtaVizError as error:
        st.info(plain(f"No preview: {error}"))
    else:
        st.image(svg, width=round(wide * 96 / 25.4), alt=saved.caption)
    words = f"{wide} x {high} mm at true size, smallest letters {made.smallest_pt:.1f} pt."
    if made.smallest_pt < SMALL_PT:
        words += f" That is small for print, where {SMALL_PT:g} pt is little: choose a larger size."
    if made.left_out:
        words += f" {made.left_out} labels had no room and are left out."
    caption(words)


def _draw_files(saved: Saved, format: Format, choices: Choices) -> None:
    button = partial(_file_button, saved)
    button(f"Save {format.upper()}", format, lambda: files.picture(saved, format, choices), type="primary")
    with st.container(horizontal=True):
        button("Numbers (CSV)", "csv", saved.csv.encode)
        button("Sidecar (JSON)", "json", lambda: files.sidecar(saved, choices))
    everything = "All of these and the caption (ZIP)"
    button(everything, "zip", lambda: files.zipped(files.all_files(saved, format, choices).items()))
    _say_command("the picture", "the picture or its sidecar")


def _file_button(saved: Saved, label: str, suffix: str, make: Callable[[], bytes], **look: Any) -> None:
    file_button(label, make, saved.file(suffix), f"export.{label}", width="stretch", **look)


def _say_command(what: str, source: str) -> None:
    st.html(
        f"<small>{source.capitalize()} says where {what} comes from: checkpoint, prompt, selection. "
        f"<code>python -m mta_viz figure --from FILE</code> makes {what} again from it.</small>"
    )
