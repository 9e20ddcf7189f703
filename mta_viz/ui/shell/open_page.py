"""How every page begins: `with open_page("Workspace") as page: ...`.

Opens the layout, draws the shared sidebar, has the model and the run made ready, and turns errors into
messages; a page opened by its own address may run without app.py. Imports nothing heavy: the first visitor
sees the page at once.
"""

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from mta_viz.plots.parts import nothing_yet
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import (
    ASSETS,
    ICON,
    PAGES,
    WORKSPACE,
    Page,
    errors_as_messages,
    of_older,
    set_up_log,
)
from mta_viz.ui.shell.widgets import Presses, Window, close_window, plain

if TYPE_CHECKING:
    from mta_viz.ui.shell.sidebar import Request

SIDEBAR_PX = 252
_FRAME = st.components.v2.component(
    "mta_viz.frame", js=(Path(__file__).parent / "frame.js").read_text("utf-8"), isolate_styles=False
)


@contextmanager
def open_page(
    title: str, *, needs_run: bool = False, plan: Literal["named", "own"] = "named"
) -> Iterator[Page]:
    """Draw the frame around a page's body; the body does not run when there is nothing to draw.

    `needs_run`: nor without a run of the prompt. `plan`: an active plan of interventions is `named` over the
    page, or is the page's `own` business.
    """
    _draw_frame(title)
    _require_sign_in()
    set_up_log()
    if state.session().page != title:
        logging.getLogger(__name__).info("opens the page %s", title)
    changed, request, page = state.enter(title), None, None
    with errors_as_messages():
        with _first_paint():
            from mta_viz.ui.shell import address, preparing, show, sidebar, uploads, work
            from mta_viz.ui.shell import plan as plans
        if changed:
            work.stop_all("page")
            close_window()
        uploads.sweep()
        show.begin()
        state.part(Window).drawn = False
        request = sidebar.draw_sidebar()
        page = preparing.ready(request)
    has_body = page is not None and not (needs_run and page.trace is None)
    shown = page if has_body else None
    with errors_as_messages():
        if page is not None and not has_body:
            address.draw_address(f"{state.selection().checkpoint} · no run")
            st.info(plain(page.empty))
        elif page is not None and plan != "own":
            plans.say_plan(page)
    if shown is not None:
        with errors_as_messages():
            yield shown
    _close(request, page)
    if shown is None:
        st.stop()


def _draw_frame(title: str) -> None:
    look: dict[str, Any] = {"layout": "wide", "initial_sidebar_state": SIDEBAR_PX}
    st.set_page_config(page_title=f"{title} · mta_viz", page_icon=ICON, **look)
    st.html(f"<style>{(ASSETS / 'style.css').read_text(encoding='utf-8')}</style>")
    with st.sidebar:  # Streamlit's own links name files where a page was opened by its address
        with st.container(key="frame"):
            _FRAME(key="frame.script", data={"signIn": not _signed_in()})
        for path, (name, icon) in PAGES.items():
            st.page_link(path, label=name, icon=icon)


def _signed_in() -> bool:
    return bool(st.user.get("is_logged_in", True))  # lacking where there is no provider


def _require_sign_in() -> None:
    """Nothing is drawn before that where a provider is set up (`[auth]` in secrets.toml)."""
    if _signed_in():
        return
    st.info("Sign in to use this app.")
    st.button("Sign in", type="primary", icon=":material/login:", on_click=st.login)
    st.stop()


@contextmanager
def _first_paint() -> Iterator[None]:
    """While torch is imported: words, and an empty figure that has the browser load its drawing library."""
    place, first = st.empty(), "torch" not in sys.modules
    if first:
        with place.container():
            st.progress(0.0, text="Loading the libraries (first time only)")
            st.plotly_chart(nothing_yet(300), key="first.paint", theme=None, config={"staticPlot": True})
    yield
    if first:
        gc.freeze()  # Streamlit looks for garbage after every rerun: not among the libraries' own objects
    place.empty()


def _close(request: "Request | None", page: Page | None) -> None:
    from mta_viz.ui.shell import preparing

    state.leave()
    with errors_as_messages():
        if request is not None and page is not None:
            preparing.finish(request, page)
        elif request is not None:
            preparing.draw_settings(request, ["cpu"])
    if not state.part(Window).drawn:  # what it is of is not on the page any more
        close_window()
    state.part(Presses).clear()


def lead_on(older: str) -> None:
    """From the address of a page of before to the workspace, with all it says, and the view it names."""
    parameters = dict(st.query_params)
    st.switch_page(WORKSPACE, query_params=parameters | of_older(older, parameters))
