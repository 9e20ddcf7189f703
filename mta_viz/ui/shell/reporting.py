"""The button that makes a report of the page's model and run, and those that download it.

What is done of it stays with the session: after Stop it goes on where it was. It is a job, which goes on
without its reader.
"""

from functools import partial
from typing import Any

import streamlit as st

from mta_viz.exporting.report import SAMPLES, Report, report, usual_task
from mta_viz.exporting.saved import file_name
from mta_viz.ui.shell import state
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import MIME_TYPES, caption
from mta_viz.ui.shell.work import Work

TASK = Setting("report task", False, private=True)
WORDS = "Model, kernels, what they do on the prompt, and methods for a paper, in one file."


class ReportParts(dict[str, str]):
    """What is done of this session's reports, by name."""


def draw_report_button(page: Page) -> None:
    """Choose whether a task is measured too, make the report, download it."""
    with st.popover("Report", icon=":material/description:"):
        task, runs = usual_task(page.model), page.model.tokenizer is not None and not page.model.kernels_only
        label = f"Also {SAMPLES} prompts of the task “{task}”, the model beside its plain twin"
        asked = runs and st.checkbox(label, **TASK.widget())
        made: Any = measured(_measurement(page, task if asked else None))
        if made is None and state.part(ReportParts):
            caption("What is done stays: it goes on from there.")
        elif made is not None:
            _file_button(made[0], "html", made[1])
            _file_button(made[0], "pdf", partial(made[0].pdf, page=made[1]))


def _file_button(made: Report, suffix: str, content: Any) -> None:
    look: Any = {"mime": MIME_TYPES[suffix], "key": f"report.{suffix}", "on_click": "ignore"}
    name = file_name(made.name, "report", suffix=suffix)
    st.download_button(f"Download {suffix.upper()}", content, name, width="stretch", **look)


def _measurement(page: Page, task: str | None) -> Measurement:
    parts, prompt = state.part(ReportParts), None if page.trace is None else page.trace.tokens

    def do(work: Work, keep: Keep) -> tuple[Report, bytes]:
        keep(None)  # what there is after Stop is in the parts
        settings: dict[str, Any] = {"numbering": page.numbering, "kept": parts, "begin": work.begin}
        made = report(page.model, prompt, task, **settings, progress=work.report)
        work.begin("Drawing")
        return made, made.html(work.report)

    key = ("report", page.key, task, page.numbering)
    return Measurement("report", key, "Make the report", do, WORDS, owner="job", large=True)
