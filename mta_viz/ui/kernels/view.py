"""What the Kernels page draws: a bar of its parts, and the chosen one under it.

Here: one layer's kernels of all heads with its head mixing; the same over training, at any snapshot and as
curves; which named kernels come again, in other trainings and from step to step; and what names and scores
mean.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.matches import definitions
from mta_viz.analysis.kernels.definitions import MeasuredRate, measured_rates, sections
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, WHERE, layers_having
from mta_viz.analysis.kernels.recurrence import Training
from mta_viz.analysis.kernels.table import shape_counts
from mta_viz.config import KernelPlace, ModelConfig
from mta_viz.figures.kernels import layer as figures
from mta_viz.figures.kernels import training as recurrence
from mta_viz.figures.kernels.gallery import kernel_rows
from mta_viz.printed import head_name, layer_label, probability_text
from mta_viz.tasks.intervals import accuracy_interval
from mta_viz.ui.kernels import parts
from mta_viz.ui.kernels.gallery import draw_gallery, limits_line, verdict_line
from mta_viz.ui.kernels.paper import draw_figures
from mta_viz.ui.kernels.parts import BESIDE, CARD_WIDTH, PART, PARTS, weights_source
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address, draw_report_button
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import on_head, pair_of, pick_head, pick_layer
from mta_viz.ui.shell.plan import key_of
from mta_viz.ui.shell.show import measured_beside, show, weights_key
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, menu, plain

WHERE_TRAINED = Setting[KernelPlace]("training_where", "pre")
SCORE = Setting("training_score", figures.TRAINING_SCORES[0])
STEP = Setting("training_step", 0)
FALSE_NAMES = (
    "Kernels that learned nothing, and the share of them that got any name: 1 of 100 or less in Gaussian "
    "noise, more in other noise. Heavy tails (Laplace, t3) hold real single taps and edges, and noise that "
    "is smooth is smooth. A trained model is like no noise here: it is compared with its own envelope."
)
POWER = (
    "Shapes planted in Gaussian noise of standard deviation 1, and the share of them that got the right "
    "name as the first. An edge of one row or a single tap must stand out by more than a line "
    "of taps before it is named: no edge named means none clear, not none."
)
PROBES = (
    "Kernels that learned nothing, and the share of them that pass the probe of a name. The thresholds are "
    "set for 1 %; over all lines below it is {share}, at most {most}."
)


def draw_kernels(page: Page) -> None:
    """The page's body: only the chosen part is computed."""
    part = PART.declare(options=[*PARTS, *BESIDE])
    with st.container(horizontal=True, vertical_alignment="center"):
        shown = PARTS | ({part: part} if part in BESIDE else {})
        part = bar("Part", shown, PART, label_visibility="collapsed")
        for name, icon in BESIDE.items():
            if name != part:
                look: Any = {"key": f"part.{name}", "icon": icon, "type": "tertiary"}
                st.button(name, on_click=PART.put, args=(name,), **look)
        report = st.container(width="content")
    draws = (draw_gallery, _draw_layer, _draw_training, _draw_recurrence, draw_figures, _draw_definitions)
    with errors_as_messages():
        dict(zip((*PARTS, *BESIDE), draws, strict=True))[part](page)
    with report:  # last: it hangs on nothing that is drawn
        draw_report_button(page)


def _draw_layer(page: Page) -> None:
    config = page.model.config
    if not parts.has_kernels(page):
        return
    layer = state.selection().layer  # without a choice the first that has kernels
    if layer is None or layer >= config.n_layers:
        layer = next(iter(layers_with_kernels(config)), 0)
    state.select(layer=layer)
    name = layer_label(layer, page.numbering)
    draw_address(f"{state.selection().checkpoint} · {name} · kernels of all heads")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        scale = parts.pick_scale()
    for where in KEY_QUERY:
        if layer in layers_having(config, where):
            show(weights_source(page), figures.LayerKernels(layer, where, scale), widget=f"kernels.{where}")
        else:
            caption(parts.missing_text(page, layer, where))
    with st.container(horizontal=True, gap="small"):
        for mix in MIXING:
            with st.container(width=CARD_WIDTH):
                if layer in layers_having(config, mix):
                    show(weights_source(page), figures.LayerMixing(layer, mix), widget=f"mixing.{mix}")
                else:
                    caption(f"Heads are not mixed {WHERE[mix]} in this model.")


