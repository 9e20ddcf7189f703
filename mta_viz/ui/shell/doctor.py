"""Whether the machine the app runs on is well, in a window: the same as the command `doctor`."""

import streamlit as st

from mta_viz.exporting.doctor import diagnose
from mta_viz.ui.shell import models
from mta_viz.ui.shell.widgets import caption, window

MARKS = {"ok": ":material/check:", "note": ":material/info:", "wrong": ":material/error:"}


def draw_doctor() -> None:
    """A button that opens the window."""
    help = (
        "torch and its devices, versions, browser, fonts, models, memory and disk: what is wrong, what to do."
    )
    if st.button("Check this machine", icon=":material/stethoscope:", key="doctor", help=help):
        _draw_checks()


@window("This machine", width="large")
def _draw_checks() -> None:
    with st.spinner("Looking"):
        diagnosis = diagnose(models.roots(), port=None)
    caption(
        "Whether the server answers, for a proxy or a container: /_stcore/health. The command doctor says "
        "the same as this window."
    )
    for check in diagnosis.checks:
        with st.container(horizontal=True, vertical_alignment="top"):
            st.markdown(MARKS[check.state], width="content")
            with st.container():
                st.text(f"{check.name}: {check.found}")
                if check.remedy:
                    caption(check.remedy)
