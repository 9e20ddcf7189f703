"""Find tokens by text, go to them, and name them as spans that are outlined on every map."""

import streamlit as st

from mta_viz.analysis.attention.spans import Span, find, needle_spans, next_letter
from mta_viz.errors import PromptError
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.attention.head import Head
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
        st.segmented_control(
            "Spans",
            names,
            required=True,
            format_func=plain,
            help="Outlined on the maps by their letters. The chosen one is what scores of heads are about.",
            **SPAN.widget(names, default=asked),
        )
        if chosen_span(head) is not None:
            st.button(
                "Remove",
                key="span.remove",
                on_click=_remove,
                args=(head.page.key, head.spans, chosen_span(head)),
            )


def _draw_search(head: Head) -> None:
    text = st.text_input("Find text", placeholder="a word of the prompt", width=240, **SEARCH.widget())
    pattern = st.toggle("regex", **PATTERN.widget())
    hits, problem = remember(
        lambda: _search(head.tokens, text, pattern), "hits", head.page.key, text, pattern
    )
    if problem:
        caption(problem)
        return
    if not hits:
        caption("No such text in the prompt." if text else "")
        return
    places = [(hit.start, hit.stop) for hit in hits]
    start, stop = st.selectbox(
        "1 place" if len(hits) == 1 else f"{len(hits)} places",
        places,
        format_func=lambda place: f"{place[0]} {''.join(head.tokens.pieces[place[0] : place[1]])}",
        width=200,
        **HIT.widget(places, default=places[-1]),
    )
    st.button("Show as key", key="show.key", on_click=_show, args=(head.selected.query, start))
    st.button("Show as query", key="show.query", on_click=_show, args=(stop - 1, None))
    st.button("Name it", key="span.add", on_click=_add, args=(head.page.key, head.spans, start, stop, text))


def _search(tokens: Tokens, text: str, pattern: bool) -> tuple[tuple[range, ...], str]:
    """Hits, and why there are none where the pattern is at fault."""
    try:
        return find(tokens, text, pattern=pattern), ""
    except PromptError as error:
        return (), str(error)


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


def _remove(run: str, spans: tuple[Span, ...], gone: Span) -> None:
    name_spans(run, tuple(span for span in spans if span != gone), NO_SPAN)


def name_spans(run: str, spans: tuple[Span, ...], chosen: str) -> None:
    """These are the spans of a run from now on, and the chosen one's name in the list."""
    state.session().parts[NamedSpans] = NamedSpans(run, spans)
    SPAN.put(chosen)
