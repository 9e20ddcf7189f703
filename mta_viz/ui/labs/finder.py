"""The finder on the page: every head's map cell, the ranked table with all stages, the way to Attention.

The chosen head's maps before and after its convolutions, where the asking tokens meet the asked part.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.changes import subtract
from mta_viz.analysis.attention.heads import HeadScores, Ranked, ranking
from mta_viz.analysis.attention.maps import AttentionMap, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.finder import Finder, Region, StepCrop, lit_most, step_crops
from mta_viz.exporting.data import map_csv, scores_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import score_map, value_text
from mta_viz.plots.attention.maps import SMALL, attention_map, difference_caption, difference_map
from mta_viz.plots.theme import Figure, limit_text, score_text, weight_text
from mta_viz.run.tracing import capture
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.attention.spans import NO_SPAN, name_spans, span_name
from mta_viz.ui.shell import cache, state, work
from mta_viz.ui.shell.cache import RunKey, remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.sidebar import use_prompt
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, layer_label, picked
from mta_viz.ui.shell.work import Work

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
    view, known = state.selection(), state.get("finder ranking")
    linked = known is None and {"l", "h"} <= state.get("opened with", {}).keys()
    if known != ranking_key or view.layer is None or view.head is None:
        state.put("finder ranking", ranking_key)
        if ranked and not linked:
            state.select(layer=ranked[0].layer, head=ranked[0].head)
    return state.selection().layer or 0, state.selection().head or 0


def _draw_map(page: Page, shown: HeadScores, key: str, place: tuple[int, int], run: Hashable) -> None:
    figure = remember(
        lambda: score_map(shown, key, numbering_from=page.numbering, selected=place, width=MAP_PX),
        "finder map", run, shown.span, key, place, page.numbering,
    )  # fmt: skip
    chart(figure, f"finder.{hash((run, shown.span, key, place))}", on_head, alt="One score of all heads")
    caption_with_save(
        "Layers down, heads across. Click a head to choose it. Hatched: this layer has no such stage.",
        (state.selection().checkpoint, "finder", key),
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
    use_prompt(prompt.text)
    if page.model_key is not None:
        spans = prompt.spans()
        asked = next((span for span in spans if span.name == finder.parts.asked.name), None)
        chosen = NO_SPAN if asked is None else span_name(asked)
        name_spans(RunKey(page.model_key, prompt.text).text, spans, chosen)
    view = state.selection()
    state.select(layer=view.layer, head=view.head, query=finder.parts.query, key=None)


SIZE = (300, 300)


@dataclass(frozen=True)
class Asked:
    """A prompt and the region of it to look at; `words` name it, `key` is equal only for equal runs."""

    tokens: Tokens
    region: Region
    words: str
    key: Hashable


def draw_crop(page: Page, asked: Asked) -> None:
    """A switch; behind it, a row of maps for each convolution of the chosen head's layer."""
    view = state.selection()
    layer, head = view.layer or 0, view.head or 0
    name = f"{layer_label(layer, page.numbering)} {head_label(head, page.numbering)}"
    if not st.toggle(f"Maps of {name}: {asked.words}", **state.kept("crop shown", False)):
        return
    key = ("crop", asked.key, asked.region, layer, head)
    crops = work.finished("crop", key, partial(_work, page, asked, layer, head))
    if crops is None:
        return
    if not crops:
        own = [at for at in range(page.model.config.n_layers) if _convolves(page, at)]
        there = ", ".join(layer_label(at, page.numbering) for at in own) or "none"
        caption(f"The layer of {name} has no key-query convolution; layers with one: {there}.")
    for crop in crops:
        _draw_step(page, asked, crop, (key, crop.after.stage))


def _convolves(page: Page, layer: int) -> bool:
    kernels = page.model.config.kernels(layer)
    return bool(kernels.pre or kernels.post)


def _work(page: Page, asked: Asked, layer: int, head: int, work: Work) -> tuple[StepCrop, ...]:
    """The run is kept beside those of other pages: the next head's maps come at once."""
    work.begin("Running the prompt")
    trace = cache.stores().traces.get_or_make(
        ("lab", asked.key), lambda: capture(page.model, asked.tokens, progress=work.report)
    )
    return step_crops(trace, asked.region, layer, head)


def _draw_step(page: Page, asked: Asked, crop: StepCrop, key: Hashable) -> None:
    """Both sides on one scale, that of the asked cells, and their difference on its own."""
    limit = shared_limit(crop.asked, page.first_token)
    scale = f"one scale for both, to {limit_text(limit)}, of the asked cells."
    with st.container(horizontal=True, gap="xsmall"):
        for one in (crop.before, crop.after):
            figure = remember(
                partial(attention_map, one, limit=limit, look=SMALL, **_drawing(page, asked)),
                "crop figure", key, one.stage, limit, page.numbering,
            )  # fmt: skip
            _show(asked, one, figure, f"{one.stage.value.long}; {scale}")
        own = shared_limit([subtract(*reversed(crop.asked))], page.first_token)
        figure = remember(
            partial(difference_map, crop.difference, limit=own, short=True, **_drawing(page, asked)),
            "crop change", key, own, page.numbering,
        )  # fmt: skip
        _show(asked, crop.difference, figure, difference_caption(crop.difference, own))
    caption(sum_words(crop))


def _drawing(page: Page, asked: Asked) -> dict[str, Any]:
    """Arguments that all three figures share."""
    spans = (asked.region.asking, asked.region.asked)
    return {"tokens": asked.tokens, "numbering_from": page.numbering, "size": SIZE, "spans": spans}


def _show(asked: Asked, one: AttentionMap, figure: Figure, told: str) -> None:
    kind = f"{type(one).__name__}.{one.stage.value.key}"
    with st.container(width=SIZE[0]):
        chart(figure, f"crop.{kind}.{hash((asked.key, one.layer, one.head))}", alt=told)
        where = (f"L{one.layer}", f"H{one.head}", one.stage.value.key, "crop")
        caption_with_save(told, where, figure, lambda: map_csv(one, asked.tokens), f"crop.{kind}")


def sum_words(crop: StepCrop) -> str:
    """What the convolution did to the asked part, in sums."""
    write = score_text if crop.before.stage.value.unit == "score" else weight_text
    (before, after), (last_before, last_after) = (map(write, pair) for pair in (crop.sums, crop.last))
    asked, asking, stage = crop.region.asked, crop.region.asking, crop.after.stage
    where = "before the softmax" if stage is Stage.KQ else "after the softmax"
    return (
        f"Convolution {where}: the {crop.before.stage.value.unit}s of “{asking.name}” x “{asked.name}” "
        f"sum to {before} before it and {after} after; in the last query's row alone to {last_before} "
        f"and {last_after}. Bars at the edges: blue {asking.name}, orange {asked.name}."
    )
