"""Waiting for a job on a page: its bar, what it does and how long it still takes. Starts no job.

Work beside the page: one job for each name in a session, its result remembered by its key.
"""

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from mta_viz.errors import Cancelled
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell.running import Job
from mta_viz.ui.shell.widgets import plain

QUIET_SECONDS = 0.4  # work shorter than this shows no progress bar
LONGEST = 600.0  # seconds: of a measurement without anybody before the page


def show_progress(job: Job) -> None:
    """A bar until the job is done."""
    place = st.empty()
    while not job.wait(0.1):
        place.progress(job.fraction, text=progress_text(job))
    place.empty()


def progress_text(job: Job) -> str:
    """What the job does now and about how long it still takes, as markdown."""
    left = job.seconds_left
    return plain(job.stage if left is None else f"{job.stage}: about {time_text(left)} left")


def time_text(seconds: float) -> str:
    """`40 s`, `4 min`."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} min"


Work = Callable[[Job], Any]


def known(key: Hashable) -> Any | None:
    """The result for `key`, if it is there."""
    return cache.stores().drawn.get(key)


def finished(name: str, key: Hashable, work: Work, store: cache.BoundedStore | None = None) -> Any | None:
    """What `work(job)` gives for `key`, once for each key; waits with a bar and Stop. None after Stop.

    `store` is where the result is kept; None: with what is drawn. Raises what the work raised.
    """
    store = store or cache.stores().drawn
    found = store.get(key)
    if found is not None:
        return found
    before = current(name, key)
    if before is not None and before.wait(0.0) and before.error is None:
        forget(name)  # its result was there and has been dropped for newer ones
    job = job_for(name, key, lambda job: store.get_or_make(key, lambda: work(job)) and None)
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
    return store.get(key)


def job_for(name: str, key: Hashable, work: Callable[[Job], None]) -> Job:
    """This session's job `name`, if it is for `key`; else a new one, and the old one is cancelled."""
    there = state.get(f"job.{name}")
    if there is not None:
        if there[0] == key:
            return there[1]
        there[1].cancel()
    job = Job(work)
    state.put(f"job.{name}", (key, job))
    return job


def current(name: str, key: Hashable) -> Job | None:
    """This session's job `name`, running or through, if it is for `key`."""
    there = state.get(f"job.{name}")
    return there[1] if there is not None and there[0] == key else None


def running(name: str, key: Hashable) -> Job | None:
    """The same, only while it runs."""
    job = current(name, key)
    return None if job is None or job.wait(0.0) else job


def start(name: str, key: Hashable, work: Callable[[Job], None]) -> Job:
    """A new job, also where one for `key` was stopped."""
    forget(name)
    return job_for(name, key, work)


def watch(job: Job) -> None:
    """The bar of a job that runs, drawn in a fragment; the page is drawn anew when the job is through."""
    if job.wait(0.0):
        st.rerun()
    st.progress(job.fraction, text=progress_text(job))


def say_failure(job: Job | None) -> None:
    """What went wrong with a job, if anything did; to be stopped is no failure."""
    if job is not None and job.error is not None and not isinstance(job.error, Cancelled):
        st.error(plain(f"It stopped: {job.error}"))


def cancel_all() -> None:
    """Have every job of this session stop: nobody will look at what it finds."""
    for name, there in st.session_state.items():
        if str(name).startswith("kept.job.") and there is not None:
            there[1].cancel()


def forget(name: str) -> None:
    """Let the next `finished` or `job_for` of this name start anew."""
    state.put(f"job.{name}", None)
