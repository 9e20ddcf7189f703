"""Long measurements of the Surgery page: a button, then progress with Cancel, then the result."""

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.ui import jobs, state
from mta_viz.ui.cache import stores
from mta_viz.ui.running import Job
from mta_viz.ui.waiting import LONGEST
from mta_viz.ui.widgets import plain

Report = Callable[[float], None]
Keep = Callable[[Any], None]


def result_of(name: str, key: tuple[Hashable, ...], label: str, make: Callable[[Report], Any]) -> Any | None:
    """The result for `key`; None while it is not there: then a button or the progress is drawn.

    `make(report)` runs beside the page; it reports its share done, which raises when it is cancelled.
    """
    return best_of(name, key, label, lambda report, _: make(report))


def best_of(
    name: str, key: tuple[Hashable, ...], label: str, make: Callable[[Report, Keep], Any]
) -> Any | None:
    """The same for work that tells `keep` what it has so far: when it is cancelled, that is the result."""
    found = jobs.known(key)
    if found is not None:
        return found
    job = jobs.current(name, key)
    if job is None and state.get("waits for all"):
        _start(name, key, make, LONGEST)
        job = jobs.current(name, key)
    if job is not None:
        if not job.wait(0.2):
            _watch(job, name)
            return None
        found = jobs.known(key)  # it may have ended since
    so_far = _so_far(name, key)
    if job is not None and found is None:
        _say_end(job, bool(so_far))
    if found is None:
        st.button(label, key=f"start.{name}", type="primary", on_click=_start, args=(name, key, make))
    return found or (so_far[-1] if so_far else None)


def _start(
    name: str, key: tuple[Hashable, ...], make: Callable[[Report, Keep], Any], seconds: float = 0.0
) -> None:
    kept, so_far = stores(), list[Any]()
    state.put(f"so far.{name}", (key, so_far))

    def keep(found: Any) -> None:
        so_far[:] = [found]

    def work(job: Job) -> None:
        job.begin("Measuring")
        kept.drawn.get_or_make(key, lambda: make(job.report, keep))

    jobs.start(name, key, work).wait(seconds)


def _so_far(name: str, key: tuple[Hashable, ...]) -> list[Any]:
    there = state.get(f"so far.{name}")
    return there[1] if there is not None and there[0] == key else []


def _say_end(job: Job, something: bool) -> None:
    if isinstance(job.error, Cancelled):
        st.info("Cancelled. " + ("Below is what it had so far." if something else "Nothing was kept of it."))
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
