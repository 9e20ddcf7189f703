"""A prompt's text with its marked parts outlined and on colours, each with its letter; long gaps are cut."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.spans import Span
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui import state
from mta_viz.ui.widgets import plain

SHOWN, LEAST = 160, 100  # letters of a gap shown at each end; fewer in between are not worth a cut


@dataclass(frozen=True)
class Mark:
    """A span, the colour (Streamlit's name) behind it, and whether its text is bold."""

    span: Span
    color: str
    strong: bool = False


def draw_marked(tokens: Tokens, marks: Sequence[Mark], lab: str) -> None:
    """The text; the gaps are cut in the middle until the visitor opens them."""
    whole = st.toggle("Whole text", **state.kept(f"{lab} whole", False))
    with st.container(border=True, height=420 if whole else "content", key="marked"):
        st.markdown(marked_text(tokens, marks, whole))


def marked_text(tokens: Tokens, marks: Sequence[Mark], whole: bool) -> str:
    """The text as markdown; `marks` are in order of position."""
    text, parts, at = tokens.text or "", [], 0
    for mark in marks:
        start, stop = tokens.spans[mark.span.start][0], tokens.spans[mark.span.stop - 1][1]
        parts.append(_gap(text[at:start], whole))
        words = plain(text[start:stop].strip())
        words = f"**{words}**" if mark.strong else words
        parts.append(f":{mark.color}-background[**{plain(mark.span.letter)}** {words}]")
        at = stop
    return " ".join(part for part in parts if part)


def _gap(text: str, whole: bool) -> str:
    """Text between two marks, its middle left out."""
    text = text.strip()
    if whole or len(text) <= 2 * SHOWN + LEAST:
        return plain(text)
    start, end = text[:SHOWN].rpartition(" ")[0], text[-SHOWN:].partition(" ")[2]
    left_out = len(text) - len(start) - len(end)
    return f"{plain(start)} *… {left_out:,} letters …* {plain(end)}"
