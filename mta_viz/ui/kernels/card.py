"""One kernel's card: what it looks like, how it acts on synthetic maps, what it resembles, what it is worth.

Owns the order of the card and its widgets; the words are `card_words.py`'s.
"""

import streamlit as st

from mta_viz.analysis.kernels.kernels import KEY_QUERY, KernelId, MixPlace, Place
from mta_viz.analysis.kernels.probes import PROBES, ProbeResult, probe_of
from mta_viz.analysis.kernels.table import Row, kernel_of, probe_percentile
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source
from mta_viz.figures.kernels.card import (
    CardKernel,
    KernelFrequencies,
    KernelProbe,
    KernelScores,
    KernelTaps,
    MixingRow,
    NearestKernels,
    card_kernel,
    mixing_group,
)
from mta_viz.figures.kernels.gallery import kernel_rows, measured_effects, model_layers
from mta_viz.figures.kernels.layer import LayerMixing
from mta_viz.ui.kernels import card_words as words
from mta_viz.ui.kernels.matters import draw_matters, matters_sentence
from mta_viz.ui.kernels.model import open_definitions, open_in_attention, select_kernel, weights_source
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.show import draw, show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain

WIDTH = 440
HIDE_OWN, FREQUENCIES = Setting("hide_own_tap", False), Setting("card_frequency", False)
ACTS = "Acts like it: no probe is needed, the weights below are what each head's map is multiplied by."


def draw_card(page: Page, kernel: KernelId) -> None:
    """The card of one kernel of the page's model; says so when the model has no such kernel."""
    source = weights_source(page)
    row = next((row for row in kernel_rows(source) if kernel_of(row) == kernel), None)
    if row is None:
        name = words.kernel_name(kernel, page.numbering)
        st.info(plain(f"This model has no kernel {name}. Choose another one above."))
        return
    if kernel.where in KEY_QUERY:
        _draw_kernel(source, card_kernel(source, kernel), "pre" if kernel.where == "pre" else "post")
    else:
        _draw_mixing(source, kernel, row, "head_pre" if kernel.where == "head_pre" else "head_post")
    draw_matters(page, kernel)
    open_in_attention(kernel)
    open_definitions("card.definitions")


def _draw_mixing(source: Source, kernel: KernelId, row: Row, where: MixPlace) -> None:
    """The row as bars, its scores, and the whole matrix of the layer."""
    group = mixing_group(model_layers(source)[kernel.layer], where, kernel.head)[2]
    trouble = words.broken(row, group).replace("this head's map", "what this head receives")
    st.markdown(f"#### {plain(words.title(kernel, row, None, source.numbering))}")
    if trouble:
        st.warning(plain(trouble))
    else:
        pair = "" if len(group) > 2 else "Two heads a group: an angle of two numbers carries no significance."
        st.markdown(plain(f"Looks like: {row['verdict']}. {pair}"))
        st.markdown(plain(ACTS))
    st.markdown(plain(matters_sentence(measured_effects(source), kernel)))
    name = f"{kernel.where}.{kernel.layer}.{kernel.head}"
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=WIDTH):
            show(source, MixingRow(kernel.layer, kernel.head, where), widget=f"card.row.{name}")
        with st.container(width=WIDTH):
            show(source, LayerMixing(kernel.layer, where), widget=f"card.matrix.{name}")
    if not trouble:
        facts = words.mixing_facts(row)
        st.table({"score": list(facts), "value": list(facts.values())})


def _draw_kernel(source: Source, card: CardKernel, where: Place) -> None:
    """A key-query kernel's verdict, taps, scores, probe, nearest kernels and frequencies."""
    kernel, trouble = card.kernel, words.broken(card.row, card.taps)
    place, name = (kernel.layer, kernel.head, where), f"{where}.{kernel.layer}.{kernel.head}"
    probe = None if trouble else probe_of(card.row["shape"])
    result = None if probe is None else draw(source, KernelProbe(*place, probe)).result
    acts = None if result is None else result.acts
    st.markdown(f"#### {plain(words.title(kernel, card.row, acts, source.numbering))}")
    if trouble:
        st.warning(plain(trouble))
    else:
        _draw_verdict(source, card, result)
    st.markdown(plain(matters_sentence(measured_effects(source), kernel)))
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=WIDTH):
            hide = st.toggle(
                "Hide own tap",
                help="The own tap is the weight of the cell itself; without it the small structure shows.",
                **HIDE_OWN.widget(),
            )
            show(source, KernelTaps(*place, hide), widget=f"card.{name}")
        if trouble:
            return
        with st.container(width=WIDTH):
            _show_if_any(source, KernelScores(*place), f"card.scores.{name}")
    _draw_probe(source, card, place, result)
    _draw_near(source, place, name)
    if st.toggle("Frequency response", **FREQUENCIES.widget()):
        show(source, KernelFrequencies(*place), widget=f"card.frequency.{name}")


def _draw_verdict(source: Source, card: CardKernel, result: ProbeResult | None) -> None:
    acts = None if result is None else result.acts
    st.markdown(plain(words.looks(card.row, acts, card.offsets)))
    rank = 0.0 if result is None else _rank(source, card, result.probe)
    st.markdown(plain(words.acts_like(card.row, result, rank, int(card.stack.usable().sum()))))


def _rank(source: Source, card: CardKernel, probe: str) -> float:
    return source.remember(
        lambda: probe_percentile(card.stack, card.kernel, probe), "probe rank", card.kernel, probe
    )


def _show_if_any(source: Source, spec: KernelScores | NearestKernels, widget: str) -> bool:
    """Show a figure that some kernels have not; whether it is there."""
    try:
        show(source, spec, widget=widget)
    except MtaVizError as error:
        caption(str(error))
        return False
    return True


def _draw_probe(
    source: Source, card: CardKernel, place: tuple[int, int, Place], result: ProbeResult | None
) -> None:
    own = PROBES[0] if result is None else result.probe
    name = ".".join(map(str, place))
    chosen = st.selectbox(
        "Probe",
        PROBES,
        index=PROBES.index(own),
        key=f"card.probe.{name}",
        width=WIDTH,
        help="A synthetic score map run through this kernel's convolution.",
    )
    spec = KernelProbe(*place, chosen)
    if result is None or chosen != own:
        answer = draw(source, spec).result
        rank = words.ranked(answer, _rank(source, card, chosen), int(card.stack.usable().sum()))
        st.markdown(plain(f"{answer.sentence} {words.threshold(answer)} {rank}"))
    show(source, spec, widget=f"card.probe picture.{name}")


def _draw_near(source: Source, place: tuple[int, int, Place], name: str) -> None:
    spec = NearestKernels(*place)
    if not _show_if_any(source, spec, f"card.nearest.{name}"):
        return
    with st.container(horizontal=True):
        for at, (kernel, cosine) in enumerate(draw(source, spec).result.near):
            label = f"{kernel.name(source.numbering)} · cosine {cosine:+.2f}"
            st.button(plain(label), key=f"card.open.{at}", on_click=select_kernel, args=(kernel,))
