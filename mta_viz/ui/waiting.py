"""Waiting for a job on a page: its bar, what it does and how long it still takes. Starts no job."""

import streamlit as st

from mta_viz.ui.running import Job
from mta_viz.ui.widgets import plain

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
