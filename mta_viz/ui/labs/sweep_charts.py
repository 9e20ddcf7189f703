"""What a sweep says: by needles, by depth and length, by place, and two models in pairs."""

import itertools
from collections.abc import Mapping

import streamlit as st

from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.analysis.labs.sweep import SampleResult, Setting
from mta_viz.analysis.labs.sweep_file import (
    Axes,
    Difference,
    Misses,
    by_depth_and_length,
    by_needles,
    by_place,
    by_setting,
    misses,
    paired_difference,
)
from mta_viz.errors import PromptError
from mta_viz.exporting.results import accuracy_csv
from mta_viz.plots.labs import accuracy_lines, accuracy_map, score_words
from mta_viz.ui.shell import state
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, plain

Samples = dict[str, tuple[SampleResult, ...]]
ALL = "all together"
WIDTH = 440


def draw_results(axes: Axes, vocabularies: Mapping[str, str], samples: Samples, key: str) -> None:
    """Charts first, then the numbers, then what wrong answers were.

    `vocabularies`: the digest of each model's tokenizer; those of two that differ had other samples. `key`
    begins the names of all widgets.
    """
    settings = {name: by_setting(found) for name, found in samples.items()}
    needles = _pick_needles(axes, key)
    with st.container(horizontal=True):
        with st.container(width=WIDTH):
            figure = accuracy_lines(
                {name: by_needles(found) for name, found in samples.items()},
                axes.needles,
                "By number of needles",
                width=WIDTH,
            )
            chart(figure, f"{key}.lines", alt="Accuracy by number of needles, a line a model")
            caption_with_save(
                "Averaged over lengths and depths. Bands: 95 % intervals.",
                ("sweep", "needles"), figure, lambda: accuracy_csv(settings), f"{key}.lines",
            )  # fmt: skip
        for name, found in samples.items():
            with st.container(width=WIDTH):
                _draw_map(axes, (name, found), needles, settings[name], key)
    _draw_pairs(samples, vocabularies)
    _draw_table(settings, key)
    for name, found in samples.items():
        caption(f"{name}: {bias_words(by_place(found))} {misses_words(misses(found))}")


def _pick_needles(axes: Axes, key: str) -> int | None:
    """Which number of needles the maps are of."""
    if len(axes.needles) == 1:
        return axes.needles[0]
    options = [ALL, *axes.needles]
    chosen = st.selectbox("Maps of needles", options, width=160, **state.kept(f"{key} map of", ALL, options))
    return chosen if isinstance(chosen, int) else None


def _draw_map(
    axes: Axes,
    model: tuple[str, tuple[SampleResult, ...]],
    needles: int | None,
    settings: dict[Setting, NeedleScore],
    key: str,
) -> None:
    name, found = model
    which = "all numbers of needles" if needles is None else f"{needles} needle{'s' if needles > 1 else ''}"
    scores = by_depth_and_length(found, needles)
    figure = accuracy_map(scores, axes.depths, axes.lengths, f"{name}, {which}", width=WIDTH)
    chart(figure, f"{key}.map.{name}", alt=f"Accuracy of {name} by depth and length")
    caption_with_save(
        "Share of right answers, its 95 % interval, samples. Hatched: none yet.",
        ("sweep", name), figure, lambda: accuracy_csv({name: settings}), f"{key}.map.{name}",
    )  # fmt: skip


def _draw_pairs(samples: Samples, vocabularies: Mapping[str, str]) -> None:
    """Each later model against the first, on the samples both have."""
    if len(samples) < 2:
        return
    first, *others = samples
    for name in others:
        if vocabularies[name] != vocabularies[first]:
            caption(f"{first} and {name} have different tokenizers, so their samples differ: no pairs.")
            continue
        try:
            found = paired_difference(samples[first], samples[name])
        except PromptError as error:
            caption(str(error))
            continue
        words = f"{name} minus {first} on the same {found.n:,} samples: {difference_words(found)}."
        st.markdown(plain(words))


def difference_words(found: Difference) -> str:
    """`−0.52 [−0.60, −0.43]`, and whether that is more than chance."""
    low, high = found.interval
    beyond = "" if low <= 0 <= high else ", more than chance"
    text = f"{found.value:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{text.replace('-', '−')} (95 % interval){beyond}"


def _draw_table(settings: dict[str, dict[Setting, NeedleScore]], key: str) -> None:
    """One line a setting, a column a model."""
    every = sorted(set(itertools.chain.from_iterable(settings.values())))
    rows = []
    for setting in every:
        names = dict(zip(("needles", "tokens", "depth in %"), setting, strict=True))
        told = {
            name: score_words(scores[setting]) if setting in scores else "-"
            for name, scores in settings.items()
        }
        rows.append({**names, **told})
    with st.expander("All numbers"):
        st.dataframe(rows, hide_index=True, key=f"{key}.table")


def bias_words(places: dict[str, NeedleScore]) -> str:
    """Whether the first or the last needle of a prompt is found more often."""
    if not places:
        return "With one needle there is no first and last."
    told = ", ".join(f"{place} {score_words(score)}" for place, score in places.items())
    return f"Asked needle by its place among the needles: {told}."


def misses_words(found: Misses) -> str:
    """What the wrong answers were."""
    if not found.wrong:
        return "No wrong answer."
    told = f"{found.wrong:,} wrong answers, {found.named:,} of them another needle's number"
    if not found.named:
        return f"{told}."
    return (
        f"{told}: the first one's {found.first:,} times ({found.by_chance_first:.1f} by chance), "
        f"the last one's {found.last:,} times ({found.by_chance_last:.1f} by chance)."
    )
