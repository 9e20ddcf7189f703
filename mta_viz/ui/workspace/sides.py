"""What stands beside the panels: the list of heads at the left, the inspector at the right.

Heads are ranked by what fits the moment: what is measured, else what they do here. The inspector says why the
cell has its value, what the kernel is, what can be changed, and what that does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import HeadScores, ranking
from mta_viz.analysis.cause.effects import Absent, without
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MADE_BY, MIXING, SHORT, WHERE, KernelId
from mta_viz.figures.attention.heads import informative, scores_key
from mta_viz.figures.kernels.atlas import WITHOUT
from mta_viz.figures.kernels.card import card_kernel
from mta_viz.figures.kernels.gallery import effects_without
from mta_viz.model.interventions import AblateHead, Intervention
from mta_viz.model.plans import OF_KERNEL, OF_MIXING, Listed
from mta_viz.plots.theme import score_text
from mta_viz.printed import head_name
from mta_viz.ui.attention import head as heads
from mta_viz.ui.attention.head import chosen_span
from mta_viz.ui.attention.tabs import AXES
from mta_viz.ui.kernels import parts
from mta_viz.ui.kernels.card import broken, kernel_name, looks
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell.cache import stores
from mta_viz.ui.shell.page import EDIT, INSPECTOR, Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, menu, plain
from mta_viz.ui.surgery.answer import draw_board
from mta_viz.ui.surgery.plan_list import draw_plan
from mta_viz.ui.workspace.panels import Desk
from mta_viz.ui.workspace.story import known_scores, task_kernel

AT_TASK, HERE = RANKINGS = ("at its task", "on this prompt")
RANKED_BY = Setting("ranked by", AT_TASK)
MOST, HEIGHT, NARROW = 40, 250, 40  # rows, pixels of the list, characters that fit its column


@dataclass(frozen=True)
class Ranked:
    """A row of the list: a head, of a kernel's number also its place, and the number."""

    layer: int
    head: int
    value: float
    kernel: KernelId | None = None


def draw_heads(desk: Desk) -> None:
    """Layer and head, and under them the list; a click on a row opens its head."""
    page, selected = desk.original, desk.head.selected
    with st.container(key="place"):
        pickers.pick_layer(page.model.config, selected.layer, page.numbering)
        pickers.pick_head(page.model.config, selected.head, page.numbering)
    words, rows = _by_effect(page)
    usual = AT_TASK if rows and task_kernel(page) is not None else HERE
    if state.is_another("ranked on", page.key):
        RANKED_BY.put(usual)
    offered = RANKINGS if rows else (HERE,)
    if menu("Ranked by", offered, RANKED_BY, default=usual, label_visibility="collapsed") == HERE:
        words, rows = _by_score(desk)
    caption(words, NARROW)
    with st.container(height=HEIGHT, border=False, key="ranked"):
        for index, row in enumerate(rows[:MOST]):
            here = (row.layer, row.head) == (selected.layer, selected.head)
            look: dict[str, Any] = {"width": "stretch", "on_click": _open, "args": (row,)}
            look["type"] = "secondary" if here and row.kernel in (None, desk.kernel) else "tertiary"
            st.button(_words(row, page.numbering), key=f"ranked.{index}", **look)


def _words(row: Ranked, numbering: int) -> str:
    where = "" if row.kernel is None or row.kernel.where == "pre" else f" {SHORT[row.kernel.where]}"
    return plain(f"{head_name(row.layer, row.head, numbering)}{where}  {score_text(row.value)}")


def _open(row: Ranked) -> None:
    stage = {} if row.kernel is None else {"stage": MADE_BY[row.kernel.where].value.key}
    state.select(layer=row.layer, head=row.head, **stage)


def _by_effect(page: Page) -> tuple[str, Sequence[Ranked]]:
    """What the task's answer loses without a kernel, where that was measured."""
    effects = effects_without(parts.weights_source(page))
    if isinstance(effects, Absent):
        return "", ()
    rows = [
        Ranked(kernel.layer, kernel.head, effect.log_probability_change.value, kernel)
        for kernel, effect in effects.of_each().items()
        if kernel.where in KEY_QUERY
    ]
    of = f"How the log-probability of the task’s answer changes {WITHOUT[effects.edit]}, in the mean."
    return f"Answer without each: nats, n = {effects.samples:,}. {of}", rows


