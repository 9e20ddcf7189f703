"""The finder on the page: every head's map cell, the ranked table with all stages, the way to Attention."""

import math
from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from mta_viz.analysis.head_scores import HeadScores, ranking
from mta_viz.analysis.labs.finder import Finder, lit_most
from mta_viz.analysis.ranked import Ranked
from mta_viz.analysis.spans import Span
from mta_viz.exporting.tables import scores_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.head_tiles import score_map, value_text
from mta_viz.ui import state
from mta_viz.ui.cache import RunKey, remember
from mta_viz.ui.clicks import on_head
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.sidebar import request_run
from mta_viz.ui.widgets import caption, caption_with_save, chart, picked

MAP_PX = 400
DEFAULTS = ("span.final", "gain.kq", "gain.kq2", "gain.final")


def draw_finder(page: Page, finder: Finder, run: Hashable, words: str, prompt: "Prompt") -> None:
    """Map and table of one score; `words` name the asked part, `run` is equal only for equal runs."""
    scores = finder.asked
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = _pick_score(scores)
        part = _pick_part(finder, words)
    shown = finder.scores[part]
    caption(lit_words(finder, page.numbering))
    ranked = [one for one in ranking(shown, key) if not math.isnan(one.value)]
    place = _chosen(ranked, (run, key, part))
    with st.container(horizontal=True):
        with st.container(width=MAP_PX):
            _draw_map(page, shown, key, place, run)
        with st.container(key="finder-table"):
            _draw_table(page, finder, shown, key, ranked, run)
            _draw_chosen(page, finder, place, prompt)
    score = next(one for one in shown.scores if one.key == key)
    caption(f"{score.name} ({score.unit}): {score.definition} {_column_words(finder)}")


class Prompt:
    """What the Attention page is to run: a text, and how it finds the spans to name there."""

    def __init__(self, text: str, spans: Callable[[], tuple[Span, ...]]) -> None:
        self.text, self.spans = text, spans


def _pick_score(scores: HeadScores) -> str:
    there = {score.key: score for score in scores.scores}
    key = st.selectbox(
        "Rank heads by",
        list(there),
        format_func=lambda key: f"{there[key].name} ({there[key].unit})",
        width=300,
        help="Of the map and the table.",
        **state.kept("finder score", next(one for one in DEFAULTS if one in there), list(there)),
    )
    return key


def _pick_part(finder: Finder, words: str) -> Span:
    """Which part the scores are about: the asked one, unless a visitor wants to see another."""
    names = {part.name: part for part in finder.parts.all}
    if len(names) == 1:
        return finder.parts.asked
    name = st.selectbox(
        f"{words} looked for",
        list(names),
        width=330,
        **state.kept("finder part", finder.parts.asked.name, list(names)),
    )
    return names[name]


def _chosen(ranked: list[Ranked], ranking_key: Hashable) -> tuple[int, int]:
    """The selected head; a new ranking begins at its first, but for the one a link opens with."""
    view, known = state.view(), state.get("finder ranking")
    linked = known is None and {"l", "h"} <= state.get("opened with", {}).keys()
    if known != ranking_key or view.layer is None or view.head is None:
        state.put("finder ranking", ranking_key)
        if ranked and not linked:
            state.select(layer=ranked[0].layer, head=ranked[0].head)
    return state.view().layer or 0, state.view().head or 0


def _draw_map(page: Page, shown: HeadScores, key: str, place: tuple[int, int], run: Hashable) -> None:
    figure = remember(
        lambda: score_map(shown, key, numbering_from=page.numbering, selected=place, width=MAP_PX),
        "finder map", run, shown.span, key, place, page.numbering,
    )  # fmt: skip
    chart(figure, f"finder.{hash((run, shown.span, key, place))}", on_head, alt="One score of all heads")
    caption_with_save(
        "Layers down, heads across. Click a head to choose it. Hatched: this layer has no such stage.",
        (state.view().checkpoint, "finder", key),
        figure,
        lambda: scores_csv(shown),
        "finder",
    )


def _draw_table(
    page: Page, finder: Finder, shown: HeadScores, key: str, ranked: list[Ranked], run: Hashable
) -> None:
    score = next(one for one in shown.scores if one.key == key)
    name = f"finder.table.{hash((run, shown.span, key))}"
    st.dataframe(
        [_row(page, finder, score.name, value_text(score, one.value), one) for one in ranked],
        hide_index=True,
        height=260,
        key=name,
        on_select=lambda: _take(picked(name), ranked),
        selection_mode="single-row",
        column_config={
            "raw to final": st.column_config.LineChartColumn(
                "raw to final", y_min=0.0, y_max=1.0, help="The asked part's share at each stage."
            )
        },
    )


