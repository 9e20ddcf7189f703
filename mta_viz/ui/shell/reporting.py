"""The button that makes a report of the page's model and run, and those that download it.

What is done of it stays with the session: after Stop it goes on where it was.
"""

from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.task_samples import check_task
from mta_viz.errors import MtaVizError
from mta_viz.exporting.report import SAMPLES, Report, browser, report
from mta_viz.exporting.saved import file_name
from mta_viz.ui.shell import state
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import MIME_TYPES, caption
from mta_viz.ui.shell.work import Work

NO_TASK = "no task"
TASK, COUNT = Setting("report task", NO_TASK, private=True), Setting("report samples", SAMPLES, private=True)
WORDS = "Model, kernels, what they do on the prompt, and methods for a paper, in one file."


class ReportParts(dict[str, str]):
    """What is done of this session's reports, by name."""


def draw_report_button(page: Page) -> None:
    """Choose whether a task is measured too, make the report, download it."""
    with st.popover("Report", icon=":material/description:"):
        tasks = [NO_TASK, *fitting(page)]
        task = st.selectbox("Measure a task", tasks, **TASK.widget(tasks))
        samples = SAMPLES
        if task != NO_TASK:
            samples = st.number_input("Prompts", 1, 1000, step=10, **COUNT.widget())
        made = measured(_measurement(page, None if task == NO_TASK else task, samples))
        if made is not None:
            _draw_files(*made)


def fitting(page: Page) -> list[str]:
    """The tasks that the page's model can be asked."""
    if page.model.kernels_only or page.model.tokenizer is None:
        return []
    fits = []
    for task in ("needle", "pairs", "blocks"):
        try:
            check_task(page.model, task)
            fits.append(task)
        except MtaVizError:
            continue
    return fits


def _measurement(page: Page, task: str | None, samples: int) -> Measurement:
    parts, prompt = state.part(ReportParts), None if page.trace is None else page.trace.tokens

    def do(work: Work, keep: Keep) -> tuple[Report, bytes]:
        settings: dict[str, Any] = {
            "samples": samples if task else None,
            "numbering": page.numbering,
            "kept": parts,
        }
        made = report(page.model, prompt, task, **settings, begin=work.begin, progress=work.report)
        work.begin("Drawing")
        return made, made.html(work.report)

    key = ("report", page.key, task, samples, page.numbering)
    return Measurement("report", key, "Make the report", do, WORDS, large=True)


def _draw_files(made: Report, page: bytes) -> None:
    _file_button(made, f"Download HTML ({len(page) / 1e6:.1f} MB)", "html", page)
    try:
        browser("pdf")
    except MtaVizError as error:
        caption(str(error))
    else:
        _file_button(made, "Download PDF", "pdf", partial(made.pdf, page=page))


def _file_button(made: Report, label: str, suffix: str, content: Any) -> None:
    name = file_name(made.name, "report", suffix=suffix)
    look: Any = {"mime": MIME_TYPES[suffix], "on_click": "ignore", "width": "stretch"}
    st.download_button(label, content, name, key=f"report.{suffix}", **look)
