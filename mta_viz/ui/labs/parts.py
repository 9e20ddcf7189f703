"""What several labs draw: a sample, run by itself where that is short; its text, its spans outlined; and the
heads that found what was asked for: their map beside the chosen one's maps, their ranking with all stages.
"""

import html
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.analysis.attention.heads import ranking
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.finder import Finder, StepCrop, lit_most
from mta_viz.figures.attention.maps import HeadMap
from mta_viz.figures.base import Source
from mta_viz.figures.labs.samples import CROP_PX, MAP_PX, CropMap, FinderMap, Side
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.parts import ASKED, ASKING, colors_of
from mta_viz.plots.theme import limit_text, score_text, weight_text
from mta_viz.printed import head_name, layer_label, time_text
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.attention.head import NO_SPAN, name_spans, span_name
from mta_viz.ui.labs.fits import opens
from mta_viz.ui.shell import cache, pickers, show, sidebar, state, work
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import WORKSPACE, Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, menu, plain, pressed, row_table, text_file
from mta_viz.ui.shell.work import Work

LINKED_SECONDS = 60  # nothing longer starts by itself where a sample was shown, by a link for example
FINDER = "finder"  # the labs of facts that heads find, which show one head
SHOWN, LEAST = 42, 30  # letters of a gap shown at each end; fewer in between are not worth a cut
SCORE, PART = Setting("finder score", ""), Setting("finder part", "")
USUAL_SCORES = ("gain.kq", "gain.kq2", "span.final")  # what a kernel does first, where there is one
SIDES: dict[Side, str] = {"before": "Before", "after": "After", "difference": "After − before"}
STEPS = {"before the softmax": (Stage.RAW, Stage.KQ), "after it": (Stage.SOFTMAX, Stage.SOFTMAX_KQ)}


def source_of(page: Page, beside: Source | None = None) -> Source:
    """What a lab's figures are drawn from: the model alone, whatever prompt the page has."""
    return show.source_of(replace(page, trace=None, key=repr(page.model_key)), beside)


@dataclass
class Labs:
    """By a lab's name: its ranking, and whether a head was chosen of it, which is then the selected one."""

    rankings: dict[str, tuple[Hashable, bool]] = field(default_factory=dict)


@contextmanager
def settings(lab: str, seed: Setting[int]) -> Iterator[DeltaGenerator]:
    """A row with the next sample's button, folded what is drawn in the block, and the room beside them."""
    with st.container(horizontal=True, vertical_alignment="center"):
        look: dict[str, Any] = {"icon": ":material/refresh:", "on_click": lambda: seed.put(seed.value + 1)}
        st.button("New sample", key=f"{lab}.new", **look)
        popover, beside = st.popover("Settings", icon=":material/tune:"), st.container()
        with popover, st.container(horizontal=True):
            yield beside


def sample_run(
    lab: str,
    task: Hashable,
    seed: Setting[int],
    shown: Setting[bool],
    seconds: float,
    do: Callable[[Work, Keep], Any],
) -> Any | None:
    """The result: at once where it is short, else once it is asked for, or by a link of a page that had one.

    The sample is number `seed` of `task`, which is equal only for equal tasks of equal models. `shown` says
    in an address that the page shows a result; `seconds`: how long it should take.
    """
    key, words = (lab, task, seed.value), f"About {time_text(seconds)} here."
    linked = shown.declare() and seconds < LINKED_SECONDS
    by_itself = opens(seconds) or linked
    run = measured(Measurement(lab, key, "Run this sample", do, words, by_itself=by_itself))
    if run is not None:
        shown.put(True)
    elif work.running(lab, key) is None:
        st.info("No sample yet: it takes long enough here to be asked for. Press Run this sample.")
    return run


def draw_verdict(words: str) -> None:
    """The answer in words, its tick or cross in colour."""
    st.markdown(plain(words).replace("✓", ":green[**✓**]").replace("✗", ":orange[**✗**]"))


def draw_haystack() -> str | None:
    """A place for the text between what is looked for: None for the project's own grammar."""
    label = "Haystack: a text file (without one: sentences of a grammar made for this)"
    file = text_file("needle haystack", label, ["txt", "md"], 20, "Use the grammar again")
    return None if file is None else file[1]


def head_of(
    lab: str, ranking: Hashable, places: Sequence[tuple[int, int]], *, linked: bool = False
) -> tuple[int, int]:
    """The head a lab shows, layer and head: of a new ranking its first, until one is chosen in the lab.

    What is selected elsewhere stays as it is. `linked`: a link chose one of the session's first ranking.
    """
    rankings, now = state.part(Labs).rankings, state.selection()
    last, chosen = rankings.get(lab, (ranking, linked))
    rankings[lab] = ranking, chosen and last == ranking
    return (now.layer or 0, now.head or 0) if rankings[lab][1] or not places else places[0]


