"""Which heads found what was asked for: their map, their ranking with all stages, the chosen head's maps."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from mta_viz.analysis.attention.heads import Ranked, ranking
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.finder import Finder, StepCrop, lit_most
from mta_viz.figures.base import Source
from mta_viz.figures.labs.samples import CropMap, FinderMap
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.ui.attention.spans import NO_SPAN, name_spans, span_name
from mta_viz.ui.labs.parts import ranked_table, select_first, source_of
from mta_viz.ui.shell import show, state, work
from mta_viz.ui.shell.cache import RunKey
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.sidebar import use_prompt
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_name, layer_label
from mta_viz.ui.shell.work import Work

F = TypeVar("F", bound="FinderMap | CropMap")
SCORE, PART = Setting("finder score", ""), Setting("finder part", "")
CROP_SHOWN = Setting("crop shown", False)
MAP_PX, CROP_PX = 400, 300
STEPS = {"before the softmax": (Stage.RAW, Stage.KQ), "after it": (Stage.SOFTMAX, Stage.SOFTMAX_KQ)}


@dataclass(frozen=True)
class Prompt:
    """What the Attention page is to run: a text, and how it finds the spans to name there."""

    text: str
    spans: Callable[[], tuple[Span, ...]]


def draw_finder(page: Page, figure: FinderMap, finder: Finder, words: str, prompt: Prompt) -> None:
    """Map and ranking by one score; `words` name the asked part."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        figure = replace(figure, score=_pick_score(figure, finder))
        figure = replace(figure, part=_pick_part(finder, words))
    caption(lit_words(finder, page.numbering))
    score = figure.score_of(finder)
    ranked = [head for head in ranking(figure.scores_of(finder), score.key) if not math.isnan(head.value)]
    linked = {"l", "h"} <= state.session().link.opened_with.keys()
    select_first("finder", figure, [(head.layer, head.head) for head in ranked], keep_first=linked)
    place = state.selection().layer or 0, state.selection().head or 0
    with st.container(horizontal=True):
        with st.container(width=MAP_PX):
            shown = replace(figure, marked=place)
            show.show(source_of(page), shown, on_head, result=finder, widget=f"finder.{hash(shown)}")
        with st.container(key="finder-table"):
            _draw_ranking(page, finder, figure, ranked)
            _draw_chosen(page, finder, place, prompt)
    caption(_column_words(finder))


def _pick_score(figure: FinderMap, finder: Finder) -> str:
    there = {score.key: score for score in finder.asked.scores}
    return st.selectbox(
        "Rank heads by",
        list(there),
        format_func=lambda key: f"{there[key].name} ({there[key].unit})",
        width=300,
        help="Of the map and the table.",
        **SCORE.widget(list(there), default=figure.score_of(finder).key),
    )


def _pick_part(finder: Finder, words: str) -> str:
    """The letter of the part the scores are about: "" for the asked one, unless another is wanted."""
    names = {part.name: part.letter for part in finder.parts.all}
    if len(names) == 1:
        return ""
    asked = finder.parts.asked.name
    name = st.selectbox(
        f"{words} looked for", list(names), width=330, **PART.widget(list(names), default=asked)
    )
    return "" if name == asked else names[name]


def _draw_ranking(page: Page, finder: Finder, figure: FinderMap, ranked: list[Ranked]) -> None:
    score = figure.score_of(finder)
    values = {(head.layer, head.head): value_text(score, head.value) for head in ranked}

    def row(layer: int, head: int) -> dict[str, Any]:
        stages = _stage_texts(finder, layer, head)
        return {
            score.name: values[layer, head],
            "raw to final": [
                share for share in finder.shares[:, layer, head].tolist() if not math.isnan(share)
            ],
            **{short: text for short, text in stages.items() if short != score.name},
            "p": _share_text(float(finder.p[layer, head])),
        }

    lines = st.column_config.LineChartColumn(
        "raw to final", y_min=0.0, y_max=1.0, help="The asked part's share at each stage."
    )
    name = f"finder.table.{hash(figure)}"
    ranked_table(name, list(values), row, page.numbering, height=260, column_config={"raw to final": lines})


def _stage_texts(finder: Finder, layer: int, head: int) -> dict[str, str]:
    """The asked part's share at each stage the model has, by the stages' short names."""
    shares = zip(Stage, finder.shares, strict=True)
    return {
        stage.value.short: _share_text(float(heads[layer, head]))
        for stage, heads in shares
        if not heads.isnan().all()
    }


def _share_text(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.3f}"


def _column_words(finder: Finder) -> str:
    """What the table's other columns are."""
    words = (
        "The columns raw to final are the asked part's share of the query's row at each stage; of scores, "
        "the share if the softmax came there. Click a head to choose it."
    )
    if not finder.n_null:
        return f"{words} There is no other passage of its length to compare it with."
    return (
        f"{words} p: its final share's rank among {finder.n_null} other passages of its length, "
        f"{1 / (1 + finder.n_null):.3f} at best."
    )


