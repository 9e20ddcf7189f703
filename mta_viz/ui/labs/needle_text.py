"""The prompt of a needle sample: needles and question on colours, with letters; long gaps are cut."""

import math

import streamlit as st

from mta_viz.analysis.labs.finder import prompt_spans
from mta_viz.analysis.labs.needle_run import NeedleRun
from mta_viz.analysis.spans import QUESTION, Span
from mta_viz.tasks.needles import NeedleSample
from mta_viz.ui import state
from mta_viz.ui.widgets import caption, plain

ASKED, ASKING = "green", "blue"
OTHERS = ("orange", "violet", "red", "gray")
SHOWN, LEAST = 160, 100  # letters of a gap shown at each end; fewer in between are not worth a cut


def draw_prompt(run: NeedleRun) -> None:
    """The text and its legend; the gaps are cut in the middle until the visitor opens them."""
    sample = run.sample
    whole = st.toggle("Whole text", **state.kept("needle whole", False))
    with st.container(border=True, height=420 if whole else "content"):
        st.markdown(prompt_markdown(sample, whole))
    named = ", ".join(f"{span.letter} {span.name} at token {span.start}" for span in prompt_spans(sample))
    depth = "without haystack" if math.isnan(sample.depth) else f"at depth {sample.depth:.0f} %"
    caption(f"{len(sample.tokens):,} tokens. {named}. Green: the asked needle, {depth}. Blue: the question.")


def prompt_markdown(sample: NeedleSample, whole: bool) -> str:
    """The prompt as markdown in which every needle is on its colour and begins with its letter."""
    text, spans, parts, at = sample.tokens.text or "", sample.tokens.spans, [], 0
    for place, span in enumerate(prompt_spans(sample)):
        start, stop = spans[span.start][0], spans[span.stop - 1][1]
        parts.append(_gap(text[at:start], whole))
        words = plain(text[start:stop].strip())
        words = f"**{words}**" if _color(span, place) == ASKED else words
        parts.append(f":{_color(span, place)}-background[**{plain(span.letter)}** {words}]")
        at = stop
    return " ".join(part for part in parts if part)


def _color(span: Span, place: int) -> str:
    if span.letter == QUESTION:
        return ASKING
    return ASKED if span.name.endswith("(asked)") else OTHERS[place % len(OTHERS)]


def _gap(text: str, whole: bool) -> str:
    """Haystack between two needles, its middle left out."""
    text = text.strip()
    if whole or len(text) <= 2 * SHOWN + LEAST:
        return plain(text)
    start, end = text[:SHOWN].rpartition(" ")[0], text[-SHOWN:].partition(" ")[2]
    left_out = len(text) - len(start) - len(end)
    return f"{plain(start)} *… {left_out:,} letters …* {plain(end)}"
