"""What a conjunction test found: a sentence a model, its map of all heads, its ranked table."""

import math
from collections.abc import Hashable
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.conjunction import (
    Conjunction,
    Effects,
    Measure,
    Strongest,
    measure_there,
    ranked,
    score_of,
    strongest,
)
from mta_viz.exporting.results import conjunction_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.labs import interaction_map, shared_interaction_limit
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, layer_label, picked, plain

NAMES = {"share": "share of the row", "odds": "log-odds"}
MAP_PX = 452
LEAST = 0.001  # of a share: what is written with three decimals
READING = (
    "Above 0 (green): the two words together give the span more than their parts add up to; an AND where "
    "each alone gives it little. At 0: each adds its own. Below 0 (brown): one is enough, OR. Adding log- "
    "odds is multiplying odds: where I of the log-odds is about 0 and I of the share is large, the scores "
    "of both words add up and the softmax lets only their sum through. Log-odds of a head that gives the "
    "span no share say little."
)


def draw_results(page: Page, found: dict[str, Conjunction], run: Hashable) -> None:
    """The verdicts, then one measure at one stage of each model, side by side."""
    for name, one in found.items():
        st.markdown(plain(verdict(name, one, page.numbering)))
    measure = _pick_measure(next(iter(found.values())))
    _select_first(found, measure, run)
    limit = shared_interaction_limit(found.values(), measure)
    with st.container(horizontal=True):
        for name, one in found.items():
            with st.container(width=MAP_PX):
                _draw_model(page, found, name, measure, limit, (run, one.n))
    own = next(iter(found))
    st.markdown(plain(head_words(own, found[own], measure, page.numbering)))
    caption(READING)
    caption(f"{score_of(measure).definition} {_sure_words(found)}")


def _select_first(found: dict[str, Conjunction], measure: Measure, run: Hashable) -> None:
    """A new ranking begins at its first head; while samples come in, each makes a new one."""
    own = next(iter(found.values()))
    heads, ranking = ranked(own, measure), (run, measure, own.n)
    if heads and state.get("conjunction ranking") != ranking:
        state.put("conjunction ranking", ranking)
        state.select(layer=heads[0].layer, head=heads[0].head)


def verdict(name: str, found: Conjunction, numbering: int) -> str:
    """The head and stage where a model's share shows the surest conjunction."""
    best = strongest(found, "share")
    if best is None:
        return f"{name}: no head has a share that is a number."
    told = [f"{value:.3f}" for value in found.effects(best.measure).means[:, best.layer, best.head].tolist()]
    words = "the span's share is {} with both words, {} with A only, {} with B only, {} with neither".format(
        *told
    )
    label = f"{layer_label(best.layer, numbering)} {head_label(best.head, numbering)}"
    where = f"{label} at {best.measure[1].value.short}"
    if found.n > 1 and best.low < LEAST:
        no = f"no head's I is surely above 0 (lower end {LEAST} or more)"
        return f"{name}: {no}; first in rank is {where}, I = {_interval(best)}."
    return f"{name}: {where}, I = {_interval(best)}: {words}."


def head_words(name: str, found: Conjunction, measure: Measure, numbering: int) -> str:
    """What the two words do at the selected head, each with its interval; empty where the stage is absent."""
    view, effects = state.selection(), found.effects(measure)
    layer, head = view.layer or 0, view.head or 0
    n_layers, n_heads = effects.a.mean.shape
    if layer >= n_layers or head >= n_heads or effects.a.mean[layer, head].isnan():
        return ""
    parts = {"A adds": effects.a, "B adds": effects.b, "both together beyond that (I)": effects.interaction}
    told = []
    for words, part in parts.items():
        mean, low, high = (float(one[layer, head]) for one in (part.mean, part.low, part.high))
        ends = _ends(measure, low, high)
        told.append(f"{words} {_text(measure, mean)}" + (f" [{ends}]" if ends else ""))
    label = f"{layer_label(layer, numbering)} {head_label(head, numbering)} of {name}"
    unit = score_of(measure).unit
    return f"{label}, {measure[1].value.short}: {', '.join(told)} ({unit})."


def _interval(one: Strongest) -> str:
    value = _text(one.measure, one.interaction)
    ends = _ends(one.measure, one.low, one.high)
    return f"{value} [{ends}]" if ends else f"{value} (one sample, no interval)"


