"""Where a prompt opens, its story measured beside the page, and how its answer stands.

Owns when a head is chosen for a visitor: on a prompt and model for which neither they nor a link chose one;
and the lines over the text: the answer without the shown kernel, in the twin, and under the plan.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import HeadScores
from mta_viz.analysis.attention.spans import Span, asked_span, needle_spans
from mta_viz.analysis.cause.answers import Standing, twin_of_model
from mta_viz.analysis.cause.choosing import head_of_most_weight, measured_kernel
from mta_viz.analysis.cause.effects import Absent, without
from mta_viz.analysis.cause.story import ASKED, BY, RULE, Story, story_of
from mta_viz.analysis.cause.sweeps import kernels_alone
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.analysis.labs.blocks import block_spans
from mta_viz.figures.attention.heads import scores_key, scores_of
from mta_viz.figures.cause.attribution import meter_of
from mta_viz.model.plans import Plan
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import score_text
from mta_viz.printed import head_name, probability_text, time_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tokenizers.base import quoted
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.measuring import Keep, Measurement, Results, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import resolve
from mta_viz.ui.shell.plan import ANSWER, PLAN_SHOWN, SHOWN
from mta_viz.ui.shell.show import source_of
from mta_viz.ui.shell.widgets import bar, icon_button, plain
from mta_viz.ui.shell.work import Work
from mta_viz.ui.workspace.panels import Desk

RUNS, BY_ITSELF = 6, 20.0  # runs of the prompt that a story takes about; seconds it may take unasked
Place = tuple[int, int, str]  # layer, head and stage


@dataclass
class Opened:
    """What was chosen for a visitor, on which run, and why; another choice than this is their own."""

    run: str = ""
    place: Place | None = None
    why: str = ""


def _measurement(page: Page) -> Measurement:
    seconds = RUNS * estimate_seconds(page.model, len(page.trace.tokens))
    key = ("story", page.key, ANSWER.value)
    words = f"About {time_text(seconds)} here."
    label = f"Find a head, {'its kernel ' * bool(kernels_alone(page.model.config))}and the answer"
    return Measurement("story", key, label, partial(_measure, page), words, by_itself=seconds <= BY_ITSELF)


@dataclass(frozen=True)
class _Measured:
    """A story and what heads do about its asked words; None where they are listed by what the task loses."""

    story: Story
    scores: HeadScores | None = None


def draw_story(page: Page) -> bool:
    """Whether the story of the page's prompt is there; before that draws how far it is, or its button."""
    return measured(_measurement(page)) is not None


def known_story(page: Page) -> Story | None:
    """The story if it is there already."""
    known = _known(page)
    return None if known is None else known.story


def known_scores(page: Page, span: Span | None) -> HeadScores | None:
    """What heads do about the story's asked words; None of another span, or before the story is there."""
    known = _known(page)
    return known.scores if known is not None and known.story.asked == span else None


def _known(page: Page) -> _Measured | None:
    kept = state.part(Results).of(_measurement(page))
    return None if kept is None else kept.result


def _measure(page: Page, work: Work, keep: Keep) -> _Measured:
    work.begin("Reading the plain twin")
    twin = twin_of_model(page.model)
    work.begin("Looking for what matters here")
    story = story_of(page.trace, answer=ANSWER.value or None, twin=twin, progress=work.report)
    if story.by == "effects":
        return _Measured(story)
    work.begin("Scoring all heads")
    source, span = replace(source_of(page), progress=work.report), story.asked
    scores = source.remember(partial(scores_of, source, None, span), *scores_key(source, None, span))
    return _Measured(story, scores)


def choose_head(page: Page) -> None:
    """Selects a head where nobody chose one or its cell: the story's, before it is there the best guess."""
    opened, now, story = state.part(Opened), state.selection(), known_story(page)
    if opened.place is not None and (now.layer, now.head, now.stage) == opened.place and now.query is None:
        if opened.run == page.key and story is None:
            return
        now = state.select(layer=None, head=None, stage=None)
    if now.layer is not None:
        return
    opened.run, (opened.place, opened.why) = page.key, _best(page, story)
    layer, head, stage = opened.place
    state.select(layer=layer, head=head, stage=stage)


