"""One sample of a lab: run when asked for, never unasked; and the next one."""

from collections.abc import Hashable
from typing import Any

import streamlit as st

from mta_viz.ui import jobs, state
from mta_viz.ui.waiting import time_text
from mta_viz.ui.widgets import caption

LINKED_SECONDS = 60  # a link starts nothing longer by itself


def draw_sample_run(
    lab: str, key: tuple[Hashable, ...], seed: int, seconds: float, work: jobs.Work
) -> Any | None:
    """The buttons, and what `work` gives for `key` once it is asked for; None until then.

    `key` ends with `seed`, which is kept as "`lab` seed". `seconds`: how long it should take.
    """
    asked = _asked(lab, key, seconds)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Run this sample", type="primary", key=f"{lab}.run", on_click=_ask, args=(lab, key))
        st.button(
            "New sample", key=f"{lab}.new", on_click=_new, args=(lab, key, seed + 1), help="The next one."
        )
        caption(f"About {time_text(seconds)} here.")
    if not asked and jobs.known(key) is None:
        st.info("No sample yet. Press Run this sample: it is made from the form above and its number.")
        return None
    return jobs.finished(lab, key, work)


def _asked(lab: str, key: tuple[Hashable, ...], seconds: float) -> bool:
    """Whether this sample was asked for: by the button, or by a link of a page that showed one."""
    state.declare(f"{lab} shown", False)
    if state.get(f"{lab} asked") is None and state.get(f"{lab} shown") and seconds < LINKED_SECONDS:
        state.put(f"{lab} asked", key)
    return state.get(f"{lab} asked") == key


def _ask(lab: str, key: tuple[Hashable, ...]) -> None:
    state.put(f"{lab} asked", key)
    state.put(f"{lab} shown", True)
    jobs.forget(lab)


def _new(lab: str, key: tuple[Hashable, ...], seed: int) -> None:
    state.put(f"{lab} seed", seed)
    _ask(lab, (*key[:-1], seed))
