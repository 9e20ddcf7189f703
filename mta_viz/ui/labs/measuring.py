"""A measurement over many samples, beside the page: its button, Stop, and the result so far."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.ui import jobs, state
from mta_viz.ui.running import Job
from mta_viz.ui.widgets import caption


@dataclass(frozen=True)
class Measurement:
    """`work(keep, report)` hands over results so far; `draw(result so far or None, whether it runs)`.

    `name` is the job's; `key` is equal only for equal measurements. `label` is on the button, `words`
    stand beside it.
    """

    name: str
    key: Hashable
    label: str
    words: str
    work: Callable[[Callable[[Any], None], Callable[[float], None]], object]
    draw: Callable[[Any | None, bool], None]


def draw_measurement(one: Measurement) -> None:
    """The button, or Stop while it runs; the bar and the result so far, which stays when it is stopped."""
    found, job = kept(one.name), jobs.running(one.name, one.key)
    with st.container(horizontal=True, vertical_alignment="center"):
        if job is not None:
            st.button("Stop", key=f"{one.name}.stop", icon=":material/stop:", on_click=job.cancel)
        else:
            args = (one.name, one.key, partial(_measure, one, found))
            st.button(one.label, key=f"{one.name}.run", on_click=jobs.start, args=args)
        caption(one.words)
    jobs.say_failure(jobs.current(one.name, one.key))
    st.fragment(_draw_live, run_every=1.0 if job else None)(one, found, job)


def kept(name: str) -> dict[Hashable, Any]:
    """The session's results of this name by key; jobs write into it."""
    found: dict[Hashable, Any] = state.get(f"{name} kept", {})
    state.put(f"{name} kept", found)
    return found


def _measure(one: Measurement, found: dict[Hashable, Any], job: Job) -> None:
    job.begin("Measuring")
    one.work(partial(found.__setitem__, one.key), job.report)


def _draw_live(one: Measurement, found: dict[Hashable, Any], job: Job | None) -> None:
    if job is not None:
        jobs.watch(job)
    one.draw(found.get(one.key), job is not None)
