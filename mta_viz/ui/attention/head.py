"""One head of a run: the selected cell and its sum, and what is found and named in the prompt.

Beyond 768 tokens the map is an overview with an exact part beside it. Tokens found by text are gone to, and
named as spans, which are outlined on every map.
"""

from collections.abc import Hashable
from dataclasses import asdict, dataclass, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.changes import layer_steps
from mta_viz.analysis.attention.decomposition import Convolved, Decomposition, Half, Mixed, Term, chain
from mta_viz.analysis.attention.spans import Span, find, needle_spans, next_letter
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.errors import PromptError
from mta_viz.figures.attention.maps import HeadMap, Scale, layer_maps_key, layer_maps_of
from mta_viz.figures.attention.tokens import AttentionText, Why, sentence, value_text
from mta_viz.figures.base import Source
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.plots.attention.tokens import convolution_window, mixing_bars
from mta_viz.plots.theme import Figure, score_text, weight_text
from mta_viz.printed import head_label
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.linked.component import SIDES, Choice, Side, draw_pointer
from mta_viz.ui.shell import cache, link, pickers, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import WHOLE_UP_TO, Crop, NamedSpans, Part, Selected
from mta_viz.ui.shell.plan import draw_test_button
from mta_viz.ui.shell.show import draw, keep, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, chart, isolated, lines, menu, plain, row_table
from mta_viz.ui.shell.work import Work, finished

SCALES: tuple[Scale, ...] = ("this map", "all stages")
SCALE = Setting[Scale]("scale", SCALES[0])
OVERVIEW_PX, WHY_PX = 460, 300
# Of longer prompts there are an overview and an exact part: three whole maps (of an edit) would be over 2 MB.
VIEW, VIEW_UP_TO = "map", 768
SIDE = Setting[Side]("text side", SIDES[0])
FOLLOW = "Choose a row for its source."
NO_SPAN = "none"
SPAN = Setting("span", NO_SPAN)
SEARCH, PATTERN = Setting("search", ""), Setting("search pattern", False)
HIT = Setting[tuple[int, int] | None]("hit", None)


@dataclass(frozen=True)
class Head:
    """What is looked at on the page: a head of a run, a stage, a cell, and the spans that are outlined."""

    page: Page
    selected: Selected
    spans: tuple[Span, ...] = ()

    @property
    def source(self) -> Source:
        """What figures are drawn from."""
        return source_of(self.page)

    @property
    def tokens(self) -> Tokens:
        """The run's tokens."""
        return self.page.trace.tokens

    @property
    def place(self) -> dict[str, Any]:
        """The parameters layer and head."""
        return {"layer": self.selected.layer, "head": self.selected.head}

    @property
    def stage(self) -> dict[str, Any]:
        """The same with the stage."""
        return self.place | {"stage": self.selected.stage.value.key}

    @property
    def cell(self) -> dict[str, Any]:
        """The parameters query and key."""
        return {"query": self.selected.query, "key": self.selected.key}

    @property
    def looks(self) -> dict[str, Any]:
        """The parameters most figures share: how limits are taken, and the spans."""
        return {"first_token": self.page.first_token, "spans": self.spans}

    @property
    def part(self) -> Crop | None:
        """The part of a long prompt that is shown exactly; None where the whole map is."""
        n_tokens = len(self.tokens)
        if n_tokens <= WHOLE_UP_TO:
            return None
        return state.part(Part).at(self.selected.query, self.selected.key, n_tokens)

    @property
    def has_overview(self) -> bool:
        """Whether not even the view holds the whole map."""
        return len(self.tokens) > VIEW_UP_TO

    @property
    def view(self) -> Hashable:
        """What the view shows: when it is another one, it is sent anew."""
        return (*self.stage.values(), self.part if self.has_overview else None)

    @property
    def text_figure(self) -> AttentionText:
        """The view's text as a figure, for files."""
        side = SIDE.declare(options=SIDES)
        position = self.cell["query" if side == SIDES[0] else "key"]
        return AttentionText(**self.stage, **self.looks, position=position, side=side)

    @property
    def ranges(self) -> dict[str, Any]:
        """The parameters queries and keys of an exact figure: those of the part."""
        return {} if self.part is None else asdict(self.part)

    def widget(self, name: str, *parts: Hashable) -> str:
        """A widget's key on this run: a choice on what another key shows is never taken for one on this."""
        return ".".join(map(str, (name, self.page.key, *parts)))


