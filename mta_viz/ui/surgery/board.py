"""The answer board: how probable the answer and the likeliest tokens are, originally and edited.

Long measurements of the Surgery page: a button, then progress with Cancel, then the result.
What attribution is asked about: the token after which an answer stands, and the answer.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.cause.answers import (
    Answer,
    AnswerMeter,
    Board,
    answer_after,
    answer_board,
    unchanged_without_a_plan,
)
from mta_viz.analysis.cause.attributed_prompt import ask
from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.model.plans import Plan
from mta_viz.plots.theme import cut, probability_text, score_text
from mta_viz.ui.shell import state
from mta_viz.ui.shell import work as jobs
from mta_viz.ui.shell.cache import remember, remember_with_run, stores
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.plan import edited_run
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work

SOURCES = {
    "needle": "the number the prompt asks for",
    "likeliest": "the original model's most probable next token",
    "given": "as typed",
}


def meter_of(page: Page) -> AnswerMeter:
    """The answer that is looked at: typed in, or the one the prompt suggests."""
    text = state.get("answer") or None
    return remember_with_run(
        lambda: AnswerMeter(page.trace, answer_after(page.trace, text)), "meter", page.key, text
    )


def draw_board(page: Page, plan: Plan) -> None:
    """The answer's field, three numbers, the top tokens; without a plan that nothing is changed."""
    st.text_input(
        "Answer",
        placeholder="empty: the number asked for, or the likeliest token",
        help="What should follow the prompt. Type a space first where a word would have one.",
        **state.kept("answer", ""),
    )
    meter = meter_of(page)
    run = edited_run(page, plan) if plan else page.trace
    board: Board = remember(lambda: answer_board(meter, run, plan), "board", page.key, meter.answer, plan)
    caption(_answer_words(meter.answer))
    _draw_numbers(board)
    st.dataframe(_rows(board), hide_index=True, column_config=_columns(), height=38 + 35 * len(_rows(board)))
    if not plan:
        _draw_badge(page)


def _answer_words(answer: Answer) -> str:
    count = len(answer.ids)
    n_tokens = "1 token" if count == 1 else f"{count} tokens"
    return f"Answer “{answer.text}”: {SOURCES[answer.source]}; {n_tokens}."


def _draw_numbers(board: Board) -> None:
    original, edited, change = st.columns(3)
    original.metric("Original: p(answer)", probability_text(math.exp(board.before)))
    edited.metric("Edited: p(answer)", probability_text(math.exp(board.after)))
    odds = board.log_odds_change
    change.metric(
        "Change of log-odds",
        f"{score_text(odds)} nats" if math.isfinite(odds) else "beyond float32",
        help=f"Log-odds: log(p / (1 - p)). Log-probability: {score_text(board.change)} nats.",
    )


def _rows(board: Board) -> list[dict[str, object]]:
    return [
        {"token": one.piece, "original": one.before, "edited": one.after, "change": one.after - one.before}
        for one in board.top
    ]


def _columns() -> dict[str, Any]:
    shown = {
        name: st.column_config.ProgressColumn(name, format="%.3f", min_value=0.0, max_value=1.0)
        for name in ("original", "edited")
    }
    return shown | {"change": st.column_config.NumberColumn("change", format="%+.3f")}


def _draw_badge(page: Page) -> None:
    with st.spinner("Running the prompt once more ..."):
        same = remember(lambda: (unchanged_without_a_plan(page.trace),), "empty plan", page.key)[0]
    if same:
        st.success("Empty plan: output identical to the original ✓")
    else:
        st.error("Empty plan: the output differs from the original run; do not trust what this page shows.")


Report = Callable[[float], None]
Keep = Callable[[Any], None]


def result_of(name: str, key: tuple[Hashable, ...], label: str, make: Callable[[Report], Any]) -> Any | None:
    """The result for `key`; None while it is not there: then a button or the progress is drawn.

    `make(report)` runs beside the page; it reports its share done, which raises when it is cancelled.
    """
    return best_of(name, key, label, lambda report, _: make(report))


