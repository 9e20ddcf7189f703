"""A measurement over many samples, beside the page: its button, Stop, and the result so far.

One sample of a lab: run when asked for, never unasked; and the next one.
A prompt's text with its marked parts outlined and on colours, each with its letter; long gaps are cut.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.spans import Span
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import state
from mta_viz.ui.shell import work as jobs
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import QUIET_SECONDS, Work, time_text

Keep = Callable[[Any], None]


@dataclass(frozen=True)
class Measurement:
    """`work(keep, work)` hands over results so far; `draw(result so far or None, whether it runs)`.

    `name` is the work's; `key` is equal only for equal measurements. `label` is on the button, `words`
    stand beside it. `by_itself`: without a press of the button, where nothing is kept yet.
    """

    name: str
    key: Hashable
    label: str
    words: str
    work: Callable[[Keep, Work], object]
    draw: Callable[[Any | None, bool], None]
    by_itself: bool = False


def draw_measurement(one: Measurement) -> None:
    """The button, or Stop while it runs; the bar and the result so far, which stays when it is stopped."""
    draw_button(one)
    draw_live(one)


def draw_button(one: Measurement) -> None:
    """Measure, or Stop while it runs, and the words."""
    if one.by_itself and one.key not in kept(one.name):
        _start(one, QUIET_SECONDS)
    work = jobs.running(one.name, one.key)
    with st.container(horizontal=True, vertical_alignment="center"):
        if work is not None:
            st.button("Stop", key=f"{one.name}.stop", icon=":material/stop:", on_click=work.stop)
        else:
            st.button(one.label, key=f"{one.name}.run", on_click=_start, args=(one,))
        if one.words:
            caption(one.words)


def draw_live(one: Measurement) -> None:
    """The bar and the result so far, drawn alone only while it grows: a click on it may change the page."""
    jobs.say_failure(jobs.current(one.name, one.key))
    work, found = jobs.running(one.name, one.key), kept(one.name)
    live = st.fragment(_draw_live, run_every=1.0) if work else _draw_live
    live(one, found, work)


def kept(name: str) -> dict[Hashable, Any]:
    """The session's results of this name by key; jobs write into it."""
    found: dict[Hashable, Any] = state.get(f"{name} kept", {})
    state.put(f"{name} kept", found)
    return found


def _start(one: Measurement, seconds: float = 0.0) -> None:
    """Begin, and wait up to `seconds` for the end."""
    jobs.start(one.name, one.key, partial(_measure, one, kept(one.name))).wait(seconds)


def _measure(one: Measurement, found: dict[Hashable, Any], work: Work) -> None:
    work.begin("Measuring")
    one.work(partial(found.__setitem__, one.key), work)


def _draw_live(one: Measurement, found: dict[Hashable, Any], work: Work | None) -> None:
    if work is not None:
        jobs.watch(work)
    one.draw(found.get(one.key), work is not None)


LINKED_SECONDS = 60  # a link starts nothing longer by itself


def draw_sample_run(
    lab: str, key: tuple[Hashable, ...], seed: int, seconds: float, work: Callable[[Work], Any]
) -> Any | None:
    """The buttons, and what `work` gives for `key` once it is asked for; None until then.

    `key` ends with `seed`, which is kept as "`lab` seed". `seconds`: how long it should take.
    """
    asked = _asked(lab, key, seconds)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Run this sample", type="primary", key=f"{lab}.run", on_click=_ask, args=(lab, key))
        st.button(
            "New sample", key=f"{lab}.new", on_click=_new, args=(lab, key, seed + 1), help="The next one."
        )
        caption(f"About {time_text(seconds)} here.")
    if not asked and jobs.known(key) is None:
        st.info("No sample yet. Press Run this sample: it is made from the form above and its number.")
        return None
    return jobs.finished(lab, key, work)


def _asked(lab: str, key: tuple[Hashable, ...], seconds: float) -> bool:
    """Whether this sample was asked for: by the button, or by a link of a page that showed one."""
    state.declare(f"{lab} shown", False)
    if state.get(f"{lab} asked") is None and state.get(f"{lab} shown") and seconds < LINKED_SECONDS:
        state.put(f"{lab} asked", key)
    return state.get(f"{lab} asked") == key


def _ask(lab: str, key: tuple[Hashable, ...]) -> None:
    state.put(f"{lab} asked", key)
    state.put(f"{lab} shown", True)
    jobs.forget(lab)


def _new(lab: str, key: tuple[Hashable, ...], seed: int) -> None:
    state.put(f"{lab} seed", seed)
    _ask(lab, (*key[:-1], seed))


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
