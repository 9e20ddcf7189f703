"""The answer: how probable it and the likeliest tokens are, originally and edited, and after many edits.

Many edits: sweeps, a greedy set, and patching heads from another prompt's run. Also what attribution is asked
about (the token after which an answer stands, and the answer).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.cause import sweeps
from mta_viz.analysis.cause.answers import Answer, AnswerMeter, Board, answer_board, unchanged_without_a_plan
from mta_viz.analysis.cause.attributed_prompt import ask
from mta_viz.analysis.cause.effects import Absent, Effects, edits_differ
from mta_viz.errors import MtaVizError
from mta_viz.figures import cause as figures
from mta_viz.figures.cause import MAP_PX, NeededKernels, PatchedHeads, Sweep
from mta_viz.figures.cause.attribution import meter_of
from mta_viz.model.interventions import HOOKS, PatchHead
from mta_viz.model.plans import Listed, Plan
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import score_text
from mta_viz.printed import head_name, probability_text
from mta_viz.run.tracing import tokenize
from mta_viz.tokenizers.base import ids_from_text
from mta_viz.ui.kernels.parts import effects_command, effects_of
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head
from mta_viz.ui.shell.plan import ANSWER
from mta_viz.ui.shell.show import measured_beside, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, explain, lines, menu, number, plain

POSITION, OWN_ANSWER = Setting("asked position", 0), Setting("asked answer", "")
SOURCES = {
    "needle": "the number the prompt asks for",
    "block": "the letters of the block the prompt asks for",
    "likeliest": "the original model's most probable next token, after white space it writes first",
    "given": "as typed",
}
KINDS = {"kernels": "key-query kernels", "mixing": "rows of head mixing", "heads": "heads off"}
KIND = Setting("sweep kind", "kernels")
STAGE, OTHER_PROMPT = Setting("patch stage", "z"), Setting("other prompt", "")


def draw_board(page: Page, plan: Plan) -> None:
    """The answer's field, what the plan adds to it, the top tokens; without a plan that none acts."""
    plans.draw_answer()
    meter, run = meter_of(source_of(page), ANSWER.value or None), plans.edited_page(page, plan).trace
    board: Board = remember(lambda: answer_board(meter, run, plan), "board", page.key, meter.answer, plan)
    count = len(board.answer.ids)
    n_tokens = "1 token" if count == 1 else f"{count} tokens, measured together"
    caption(f"Answer {board.answer.words}: {SOURCES[board.answer.source]}; {n_tokens}.")
    ends = math.exp(board.before), math.exp(board.after)
    answer = ("answer", *ends, ends[1] - ends[0])
    top = [
        answer,
        *((token.piece, token.before, token.after, token.after - token.before) for token in board.top),
    ]
    if plan:
        _draw_change(board)
        draw_probabilities(top, ("original", "edited", "change"))
        return
    draw_probabilities([row[:2] for row in top], ("probability",))
    with st.spinner("Running the prompt once more ..."):
        same = remember(lambda: (unchanged_without_a_plan(page.trace),), "empty plan", page.key)[0]
    if same:
        st.success("Nothing is edited: output identical to the original ✓")
    else:
        st.error("Nothing is edited, and the output differs from the original: do not trust this page.")


def _draw_change(board: Board) -> None:
    odds = board.log_odds_change
    value = f"{score_text(odds)} nats" if math.isfinite(odds) else "beyond float32"
    words = f"Log-odds: log(p / (1 - p)). Log-probability: {score_text(board.change)} nats."
    st.metric("Change of log-odds", value, help=words)