def layers_with_kernels(config: ModelConfig) -> list[int]:
    """Layers with a key-query kernel before or after the softmax."""
    return sorted({layer for place in KEY_QUERY for layer in layers_having(config, place)})


def _draw_training(page: Page) -> None:
    layers, source = layers_with_kernels(page.model.config), weights_source(page)
    if not layers:
        parts.say_no_kernels(page)
        return
    try:
        with st.spinner("Reading the kernels of every step of this run"):  # slow for a run's folder
            steps = figures.training_history(source).steps
    except figures.NoHistory as reason:
        st.info(plain(str(reason)))
        return
    view = state.selection()
    layer = view.layer if view.layer in layers else layers[0]
    head = min(view.head or 0, page.model.config.n_heads - 1)
    state.select(layer=layer, head=head)
    draw_address(f"{view.checkpoint} · {head_name(layer, head, page.numbering)} · kernels over training")
    where, score, step = _pick(page, steps, layer, head)
    show(source, figures.TrainingKernels(layer, where, step), widget=f"training.{where}")
    curves = figures.TrainingCurves(layer, where, score, head, step)
    name = f"training.curves.{view.checkpoint}.{layer}.{score}.{head}.{step}"  # an old click stays old

    def choose(widget: str) -> None:
        """A click on a curve selects its head and moves the slider to its step."""
        place = pair_of(widget)
        if place is not None and 0 <= place[1] < len(steps):
            state.select(head=place[0])
            STEP.put(steps[place[1]])

    show(source, curves, choose, widget=name)


