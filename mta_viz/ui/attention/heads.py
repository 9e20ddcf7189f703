"""Heads: all heads at a glance, ranked and scattered by what they do on this prompt."""

import math
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import HeadScores, Score, head_scores, ranking
from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.patterns import Thumbnails, all_thumbnails, layer_thumbnails
from mta_viz.analysis.attention.spans import QUESTION, Span, needle_spans
from mta_viz.exporting.data import scores_csv, tiles_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import head_scatter, head_tiles, n_without, score_map, value_text
from mta_viz.run.tracing import Trace
from mta_viz.ui.attention.maps import Drawn
from mta_viz.ui.attention.spans import chosen_span
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, layer_label, picked

ASK_FROM = 1024  # tokens: one pass over all layers takes long enough to be asked for
MAP_PX, SCATTER_PX, TILES_PX = 460, 380, 900
PICKERS = {
    "Score": "Of the map, the table and the colour of the points.",
    "Across": "The horizontal axis of the points.",
    "Up": "The vertical axis of the points.",
}
ALL, ONE = GRIDS = ("all layers", "this layer")


def draw(drawn: Drawn) -> None:
    """A score of all heads as map, scatter and table, then every head's map as a thumbnail."""
    if not _wanted(drawn):
        return
    span = chosen_span(drawn)
    query = drawn.selected.query
    scores: HeadScores = remember(
        lambda: _with_progress(
            "Scoring all heads",
            partial(head_scores, drawn.page.trace, span, query, needles=_needles(drawn)),
        ),
        "scores", drawn.page.key, span, query,
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom"):
        score = _pick_score(scores, "Score", "score", next(iter(scores.values)))
        x = _pick_score(scores, "Across", "scatter x", "distance")
        y = _pick_score(scores, "Up", "scatter y", _default_up(scores))
    with st.container(horizontal=True):
        with st.container(width=MAP_PX):
            _draw_map(drawn, scores, score)
        with st.container(width=MAP_PX):
            _draw_scatter(drawn, scores, (x.key, y.key, score.key))
        with st.container(width=MAP_PX):
            _draw_table(drawn, scores, score)
        with st.container(width=MAP_PX):
            _draw_definitions(score, x, y)
    _draw_tiles(drawn)


def _needles(drawn: Drawn) -> tuple[Span, ...]:
    """The needles the prompt holds, without its question."""
    return tuple(span for span in needle_spans(drawn.tokens) if span.letter != QUESTION)


def _default_up(scores: HeadScores) -> str:
    """What a step adds on the span, where there are a span and a step; else induction."""
    wanted = ("gain.kq", "gain.kq2", "gain.final", "span.final")
    there = (key for key in wanted if key in scores.values and bool(scores.values[key].isfinite().any()))
    return next(there, "induction")


def _draw_definitions(*scores: Score) -> None:
    """What the chosen scores are, each once."""
    for score in dict.fromkeys(scores):
        caption(f"{score.name} ({score.unit}; {score.stage.value.long}): {score.definition}")


def _wanted(drawn: Drawn) -> bool:
    """Whether to work: always for short prompts, after a button for long ones, once for each pass."""
    asked = (drawn.page.key, chosen_span(drawn), drawn.selected.query, drawn.selected.stage)
    if len(drawn.tokens) <= ASK_FROM or state.get("heads") == asked:
        return True
    caption(f"Scoring all heads passes over every layer of {len(drawn.tokens):,} tokens once.")
    st.button("Score all heads", on_click=lambda: state.put("heads", asked))
    return False


def _with_progress(words: str, work: Any) -> Any:
    place = st.empty()
    try:
        return work(progress=lambda share: place.progress(share, text=f"{words} ..."))
    finally:
        place.empty()


def _pick_score(scores: HeadScores, label: str, name: str, default: str) -> Score:
    there = {score.key: score for score in scores.scores}
    key = st.selectbox(
        label,
        list(there),
        format_func=lambda key: f"{there[key].name} ({there[key].unit})",
        width=290,
        help=PICKERS[label],
        **state.kept(name, default, list(there)),
    )
    return there[key]


def _draw_map(drawn: Drawn, scores: HeadScores, score: Score) -> None:
    place = (drawn.selected.layer, drawn.selected.head)
    figure = remember(
        lambda: score_map(
            scores, score.key, numbering_from=drawn.page.numbering, selected=place, width=MAP_PX
        ),
        "score map", drawn.page.key, scores.query, scores.span, score.key, place, drawn.page.numbering,
    )  # fmt: skip
    chart(figure, f"score.{drawn.page.key}.{score.key}.{place}", on_head, alt="One score of all heads")
    caption_with_save(
        "Click a head to open it. Hatched: this head has no such value.",
        (state.selection().checkpoint, "heads", score.key),
        figure,
        lambda: scores_csv(scores),
        "scores",
    )


def _draw_scatter(drawn: Drawn, scores: HeadScores, axes: tuple[str, str, str]) -> None:
    place, numbering = (drawn.selected.layer, drawn.selected.head), drawn.page.numbering
    figure = remember(
        lambda: head_scatter(
            scores, axes, numbering_from=numbering, selected=place, size=(MAP_PX, SCATTER_PX)
        ),
        "scatter", drawn.page.key, scores.query, scores.span, axes, place, numbering,
    )  # fmt: skip
    name = f"scatter.{drawn.page.key}.{'.'.join(axes)}.{place}"
    chart(figure, name, on_head, alt="All heads as points: one score across, one up, one as colour")
    without = n_without(scores, axes)
    left_out = f" {without} heads have no such value and are not drawn." if without else ""
    caption_with_save(
        f"A point is a head. Point at one for its numbers, click to open it.{left_out}",
        (state.selection().checkpoint, "heads", "scatter", *axes),
        figure,
        lambda: scores_csv(scores),
        "scatter",
    )


def _draw_table(drawn: Drawn, scores: HeadScores, score: Score) -> None:
    ranked = [one for one in ranking(scores, score.key) if not math.isnan(one.value)]
    key = f"ranking.{drawn.page.key}.{score.key}.{scores.query}.{scores.span}"
    st.dataframe(
        [
            {
                "layer": layer_label(one.layer, drawn.page.numbering),
                "head": head_label(one.head, drawn.page.numbering),
                score.name: value_text(score, one.value),
            }
            for one in ranked
        ],
        hide_index=True,
        height=360,
        key=key,
        on_select=lambda: _open(picked(key), ranked),
        selection_mode="single-row",
    )


def _open(row: int | None, ranked: list[Any]) -> None:
    if row is not None and 0 <= row < len(ranked):
        state.select(layer=ranked[row].layer, head=ranked[row].head)


def _thumbnails(trace: Trace, stage: Stage, layer: int | None) -> Thumbnails:
    if layer is not None:
        return layer_thumbnails(trace, layer, stage)
    return _with_progress("Pooling all maps", partial(all_thumbnails, trace, stage))


def _draw_tiles(drawn: Drawn) -> None:
    stage, place = drawn.selected.stage, (drawn.selected.layer, drawn.selected.head)
    with st.container(horizontal=True, vertical_alignment="center"):
        kept = state.kept("tiles of", ALL, GRIDS)
        grid = st.segmented_control("Maps of", GRIDS, required=True, label_visibility="collapsed", **kept)
        own = st.toggle("Own colour scale for each head", **state.kept("tiles own", True))
    layer = None if grid == ALL else drawn.selected.layer
    found = remember(
        lambda: _thumbnails(drawn.page.trace, stage, layer), "thumbnails", drawn.page.key, stage, layer
    )
    first, numbering = drawn.page.first_token, drawn.page.numbering
    limit = remember(
        lambda: shared_limit(found.maps(), first), "tiles limit", drawn.page.key, stage, layer, first
    )
    figure = remember(
        lambda: head_tiles(
            found, limit=limit, own_scale=own, numbering_from=numbering, selected=place, width=TILES_PX
        ),
        "tiles", drawn.page.key, stage, layer, limit, own, numbering, place,
    )  # fmt: skip
    chart(
        figure, f"tiles.{drawn.page.key}.{stage.value.key}.{place}", on_head, alt="Every head's map, pooled"
    )
    colours = "each on its own scale" if own else f"all on one scale, limit {limit:g}"
    caption_with_save(
        f"Every head of {grid} at {stage.value.long}, the largest |x| of a block in each cell, {colours}. "
        "Click one to open it.",
        (state.selection().checkpoint, "heads", stage.value.key),
        figure,
        lambda: tiles_csv(found),
        "tiles",
    )
