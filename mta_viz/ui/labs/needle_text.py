"""The prompt of a needle sample: needles and question on colours, with letters; long gaps are cut."""

import math

from mta_viz.analysis.labs.finder import prompt_spans
from mta_viz.analysis.labs.needle_run import NeedleRun
from mta_viz.analysis.spans import QUESTION, Span
from mta_viz.ui.labs.marked_text import Mark, draw_marked
from mta_viz.ui.widgets import caption

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
