"""A measurement over many samples, beside the page: its button, Stop, and the result so far."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.ui import jobs, state
from mta_viz.ui.running import Job
from mta_viz.ui.waiting import LONGEST, QUIET_SECONDS
from mta_viz.ui.widgets import caption

Keep = Callable[[Any], None]


@dataclass(frozen=True)
class Measurement:
    """`work(keep, job)` hands over results so far; `draw(result so far or None, whether it runs)`.

    `name` is the job's; `key` is equal only for equal measurements. `label` is on the button, `words`
    stand beside it. `by_itself`: without a press of the button, where nothing is kept yet.
    """

    name: str
    key: Hashable
    label: str
    words: str
    work: Callable[[Keep, Job], object]
    draw: Callable[[Any | None, bool], None]
    by_itself: bool = False


def draw_measurement(one: Measurement) -> None:
    """The button, or Stop while it runs; the bar and the result so far, which stays when it is stopped."""
    draw_button(one)
    draw_live(one)


def draw_button(one: Measurement) -> None:
    """Measure, or Stop while it runs, and the words."""
    if one.by_itself and one.key not in kept(one.name):
        _start(one, LONGEST if state.get("waits for all") else QUIET_SECONDS)
    job = jobs.running(one.name, one.key)
    with st.container(horizontal=True, vertical_alignment="center"):
        if job is not None:
            st.button("Stop", key=f"{one.name}.stop", icon=":material/stop:", on_click=job.cancel)
        else:
            st.button(one.label, key=f"{one.name}.run", on_click=_start, args=(one,))
        if one.words:
            caption(one.words)


def draw_live(one: Measurement) -> None:
    """The bar and the result so far, drawn alone only while it grows: a click on it may change the page."""
    jobs.say_failure(jobs.current(one.name, one.key))
    job, found = jobs.running(one.name, one.key), kept(one.name)
    live = st.fragment(_draw_live, run_every=1.0) if job else _draw_live
    live(one, found, job)


def kept(name: str) -> dict[Hashable, Any]:
    """The session's results of this name by key; jobs write into it."""
    found: dict[Hashable, Any] = state.get(f"{name} kept", {})
    state.put(f"{name} kept", found)
    return found


def _start(one: Measurement, seconds: float = 0.0) -> None:
    """Begin, and wait up to `seconds` for the end."""
    jobs.start(one.name, one.key, partial(_measure, one, kept(one.name))).wait(seconds)


def _measure(one: Measurement, found: dict[Hashable, Any], job: Job) -> None:
    job.begin("Measuring")
    one.work(partial(found.__setitem__, one.key), job)


def _draw_live(one: Measurement, found: dict[Hashable, Any], job: Job | None) -> None:
    if job is not None:
        jobs.watch(job)
    one.draw(found.get(one.key), job is not None)