def _ends(measure: Measure, low: float, high: float) -> str:
    """Both ends of an interval; empty with one sample, which has none."""
    return "" if math.isnan(low) else f"{_text(measure, low)}, {_text(measure, high)}"


def _text(measure: Measure, value: float) -> str:
    """A difference, with its sign; what is nothing but rounding is 0."""
    return value_text(score_of(measure), round(value, 3) + 0.0)


def _pick_measure(found: Conjunction) -> Measure:
    """What f is, and the stage; at first the share of the final weights."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.segmented_control(
            "f",
            list(NAMES),
            format_func=NAMES.__getitem__,
            required=True,
            **state.kept("conjunction measure", "share", list(NAMES)),
        )
        stages = [stage.value.key for measure, stage in found.values if measure == name]
        chosen = st.segmented_control(
            "Stage",
            stages,
            format_func=lambda key: Stage.from_key(key).value.short,
            required=True,
            **state.kept("conjunction stage", stages[-1], stages),
        )
    return name, Stage.from_key(chosen)


def _draw_model(
    page: Page, found: dict[str, Conjunction], name: str, measure: Measure, limit: float, run: Hashable
) -> None:
    one = found[name]
    there = measure_there(one, measure)
    lacks = f" (it has no {measure[1].value.short}: {there[1].value.short})" if there != measure else ""
    st.markdown(plain(f"{name}, {one.n:,} sample{'s' if one.n > 1 else ''}{lacks}"))
    own = name == next(iter(found))
    view = state.selection()
    place = (view.layer, view.head) if own and view.layer is not None and view.head is not None else None
    figure = interaction_map(
        one, measure, limit=limit, numbering_from=page.numbering, selected=place, width=MAP_PX
    )
    key = f"conjunction.{hash((run, name, measure))}"
    chart(figure, key, on_head if own else None, alt=f"Interaction of all heads, {name}")
    caption_with_save(
        "Layers down, heads across. Dot: the 95 % interval covers 0. Hover for all four prompts.",
        ("conjunction", name, *_words(measure)),
        figure,
        lambda: conjunction_csv(found),
        "conjunction.own" if own else "conjunction.beside",  # the same in every session: files name it
    )
    _draw_table(page, one, there, f"{key}.table", own)


def _words(measure: Measure) -> tuple[str, str]:
    return measure[0], measure[1].value.key


def _draw_table(page: Page, found: Conjunction, measure: Measure, widget: str, own: bool) -> None:
    heads, effects = ranked(found, measure), found.effects(measure)
    choice: dict[str, Any] = {
        "on_select": lambda: _take(picked(widget), heads),
        "selection_mode": "single-row",
    }
    st.dataframe(
        [_row(page, one, effects) for one in heads],
        hide_index=True,
        height=260,
        key=widget,
        **(choice if own else {}),
    )


def _row(page: Page, one: Strongest, effects: Effects) -> dict[str, str]:
    place = (one.layer, one.head)
    both = float(effects.means[0][place])
    parts = {"A adds": effects.a, "B adds": effects.b}
    return {
        "head": f"{layer_label(one.layer, page.numbering)} {head_label(one.head, page.numbering)}",
        "I": _text(one.measure, one.interaction),
        "95 %": _ends(one.measure, one.low, one.high),
        "both": weight_text(both) if one.measure[0] == "share" else score_text(both),
        **{name: _text(one.measure, float(part.mean[place])) for name, part in parts.items()},
    }


def _take(row: int | None, heads: tuple[Strongest, ...]) -> None:
    if row is not None and 0 <= row < len(heads):
        state.select(layer=heads[row].layer, head=heads[row].head)


def _sure_words(found: dict[str, Conjunction]) -> str:
    one = next(iter(found.values()))
    if one.n < 2:
        return "One sample has no interval: give more lines, or more sequences."
    few = " With fewer than 10 samples such an interval is too narrow." if one.n < 10 else ""
    heads = sum(len(ranked(one, measure)) for measure in one.values)
    return (
        f"Intervals: 95 % bootstrap over {one.n:,} samples; heads ranked by the lower end. Of {heads:,} "
        f"numbers a model, one in twenty leaves 0 out by chance. Heads of two models are not paired.{few}"
    )
