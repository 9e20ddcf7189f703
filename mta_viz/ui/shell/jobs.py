"""What runs on this machine, of all readers: what, whose, since when, how far; Stop for one's own."""

import time

import streamlit as st

from mta_viz.printed import printable
from mta_viz.ui.shell import models, readers, state, work
from mta_viz.ui.shell.readers import Reader
from mta_viz.ui.shell.trainings import find_trainings
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work

LIST = "jobs"  # the key of the list, which holds whether it is open
REFRESH = 2.0  # seconds


def draw_jobs() -> None:
    """The list, folded; while it is open it is drawn anew."""
    with st.popover("What runs", icon=":material/list:", key=LIST, on_change="rerun", width="stretch"):
        if state.widget_value(LIST):
            st.fragment(_draw, run_every=REFRESH)()


def _draw() -> None:
    reader, running = readers.current(), work.at_work()
    for job in running:
        _draw_job(job, reader)
    trainings = [training for training in find_trainings(models.roots()) if training.alive]
    for training in trainings:
        caption(f"The training in {printable(training.folder.name)}, see the page Train")
    if not running and not trainings:
        caption("Nothing at the moment.")


def _draw_job(job: Work, reader: Reader) -> None:
    own, left = reader.owns(job.reader), not readers.is_here(job.reader)
    whose = "yours" if own else "of a reader who has left" if left else "another reader's"
    since = time.strftime("%H:%M:%S", time.localtime(job.since))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(work.progress_text(job) + plain(f" · {whose}, since {since}, {job.fraction:.0%}"))
        if own or left:
            st.button("Stop", key=f"jobs.stop.{id(job)}", on_click=job.stop)
