"""Long measurements of the Surgery page: a button, then progress with Cancel, then the result."""

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.ui import jobs
from mta_viz.ui.cache import stores
from mta_viz.ui.running import Job
from mta_viz.ui.widgets import plain

Report = Callable[[float], None]


def result_of(name: str, key: tuple[Hashable, ...], label: str, make: Callable[[Report], Any]) -> Any | None:
    """The result for `key`; None while it is not there: then a button or the progress is drawn.

    `make(report)` runs beside the page; it reports its share done, which raises when it is cancelled.
    """
    found = jobs.known(key)
    if found is not None:
        return found
    job = jobs.current(name, key)
    if job is not None:
        if not job.wait(0.2):
            _watch(job, name)
            return None
        _say_end(job)
    st.button(label, key=f"start.{name}", type="primary", on_click=_start, args=(name, key, make))
    return jobs.known(key)


def _start(name: str, key: tuple[Hashable, ...], make: Callable[[Report], Any]) -> None:
    kept = stores()
    jobs.start(name, key, lambda job: kept.drawn.get_or_make(key, lambda: make(job.report)) and None)


def _say_end(job: Job) -> None:
    if isinstance(job.error, Cancelled):
        st.info("Cancelled. Nothing was kept of it.")
    elif isinstance(job.error, MtaVizError):
        st.error(plain(str(job.error)))
    elif job.error is not None:
        raise job.error


@st.fragment(run_every=0.5)
def _watch(job: Job, name: str) -> None:
    """Runs alone twice a second; the page runs again when the work is done."""
    with st.container(horizontal=True, vertical_alignment="center"):
        jobs.watch(job)
        st.button("Cancel", key=f"cancel.{name}", icon=":material/stop:", on_click=job.cancel)
