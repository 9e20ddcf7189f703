"""What several labs draw: one sample, run when it is asked for; its text with marked parts; and which heads
found what was asked for: their map, their ranking with all stages, the chosen head's maps.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import ranking
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.finder import Finder, StepCrop, lit_most
from mta_viz.figures.base import Source
from mta_viz.figures.labs.samples import CropMap, FinderMap
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.attention.head import NO_SPAN, name_spans, span_name
from mta_viz.ui.fields import menu, row_table
from mta_viz.ui.shell import cache, pickers, show, sidebar, state, work
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_name, layer_label, plain, text_file
from mta_viz.ui.shell.work import Work, time_text

LINKED_SECONDS = 60  # a link starts nothing longer by itself
SHOWN, LEAST = 160, 100  # letters of a gap shown at each end; fewer in between are not worth a cut
SCORE, PART = Setting("finder score", ""), Setting("finder part", "")
CROP_SHOWN = Setting("crop shown", False)
MAP_PX, CROP_PX = 400, 300
STEPS = {"before the softmax": (Stage.RAW, Stage.KQ), "after it": (Stage.SOFTMAX, Stage.SOFTMAX_KQ)}


def source_of(page: Page, beside: Source | None = None) -> Source:
    """What a lab's figures are drawn from: the model alone, whatever prompt the page has."""
    return show.source_of(replace(page, trace=None, key=repr(page.model_key)), beside)


@dataclass
class Labs:
    """By a lab's name: the sample it was asked to run, and the ranking whose first head was selected last."""

    asked: dict[str, Hashable] = field(default_factory=dict)
    rankings: dict[str, Hashable] = field(default_factory=dict)


def sample_run(
    lab: str,
    task: Hashable,
    seed: Setting[int],
    shown: Setting[bool],
    seconds: float,
    do: Callable[[Work, Keep], Any],
) -> Any | None:
    """The buttons, and the result once it is asked for: by them, or by a link of a page that showed one.

    The sample is number `seed` of `task`, which is equal only for equal tasks of equal models. `shown` says
    in an address that the page shows a result; `seconds`: how long it should take.
    """
    asked, key = state.part(Labs).asked, (lab, task, seed.value)
    if shown.declare() and seconds < LINKED_SECONDS:
        asked.setdefault(lab, key)

    def go_on() -> None:
        asked[lab] = (lab, task, seed.value + 1)
        seed.put(seed.value + 1)

    words, linked = f"About {time_text(seconds)} here.", asked.get(lab) == key
    with st.container(horizontal=True, vertical_alignment="center"):
        run = measured(Measurement(lab, key, "Run this sample", do, words, by_itself=linked))
        st.button("New sample", key=f"{lab}.new", on_click=go_on, help="The next one.")
    if run is not None:
        shown.put(True)
    elif work.running(lab, key) is None:
        st.info("No sample yet. Press Run this sample: it is made from the form above and its number.")
    return run


def draw_verdict(right: bool, words: str) -> None:
    """The answer in words, green where it is right."""
    (st.success if right else st.warning)(plain(words))


def draw_haystack() -> str | None:
    """A place for the text between what is looked for: None for the project's own grammar."""
    label = "Haystack: a text file (without one: sentences of a grammar made for this)"
    file = text_file("needle haystack", label, ["txt", "md"], 20, "Use the grammar again")
    return None if file is None else file[1]


def select_first(
    lab: str, ranking: Hashable, places: Sequence[tuple[int, int]], keep_first: bool = False
) -> None:
    """A new ranking begins at its first head; `keep_first`: but for the session's first, of a link."""
    last, selected = state.part(Labs).rankings, state.selection()
    begins = lab not in last
    if last.get(lab) == ranking and selected.layer is not None and selected.head is not None:
        return
    last[lab] = ranking
    if places and not (begins and keep_first):
        select(places[0])


def select(place: tuple[int, int]) -> None:
    """Select the head at `place` (layer, head)."""
    state.select(layer=place[0], head=place[1])


