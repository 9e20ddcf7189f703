"""Find tokens by text, go to them, and name them as spans that are outlined on every map."""

import streamlit as st

from mta_viz.analysis.attention.spans import Span, find, needle_spans, next_letter
from mta_viz.errors import PromptError
from mta_viz.ui.attention.head import Head
from mta_viz.ui.fields import bar, menu
from mta_viz.ui.shell import link, state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import NamedSpans, Part
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain

NO_SPAN = "none"
SPAN = Setting("span", NO_SPAN)
SEARCH, PATTERN = Setting("search", ""), Setting("search pattern", False)
HIT = Setting[tuple[int, int] | None]("hit", None)


def spans_of(page: Page) -> tuple[Span, ...]:
    """The spans of this run: the visitor's own, at first the needles the prompt holds."""
    named, own = state.part(NamedSpans), needle_spans(page.trace.tokens)
    if named.run != page.key:
        address = state.part(link.PromptLink)
        linked = link.read_spans(address.places, len(page.trace.tokens))
        address.places = {}  # they are of the first run
        named.run, named.spans = page.key, own if linked is None else linked
    visitors = None if named.spans == own else named.spans
    state.session().link.places = link.place_parameters(state.part(Part).crop, visitors)
    return named.spans


def chosen_span(head: Head) -> Span | None:
    """The span that scores of heads are about; None without one."""
    names = {span_name(span): span for span in head.spans}
    return names.get(SPAN.value)


def draw_spans(head: Head) -> None:
    """One row to search with, one that lists the spans."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _draw_search(head)
    if not head.spans:
        return
    names = [NO_SPAN, *map(span_name, head.spans)]
    asked = next((name for name in names if name.endswith("(asked)")), names[0])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = "Outlined on the maps by their letters. The chosen one is what scores of heads are about."
        bar("Spans", {name: plain(name) for name in names}, SPAN, default=asked, help=words)
        gone = chosen_span(head)
        rest = tuple(span for span in head.spans if span != gone)
        if gone is not None:
            taken = (head.page.key, rest, NO_SPAN)
            st.button("Remove", key="span.remove", on_click=name_spans, args=taken)


def _draw_search(head: Head) -> None:
    text = st.text_input("Find text", placeholder="a word of the prompt", width=240, **SEARCH.widget())
    pattern = st.toggle("regex", **PATTERN.widget())

    def search() -> tuple[tuple[range, ...], str]:  # the error is kept too: a slow pattern is tried once
        try:
            return find(head.tokens, text, pattern=pattern), ""
        except PromptError as error:
            return (), str(error)

    hits, problem = remember(search, "hits", head.page.key, text, pattern)
    if problem:
        caption(problem)
        return
    if not hits:
        caption("No such text in the prompt." if text else "")
        return
    places = {
        (hit.start, hit.stop): f"{hit.start} {''.join(head.tokens.pieces[hit.start : hit.stop])}"
        for hit in hits
    }
    count = "1 place" if len(hits) == 1 else f"{len(hits)} places"
    start, stop = menu(count, places, HIT, default=[*places][-1], width=200)
    st.button("Show as key", key="show.key", on_click=_show, args=(head.selected.query, start))
    st.button("Show as query", key="show.query", on_click=_show, args=(stop - 1, None))
    st.button("Name it", key="span.add", on_click=_add, args=(head.page.key, head.spans, start, stop, text))


def span_name(span: Span) -> str:
    """Letter and name, as pickers list it."""
    place = f" {span.start}" if span.letter == "#" else ""  # no letters are left to tell them apart
    return f"{span.letter} {span.name}{place}"


def _show(query: int, key: int | None) -> None:
    state.select(query=query, key=key)
    state.part(Part).crop = None  # the exact part follows the cell


def _add(run: str, spans: tuple[Span, ...], start: int, stop: int, text: str) -> None:
    if any((span.name, span.start, span.stop) == (text, start, stop) for span in spans):
        return
    span = Span(text, next_letter(spans), start, stop)
    name_spans(run, (*spans, span), span_name(span))


def name_spans(run: str, spans: tuple[Span, ...], chosen: str) -> None:
    """These are the spans of a run from now on, and the chosen one's name in the list."""
    state.session().parts[NamedSpans] = NamedSpans(run, spans)
    SPAN.put(chosen)