def choose(lab: str, place: tuple[int, int] | None) -> None:
    """Select the head at `place` (layer, head), in the lab and elsewhere."""
    if place is not None:
        rankings = state.part(Labs).rankings
        rankings[lab] = rankings[lab][0], True
        state.select(layer=place[0], head=place[1])


def on_map(lab: str) -> Callable[[str], None]:
    """A click on a head's tile chooses that head."""
    return lambda widget: choose(lab, pickers.pair_of(widget))


def ranked_table(
    name: str,
    places: Sequence[tuple[int, int]],
    row: Callable[[int, int], Mapping[str, Any]],
    numbering: int,
    lab: str | None = FINDER,
    **look: Any,
) -> None:
    """Heads in order, `row(layer, head)` beside each one's label; a click on a row of a `lab` chooses it."""
    rows = [{"head": head_name(*place, numbering), **row(*place)} for place in places]
    if lab:
        row_table(name, rows, places, partial(choose, lab), **look)
    else:
        st.dataframe(rows, hide_index=True, key=name, **look)


def draw_text(tokens: Tokens, spans: Sequence[Span], whole: bool, words: str = "") -> None:
    """The text, each span outlined in its own colour beside its letter, what is asked for in bold.

    Gaps are cut in the middle unless it is shown `whole`. A right-to-left piece turns nothing around it.
    """
    text, parts, at = tokens.text or "", list[str](), 0
    colored = zip(spans, colors_of(spans), strict=True)
    for span, color in sorted(colored, key=lambda pair: pair[0].start):
        start, stop = tokens.spans[span.start][0], tokens.spans[span.stop - 1][1]
        parts.append(_gap(text[at:start], whole))
        inside, name = _bdi(text[start:stop].strip()), html.escape(span.letter)
        inside = f"<strong>{inside}</strong>" if color is ASKED else inside
        look = f"border-color: {color.line}"
        parts.append(f'<span class="named" style="{look}"><b>{name}</b> {inside}</span>')
        at = stop
    parts.append(_gap(text[at:], whole))
    with st.container(border=whole, height=420 if whole else "content", key="marked"):
        st.html(" ".join(part for part in parts if part))
    others = [color.name for color in dict.fromkeys(colors_of(spans)) if color not in (ASKED, ASKING)]
    key = f"{ASKED.name}, bold: what is asked for; {ASKING.name}: the question"
    key += f"; {', '.join(others)}: the others" if others else ""
    caption(f"{len(tokens):,} tokens{words}." + (f" Outlined {key}." if spans else ""))


def _gap(text: str, whole: bool) -> str:
    text = text.strip()
    if whole or len(text) <= 2 * SHOWN + LEAST:
        return _bdi(text)
    start, end = text[:SHOWN].rpartition(" ")[0], text[-SHOWN:].partition(" ")[2]
    left_out = len(text) - len(start) - len(end)
    return f"{_bdi(start)} <i>… {left_out:,} letters …</i> {_bdi(end)}"


def _bdi(text: str) -> str:
    return f"<bdi>{html.escape(text)}</bdi>" if text else ""


Prompt = tuple[str, Callable[[], tuple[Span, ...]]]  # to run on Attention: text, and the spans to name there


def draw_heads(
    page: Page, figure: FinderMap, crop: CropMap | None, finder: Finder, words: str, prompt: Prompt
) -> None:
    """Heads by one score beside the chosen one's maps, under them their ranking. `words` name the part."""
    maps = st.container(horizontal=True, gap="small", key="heads")
    sums, below = st.container(), st.container(horizontal=True, vertical_alignment="bottom")
    with below:
        figure = _pick_scored(figure, finder, words)
    score = figure.score_of(finder)
    ranked = ranking(figure.scores_of(finder), score.key)
    values = {(head.layer, head.head): head.value for head in ranked if not math.isnan(head.value)}
    linked = {"l", "h"} <= state.session().link.opened_with.keys()
    place = head_of(FINDER, figure, list(values), linked=linked)
    name = head_name(*place, page.numbering)
    with below:
        if pressed(f"Open {name} in the workspace", "finder.workspace", icon=":material/grid_on:"):
            _open_in_workspace(page, finder, place, *prompt)
    with maps:
        _draw_map(page, replace(figure, marked=place), finder)
        if crop is not None:
            crop = replace(crop, layer=place[0], head=place[1], first_token=page.first_token)
            crops = _draw_crops(page, crop)
    with sums:
        if crop is not None and crops:
            _draw_changes(page, crop, crops)
    with st.expander("All heads, stage by stage"):
        caption(f"{_lit_words(finder, page.numbering)} {name}: {_head_words(finder, *place)}")
        _draw_ranking(page, finder, figure, values)