def why_here(page: Page) -> str:
    """Why the page shows the head that it chose; empty at one that a visitor chose."""
    opened, now = state.part(Opened), state.selection()
    here = opened.run == page.key and (now.layer, now.head, now.stage) == opened.place
    return f"Opened at this head: {opened.why}." if here and opened.why else ""


def _best(page: Page, story: Story | None) -> tuple[Place, str]:
    if story is not None and story.place is not None:
        return _place(story.kernel, story.place), BY[story.by]
    kernel = task_kernel(page) if story is None else None
    if kernel is not None:
        return _place(kernel, (kernel.layer, kernel.head)), BY["effects"]
    if not kernels_alone(page.model.config):
        asked = asked_span(needle_spans(page.trace.tokens))
        made = partial(head_of_most_weight, page.trace, asked)
        place = remember(made, "head of most weight", page.key)
        return _place(None, place), "of all heads it gives what is asked for, or one word, most"
    first = resolve(replace(state.selection(), layer=None, head=None, stage=None), page.trace)
    return (first.layer, first.head, first.stage.value.key), first.why


def _place(kernel: KernelId | None, place: tuple[int, int]) -> Place:
    stage: Any = Stage.PATTERN if kernel is None else MADE_BY[kernel.where]
    return (*place, stage.value.key)


def task_kernel(page: Page) -> KernelId | None:
    """The kernel that costs most at the task, on a prompt of that task."""

    def find() -> tuple[KernelId | None]:
        tokens = page.trace.tokens
        asks = any(span.name.endswith(ASKED) for span in needle_spans(tokens) or block_spans(tokens))
        return (measured_kernel(page.model, tokens) if asks else None,)

    return remember(find, "measured kernel", page.key)[0]


QUICK = 2.0  # seconds of a run of the prompt: slower ones are not asked without being told to


def draw_answer(desk: Desk) -> None:
    """What the story says, and the answer in up to four states."""
    page, story = desk.original, desk.story
    if story is None:
        return
    own = story.standing
    parts = [f"**Answer {plain(story.answer.words)}** {_words(own)}"]
    alone, name = _without(desk, story)
    if alone is not None:
        moved = _moved(alone.log_odds - own.log_odds)
        parts.append(f"**without {name}** {moved}{_words(alone, short=True)}")
    if not isinstance(story.twin, Absent):
        twin = story.twin
        writes = plain(f"writes {quoted(twin.writes)}, gives it")
        parts.append(f"**{plain(twin.name)}** {writes} {_words(twin.standing, short=True)}")
    with st.container(key="answer", horizontal=True, gap="medium"):
        for part in parts:
            st.markdown(part, width="content")
    if not desk.plan:
        st.caption(plain(story.sentence(page.numbering)), help=plain(f"{why_here(page)} {RULE}"))


def _without(desk: Desk, story: Story) -> tuple[Standing | None, str]:
    """How the answer stands without the shown kernel's shape, or the story's head; what that is called."""
    page, kernel, selected = desk.original, desk.kernel, desk.head.selected
    place = (selected.layer, selected.head)
    if desk.plan or (kernel is None and place != story.place):
        return None, ""
    if kernel is None:
        return story.without, head_name(*place, page.numbering)
    alone = story.without if kernel == story.kernel else None
    if alone is None and estimate_seconds(page.model, len(page.trace.tokens)) < QUICK:
        alone = _standing(page, (without(kernel, "own-tap"),))
    return alone, f"{kernel.name(page.numbering)}’s shape"


def draw_plan_strip(desk: Desk) -> None:
    """The plan with what it does to the answer, and the switch between the runs."""
    page, plan = desk.original, desk.plan
    with st.container(horizontal=True, vertical_alignment="center", key="plan-strip"):
        bar("Show", SHOWN, PLAN_SHOWN, label_visibility="collapsed")
        before, after = _standing(page, ()), _standing(page, plan)
        effect = f"answer {_moved(after.log_odds - before.log_odds)}{_words(after)}"
        st.markdown(f"**Plan:** {plain(plans.plan_words(plan, page.numbering))} · {effect}", width="content")
        icon_button("Undo", "undo", "plan.back", plans.undo)
        icon_button("Remove all", "close", "strip.clear", partial(plans.change, ()))


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
