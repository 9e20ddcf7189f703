"""What a page needs before it draws: the sidebar's request, a loaded model, a run; with progress and Stop.

Importing this imports torch, which takes seconds; `open_page` does so when something is on screen.
"""

from typing import Any

import streamlit as st

from mta_viz.errors import Cancelled
from mta_viz.ui import cache, running, state
from mta_viz.ui.open_page import Page
from mta_viz.ui.saved_runs import opened
from mta_viz.ui.settings import draw_settings
from mta_viz.ui.sidebar import Request, draw_sidebar, request_run
from mta_viz.ui.surgery.strip import apply_plan
from mta_viz.ui.waiting import QUIET_SECONDS, show_progress
from mta_viz.ui.widgets import plain

__all__ = ["Request", "apply_plan", "draw_settings", "draw_sidebar", "finish", "ready"]


def ready(request: Request) -> Page | None:
    """Everything the page needs, after loading and running what is missing; None: it was said why not."""
    if request.model is None:
        (st.info if request.found is None else st.error)(plain(request.problem))
        return None
    state.put("page model", request.model)
    state.put("page run", request.run)
    wanted = request.run or request.model
    from_file = opened.find(wanted)
    result = _result(wanted) if from_file is None else from_file.trace
    if result is None:
        result = _work(request, wanted)
    _draw_run(request)
    if result is None:
        st.info("Stopped. Press Run to see this prompt.")
        return None
    trace = result if request.run else None
    state.put("page tokens", list(trace.tokens.pieces) if trace else [])
    computed = request.run.text if request.run else repr(request.model)
    return Page(
        model=trace.model if trace else result,
        trace=trace,
        key=computed if from_file is None else from_file.key,
        empty=request.empty,
        stale=request.stale,
        numbering=state.get("numbering", 0),
        first_token=state.get("first_token", False),
        model_key=request.model,
    )


def _result(wanted: cache.RunKey | cache.ModelKey) -> Any | None:
    stores = cache.stores()
    store = stores.traces if isinstance(wanted, cache.RunKey) else stores.models
    return store.get(wanted)


def _work(request: Request, wanted: cache.RunKey | cache.ModelKey) -> Any | None:
    """Wait for the job that makes `wanted`, showing it. None after Stop; raises what the job raised."""
    job = _job(wanted)
    if not job.wait(QUIET_SECONDS):
        stop = {"icon": ":material/stop:", "width": "stretch", "on_click": job.cancel}
        request.button.button("Stop", key="stop", **stop)
        show_progress(job)
    if isinstance(job.error, Cancelled):
        return None
    if job.error is not None:
        _draw_run(request)
        raise job.error
    return _result(wanted)


def _job(wanted: cache.RunKey | cache.ModelKey) -> running.Job:
    """This session's job for `wanted`; a job for something else is cancelled."""
    current = state.get("job")
    if current is not None:
        if current[0] == wanted:
            return current[1]
        current[1].cancel()
    if isinstance(wanted, cache.RunKey):
        job = running.run_job(wanted, cache.stores())
    else:
        job = running.load_job(wanted, cache.stores())
    state.put("job", (wanted, job))
    return job


def _draw_run(request: Request) -> None:
    """The Run button. Never disabled: a disabled one would swallow the click that ends the typing."""
    if not request.runs:
        return
    up_to_date = request.run is not None and not request.stale and not request.empty
    request.button.button(
        "Run",
        key="run",
        type="secondary" if up_to_date else "primary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter",
        width="stretch",
        on_click=request_run,
        help="Up to date: what is shown is of this prompt." if up_to_date else None,
    )


def finish(request: Request, page: Page) -> None:
    """The parts of the sidebar that need a loaded model; drawn after the page's own content.

    The check comes last: it runs the prompt once more, and everything else is on screen by then.
    """
    from mta_viz.ui.details import devices, draw_details, draw_estimate, draw_health
    from mta_viz.ui.saved_runs.dialogs import draw_saved_runs

    draw_estimate(request, page.model)
    card = draw_details(request, page)
    draw_settings(request, devices())
    if request.runs:
        with st.sidebar:
            draw_saved_runs(page)
    draw_health(request, page, card)
