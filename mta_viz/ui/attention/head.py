"""One head as the Attention page shows it: its strip, its large map, the selected cell and its sum.

Beyond 256 tokens the map is an overview with an exact part beside it.
"""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.decomposition import Convolved, Decomposition, Mixed, Term, chain
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId
from mta_viz.figures.attention.maps import HeadMap, Scale, StageStrip
from mta_viz.figures.attention.tokens import Why, residual, sentence, value_text
from mta_viz.figures.base import Source
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import WHOLE_UP_TO, Crop, Part, Selected, around, go_to, pick_position
from mta_viz.ui.shell.plan import draw_test_button
from mta_viz.ui.shell.show import draw, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, chart, head_label, lines, picked, plain

SCALES: tuple[Scale, ...] = ("this map", "all stages")
SCALE = Setting[Scale]("scale", SCALES[0])
MAP_PX, PAIR_PX = 600, 460  # overview and exact part side by side
MAP_FIRST_SECONDS = 0.15


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
        chosen = state.part(Part).crop
        if chosen is None or chosen.query_stop > n_tokens or chosen.key_stop > n_tokens:
            return around(self.selected.query, self.selected.key, n_tokens)
        return chosen

    @property
    def ranges(self) -> dict[str, Any]:
        """The parameters queries and keys of an exact figure: those of the part."""
        return {} if self.part is None else dict(zip(("queries", "keys"), self.part.ranges, strict=True))

    def widget(self, name: str, *parts: Hashable) -> str:
        """A widget's key on this run: a choice on what another key shows is never taken for one on this."""
        return ".".join(map(str, (name, self.page.key, *parts)))


def draw_strip(head: Head) -> None:
    """All stages; a click selects one."""
    spec = StageStrip(**head.stage, first_token=head.page.first_token)
    figure = draw(head.source, spec)
    chart(figure.figure, "strip", pickers.on_stage, alt=figure.caption, stretch=True)
    save_line(figure, f"{figure.caption} Click one to see it large.")


def draw_map(head: Head) -> None:
    """All cells of a prompt short enough for it; else an overview and the exact part, which is sent first."""
    if head.part is None:
        with st.container(key="exact"):
            _draw_exact(head, MAP_PX)
        return
    left = st.container()
    with st.container(key="exact"):
        _draw_exact(head, PAIR_PX)
    with left:
        _draw_overview(head, head.part)


def _draw_overview(head: Head, part: Crop) -> None:
    """Pooled, with a box to choose from."""
    spec = HeadMap(**head.stage, **head.looks, scale=SCALE.value, size=PAIR_PX, outlined=part.ranges)
    figure, chosen = draw(head.source, spec), pickers.on_overview(len(head.tokens))
    chart(figure.figure, head.widget("overview"), chosen, modes=("points", "box"), alt=figure.caption)
    save_line(figure, f"Draw a box to see that part exactly. {figure.caption}")


def _draw_exact(head: Head, size: int) -> None:
    """The exact map of the selected stage; a click selects a cell."""
    spec = HeadMap(**head.stage, **head.cell, **head.ranges, **head.looks, scale=SCALE.value, size=size)
    figure = draw(head.source, spec)
    widget = head.widget("map", *(() if head.part is None else head.part.ranges))
    chart(figure.figure, widget, pickers.on_cell, alt=figure.caption)
    _let_it_be_drawn(head.widget("", *head.stage.values(), head.part))
    save_line(figure)


@dataclass
class _Sent:
    """Which map the browser was sent last."""

    map: str = ""


def _let_it_be_drawn(shown: str) -> None:
    """Wait a moment after sending a new map: the browser would take in the rest before it draws the map."""
    sent = state.part(_Sent)
    if sent.map != shown:
        sent.map = shown
        time.sleep(MAP_FIRST_SECONDS)


def draw_cell(head: Head) -> None:
    """The selected query and key, and the cell's value at every stage of this head."""
    (query, key), pieces = head.cell.values(), head.tokens.pieces
    with st.container(gap="xsmall"):
        pick_position("query", query, len(pieces), ("n", "m"))
        pick_position("key", key, len(pieces), ("j", "k"))
    st.text(f'query {query} "{pieces[query]}"\nkey {key} "{pieces[key]}"')
    if key > query:
        caption(f"Key {key} comes after query {query}. The model never sees it: its weight is 0 by the mask.")
        return
    lines("\n".join(_cell_lines(head)), "cell")


def _cell_lines(head: Head) -> list[str]:
    place = (*head.place.values(), *head.cell.values())
    values: dict[Stage, float] = head.source.remember(lambda: chain(head.page.trace, *place), "cell", *place)
    kernels = head.page.trace.model.config.kernels(head.selected.layer)
    rows = []
    for stage, value in reversed(values.items()):
        text = score_text(value) if stage.value.unit == "score" else weight_text(value)
        mark = "▸" if stage is head.selected.stage else "·"
        kind = "probability" if is_distribution(stage, kernels) else stage.value.unit
        rows.append(f"{mark} {stage.value.short:<6}{text:>9} {kind}")
    return rows


def draw_why(head: Head) -> None:
    """The sum, its picture and its terms. Nothing for a masked cell, of which the panel beside says so."""
    if head.selected.key > head.selected.query:
        return
    spec, source = Why(**head.stage, **head.cell), head.source
    figure = draw(source, spec)
    why: Decomposition = figure.result
    st.markdown(f"**Why is it {plain(value_text(why, why.value))}?** {plain(sentence(source, why))}")
    name = head.widget("why", *head.stage.values(), *head.cell.values())
    if figure.figure is not None:
        earlier = pickers.on_offset(why.query, why.key, why.stage_before or Stage.RAW)
        then = earlier if isinstance(why, Convolved) else None
        chart(figure.figure, name, then, alt="The sum that makes this value")
        save_line(figure, residual(why))
    if why.terms:
        _draw_terms(head, why, f"terms.{name}")
    if isinstance(why, Convolved | Mixed):
        where = next(where for where, stage in MADE_BY.items() if stage is why.stage)
        draw_test_button(KernelId(why.layer, why.head, where), "why.test")


def _draw_terms(head: Head, why: Decomposition, key: str) -> None:
    """All terms, largest product first; a row leads to its source, one stage earlier."""
    terms = [term for term in why.terms if term.state == "inside"]
    hidden = len(why.terms) - len(terms)
    st.dataframe(
        [_row(head, why, term) for term in terms],
        height=38 + 35 * min(len(terms), 6),
        hide_index=True,
        column_config={name: st.column_config.Column(width=70) for name in ("query", "key")},
        key=key,
        on_select=lambda: _follow(picked(key), terms, why),
        selection_mode="single-row",
    )
    left_out = f" {hidden} taps fall on masked or missing cells and add 0." if hidden else ""
    caption(f"Choose a row to go to its source, one stage earlier.{left_out}")


def _row(head: Head, why: Decomposition, term: Term) -> dict[str, object]:
    pieces = head.tokens.pieces
    place: dict[str, object] = {
        name: f"{at} {pieces[at]}" for name, at in (("query", term.query), ("key", term.key))
    }
    if isinstance(why, Mixed):
        place = {"source head": head_label(term.head, head.page.numbering)}
    numbers = {"weight": term.weight, "value": term.source, "product": term.product}
    return place | {name: float(f"{value:.5g}") for name, value in numbers.items()}


def _follow(row: int | None, terms: list[Term], why: Decomposition) -> None:
    if row is None or not 0 <= row < len(terms):
        return
    term, before = terms[row], why.stage_before or Stage.RAW
    go_to(head=term.head, query=term.query, key=term.key, stage=before.value.key)