def draw_overview(head: Head) -> None:
    """The whole of a long prompt in blocks; a box chooses the part that is shown exactly."""
    outlined = (head.part.queries, head.part.keys) if head.part else None
    spec = HeadMap(**head.stage, **head.looks, scale=SCALE.value, size=OVERVIEW_PX, outlined=outlined)
    figure, chosen = draw(head.source, spec), pickers.on_overview(len(head.tokens))
    chart(figure.figure, head.widget("overview"), chosen, modes=("points", "box"), alt=figure.caption)
    save_line(figure, f"Draw a box to see that part exactly. {figure.caption}")


def pool_layer(head: Head) -> None:
    """Has the overviews of the layer's heads made, with their progress here; then the page is drawn anew."""
    alone = Source(head.page.model, head.page.trace)

    def pool(running: Work) -> object:
        running.begin("Pooling the maps of the layer")
        return layer_maps_of(replace(alone, progress=running.report), head.selected.layer)

    if finished("overview", _pooled_key(head), pool, cache.stores().of_runs) is not None:
        st.rerun()


def is_pooled(head: Head) -> bool:
    """Whether the overview is there, and with it the limits of the maps; a short prompt needs none."""
    return not head.has_overview or cache.stores().of_runs.get(_pooled_key(head)) is not None


def _pooled_key(head: Head) -> tuple[Hashable, ...]:
    return (head.page.key, *layer_maps_key(head.selected.layer))


def point_view(head: Head) -> None:
    """Has the view show the chosen cell, and takes another one that is chosen there."""

    def choose(choice: Choice) -> None:
        SIDE.put(choice.side)
        pickers.go_to(query=choice.query, key=choice.key)

    chosen = Choice(head.selected.query, head.selected.key, SIDE.declare(options=SIDES))
    draw_pointer(VIEW, chosen, len(head.tokens), choose)


def draw_cell(head: Head) -> None:
    """The selected query and key, and the cell's value at every stage of this head."""
    (query, key), pieces = head.cell.values(), head.tokens.pieces
    with st.container(gap="xsmall", key="cell"):
        pickers.pick_position("query", query, len(pieces), ("n", "m"))
        pickers.pick_position("key", key, len(pieces), ("j", "k"))
    st.text(isolated(f"query {head.tokens.named(query)}, key {head.tokens.named(key)}"))
    if key > query:
        caption(f"Key {key} comes after query {query}. The model never sees it: its weight is 0 by the mask.")
        return
    place = (*head.place.values(), *head.cell.values())
    values: dict[Stage, float] = head.source.remember(lambda: chain(head.page.trace, *place), "cell", *place)
    kernels = head.page.trace.model.config.kernels(head.selected.layer)
    rows = []
    for stage, value in reversed(values.items()):
        text = score_text(value) if stage.value.unit == "score" else weight_text(value)
        mark = "▸" if stage is head.selected.stage else "·"
        kind = "probability" if is_distribution(stage, kernels) else stage.value.unit
        rows.append(f"{mark} {stage.value.short:<6}{text:>9} {kind}")
    lines("\n".join(rows), "cell")