def ranked_table(
    name: str,
    places: Sequence[tuple[int, int]],
    row: Callable[[int, int], Mapping[str, Any]],
    numbering: int,
    choice: bool = True,
    **look: Any,
) -> None:
    """Heads in order, `row(layer, head)` beside each one's label; a click on a row selects its head."""
    rows = [{"head": head_name(*place, numbering), **row(*place)} for place in places]
    if choice:
        row_table(name, rows, places, select, **look)
    else:
        st.dataframe(rows, hide_index=True, key=name, **look)


def draw_marked(tokens: Tokens, marks: Sequence[tuple[Span, str, bool]], whole: Setting[bool]) -> None:
    """The text, marked in order of position; gaps are cut in the middle until the visitor opens them.

    A mark is a span, the colour (Streamlit's name) behind it, and whether its text is bold.
    """
    opened = st.toggle("Whole text", **whole.widget())
    text, parts, at = tokens.text or "", [], 0
    for span, color, strong in marks:
        start, stop = tokens.spans[span.start][0], tokens.spans[span.stop - 1][1]
        parts.append(_gap(text[at:start], opened))
        words = plain(text[start:stop].strip())
        words = f"**{words}**" if strong else words
        parts.append(f":{color}-background[**{plain(span.letter)}** {words}]")
        at = stop
    with st.container(border=True, height=420 if opened else "content", key="marked"):
        st.markdown(" ".join(part for part in parts if part))


def _gap(text: str, whole: bool) -> str:
    text = text.strip()
    if whole or len(text) <= 2 * SHOWN + LEAST:
        return plain(text)
    start, end = text[:SHOWN].rpartition(" ")[0], text[-SHOWN:].partition(" ")[2]
    left_out = len(text) - len(start) - len(end)
    return f"{plain(start)} *… {left_out:,} letters …* {plain(end)}"


Prompt = tuple[str, Callable[[], tuple[Span, ...]]]  # to run on Attention: text, and the spans to name there


