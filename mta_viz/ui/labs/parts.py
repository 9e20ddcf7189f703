"""What several labs draw: one sample, run when it is asked for; a prompt's text with its marked parts."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.spans import Span
from mta_viz.figures.base import Source
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import show, state, work
from mta_viz.ui.shell.cache import remember, remember_with_run
from mta_viz.ui.shell.measuring import Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.uploads import text_file
from mta_viz.ui.shell.widgets import head_name, picked, plain
from mta_viz.ui.shell.work import Work, time_text

LINKED_SECONDS = 60  # a link starts nothing longer by itself
SHOWN, LEAST = 160, 100  # letters of a gap shown at each end; fewer in between are not worth a cut


def source_of(page: Page, beside: Source | None = None) -> Source:
    """What a lab's figures are drawn from: the model alone, whatever prompt the page has."""

    def keep(make: Callable[[], Any], *key: Hashable) -> Any:
        return remember(make, page.model_key, *key)

    def keep_with_run(make: Callable[[], Any], *key: Hashable) -> Any:
        return remember_with_run(make, page.model_key, *key)

    own = replace(show.source_of(page), run=None, beside=beside)
    return replace(own, remember=keep, remember_with_run=keep_with_run)


@dataclass
class AskedFor:
    """The sample each lab was asked to run, by the lab's name."""

    keys: dict[str, Hashable] = field(default_factory=dict)


@dataclass(frozen=True)
class SampleRun:
    """One sample of a lab: number `seed` of `task`, which is equal only for equal tasks of equal models.

    `shown` says in an address that the page shows a result; `seconds`: how long it should take.
    """

    lab: str
    task: Hashable
    seed: Setting[int]
    shown: Setting[bool]
    seconds: float
    do: Callable[[Work], Any]

    def key(self, later: int = 0) -> Hashable:
        """Of this sample, or of one so many later."""
        return self.lab, self.task, self.seed.value + later


def sample_run(sample: SampleRun) -> Any | None:
    """The buttons, and the result once it is asked for: by them, or by a link of a page that showed one."""
    asked = state.part(AskedFor).keys
    if sample.shown.declare() and sample.seconds < LINKED_SECONDS:
        asked.setdefault(sample.lab, sample.key())
    with st.container(horizontal=True, vertical_alignment="center"):
        run = measured(
            Measurement(
                sample.lab,
                sample.key(),
                "Run this sample",
                lambda work, _: sample.do(work),
                f"About {time_text(sample.seconds)} here.",
                by_itself=asked.get(sample.lab) == sample.key(),
            )
        )
        st.button("New sample", key=f"{sample.lab}.new", on_click=_next, args=(sample,), help="The next one.")
    if run is not None:
        sample.shown.put(True)
    elif work.running(sample.lab, sample.key()) is None:
        st.info("No sample yet. Press Run this sample: it is made from the form above and its number.")
    return run


def _next(sample: SampleRun) -> None:
    state.part(AskedFor).keys[sample.lab] = sample.key(later=1)
    sample.seed.put(sample.seed.value + 1)


def draw_haystack() -> str | None:
    """A place for the text between what is looked for: None for the project's own grammar."""
    file = text_file(
        "needle haystack",
        "Haystack: a text file (without one: sentences of a grammar made for this)",
        ["txt", "md"],
        20,
        "Use the grammar again",
    )
    return None if file is None else file[1]


@dataclass
class Rankings:
    """The ranking of each lab whose first head was selected last."""

    last: dict[str, Hashable] = field(default_factory=dict)


def select_first(
    lab: str, ranking: Hashable, places: Sequence[tuple[int, int]], keep_first: bool = False
) -> None:
    """A new ranking begins at its first head; `keep_first`: but for the session's first, of a link."""
    last, selected = state.part(Rankings).last, state.selection()
    begins = lab not in last
    if last.get(lab) == ranking and selected.layer is not None and selected.head is not None:
        return
    last[lab] = ranking
    if places and not (begins and keep_first):
        state.select(layer=places[0][0], head=places[0][1])


def ranked_table(
    name: str,
    places: Sequence[tuple[int, int]],
    row: Callable[[int, int], Mapping[str, Any]],
    numbering: int,
    choice: bool = True,
    **look: Any,
) -> None:
    """Heads in order, `row(layer, head)` beside each one's label; a click on a row selects its head."""

    def take() -> None:
        at = picked(name)
        if at is not None and 0 <= at < len(places):
            state.select(layer=places[at][0], head=places[at][1])

    if choice:
        look |= {"on_select": take, "selection_mode": "single-row"}
    rows = [{"head": head_name(*place, numbering), **row(*place)} for place in places]
    st.dataframe(rows, hide_index=True, key=name, **look)


@dataclass(frozen=True)
class Mark:
    """A span, the colour (Streamlit's name) behind it, and whether its text is bold."""

    span: Span
    color: str
    strong: bool = False


def draw_marked(tokens: Tokens, marks: Sequence[Mark], whole: Setting[bool]) -> None:
    """The text; the gaps are cut in the middle until the visitor opens them."""
    opened = st.toggle("Whole text", **whole.widget())
    with st.container(border=True, height=420 if opened else "content", key="marked"):
        st.markdown(marked_text(tokens, marks, opened))


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