def _pick(page: Page, steps: tuple[int, ...], layer: int, head: int) -> tuple[KernelPlace, str, int]:
    config = page.model.config
    places = [place for place in KEY_QUERY if layer in layers_having(config, place)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        pick_head(config, head, page.numbering)
        where: KernelPlace = bar(
            "Kernels", {place: WHERE[place] for place in places}, WHERE_TRAINED, default=places[0]
        )
        scores = {name: name.replace("_", " ") for name in figures.TRAINING_SCORES}
        score = menu("Score", scores, SCORE, width=220)
    look = STEP.widget(steps, default=steps[-1]) | {"help": "Drag it, or move it with the arrow keys."}
    look["value"] = steps[look.pop("index")]
    return where, score, st.select_slider("Training step", steps, format_func=lambda at: f"{at:,}", **look)


def _draw_definitions(page: Page) -> None:
    draw_address(f"{state.selection().checkpoint} · definitions")
    rows = kernel_rows(weights_source(page))
    if limits := limits_line(rows):
        st.info(plain(limits))
    if (counts := shape_counts(rows)).kernels:
        st.text(
            f"{verdict_line(counts)} The tests: Benjamini-Hochberg over all kernels, once of each kernel's "
            "taps in other places, once of kernels with the model's envelope. Edges and single taps are not "
            "among them."
        )
    for section in (*sections(), definitions()):
        with st.expander(section.title):
            st.markdown(plain(section.intro))
            entries = [(f"**{plain(name)}**", plain(text)) for name, text in section.entries]
            st.table([{"name": name, "definition": text} for name, text in entries])
    rates = measured_rates()
    false = [_counted(rate, "with a name") | {"of which": _names(rate)} for rate in rates.false_names]
    _draw_rates("How often noise gets a name", FALSE_NAMES, false)
    _draw_rates("How often a shape is found", POWER, [_power(rate) for rate in rates.power])
    share = sum(rate.hits for rate in rates.probes) / sum(rate.n for rate in rates.probes)
    words = PROBES.format(share=_percent(share), most=_percent(max(rate.share for rate in rates.probes)))
    _draw_rates("How often noise passes a probe", words, [_counted(rate, "pass") for rate in rates.probes])
    caption("Made by python -m benchmarks.shape_rates. Intervals: 95 %, Clopper-Pearson.")


def _draw_rates(title: str, words: str, rows: Sequence[dict[str, object]]) -> None:
    with st.expander(title):
        st.markdown(plain(words))
        st.dataframe(list(rows), hide_index=True, height=min(36 * len(rows) + 38, 460))


def _power(rate: MeasuredRate) -> dict[str, object]:
    wrong = sum(rate.of_which.values()) / rate.n
    return {**_counted(rate, "rightly named"), "wrongly": _percent(wrong), "of which": _names(rate)}


def _counted(rate: MeasuredRate, hits: str) -> dict[str, object]:
    low, high = accuracy_interval(rate.hits, rate.n)
    return {
        "kernels": rate.kernels,
        "size": rate.size,
        "n": rate.n,
        hits: _percent(rate.share),
        "interval": f"{_percent(low)} to {_percent(high)}",
    }


def _names(rate: MeasuredRate) -> str:
    return ", ".join(f"{name} {_percent(number / rate.n)}" for name, number in rate.of_which.items())


def _percent(share: float) -> str:
    """Two decimals where they tell something beside a bar of 1 %."""
    return f"{share:.2%}" if share < 0.1 else f"{share:.1%}"


OTHERS = Setting[Any]("trainings", [])


def _draw_recurrence(page: Page) -> None:
    """Other trainings first, then the steps; each says what it lacks."""
    if not parts.has_kernels(page):
        return
    draw_address(f"{state.selection().checkpoint} · recurrence")
    st.markdown("**In other trainings**")
    _draw_trainings(page)
    st.markdown("**Over the steps of this training**")
    _draw_steps(page)


def _draw_trainings(page: Page) -> None:
    there = [training.name for training in recurrence.other_trainings(weights_source(page))]
    if not there:
        st.info(plain(recurrence.NEEDED))
        return
    widget = OTHERS.widget(there, default=there[: recurrence.MOST])
    chosen = st.multiselect("Trainings of the same shape", there, max_selections=recurrence.MOST, **widget)
    if not chosen:
        st.info("Choose at least one.")
        return
    spec = recurrence.KernelRecurrence(others=tuple(chosen))
    count = "1 training" if len(chosen) == 1 else f"{len(chosen)} trainings"
    words = f"{count} to match, a few seconds each."
    result = measured_beside(page, spec.name, spec, "Match the kernels", words=words)
    if result is None:
        return
    name = key_of(weights_key(page), spec)
    show(weights_source(page), spec, on_head, result=result, widget=f"recurrence.{name}")
    st.dataframe([_row(training) for training in result.trainings], hide_index=True)


def _row(training: Training) -> dict[str, object]:
    matched = training.recurrence
    return {
        "training": training.name,
        "seed": training.seed,
        "same seed": training.same_seed,
        "same name": matched.same,
        "of": matched.n_named,
        "by chance": round(matched.expected, 1),
        "p": probability_text(matched.p),
    }


def _draw_steps(page: Page) -> None:
    try:
        steps = figures.training_history(weights_source(page)).steps
    except figures.NoHistory as reason:
        st.info(plain(str(reason)))
        return
    spec = recurrence.LastingNames()
    words = f"The kernels of {len(steps)} snapshots are named."
    result = measured_beside(page, spec.name, spec, "Name the kernels of every snapshot", words=words)
    if result is None:
        return
    if not result.rows:
        caption("No kernel has a template's name at the end of training.")
        return
    name = key_of(weights_key(page), spec)
    show(weights_source(page), spec, on_head, result=result, widget=f"lasting.{name}")
