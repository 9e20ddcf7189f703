"""A named figure on a page: its chart, its caption, and the button that saves it.

What a page shows is kept by its parameters, so that all of it can be saved at once, and every file says where
it comes from.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

from mta_viz.figures.base import Drawn, NamedFigure, Source, drawn
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember, remember_with_run
from mta_viz.ui.shell.export import export_drawn
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, chart

T = TypeVar("T")


@dataclass
class OnPage:
    """The figures and tables the page shows, in the order in which they were drawn."""

    drawn: dict[NamedFigure[Any], Drawn] = field(default_factory=dict)


def source_of(page: Page, beside: Source | None = None) -> Source:
    """What the page's figures are drawn from; results are kept by the page's run."""

    def keep(make: Callable[[], T], *key: Hashable) -> T:
        return remember(make, page.key, *key)

    def keep_with_run(make: Callable[[], T], *key: Hashable) -> T:
        return remember_with_run(make, page.key, *key)

    return Source(page.model, page.trace, beside, page.numbering, keep, keep_with_run)


def draw(source: Source, spec: NamedFigure[Any], result: Any = None) -> Drawn:
    """The figure, which from now on counts as shown; its picture is put on the page by the caller.

    `result`: of a measurement of the page, through or as far as it came.
    """
    figure = drawn(spec, source, result)
    state.part(OnPage).drawn[spec] = figure
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
    taken for one on the next; `words` stand for the caption; `look` goes to `chart`.
    """
    figure = draw(source, spec, result)
    if figure.figure is not None:
        chart(figure.figure, widget or spec.name, then, alt=figure.caption, **look)
    save_line(figure, words)
    return figure


def save_line(figure: Drawn, words: str | None = None) -> None:
    """What the figure shows, in words, and at the right the button that saves it."""
    with st.container(horizontal=True, wrap=False, vertical_alignment="top"):
        with st.container():
            caption(figure.caption if words is None else words)
        save_button(figure)


def save_button(figure: Drawn) -> None:
    """Opens the window in which a figure or a table is saved. Each file is made only when it is asked for."""
    alike = [spec for spec in state.part(OnPage).drawn if spec.name == figure.spec.name]
    number = alike.index(figure.spec)
    key = f"save.{figure.spec.name}" + (f".{number}" if number else "")
    if st.button("Save", icon=":material/download:", key=key):
        export_drawn(figure)


def begin() -> None:
    """Before a page's figures are drawn anew."""
    state.part(OnPage).drawn.clear()
