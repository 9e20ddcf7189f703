"""Run B and the numbers of the comparison, worked out beside the page with progress and Stop."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from mta_viz.analysis.comparing import Comparison, Spans, compare_runs, spans_beside
from mta_viz.analysis.head_pairs import Rule
from mta_viz.analysis.operations import rerun
from mta_viz.analysis.spans import Span
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.tracing import Trace, capture
from mta_viz.ui import jobs, state
from mta_viz.ui.cache import stores
from mta_viz.ui.compare.sides import Side
from mta_viz.ui.open_page import Page
from mta_viz.ui.running import Job, model_of

RUN, NUMBERS = "compare run", "compare numbers"


@dataclass(frozen=True)
class Compared:
    """Both runs with their names, the numbers, and a key equal only for equal comparisons."""

    a: Trace
    b: Trace
    side: Side
    found: Comparison
    key: Hashable


def compared(page: Page, side: Side, span: Span | None, rule: Rule | None) -> Compared | None:
    """Run B and measure; None after Stop, with a button to go on. Raises what either raised."""
    b = jobs.finished(RUN, _run_key(page, side), lambda job: _run(page, side, job), stores().traces)
    if b is None:
        _draw_again()
        return None
    answer = state.get("answer") or None
    spans: Spans | Literal["asked"] | None = "asked" if span is None else spans_beside(page.trace, b, span)
    key = ("compare", page.key, _run_key(page, side), answer, spans, rule)

    def measure(job: Job) -> Comparison:
        job.begin("Comparing heads, kernels and answers")
        return compare_runs(
            page.trace, b, answer=answer, plan=side.plan, spans=spans, pair_by=rule, progress=job.report
        )

    found = jobs.finished(NUMBERS, key, measure)
    if found is None:
        _draw_again()
        return None
    return Compared(page.trace, b, side, found, key)


def _draw_again() -> None:
    st.button("Compare", key="compare.again", icon=":material/play_arrow:", on_click=_again)


def _again() -> None:
    for name in (RUN, NUMBERS):
        jobs.forget(name)


def _run_key(page: Page, side: Side) -> Hashable:
    """As other pages keep the same runs, so that each is there once."""
    return side.run if side.run is not None else ("edited", page.key, side.plan)


def _run(page: Page, side: Side, job: Job) -> Trace:
    if side.run is None:
        job.begin("Running the edited model")
        return rerun(page.trace, side.plan, job.report)
    model: Any = page.model
    if side.run.model != page.model_key:
        model = model_of(side.run.model, stores(), job)
    job.begin("Running B")
    try:
        return capture(model, side.run.prompt, progress=job.report)
    except (PromptError, TokenizerError) as error:
        raise PromptError(
            f"B ({side.name_b}) cannot run this prompt, so nothing is compared. {error}"
        ) from error
