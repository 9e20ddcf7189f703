"""The needle lab's form: what is hidden where, in which words, and which sample.

The prompt of a needle sample: needles and question on colours, with letters; long gaps are cut.
"""

import math
from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.analysis.labs.finder import prompt_spans
from mta_viz.analysis.labs.needle import NeedleRun
from mta_viz.tasks.needles import MAX_NEEDLES, PAPER_NEEDLE, TEMPLATES, NeedleTask
from mta_viz.ui.labs.parts import Mark, draw_marked
from mta_viz.ui.shell import state
from mta_viz.ui.shell.uploads import text_file
from mta_viz.ui.shell.widgets import caption

ANYWHERE = "anywhere"
DEPTHS = (ANYWHERE, 0, 10, 25, 50, 75, 90, 100)
OWN = "my own"
LENGTHS = (64, 1_000_000)


@dataclass(frozen=True)
class Form:
    """What the form says: a task, and the number of its sample."""

    task: NeedleTask
    seed: int


def draw_form(n_ctx: int) -> Form:
    """One row of fields. Raises PromptError saying everything that is wrong with the task."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        numbers = range(1, MAX_NEEDLES + 1)
        needles = st.selectbox("Needles", numbers, width=100, **state.kept("needle number", 4, numbers))
        length = st.number_input(
            "Length in tokens",
            *LENGTHS,
            step=64,
            width=150,
            help=f"Of the prompt, question included. This model was trained on up to {n_ctx:,}.",
            **state.kept("needle length", min(512, n_ctx), within=LENGTHS),
        )
        depth = st.selectbox(
            "Depth",
            DEPTHS,
            format_func=lambda depth: depth if depth == ANYWHERE else f"{depth} %",
            width=120,
            help="How much of the haystack comes before the asked needle.",
            **state.kept("needle depth", 50, DEPTHS),
        )
        seed = st.number_input(
            "Sample", 0, 10**9, width=130, **state.kept("needle seed", 0, within=(0, 10**9))
        )
        needle, question, haystack = _draw_wording()
    place = depth if isinstance(depth, int) else None
    task = NeedleTask(needles, length, place, needle=needle, question=question, haystack=haystack)
    return Form(task, int(seed))


def _draw_wording() -> tuple[str, str | None, str | None]:
    """Needle, question and haystack, in a menu of their own: seldom changed."""
    with st.popover("Wording", icon=":material/edit_note:"):
        names = (*TEMPLATES, OWN)
        name = st.radio("Template", names, horizontal=True, **state.kept("needle template", names[0], names))
        if name == OWN:
            needle = st.text_input(
                "Needle, with {city} and {value}", **state.kept("needle needle", PAPER_NEEDLE)
            )
            question = (
                st.text_input(
                    "Question, with {city}; empty: the needle up to its value",
                    **state.kept("needle question", ""),
                )
                or None
            )
        else:
            needle, question = TEMPLATES[name]
            st.text(f"{needle}\n{question or 'The question is the needle up to its value.'}")
        return needle, question, draw_haystack()


def draw_haystack() -> str | None:
    """The text between the needles: None for the project's own grammar."""
    kept = text_file(
        "needle haystack",
        "Haystack: a text file (without one: sentences of a grammar made for this)",
        ["txt", "md"],
        20,
        "Use the grammar again",
    )
    return None if kept is None else kept[1]


ASKED, ASKING = "green", "blue"
OTHERS = ("orange", "violet", "red", "gray")


def draw_prompt(run: NeedleRun) -> None:
    """The text and its legend."""
    sample = run.sample
    spans = prompt_spans(sample)
    draw_marked(sample.tokens, [_mark(span, place) for place, span in enumerate(spans)], "needle")
    named = ", ".join(f"{span.letter} {span.name} at token {span.start}" for span in spans)
    depth = "without haystack" if math.isnan(sample.depth) else f"at depth {sample.depth:.0f} %"
    caption(f"{len(sample.tokens):,} tokens. {named}. Green: the asked needle, {depth}. Blue: the question.")


def _mark(span: Span, place: int) -> Mark:
    if span.letter == QUESTION:
        return Mark(span, ASKING)
    asked = span.name.endswith("(asked)")
    return Mark(span, ASKED if asked else OTHERS[place % len(OTHERS)], strong=asked)