def best_of(
    name: str, key: tuple[Hashable, ...], label: str, make: Callable[[Report, Keep], Any]
) -> Any | None:
    """The same for work that tells `keep` what it has so far: when it is cancelled, that is the result."""
    found = jobs.known(key)
    if found is not None:
        return found
    work = jobs.current(name, key)
    if work is not None:
        if not work.wait(0.2):
            _watch(work, name)
            return None
        found = jobs.known(key)  # it may have ended since
    so_far = _so_far(name, key)
    if work is not None and found is None:
        _say_end(work, bool(so_far))
    if found is None:
        st.button(label, key=f"start.{name}", type="primary", on_click=_start, args=(name, key, make))
    return found or (so_far[-1] if so_far else None)


def _start(
    name: str, key: tuple[Hashable, ...], make: Callable[[Report, Keep], Any], seconds: float = 0.0
) -> None:
    kept, so_far = stores(), list[Any]()
    state.put(f"so far.{name}", (key, so_far))

    def keep(found: Any) -> None:
        so_far[:] = [found]

    def work(work: Work) -> None:
        work.begin("Measuring")
        kept.drawn.get_or_make(key, lambda: make(work.report, keep))

    jobs.start(name, key, work).wait(seconds)


def _so_far(name: str, key: tuple[Hashable, ...]) -> list[Any]:
    there = state.get(f"so far.{name}")
    return there[1] if there is not None and there[0] == key else []


def _say_end(work: Work, something: bool) -> None:
    if isinstance(work.error, Cancelled):
        st.info("Cancelled. " + ("Below is what it had so far." if something else "Nothing was kept of it."))
    elif isinstance(work.error, MtaVizError):
        st.error(plain(str(work.error)))
    elif work.error is not None:
        raise work.error


@st.fragment(run_every=0.5)
def _watch(work: Work, name: str) -> None:
    """Runs alone twice a second; the page runs again when the work is done."""
    with st.container(horizontal=True, vertical_alignment="center"):
        jobs.watch(work)
        st.button("Cancel", key=f"cancel.{name}", icon=":material/stop:", on_click=work.stop)


@dataclass(frozen=True)
class Asked:
    """`text`: the answer as typed, None for the one the prompt suggests. `answer`: its tokens."""

    position: int
    text: str | None
    answer: Answer

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What results depend on besides the run."""
        return self.position, self.answer.ids


def pick_question(page: Page) -> Asked:
    """The token and the answer after it; at the prompt's end the answer of the board above.

    Raises MtaVizError for an answer that is none.
    """
    last = len(page.trace.tokens) - 1
    _forget_another_prompts(page)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        position = st.number_input(
            "After token",
            min_value=0,
            max_value=last,
            step=1,
            width=170,
            help="The answer is looked for after this token; the prompt's last one at first.",
            **state.kept("asked position", last, within=(0, last)),
        )
        text = state.get("answer") or None
        if position != last:
            text = _own_answer(page)
    asked = Asked(int(position), text, _answer(page, int(position), last, text))
    caption(_words(page, asked))
    return asked


def _forget_another_prompts(page: Page) -> None:
    """A position and an answer of another run mean nothing in this one."""
    if state.get("asked of", page.key) != page.key:
        state.put("asked position", len(page.trace.tokens) - 1)
        state.put("asked answer", "")
    state.put("asked of", page.key)


def _own_answer(page: Page) -> str | None:
    typed = st.text_input(
        "Token or answer there",
        placeholder="empty: the likeliest token",
        width=280,
        help="Type a space first where a word would have one.",
        **state.kept("asked answer", ""),
    )
    return typed or None


def _answer(page: Page, position: int, last: int, text: str | None) -> Answer:
    if position == last:
        return meter_of(page).answer
    return remember(
        lambda: ask(page.model, page.trace.tokens, text, position).answer, "asked", page.key, position, text
    )


def _words(page: Page, asked: Asked) -> str:
    piece = cut(page.trace.tokens.pieces[asked.position], 24)
    return (
        f"After token {asked.position} “{piece}”: the answer “{asked.answer.text}” "
        f"({SOURCES[asked.answer.source]}). The original model: the plan above plays no part here."
    )