def _by_score(desk: Desk) -> tuple[str, Sequence[Ranked]]:
    """What heads do on this prompt, where they have been scored; of the edited run once it is."""
    span = chosen_span(desk.head) or (desk.story.asked if desk.story else None)
    source = desk.head.source
    scores: HeadScores | None = stores().drawn.get((desk.head.page.key, *scores_key(source, None, span)))
    if scores is None and desk.head.page is desk.original:
        scores = known_scores(desk.original, span)
    if scores is None:
        return "Not scored yet. Heads are ranked here once they are.", ()
    key = AXES["Score"][0].value or informative(scores)  # as the view of all heads shows them
    if key not in scores.values:
        key = informative(scores)
    words = next(score.name for score in scores.scores if score.key == key)
    ranked = [at for at in ranking(scores, key) if not math.isnan(at.value)]
    about = "" if span is None else f" Of {span.words}."
    return f"{words[0].upper()}{words[1:]}.{about}", [Ranked(at.layer, at.head, at.value) for at in ranked]


LEARNED = "learned"
SWITCHES: dict[str, str] = {LEARNED: "learned", "own-tap": "own tap", "identity": "identity", "zero": "zero"}


def draw_inspector(desk: Desk) -> None:
    """One of the four, chosen by what is asked."""
    chosen = bar("Inspector", [*TABS], INSPECTOR, label_visibility="collapsed")
    TABS[chosen](desk)


def _draw_why(desk: Desk) -> None:
    heads.draw_cell(desk.head)
    heads.draw_why(desk.head)


def _draw_kernel(desk: Desk) -> None:
    page, kernel = desk.original, desk.kernel
    if kernel is None:
        st.info(plain(parts.missing_text(page, desk.head.selected.layer, "pre")))
        return
    source = parts.weights_source(page)
    card = card_kernel(source, kernel)
    st.markdown(f"**{plain(kernel_name(kernel, page.numbering))}**")
    st.markdown(plain(broken(card.row, card.taps) or looks(card.row, None, card.offsets)))
    st.markdown(plain(parts.matters_sentence(effects_without(source), kernel)))
    look: dict[str, Any] = {"icon": ":material/apps:", "on_click": _open_card, "args": (kernel,)}
    st.button("Open its card", key="inspector.card", **look)


def _open_card(kernel: KernelId) -> None:
    parts.select_kernel(kernel)
    st.switch_page("pages/kernels.py")


def _draw_edit(desk: Desk) -> None:
    """A switch for each kernel and row of mixing of the head, one for the head, then the whole plan."""
    page, selected = desk.original, desk.head.selected
    kernels = page.model.config.kernels(selected.layer)
    for where in (*KEY_QUERY, *MIXING):
        if getattr(kernels, where):
            _draw_switch(KernelId(selected.layer, selected.head, where), page.numbering)
    off = AblateHead(selected.layer, selected.head)
    key = state.borrow(f"switch.off.{selected.layer}.{selected.head}", _is_listed(off))
    name = head_name(selected.layer, selected.head, page.numbering)
    st.toggle(
        plain(f"{name} off"),
        _is_listed(off),
        key=key,
        on_change=lambda: _put((off,), off if state.widget_value(key) else None),
    )
    draw_plan(page, selected)


def _draw_switch(kernel: KernelId, numbering: int) -> None:
    offered = OF_MIXING if kernel.where in MIXING else OF_KERNEL
    edits: dict[str, Intervention] = {edit: without(kernel, edit) for edit in offered}
    now = next((edit for edit, part in edits.items() if _is_listed(part)), LEARNED)
    key = state.borrow(f"switch.{kernel.name()}", now)
    names = {edit: words for edit, words in SWITCHES.items() if edit == LEARNED or edit in edits}
    what = "Head mixing" if kernel.where in MIXING else "Kernel"

    def take() -> None:
        _put(tuple(edits.values()), edits.get(state.widget_value(key)))

    st.segmented_control(
        plain(f"{what} {WHERE[kernel.where]}"),
        [*names],
        format_func=names.__getitem__,
        default=now,
        required=True,
        key=key,
        on_change=take,
    )


def _is_listed(part: Intervention) -> bool:
    return any(item.on and item.intervention == part for item in plans.plan_items())


def _put(instead_of: tuple[Intervention, ...], part: Intervention | None) -> None:
    """In place of the other edits of the same thing."""
    rest = tuple(item for item in plans.plan_items() if item.intervention not in instead_of)
    plans.change(rest if part is None else (*rest, Listed(part)))


TABS: dict[str, Callable[[Desk], None]] = {
    "Why": _draw_why,
    "Kernel": _draw_kernel,
    EDIT: _draw_edit,
    "Effect": lambda desk: draw_board(desk.original, desk.plan),
}