def draw_why(head: Head) -> None:
    """The sum, its picture and its terms; of weights that no step changed, those of the stage before.

    Nothing for a masked cell, of which the panel beside says so.
    """
    if head.selected.key > head.selected.query:
        return
    steps = layer_steps(head.page.trace.model.config.kernels(head.selected.layer))
    step = next(step for step in steps if step.after is head.selected.stage)
    stage = step.before if step.operation == "nothing" and step.before else step.after
    spec, source = Why(**head.place | {"stage": stage.value.key}, **head.cell), head.source
    figure = keep(source, spec)  # saved as wide as elsewhere
    why: Decomposition = figure.result
    st.markdown(f"**Why is it {plain(value_text(why, why.value))}?** {plain(sentence(source, why))}")
    name = head.widget("why", *head.stage.values(), *head.cell.values())
    if isinstance(why, Convolved | Mixed):
        earlier = pickers.on_offset(why.query, why.key, why.stage_before or Stage.RAW)
        then = earlier if isinstance(why, Convolved) else None
        picture = source.remember(lambda: _picture(head, why), "why", spec, source.numbering)
        chart(picture, name, then, alt="The sum that makes this value")
        save_line(figure, FOLLOW)
    if why.terms:
        _draw_terms(head, why, name)
    if isinstance(why, Convolved | Mixed):
        where = next(where for where, stage in MADE_BY.items() if stage is why.stage)
        draw_test_button(KernelId(why.layer, why.head, where), "why.test")


def _picture(head: Head, why: Convolved | Mixed) -> Figure:
    if isinstance(why, Convolved):
        return convolution_window(why, head.tokens, width=WHY_PX)
    return mixing_bars(why, numbering=head.page.numbering, width=WHY_PX)


def _draw_terms(head: Head, why: Decomposition, name: str) -> None:
    terms = [term for term in why.terms if term.state == "inside"]
    before = why.stage_before or Stage.RAW

    def follow(term: Term) -> None:
        source = _stage_of(term) if isinstance(term, Half) else before
        pickers.go_to(head=term.head, query=term.query, key=term.key, stage=source.value.key)

    widths = {name: st.column_config.Column(width=70) for name in ("query", "key")}
    height, rows = 38 + 35 * min(len(terms), 6), [_row(head, why, term) for term in terms]
    row_table(f"terms.{name}", rows, terms, follow, height=height, column_config=widths)
    if not isinstance(why, Convolved | Mixed):  # the line under their picture says it
        caption(FOLLOW)


def _row(head: Head, why: Decomposition, term: Term) -> dict[str, object]:
    pieces = head.tokens.pieces
    place: dict[str, object] = {
        name: f"{at} {pieces[at]}" for name, at in (("query", term.query), ("key", term.key))
    }
    if isinstance(why, Mixed):
        place = {"source head": head_label(term.head, head.page.numbering)}
    if isinstance(term, Half):
        place = {"map": _stage_of(term).value.long}
    numbers = {"product": term.product, "weight": term.weight, "value": term.source}
    return place | {name: float(f"{value:.3g}") for name, value in numbers.items()}


def _stage_of(half: Half) -> Stage:
    return next(stage for stage in Stage if stage.value.hook == half.source_stage)


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
    st.toggle("regex", **PATTERN.widget())

    hits, problem = hits_of(head)
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
    st.button("Show as key", key="show.key", on_click=_show, kwargs={"key": start})
    st.button("Show as query", key="show.query", on_click=_show, kwargs={"query": stop - 1, "key": None})
    st.button("Name it", key="span.add", on_click=_add, args=(head.page.key, head.spans, start, stop, text))


def span_name(span: Span) -> str:
    """Letter and name, as pickers list it."""
    place = f" {span.start}" if span.letter == "#" else ""  # no letters are left to tell them apart
    return f"{span.letter} {span.name}{place}"


def hits_of(head: Head) -> tuple[tuple[range, ...], str]:
    """The places of the text that is searched, and what is wrong with the search."""
    text, pattern = SEARCH.value, PATTERN.value

    def search() -> tuple[tuple[range, ...], str]:  # the error is kept too: a slow pattern is tried once
        try:
            return find(head.tokens, text, pattern=pattern), ""
        except PromptError as error:
            return (), str(error)

    return cache.remember(search, "hits", head.page.key, text, pattern)


def _show(**cell: int | None) -> None:
    state.select(**cell)
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