def _draw_chosen(page: Page, finder: Finder, place: tuple[int, int], prompt: Prompt) -> None:
    name = head_name(*place, page.numbering)
    caption(f"{name}: {head_words(finder, *place)}")
    if st.button(f"Open {name} in Attention", icon=":material/grid_on:", key="finder.attention"):
        _open_in_attention(page, finder, prompt)
        st.switch_page("pages/attention.py")


def head_words(finder: Finder, layer: int, head: int) -> str:
    """What one head does with the asked part, step by step."""
    shares = [f"{short} {text}" for short, text in _stage_texts(finder, layer, head).items() if text]
    words = f"share of “{finder.parts.asked.name}” {', '.join(shares)}"
    mass = float(finder.asked.values["mass.final"][layer, head])
    if mass < 0:
        words += f"; its final weights sum to {mass:+.3f} there: the part is subtracted"
    if "selectivity" in finder.asked.values:
        chosen = float(finder.asked.values["selectivity"][layer, head])
        words += f"; selectivity {chosen:.2f} (of what all {len(finder.parts.all)} get)"
    return words + "."


def lit_words(finder: Finder, numbering: int) -> str:
    """Which head's convolution lights the asked part: the most before the softmax, and the most after."""
    lit = []
    for where, (before, after) in STEPS.items():
        place = lit_most(finder, before, after)
        if place is not None:
            start, stop = (float(finder.share(stage)[place]) for stage in (before, after))
            name = head_name(*place, numbering)
            lit.append(f"{where} that of {name}, share {start:.3f} before and {stop:.3f} after")
    if not lit:
        return "No convolution of this model raises the asked part's share."
    return f"The convolution that lights “{finder.parts.asked.name}” most: {'; '.join(lit)}."


def _open_in_attention(page: Page, finder: Finder, prompt: Prompt) -> None:
    """The same prompt there, its spans named, at this head and the query that should find the part."""
    use_prompt(prompt.text)
    if page.model_key is not None:
        spans = prompt.spans()
        asked = next((span for span in spans if span.name == finder.parts.asked.name), None)
        chosen = NO_SPAN if asked is None else span_name(asked)
        name_spans(RunKey(page.model_key, prompt.text).text, spans, chosen)
    state.select(query=finder.parts.query, key=None)


def draw_crops(page: Page, figure: CropMap, words: str) -> None:
    """A switch; behind it, a row of maps for each convolution of the chosen head's layer."""
    selected = state.selection()
    figure = replace(figure, layer=selected.layer or 0, head=selected.head or 0, first_token=page.first_token)
    name = head_name(figure.layer, figure.head, page.numbering)
    if not st.toggle(f"Maps of {name}: {words}", **CROP_SHOWN.widget()):
        return
    source, key = source_of(page), ("crops", page.model_key, figure)
    crops: tuple[StepCrop, ...] | None = work.finished("crop", key, partial(_crops, source, figure))
    if crops is None:
        return
    if not crops:
        own = ", ".join(layer_label(layer, page.numbering) for layer in convolving_layers(page)) or "none"
        caption(f"The layer of {name} has no key-query convolution; layers with one: {own}.")
    for crop in crops:
        _draw_crop(source, replace(figure, place=crop.place), crop)


def convolving_layers(page: Page) -> list[int]:
    """Those with key-query kernels."""
    kernels = map(page.model.config.kernels, range(page.model.config.n_layers))
    return [layer for layer, own in enumerate(kernels) if own.pre or own.post]


def _crops(source: Source, figure: CropMap, running: Work) -> tuple[StepCrop, ...]:
    """The run is kept: the next head's maps come at once."""
    running.begin("Running the prompt")
    return figure.crops(replace(source, progress=running.report))


def _draw_crop(source: Source, figure: CropMap, crop: StepCrop) -> None:
    """Both sides on one scale, that of the asked cells, and their difference on its own."""
    with st.container(horizontal=True, gap="xsmall"):
        for shown in (
            replace(figure, shown="before"),
            replace(figure, shown="after"),
            replace(figure, shown="difference"),
        ):
            with st.container(width=CROP_PX):
                show.show(source, shown, result=crop, widget=f"crop.{hash(shown)}")
    caption(sum_words(crop))


def sum_words(crop: StepCrop) -> str:
    """What the convolution did to the asked part, in sums."""
    write = score_text if crop.before.stage.value.unit == "score" else weight_text
    (before, after), (last_before, last_after) = (map(write, pair) for pair in (crop.sums, crop.last))
    asked, asking = crop.region.asked, crop.region.asking
    where = "before the softmax" if crop.place == "pre" else "after the softmax"
    return (
        f"Convolution {where}: the {crop.before.stage.value.unit}s of “{asking.name}” x “{asked.name}” "
        f"sum to {before} before it and {after} after; in the last query's row alone to {last_before} "
        f"and {last_after}. Bars at the edges: blue {asking.name}, orange {asked.name}."
    )