def _draw_map(page: Page, figure: FinderMap, finder: Finder) -> None:
    line = f"Click a head. {figure.score_of(finder).name} of {figure.part_of(finder).words}."
    look: dict[str, Any] = {"result": finder, "widget": f"finder.{hash(figure)}", "words": line}
    with st.container(width=MAP_PX):
        show.show(source_of(page), figure, on_map(FINDER), **look)


def _pick_scored(figure: FinderMap, finder: Finder, words: str) -> FinderMap:
    scores = {score.key: f"{score.name} ({score.unit})" for score in finder.asked.scores}
    usual = next(key for key in USUAL_SCORES if key in scores)
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
    words = f"share of {finder.parts.asked.words} {', '.join(shares)}"
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
    return f"The convolution that lights {finder.parts.asked.words} most: {'; '.join(lit)}."


def _open_in_workspace(
    page: Page, finder: Finder, place: tuple[int, int], text: str, find: Callable[[], tuple[Span, ...]]
) -> None:
    """The same prompt there, its spans named, at this head and the query that should find the part."""
    sidebar.use_prompt(text)
    if page.model_key is not None:
        spans = find()
        asked = next((span for span in spans if span.name == finder.parts.asked.name), None)
        chosen = NO_SPAN if asked is None else span_name(asked)
        name_spans(cache.RunKey(page.model_key, text).text, spans, chosen)
    state.select(layer=place[0], head=place[1], query=finder.parts.query, key=None)
    st.switch_page(WORKSPACE)


def _draw_crops(page: Page, figure: CropMap) -> tuple[StepCrop, ...]:
    """The head's maps on both sides of each convolution; without one its last."""
    source, key = source_of(page), ("crops", page.model_key, figure)

    def run(running: Work) -> tuple[StepCrop, ...]:  # the run is kept: the next head's maps come at once
        running.begin("Running the prompt")
        return figure.crops(replace(source, progress=running.report))

    crops: tuple[StepCrop, ...] | None = work.finished("crop", key, run)
    if crops == ():
        _draw_final(page, figure)
    sides: tuple[Side, ...] = ("before", "after")
    for crop, side in product(crops or (), sides):
        _draw_crop(source, replace(figure, place=crop.place, shown=side), crop)
    return crops or ()


def _draw_changes(page: Page, figure: CropMap, crops: Sequence[StepCrop]) -> None:
    """What each convolution adds up to, and folded what it changed cell by cell."""
    for crop in crops:
        st.caption(plain(_sum_words(crop)))
    with st.expander("What it changed"), st.container(horizontal=True):
        for crop in crops:
            _draw_crop(source_of(page), replace(figure, place=crop.place, shown="difference"), crop)


def _draw_crop(source: Source, figure: CropMap, crop: StepCrop) -> None:
    """Before and after on one scale, that of the asked cells."""
    line = f"{SIDES[figure.shown]}; colours to {limit_text(figure.limit(crop))}."
    with st.container(width=CROP_PX[0]):
        show.show(source, figure, result=crop, widget=f"crop.{hash(figure)}", words=line)


def _draw_final(page: Page, figure: CropMap) -> None:
    """Of a layer without a convolution the head's final weights, and the layers that have one."""
    source, config = source_of(page), page.model.config
    region = figure.asked(source).region
    assert region is not None
    of_sample = replace(page, trace=figure.trace(source), key=repr((page.model_key, figure.sample_key)))
    sides: dict[str, Any] = {
        "queries": (region.queries.start, region.queries.stop),
        "keys": (region.keys.start, region.keys.stop),
        "spans": (region.asking, region.asked),
        "first_token": page.first_token,
    }
    shown = HeadMap(figure.layer, figure.head, Stage.PATTERN.value.key, size=CROP_PX[0], **sides)
    having = [at for at in range(config.n_layers) if config.kernels(at).pre or config.kernels(at).post]
    layers = ", ".join(layer_label(at, page.numbering) for at in having) or "none"
    line = f"Its final weights. Its layer has no key-query convolution; layers with one: {layers}."
    with st.container(width=CROP_PX[0]):
        show.show(show.source_of(of_sample), shown, widget=f"crop.{hash(shown)}", words=line)


def _sum_words(crop: StepCrop) -> str:
    write = score_text if crop.before.stage.value.unit == "score" else weight_text
    (before, after), (last_before, last_after) = (map(write, pair) for pair in (crop.sums, crop.last))
    asked, asking = crop.region.asked, crop.region.asking
    where = "before the softmax" if crop.place == "pre" else "after the softmax"
    return (
        f"Convolution {where}: the {crop.before.stage.value.unit}s of {asking.words} x {asked.words} "
        f"sum to {before} before it and {after} after; in the last query's row alone to {last_before} "
        f"and {last_after}."
    )
