"""What a sweep says: by needles, by depth and length, by place, and two models in pairs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.analysis.labs.sweep_file import (
    Difference,
    Misses,
    ModelResults,
    by_place,
    by_setting,
    misses,
    paired_difference,
)
from mta_viz.errors import PromptError
from mta_viz.figures.base import Source
from mta_viz.figures.labs.measured import OfSweep, SweepLines, SweepMap
from mta_viz.plots.labs import score_words
from mta_viz.ui.shell import show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain

Results = Mapping[str, ModelResults]
ALL = "all together"
WIDTH = 440
MAP_OF = {key: Setting[Any](f"{key} map of", ALL) for key in ("sweep", "opened")}


def draw_results(source: Source, figure: OfSweep, results: Results, key: str) -> None:
    """Charts first, then the numbers, then what wrong answers were. `key` begins the names of all widgets."""
    shown = figure.shown(results)
    needles = _pick_needles(figure.axes(source, results).needles, key)
    parameters = asdict(figure)
    with st.container(horizontal=True):
        with st.container(width=WIDTH):
            show.show(source, SweepLines(**parameters), result=results, widget=f"{key}.lines")
        for place, name in enumerate(shown):
            with st.container(width=WIDTH):
                chart = SweepMap(**parameters, of_needles=needles, model=place)
                show.show(source, chart, result=results, widget=f"{key}.map.{name}")
    _draw_pairs(shown)
    _draw_table(shown, key)
    for name, model in shown.items():
        caption(f"{name}: {bias_words(by_place(model.samples))} {misses_words(misses(model.samples))}")


def _pick_needles(counts: tuple[int, ...], key: str) -> int | None:
    """Which number of needles the maps are of."""
    if len(counts) == 1:
        return counts[0]
    options: list[Any] = [ALL, *counts]
    chosen = st.selectbox("Maps of needles", options, width=160, **MAP_OF[key].widget(options))
    return chosen if isinstance(chosen, int) else None


def _draw_pairs(results: Results) -> None:
    """Each later model against the first, on the samples both have."""
    first, *others = results
    for name in others:
        if results[name].vocabulary != results[first].vocabulary:
            caption(f"{first} and {name} have different tokenizers, so their samples differ: no pairs.")
            continue
        try:
            difference = paired_difference(results[first].samples, results[name].samples)
        except PromptError as error:
            caption(str(error))
            continue
        words = difference_words(difference)
        st.markdown(plain(f"{name} minus {first} on the same {difference.n:,} samples: {words}."))


def difference_words(difference: Difference) -> str:
    """`−0.52 [−0.60, −0.43]`, and whether that is more than chance."""
    low, high = difference.interval
    beyond = "" if low <= 0 <= high else ", more than chance"
    text = f"{difference.value:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{text.replace('-', '−')} (95 % interval){beyond}"


def _draw_table(results: Results, key: str) -> None:
    """One line a setting, a column a model."""
    scores = {name: by_setting(model.samples) for name, model in results.items()}
    settings = sorted({setting for own in scores.values() for setting in own})
    rows = [
        dict(zip(("needles", "tokens", "depth in %"), setting, strict=True))
        | {name: score_words(own[setting]) if setting in own else "-" for name, own in scores.items()}
        for setting in settings
    ]
    with st.expander("All numbers"):
        st.dataframe(rows, hide_index=True, key=f"{key}.table")


def bias_words(places: Mapping[str, NeedleScore]) -> str:
    """Whether the first or the last needle of a prompt is found more often."""
    if not places:
        return "With one needle there is no first and last."
    shares = ", ".join(f"{place} {score_words(score)}" for place, score in places.items())
    return f"Asked needle by its place among the needles: {shares}."


def misses_words(wrong: Misses) -> str:
    """What the wrong answers were."""
    if not wrong.wrong:
        return "No wrong answer."
    words = f"{wrong.wrong:,} wrong answers, {wrong.named:,} of them another needle's number"
    if not wrong.named:
        return f"{words}."
    return (
        f"{words}: the first one's {wrong.first:,} times ({wrong.by_chance_first:.1f} by chance), "
        f"the last one's {wrong.last:,} times ({wrong.by_chance_last:.1f} by chance)."
    )
