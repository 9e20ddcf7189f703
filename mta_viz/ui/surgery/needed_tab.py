"""Minimal set: the smallest set of kernels the answer needs, found greedily, beside random sets."""

import math

import streamlit as st

from mta_viz.analysis.answers import AnswerMeter
from mta_viz.analysis.sweeps import (
    FALL,
    MAX_SET,
    RANDOM_SETS,
    TRIED,
    Needed,
    kernels_alone,
    needed_kernels,
    sweep,
)
from mta_viz.interventions.plans import Plan
from mta_viz.plots.sweep import set_beside_random
from mta_viz.plots.theme import probability_text, score_text
from mta_viz.ui.cache import stores
from mta_viz.ui.open_page import Page
from mta_viz.ui.surgery import plan_state
from mta_viz.ui.surgery.board import meter_of
from mta_viz.ui.surgery.jobs import Report, result_of
from mta_viz.ui.widgets import caption, chart, plain

WIDTH = 560
SWEEP_SHARE = 0.5  # of the work, where the kernels were not swept yet

CRITERION = (
    "Which kernels does this answer need? A set counts when, with all of it at identity, the answer's "
    f"probability falls to a tenth (its log-probability by {FALL:.2f} nats). Greedy: of the {TRIED} "
    "kernels most harmful alone, the worst joins the set at each step; then what the set can do without "
    f"is taken out. At most {MAX_SET} kernels. Kernels that matter only together can be missed."
)


def draw_needed(page: Page) -> None:
    """The criterion, the button or the result."""
    tried = kernels_alone(page.model.config)
    if not tried:
        st.info("This model has no key-query kernels, so no answer of it needs one.")
        return
    caption(CRITERION)
    meter = meter_of(page)
    found: Needed | None = result_of(
        "needed",
        ("needed", page.key, meter.answer),
        "Find the smallest set",
        lambda report: _find(page, meter, tried, report),
    )
    if found is not None:
        _draw(page, meter, found)


def _find(page: Page, meter: AnswerMeter, tried: Plan, report: Report) -> Needed:
    """From the kernels' sweep, which is made if it is not there."""
    key = ("sweep", page.key, meter.answer, "kernels")
    known = stores().drawn.get(key)
    share = 0.0 if known is not None else SWEEP_SHARE
    alone = known or stores().drawn.get_or_make(
        key, lambda: sweep(meter, tried, lambda done: report(share * done))
    )
    return needed_kernels(meter, alone, progress=lambda done: report(share + (1 - share) * done))


def _draw(page: Page, meter: AnswerMeter, found: Needed) -> None:
    p = probability_text(math.exp(meter.before))
    if not found.reached:
        st.info(
            plain(
                f"No set of up to {MAX_SET} of the {found.n_candidates} kernels takes this answer "
                f"(probability {p}) down to a tenth. All kernels at identity change it by "
                f"{score_text(found.everything)} nats."
            )
        )
        return
    st.markdown(plain(_sentence(meter, found)))
    for one in found.plan:
        st.markdown(f"- {plain(one.text(page.numbering))}")
    with st.container(horizontal=True):
        st.button("Make it the plan", key="needed.plan", on_click=_take, args=(found.plan,))
    if found.random:
        chart(
            set_beside_random(found.change, found.random, width=WIDTH),
            f"needed.{page.key}",
            alt="The change by the chosen set beside random sets",
        )


def _sentence(meter: AnswerMeter, found: Needed) -> str:
    before, after = (
        probability_text(math.exp(value)) for value in (meter.before, meter.before + found.change)
    )
    size, n = len(found.plan), len(found.random)
    worse = sum(change <= found.change for change in found.random)
    kernels = "1 kernel" if size == 1 else f"{size} kernels"
    random = (
        ""
        if not n
        else (
            f" Of {n} random sets of that size {worse} do as much; the most harmful changes it by "
            f"{score_text(min(found.random))} nats, the mean is {score_text(sum(found.random) / n)}."
        )
    )
    fewer = "" if n == RANDOM_SETS or not n else " There are no more sets of that size."
    return (
        f"{kernels} of {found.n_candidates}: with them at identity the answer's probability falls from "
        f"{before} to {after} ({score_text(found.change)} nats).{random}{fewer} "
        f"All kernels at once: {score_text(found.everything)} nats."
    )


def _take(plan: Plan) -> None:
    plan_state.change(tuple(map(plan_state.Listed, plan)))
