"""What the first visitor sees while torch is imported. Imports nothing heavier than plotly.

How every page begins: `with open_page("Attention") as page: ...`.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.plots.parts import nothing_yet
from mta_viz.ui.shell import state
from mta_viz.ui.shell.site import ASSETS, ICON, draw_links
from mta_viz.ui.shell.widgets import plain

if TYPE_CHECKING:
    from mta_viz.ui.shell.cache import ModelKey
    from mta_viz.ui.shell.sidebar import Request


@contextmanager
def first_paint() -> Iterator[None]:
    """Say what is happening and draw an empty figure in a place that is empty again afterwards.

    The figure makes the browser load its drawing library while the server loads its own.
    """
    place = st.empty()
    if "torch" not in sys.modules:
        with place.container():
            st.progress(0.0, text="Loading the libraries (first time only)")
            st.plotly_chart(nothing_yet(300), key="first.paint", theme=None, config={"staticPlot": True})
    yield
    place.empty()


@dataclass(frozen=True)
class Page:
    """What a page may draw from. `trace` is None without a run; `empty` then says what to do.

    `key` is equal only for equal runs (or models, without a run): it keys caches and widgets.
    `model_key` is how jobs find the model again. `model` is a HookedMTA, `trace` a Trace or None;
    naming these types would import the model's libraries before the first thing is on screen.
    """

    model: Any
    trace: Any
    key: str
    empty: str
    stale: bool
    numbering: int
    first_token: bool
    model_key: "ModelKey | None" = None


@contextmanager
def open_page(
    title: str, *, needs_run: bool = False, plan: Literal["shown", "named", "own"] = "named"
) -> Iterator[Page]:
    """Draw the frame around a page's body; the body does not run when there is nothing to draw.

    `needs_run`: without a run of the prompt there is nothing; the page then says what to do. `plan`:
    whether an active plan of interventions changes what is `shown`, is only `named` over the page, or
    is the page's `own` business.
    """
    st.set_page_config(page_title=f"{title} · mta_viz", page_icon=ICON, layout="wide")
    st.html(f"<style>{(ASSETS / 'style.css').read_text(encoding='utf-8')}</style>")
    draw_links()
    state.enter(title)
    request, page = None, None
    with errors_as_messages():
        with first_paint():
            from mta_viz.ui.shell import plan as plan_strip
            from mta_viz.ui.shell import preparing, sidebar
        request = sidebar.draw_sidebar()
        page = preparing.ready(request)
    if page is None:
        _close_without_model(request)
    if needs_run and page.trace is None:
        _close_without_run(request, page)
    shown = page
    with errors_as_messages():
        if plan != "own":
            shown = plan_strip.apply_plan(page, follows=plan == "shown")
    with errors_as_messages():
        yield shown
    _close(request, page)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Errors meant for the user as they are; others by their name, with the traceback in the log."""
    try:
        yield
    except MtaVizError as error:
        st.error(plain(str(error)))
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected error in a page")
        st.error(plain(f"The page failed with {type(error).__name__}: {error}. The log has the details."))


def _close_without_model(request: "Request | None") -> NoReturn:
    from mta_viz.ui.shell.sidebar import draw_settings

    with errors_as_messages():
        if request is not None:
            draw_settings(request, ["cpu"])
    state.mirror()
    st.stop()


def _close_without_run(request: "Request", page: Page) -> NoReturn:
    from mta_viz.ui.shell.address import draw_address

    with errors_as_messages():
        draw_address(f"{state.view().checkpoint} · no run")
        st.info(plain(page.empty))
    _close(request, page)
    st.stop()


def _close(request: "Request", page: Page) -> None:
    from mta_viz.ui.shell.address import fill_link
    from mta_viz.ui.shell.preparing import finish

    state.mirror()
    with errors_as_messages():
        fill_link()
        _say_left_out(request)
        finish(request, page)


def _say_left_out(request: "Request") -> None:
    """What the link asked for that this page could not give, until another prompt is run."""
    left_out = state.left_out()
    if left_out:
        st.sidebar.warning(plain(f"The link's settings that could not be restored: {'; '.join(left_out)}."))
    if state.get("session sha256") and request.model is not None:
        from mta_viz.ui.shell import cache

        if cache.digest(request.model) != state.get("session sha256"):
            st.sidebar.warning("The opened session was made with other weights than this model's.")