def _column_words(finder: Finder) -> str:
    """What the table's other columns are."""
    return (
        "The columns raw to final are the asked part's share of the query's row at each stage; of scores, "
        f"the share if the softmax came there. {_p_words(finder)}"
    )


def _p_words(finder: Finder) -> str:
    if not finder.n_null:
        return "There is no other passage of its length to compare it with."
    return (
        f"p: its final share's rank among {finder.n_null} other passages of its length, "
        f"{1 / (1 + finder.n_null):.3f} at best."
    )


def _row(page: Page, finder: Finder, name: str, value: str, one: Ranked) -> dict[str, Any]:
    shares = finder.shares[:, one.layer, one.head].tolist()
    told = {
        stage.value.short: "" if math.isnan(share) else f"{share:.3f}"
        for stage, share, all_heads in zip(Stage, shares, finder.shares, strict=True)
        if not all_heads.isnan().all()
    }
    p = float(finder.p[one.layer, one.head])
    return {
        "head": f"{layer_label(one.layer, page.numbering)} {head_label(one.head, page.numbering)}",
        name: value,
        "raw to final": [share for share in shares if not math.isnan(share)],
        **{short: text for short, text in told.items() if name != short},
        "p": "" if math.isnan(p) else f"{p:.3f}",
    }


def _take(row: int | None, ranked: list[Ranked]) -> None:
    if row is not None and 0 <= row < len(ranked):
        state.select(layer=ranked[row].layer, head=ranked[row].head)


def _draw_chosen(page: Page, finder: Finder, place: tuple[int, int], prompt: Prompt) -> None:
    layer, head = place
    name = f"{layer_label(layer, page.numbering)} {head_label(head, page.numbering)}"
    caption(f"{name}: {head_words(finder, layer, head)}")
    if st.button(f"Open {name} in Attention", icon=":material/grid_on:", key="finder.attention"):
        _open_in_attention(page, finder, prompt)
        st.switch_page("pages/attention.py")


def head_words(finder: Finder, layer: int, head: int) -> str:
    """What one head does with the asked part, step by step."""
    values = finder.asked.values
    shares = finder.shares[:, layer, head].tolist()
    told = [
        f"{stage.value.short} {share:.3f}"
        for stage, share in zip(Stage, shares, strict=True)
        if not math.isnan(share)
    ]
    words = f"share of “{finder.parts.asked.name}” {', '.join(told)}"
    mass = float(values["mass.final"][layer, head])
    if mass < 0:
        words += f"; its final weights sum to {mass:+.3f} there: the part is subtracted"
    if "selectivity" in values:
        chosen = float(values["selectivity"][layer, head])
        words += f"; selectivity {chosen:.2f} (of what all {len(finder.parts.all)} get)"
    return words + "."


def lit_words(finder: Finder, numbering: int) -> str:
    """Which head's convolution lights the asked part: the most before the softmax, and the most after."""
    told = []
    for before, after in ((Stage.RAW, Stage.KQ), (Stage.SOFTMAX, Stage.SOFTMAX_KQ)):
        found = lit_most(finder, before, after)
        if found is not None:
            layer, head = found
            start, stop = (float(finder.share(stage)[layer, head]) for stage in (before, after))
            where = "before the softmax" if after is Stage.KQ else "after it"
            name = f"{layer_label(layer, numbering)} {head_label(head, numbering)}"
            told.append(f"{where} that of {name}, share {start:.3f} before and {stop:.3f} after")
    if not told:
        return "No convolution of this model raises the asked part's share."
    return f"The convolution that lights “{finder.parts.asked.name}” most: {'; '.join(told)}."


def _open_in_attention(page: Page, finder: Finder, prompt: Prompt) -> None:
    """The same prompt there, its spans named, at this head and the query that should find the part."""
    state.put("prompt", prompt.text)
    request_run(prompt.text)
    if page.model_key is not None:
        spans = prompt.spans()
        state.put("spans", (RunKey(page.model_key, prompt.text).text, spans))
        asked = next((span for span in spans if span.name == finder.parts.asked.name), None)
        if asked is not None:
            state.put("span", f"{asked.letter} {asked.name}")
    view = state.view()
    state.select(layer=view.layer, head=view.head, query=finder.parts.query, key=None)