def draw_probabilities(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> None:
    """Tokens with their probabilities, in two runs with the difference; narrow enough for the inspector."""
    texts = (probability_text, probability_text, score_text)
    shown = [
        {"token": token}
        | {name: text(value) for name, text, value in zip(names, texts, values, strict=False)}
        for token, *values in rows
    ]
    narrow = {name: st.column_config.Column(width=66) for name in ("token", *names)}
    st.dataframe(shown, hide_index=True, column_config=narrow, height="content")


@dataclass(frozen=True)
class AnswerAt:
    """`text`: the answer as typed, None for the one the prompt suggests. `answer`: its tokens."""

    position: int
    text: str | None
    answer: Answer

    def question(self) -> dict[str, Any]:
        """As parameters of figures."""
        return {"answer": self.text, "position": self.position}


def pick_question(page: Page) -> AnswerAt:
    """The token and the answer after it; at the prompt's end the answer of the board above.

    Raises MtaVizError for an answer that is none.
    """
    last = len(page.trace.tokens) - 1
    if state.is_another("asked run", page.key):  # of another one position and answer mean nothing
        POSITION.put(last)
        OWN_ANSWER.put("")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = "The answer is looked for after this token; the prompt's last one at first."
        look: dict[str, Any] = {"step": 1, "width": 170, "help": words}
        position = number("After token", POSITION, (0, last), default=last, **look)
        text = (ANSWER.value if position == last else _own_answer()) or None
    asked = AnswerAt(position, text, _answer(page, position, text))
    caption(
        f"After token {page.trace.tokens.named(asked.position)}: the answer {asked.answer.words} "
        f"({SOURCES[asked.answer.source]}). The original model: the plan above plays no part here."
    )
    return asked


def _own_answer() -> str:
    words = "Type a space first where a word would have one."
    look: dict[str, Any] = {"placeholder": "empty: the likeliest token", "width": 280, "help": words}
    return st.text_input("Token or answer there", **look, **OWN_ANSWER.widget())


def _answer(page: Page, position: int, text: str | None) -> Answer:
    tokens = page.trace.tokens
    if position == len(tokens) - 1:
        return meter_of(source_of(page), text).answer
    return remember(lambda: ask(page.model, tokens, text, position).answer, "asked", page.key, position, text)


def draw_sweep(page: Page, selected: Selected) -> None:
    """A kind, its button or its result; then the same at the task. The plan plays no part."""
    explain(
        "One at a time: what it adds to the log-probability of the answer on this prompt. Brown: it loses.",
        "All else stays as in the original model. The plan above plays no part here.",
    )
    kind = bar("What", KINDS, KIND)
    tried = sweeps.SWEEPS[kind](page.model.config)
    if not tried:
        st.info(plain(f"This model has no {KINDS[kind]}; sweep over heads off instead."))
        return
    place, answer = (selected.layer, selected.head), ANSWER.value or None
    wheres = list(dict.fromkeys(map(sweeps.where_of, tried)))
    specs = {where: Sweep(where=where, answer=answer, selected=place) for where in wheres}
    first, label = specs[wheres[0]], f"Run the sweep: {len(tried)} {KINDS[kind]}"
    rows = measured_beside(page, "sweep", first, label)
    if rows is not None:
        with st.container(horizontal=True):
            for where, spec in specs.items():
                with st.container(width=MAP_PX):
                    widget = f"sweep.{page.key}.{kind}.{where}"
                    show(source_of(page), spec, on_head, result=rows, widget=widget)
    _draw_task(page, selected, kind, wheres)


def _draw_task(page: Page, selected: Selected, kind: str, wheres: list[sweeps.Swept]) -> None:
    st.markdown("**Accuracy at the model's task**")
    effects = effects_of(page)
    why = (
        effects.reason if isinstance(effects, Absent) else f"The effect of {KINDS[kind]} is not measured yet."
    )
    there = {} if isinstance(effects, Absent) else figures.effects_at(page.model.config, effects)
    wheres = [where for where in wheres if there.get(where)]
    if isinstance(effects, Absent) or not wheres:
        st.info(plain(f"{why} This command measures it, on paired samples:"))
        lines(effects_command(page) + " --heads" * (kind == "heads"), "sweep-effects-command")
        return
    with st.container(horizontal=True):
        for where in wheres:
            with st.container(width=MAP_PX):
                spec = figures.TaskAccuracy(where=where, selected=(selected.layer, selected.head))
                show(source_of(page), spec, on_head, result=effects, widget=f"task.{page.key}.{where}")
    explain(
        f"Change of accuracy on {figures.TASKS[effects.task]}, {effects.samples:,} samples. A dot: the 95 % "
        "interval covers 0.",
        f"The same samples with and without. Each sample: {effects.setting}. Hover for the interval."
        f"{_own_tap_words(page, effects)}",
    )


def _own_tap_words(page: Page, effects: Effects) -> str:
    """How often the identity and the own tap only differ, where both are measured."""
    other = effects_of(page, "own-tap")
    if isinstance(other, Absent):
        return ""
    pairs = [(effect, other.of(kernel)) for kernel, effect in effects.of_each().items()]
    both = [(effect, beside) for effect, beside in pairs if beside is not None]
    differ = sum(edits_differ(effect, beside) for effect, beside in both)
    return (
        f" A kernel at identity loses gain and sign too: for {differ} of {len(both)} the log-probability "
        "lost differs from that at the own tap only (medians' intervals apart, or without medians the means "
        "by a factor of two). The saved table has both."
    )


def draw_greedy_set(page: Page, selected: Selected) -> None:
    """The criterion, the button or the result."""
    if not sweeps.kernels_alone(page.model.config):
        st.info("This model has no key-query kernels, so no answer of it needs one.")
        return
    explain("A set of kernels without which this answer falls; others may do as much.", NeededKernels.words)
    spec = NeededKernels(answer=ANSWER.value or None)
    needed = measured_beside(page, "needed", spec, "Search greedily for a set")
    if needed is not None:
        _draw_set(page, spec, needed)


def _draw_set(page: Page, spec: NeededKernels, needed: sweeps.GreedySet) -> None:
    meter = meter_of(source_of(page), spec.answer)
    if not needed.reached:
        words = (
            f"No set of up to {sweeps.MAX_SET} of the {needed.n_candidates} kernels takes this answer "
            f"(probability {probability_text(math.exp(meter.before))}) down to a tenth. All kernels at "
            f"identity change it by {score_text(needed.everything)} nats."
        )
        st.info(plain(words))
        return
    st.markdown(plain(_sentence(meter, needed)))
    for kernel in needed.plan:
        st.markdown(f"- {plain(kernel.text(page.numbering))}")
    listing = (tuple(map(Listed, needed.plan)),)
    st.button("Make it the plan", key="needed.plan", on_click=plans.change, args=listing)
    if needed.random:
        words = "The chosen set beside random sets of its size."
        show(source_of(page), spec, result=needed, widget=f"needed.{page.key}", words=words)


def _sentence(meter: AnswerMeter, needed: sweeps.GreedySet) -> str:
    ends = meter.before, meter.before + needed.change
    before, after = (probability_text(math.exp(value)) for value in ends)
    size, n = len(needed.plan), len(needed.random)
    worse = sum(change <= needed.change for change in needed.random)
    kernels = "1 kernel" if size == 1 else f"{size} kernels"
    random = ""
    if n:
        random = (
            f" Of {n} random sets of that size (seed 0) {worse} do as much; the most harmful changes it by "
            f"{score_text(min(needed.random))} nats, the mean is {score_text(sum(needed.random) / n)}."
        )
    fewer = "" if n == sweeps.RANDOM_SETS or not n else " There are no more sets of that size."
    return (
        f"{kernels} of {needed.n_candidates}: with them at identity the answer's probability falls from "
        f"{before} to {after} ({score_text(needed.change)} nats).{random}{fewer} "
        f"All kernels at once: {score_text(needed.everything)} nats."
    )


def draw_patch(page: Page, selected: Selected) -> None:
    """The other prompt, the stage, Add; then the map of every head patched in turn."""
    explain(
        "Activation patching: the chosen head gets what it holds when the model runs another prompt.",
        "Position by position. Change one word (another asked city, another number) and see "
        "which heads' outputs move the answer.",
    )
    other = _other_prompt(page)
    if other is None:
        return
    config, place = page.model.config, (selected.layer, selected.head)
    words = {
        key: "output (weighted values)" if key == "z" else Stage.from_key(key).value.long
        for key in HOOKS
        if not PatchHead(*place, key, other).problems(config)
    }
    with st.container(horizontal=True, vertical_alignment="bottom"):
        stage = menu("Stage", words, STAGE, default="z", width=320)
        label = f"Patch {head_name(*place, page.numbering)}"
        st.button(label, key="patch.add", on_click=plans.add, args=(PatchHead(*place, stage, other),))
    spec = PatchedHeads(prompt=other, answer=ANSWER.value or None, selected=place)
    rows = measured_beside(page, "patched", spec, "Patch each head's output in turn")
    if rows is not None:
        show(source_of(page), spec, on_head, result=rows, widget=f"patch.{page.key}.{plans.key_of(other)}")


def _other_prompt(page: Page) -> str | tuple[int, ...] | None:
    """What is typed, if it can be patched from; else it is said why not."""
    tokens = page.trace.tokens
    own = tokens.text if tokens.text is not None else ", ".join(map(str, tokens.ids))
    if state.is_another("patched run", page.key):
        OTHER_PROMPT.put(own)
    typed = st.text_area("Other prompt", height=140, **OTHER_PROMPT.widget(default=own))
    try:
        other = typed if tokens.text is not None else ids_from_text(typed)
        count = len(tokenize(page.model, other)) if other else 0
    except MtaVizError as error:
        st.error(plain(str(error)))
        return None
    if count != len(tokens):
        words = f"The other prompt has {count:,} tokens, this one {len(tokens):,}; they must be equally many."
        st.warning(words)
        return None
    if typed == own:
        st.info("This is the prompt itself: change a word of it, keeping the number of tokens.")
        return None
    return other