def draw_finder(page: Page, figure: FinderMap, finder: Finder, words: str, prompt: Prompt) -> None:
    """Map and ranking by one score; `words` name the asked part."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        figure = _pick_scored(figure, finder, words)
    caption(_lit_words(finder, page.numbering))
    score = figure.score_of(finder)
    ranked = ranking(figure.scores_of(finder), score.key)
    values = {(head.layer, head.head): head.value for head in ranked if not math.isnan(head.value)}
    linked = {"l", "h"} <= state.session().link.opened_with.keys()
    select_first("finder", figure, list(values), keep_first=linked)
    place = state.selection().layer or 0, state.selection().head or 0
    with st.container(horizontal=True):
        with st.container(width=MAP_PX):
            shown = replace(figure, marked=place)
            show.show(source_of(page), shown, pickers.on_head, result=finder, widget=f"finder.{hash(shown)}")
        with st.container(key="finder-table"):
            _draw_ranking(page, finder, figure, values)
            name = head_name(*place, page.numbering)
            caption(f"{name}: {_head_words(finder, *place)}")
            if st.button(f"Open {name} in Attention", icon=":material/grid_on:", key="finder.attention"):
                _open_in_attention(page, finder, *prompt)
    words = (
        "The columns raw to final are the asked part's share of the query's row at each stage; of scores, "
        "the share if the softmax came there. Click a head to choose it."
    )
    p_words = (
        f"p: its final share's rank among {finder.n_null} other passages of its length, "
        f"{1 / (1 + finder.n_null):.3f} at best."
    )
    none = "There is no other passage of its length to compare it with."
    caption(f"{words} {p_words if finder.n_null else none}")


def _pick_scored(figure: FinderMap, finder: Finder, words: str) -> FinderMap:
    scores = {score.key: f"{score.name} ({score.unit})" for score in finder.asked.scores}
    usual = figure.score_of(finder).key
    score = menu("Rank heads by", scores, SCORE, default=usual, width=300, help="Of the map and the table.")
    names, asked = {part.name: part.letter for part in finder.parts.all}, finder.parts.asked.name
    name = asked
    if len(names) > 1:
        name = menu(f"{words} looked for", [*names], PART, default=asked, width=330)
    return replace(figure, score=score, part="" if name == asked else names[name])


def _draw_ranking(
    page: Page, finder: Finder, figure: FinderMap, values: Mapping[tuple[int, int], float]
) -> None:
    score = figure.score_of(finder)

    def row(layer: int, head: int) -> dict[str, Any]:
        stages = _stage_texts(finder, layer, head)
        return {
            score.name: value_text(score, values[layer, head]),
            "raw to final": [at for at in finder.shares[:, layer, head].tolist() if not math.isnan(at)],
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
    there = [(stage, heads) for stage, heads in shares if not heads.isnan().all()]
    return {stage.value.short: _share_text(float(heads[layer, head])) for stage, heads in there}


def _share_text(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.3f}"


def _head_words(finder: Finder, layer: int, head: int) -> str:
    shares = [f"{short} {text}" for short, text in _stage_texts(finder, layer, head).items() if text]
    words = f"share of “{finder.parts.asked.name}” {', '.join(shares)}"
    mass = float(finder.asked.values["mass.final"][layer, head])
    if mass < 0:
        words += f"; its final weights sum to {mass:+.3f} there: the part is subtracted"
    if "selectivity" in finder.asked.values:
        chosen = float(finder.asked.values["selectivity"][layer, head])
        words += f"; selectivity {chosen:.2f} (of what all {len(finder.parts.all)} get)"
    return words + "."


def _lit_words(finder: Finder, numbering: int) -> str:
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


def _open_in_attention(page: Page, finder: Finder, text: str, find: Callable[[], tuple[Span, ...]]) -> None:
    """The same prompt there, its spans named, at this head and the query that should find the part."""
    sidebar.use_prompt(text)
    if page.model_key is not None:
        spans = find()
        asked = next((span for span in spans if span.name == finder.parts.asked.name), None)
        chosen = NO_SPAN if asked is None else span_name(asked)
        name_spans(cache.RunKey(page.model_key, text).text, spans, chosen)
    state.select(query=finder.parts.query, key=None)
    st.switch_page("pages/attention.py")


def draw_crops(page: Page, figure: CropMap, words: str) -> None:
    """A switch; behind it, a row of maps for each convolution of the chosen head's layer."""
    selected = state.selection()
    figure = replace(figure, layer=selected.layer or 0, head=selected.head or 0, first_token=page.first_token)
    name = head_name(figure.layer, figure.head, page.numbering)
    if not st.toggle(f"Maps of {name}: {words}", **CROP_SHOWN.widget()):
        return
    source, key = source_of(page), ("crops", page.model_key, figure)

    def run(running: Work) -> tuple[StepCrop, ...]:  # the run is kept: the next head's maps come at once
        running.begin("Running the prompt")
        return figure.crops(replace(source, progress=running.report))

    crops: tuple[StepCrop, ...] | None = work.finished("crop", key, run)
    if crops is None:
        return
    if not crops:
        kernels = map(page.model.config.kernels, range(page.model.config.n_layers))
        having = [layer_label(at, page.numbering) for at, own in enumerate(kernels) if own.pre or own.post]
        layers = ", ".join(having) or "none"
        caption(f"The layer of {name} has no key-query convolution; layers with one: {layers}.")
    for crop in crops:
        with st.container(horizontal=True, gap="xsmall"):  # both sides on one scale, that of the asked cells
            for side in ("before", "after", "difference"):
                shown = replace(figure, place=crop.place, shown=side)
                with st.container(width=CROP_PX):
                    show.show(source, shown, result=crop, widget=f"crop.{hash(shown)}")
        caption(_sum_words(crop))


def _sum_words(crop: StepCrop) -> str:
    write = score_text if crop.before.stage.value.unit == "score" else weight_text
    (before, after), (last_before, last_after) = (map(write, pair) for pair in (crop.sums, crop.last))
    asked, asking = crop.region.asked, crop.region.asking
    where = "before the softmax" if crop.place == "pre" else "after the softmax"
    return (
        f"Convolution {where}: the {crop.before.stage.value.unit}s of “{asking.name}” x “{asked.name}” "
        f"sum to {before} before it and {after} after; in the last query's row alone to {last_before} "
        f"and {last_after}. Bars at the edges: blue {asking.name}, orange {asked.name}."
    )
