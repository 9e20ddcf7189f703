"""The line over the text: how the answer stands, without the shown kernel, in the twin, under the plan."""

import math

import streamlit as st

from mta_viz.analysis.cause.answers import Standing
from mta_viz.analysis.cause.effects import Absent, without
from mta_viz.analysis.cause.story import RULE
from mta_viz.figures.cause.attribution import meter_of
from mta_viz.model.plans import Plan
from mta_viz.plots.theme import probability_text, score_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.ui.fields import bar
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.plan import ANSWER, NAMED, PLAN_SHOWN, SHOWN
from mta_viz.ui.shell.show import source_of
from mta_viz.ui.shell.widgets import plain
from mta_viz.ui.workspace.opening import why_here
from mta_viz.ui.workspace.panels import Desk

QUICK = 2.0  # seconds of a run of the prompt: slower ones are not asked without being told to


def draw_answer(desk: Desk) -> None:
    """What the story says, and the answer in up to four states."""
    page, story = desk.original, desk.story
    if story is None:
        return
    kernel, own = desk.kernel, story.standing
    parts = [f"**Answer “{plain(story.answer_text)}”** {_words(own)}"]
    if kernel is not None and not desk.plan:
        quick = estimate_seconds(page.model, len(page.trace.tokens)) < QUICK
        alone = story.without if kernel == story.kernel else None
        if alone is None and quick:
            alone = _standing(page, (without(kernel, "own-tap"),))
        if alone is not None:
            moved = _moved(alone.log_odds - own.log_odds)
            parts.append(
                f"**without {kernel.name(page.numbering)}’s shape** {moved}{_words(alone, short=True)}"
            )
    if not isinstance(story.twin, Absent):
        twin = story.twin
        writes = plain(twin.writes.strip())
        parts.append(
            f"**{plain(twin.name)}** writes “{writes}”, gives it {_words(twin.standing, short=True)}"
        )
    with st.container(key="answer", horizontal=True, gap="medium"):
        for part in parts:
            st.markdown(part, width="content")
    if not desk.plan:
        st.caption(plain(story.sentence(page.numbering)), help=plain(f"{why_here(page)} {RULE}"))


def draw_plan_strip(desk: Desk) -> None:
    """The plan with what it does to the answer, and the switch between the runs."""
    page, plan = desk.original, desk.plan
    words = ", ".join(part.text(page.numbering) for part in plan[:NAMED])
    words += f" and {len(plan) - NAMED} more" if len(plan) > NAMED else ""
    with st.container(horizontal=True, vertical_alignment="center", key="plan-strip"):
        bar("Show", SHOWN, PLAN_SHOWN, label_visibility="collapsed")
        st.markdown(f"**Plan:** {plain(words)} · {_effect(page, plan)}", width="content")
        st.button("", icon=":material/undo:", key="plan.back", help="Undo", on_click=plans.undo)
        st.button(
            "",
            icon=":material/close:",
            key="strip.clear",
            help="Remove all",
            on_click=plans.change,
            args=((),),
        )


def _effect(page: Page, plan: Plan) -> str:
    before, after = _standing(page, ()), _standing(page, plan)
    return f"answer {_moved(after.log_odds - before.log_odds)}{_words(after)}"


def _standing(page: Page, plan: Plan) -> Standing:
    """How the answer stands under a plan; measured once."""
    source, answer = source_of(page), ANSWER.value or None
    return source.remember(lambda: meter_of(source, answer).standing(plan), "standing", answer, plan)


def _words(at: Standing, *, short: bool = False) -> str:
    """Log-odds and rank first: they move where a probability near 1 does not."""
    rank = "" if at.rank is None else f" · rank {at.rank:,}"
    return plain(
        f"{'' if short else 'log-odds '}{at.log_odds:+.2f}{rank} · p {probability_text(at.probability)}"
    )


def _moved(change: float) -> str:
    return f"**{plain(score_text(change))} nats** → " if math.isfinite(change) else ""
