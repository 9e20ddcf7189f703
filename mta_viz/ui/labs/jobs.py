"""Work beside the page: one job for each name in a session, its result remembered by its key."""

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from mta_viz.errors import Cancelled
from mta_viz.ui import cache, state
from mta_viz.ui.running import Job
from mta_viz.ui.waiting import QUIET_SECONDS, show_progress

Work = Callable[[Job], Any]


def known(key: Hashable) -> Any | None:
    """The result for `key`, if it is there."""
    return cache.stores().drawn.get(key)


def finished(name: str, key: Hashable, work: Work) -> Any | None:
    """What `work(job)` gives for `key`, once for each key; waits with a bar and Stop. None after Stop.

    Raises what the work raised.
    """
    found = known(key)
    if found is not None:
        return found
    job = job_for(name, key, lambda job: cache.stores().drawn.get_or_make(key, lambda: work(job)) and None)
    if not job.wait(QUIET_SECONDS):
        place = st.empty()
        with place.container():
            st.button("Stop", key=f"stop.{name}", icon=":material/stop:", on_click=job.cancel)
            show_progress(job)
        place.empty()
    if isinstance(job.error, Cancelled):
        st.info("Stopped. Run it again, or choose something smaller.")
        return None
    if job.error is not None:
        raise job.error
    return known(key)


def job_for(name: str, key: Hashable, work: Callable[[Job], None]) -> Job:
    """This session's job `name`, if it is for `key`; else a new one, and the old one is cancelled."""
    current = state.get(f"job.{name}")
    if current is not None:
        if current[0] == key:
            return current[1]
        current[1].cancel()
    job = Job(work)
    state.put(f"job.{name}", (key, job))
    return job


def forget(name: str) -> None:
    """Let the next `finished` or `job_for` of this name start anew."""
    state.put(f"job.{name}", None)
