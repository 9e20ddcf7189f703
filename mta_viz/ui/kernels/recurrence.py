"""Which named kernels come again: in other trainings of the model's shape, and from step to step."""

from typing import Any

import streamlit as st

from mta_viz.analysis.kernels.recurrence import Training
from mta_viz.figures.kernels.layer import NoHistory, training_history
from mta_viz.figures.kernels.training import (
    MOST,
    NEEDED,
    KernelRecurrence,
    LastingNames,
    other_trainings,
)
from mta_viz.plots.theme import probability_text
from mta_viz.ui.kernels import parts
from mta_viz.ui.kernels.parts import weights_source
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.plan import key_of
from mta_viz.ui.shell.show import measured_beside, show, weights_key
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain

OTHERS = Setting[Any]("trainings", [])


def draw_recurrence(page: Page) -> None:
    """Other trainings first, then the steps; each says what it lacks."""
    if not parts.has_kernels(page):
        return
    draw_address(f"{state.selection().checkpoint} · recurrence")
    st.markdown("**In other trainings**")
    _draw_trainings(page)
    st.markdown("**Over the steps of this training**")
    _draw_steps(page)


def _draw_trainings(page: Page) -> None:
    there = [training.name for training in other_trainings(weights_source(page))]
    if not there:
        st.info(plain(NEEDED))
        return
    widget = OTHERS.widget(there, default=there[:MOST])
    chosen = st.multiselect("Trainings of the same shape", there, max_selections=MOST, **widget)
    if not chosen:
        st.info("Choose at least one.")
        return
    spec = KernelRecurrence(others=tuple(chosen))
    count = "1 training" if len(chosen) == 1 else f"{len(chosen)} trainings"
    words = f"{count} to match, a few seconds each."
    result = measured_beside(page, spec.name, spec, "Match the kernels", words=words)
    if result is None:
        return
    name = key_of(weights_key(page), spec)
    show(weights_source(page), spec, on_head, result=result, widget=f"recurrence.{name}")
    st.dataframe([_row(training) for training in result.trainings], hide_index=True)


def _row(training: Training) -> dict[str, object]:
    matched = training.recurrence
    return {
        "training": training.name,
        "seed": training.seed,
        "same seed": training.same_seed,
        "same name": matched.same,
        "of": len(matched.matches),
        "by chance": round(matched.expected, 1),
        "p": probability_text(matched.p),
    }


def _draw_steps(page: Page) -> None:
    try:
        steps = training_history(weights_source(page)).steps
    except NoHistory as reason:
        st.info(plain(str(reason)))
        return
    spec = LastingNames()
    words = f"The kernels of {len(steps)} snapshots are named."
    result = measured_beside(page, spec.name, spec, "Name the kernels of every snapshot", words=words)
    if result is None:
        return
    if not result.rows:
        caption("No kernel has a template's name at the end of training.")
        return
    name = key_of(weights_key(page), spec)
    show(weights_source(page), spec, on_head, result=result, widget=f"lasting.{name}")
