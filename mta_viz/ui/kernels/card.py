"""One kernel's card: what it looks like, how it acts on synthetic maps, what it resembles.

Owns the order of the card and its widgets; the words are `card_words.py`'s, a head-mixing row
`card_mixing.py`'s.

What both kinds of card share: file names, and the ways to the other pages and to the definitions.
The card of a head-mixing row: what one target head takes from each source head.
"""

import numpy as np
import streamlit as st

from mta_viz.analysis.kernels.kernels import MADE_BY, WHERE, KernelId, LayerKernelSet, MixPlace, layer_kernels
from mta_viz.analysis.kernels.probes import PROBES, ProbeResult, claims_of, probe_of, run_probe
from mta_viz.analysis.kernels.table import (
    KEY_QUERY,
    KernelStack,
    Row,
    chance_marks,
    frequency_response,
    kernel_stacks,
    nearest_kernels,
    probe_percentile,
)
from mta_viz.errors import ConfigError
from mta_viz.exporting.data import kernel_scores_csv, kernels_csv, probe_csv, taps_csv
from mta_viz.plots.kernels.card import (
    ScoreBar,
    frequency_picture,
    kernel_picture,
    mixing_row,
    neighbour_tiles,
    probe_picture,
    score_bars,
)
from mta_viz.plots.kernels.kernels import head_mixing
from mta_viz.ui.kernels import card_words as words
from mta_viz.ui.kernels.matters import draw_matters, effects_of, matters_sentence
from mta_viz.ui.kernels.model_kernels import kernel_of, rows_of, select_kernel, short_name, weights_key
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.plan import draw_test_button
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, plain


def file_parts(kernel: KernelId, what: str) -> tuple[object, ...]:
    """The parts of a saved file's name; counts from 0."""
    return state.selection().checkpoint, f"L{kernel.layer}", f"H{kernel.head}", kernel.where, what


def open_in_attention(kernel: KernelId) -> None:
    """Buttons that go to this head's map after the kernel, and to what happens without the kernel."""
    draw_test_button(kernel, "card.test")
    if st.button("Open in Attention", icon=":material/grid_on:", key="card.attention"):
        state.select(layer=kernel.layer, head=kernel.head, stage=MADE_BY[kernel.where].value.key)
        st.switch_page("pages/attention.py")


def open_definitions(key: str) -> None:
    """A button that goes to what the scores and names mean."""
    st.button(
        "Definitions", key=key, type="tertiary", icon=":material/menu_book:",
        on_click=state.put, args=("part", "Definitions"),
        help="What every score and name means, and how often each is wrong.",
    )  # fmt: skip


WIDTH = 440
ACTS = "Acts like it: no probe is needed, the weights below are what each head's map is multiplied by."
SCALE_AFTER_SOFTMAX = (
    "After the softmax the group norm may divide a common factor out again, so the row is drawn at length 1: "
    "its raw scale is not identified."
)


def draw_mixing_card(page: Page, kernel: KernelId, row: Row) -> None:
    """The row as bars, its scores, and the whole matrix of the layer."""
    weights, config = page.model.state_dict(), page.model.config
    kernels = remember(
        lambda: layer_kernels(weights, config, kernel.layer), "kernels", page.key, kernel.layer
    )
    place = _place(kernel)
    found = kernels.mixing(place)
    if found is None:
        raise ConfigError(f"layer {kernel.layer} has no head mixing {WHERE[place]}")
    mixing = found.double().numpy()
    group, own = divmod(kernel.head, mixing.shape[1])
    st.markdown(f"#### {plain(words.title(kernel, row, None, page.numbering))}")
    if trouble := words.broken(row, mixing[group]).replace("this head's map", "what this head receives"):
        st.warning(plain(trouble))
    else:
        st.markdown(plain(f"Looks like: {row['verdict']}. {_pair(mixing.shape[1])}"))
        st.markdown(plain(ACTS))
    st.markdown(plain(matters_sentence(effects_of(page), kernel)))
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=WIDTH):
            _draw_row(page, kernel, kernels, mixing[group, own], own, group * mixing.shape[1])
        with st.container(width=WIDTH):
            _draw_matrix(page, kernel, kernels)
    if not trouble:
        st.table({"score": list(words.mixing_facts(row)), "value": list(words.mixing_facts(row).values())})
    draw_matters(page, kernel)
    open_in_attention(kernel)
    open_definitions("card.definitions")


def _place(kernel: KernelId) -> MixPlace:
    return "head_post" if kernel.where == "head_post" else "head_pre"


def _pair(size: int) -> str:
    return "" if size > 2 else "Two heads a group: an angle of two numbers carries no significance."


def _draw_row(
    page: Page, kernel: KernelId, kernels: LayerKernelSet, weights: np.ndarray, own: int, first: int
) -> None:
    after = kernel.where == "head_post"
    length = float(np.linalg.norm(weights))
    drawn = weights / length if after and np.isfinite(length) and length > 0 else weights
    labels = [
        head_label(first + source, page.numbering) + " own" * (source == own)
        for source in range(len(weights))
    ]
    figure = remember(
        lambda: mixing_row(drawn, labels, own, unit="weight / length of the row" if after else "weight"),
        "mixing row", page.key, kernel, page.numbering,
    )  # fmt: skip
    chart(figure, f"card.row.{kernel.where}.{kernel.layer}.{kernel.head}", alt="Weights on the source heads")
    told = f"Target head {head_label(kernel.head, page.numbering)} receives this much of each source head. "
    told += "Subtracted: the part of that head taken off, per unit of the own weight. "
    told += SCALE_AFTER_SOFTMAX if after else ""
    caption_with_save(told, file_parts(kernel, "row"), figure, lambda: kernels_csv(kernels), "card.row")


def _draw_matrix(page: Page, kernel: KernelId, kernels: LayerKernelSet) -> None:
    figure = remember(
        lambda: head_mixing(
            kernels, _place(kernel), kernel.layer, numbering_from=page.numbering, size=(WIDTH, WIDTH)
        ),
        "card matrix", page.key, kernel.layer, kernel.where, page.numbering,
    )  # fmt: skip
    chart(figure, f"card.matrix.{kernel.where}.{kernel.layer}", alt="The whole head-mixing matrix")
    caption("The whole matrix: rows are target heads, columns the source heads they take from.")


CARD_WIDTH, WIDE = 440, 900
SHAPES = (
    "diagonal",
    "induction",
    "anti_diagonal",
    "priming",
    "smoothing",
    "edge_first",
    "edge_last",
    "dominant_share",
)


def draw_card(page: Page, kernel: KernelId) -> None:
    """The card of one kernel of the page's model; says so when the model has no such kernel."""
    weights, config = page.model.state_dict(), page.model.config
    row = next((one for one in rows_of(page) if kernel_of(one) == kernel), None)
    if row is None:
        name = words.kernel_name(kernel, page.numbering)
        st.info(plain(f"This model has no kernel {name}. Choose another one above."))
        return
    if kernel.where not in KEY_QUERY:
        draw_mixing_card(page, kernel, row)
        return
    stacks = remember(lambda: kernel_stacks(weights, config), "kernel stacks", *weights_key(page))
    stack = next(one for one in stacks if kernel in one.ids)
    _Card(page, kernel, row, stack).draw()


class _Card:
    """A key-query kernel's card."""

    def __init__(self, page: Page, kernel: KernelId, row: Row, stack: KernelStack) -> None:
        self.page, self.kernel, self.row, self.stack = page, kernel, row, stack
        self.taps = stack.taps[stack.ids.index(kernel)]
        self.offsets = stack.offsets
        self.key = (*weights_key(page), kernel)
        self.name = f"{kernel.where}.{kernel.layer}.{kernel.head}"
        self.trouble = words.broken(row, self.taps)

    def draw(self) -> None:
        claim = self.row["shape"]
        result = None if self.trouble or probe_of(claim) is None else self._probe(claim)
        acts = None if result is None else result.acts
        st.markdown(f"#### {plain(words.title(self.kernel, self.row, acts, self.page.numbering))}")
        self._draw_verdict(result, acts)
        with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
            with st.container(width=CARD_WIDTH):
                self._draw_picture()
            if not self.trouble:
                with st.container(width=CARD_WIDTH):
                    self._draw_scores()
        if not self.trouble:
            self._draw_probe(result)
            self._draw_neighbours()
            self._draw_frequencies()
        draw_matters(self.page, self.kernel)
        open_in_attention(self.kernel)
        open_definitions("card.definitions")

    def _draw_verdict(self, result: ProbeResult | None, acts: bool | None) -> None:
        if self.trouble:
            st.warning(plain(self.trouble))
        else:
            st.markdown(plain(words.looks(self.row, acts, self.offsets)))
            rank = 0.0 if result is None else self._rank(result.probe)
            st.markdown(plain(words.acts_like(self.row, result, rank, int(self.stack.usable().sum()))))
        st.markdown(plain(matters_sentence(effects_of(self.page), self.kernel)))

    def _probe(self, claim: str) -> ProbeResult:
        return remember(lambda: run_probe(self.taps, self.offsets, claim), "probe", *self.key, claim)

    def _rank(self, probe: str) -> float:
        return remember(
            lambda: probe_percentile(self.stack, self.kernel, probe), "probe rank", *self.key, probe
        )

    def _draw_picture(self) -> None:
        hide = st.toggle(
            "Hide own tap",
            help="The own tap is the weight of the cell itself; without it the small structure shows.",
            **state.kept("hide_own_tap", False),
        )
        figure = remember(
            lambda: kernel_picture(self.taps, self.offsets, hide_own=hide, width=CARD_WIDTH),
            "kernel picture", *self.key, hide,
        )  # fmt: skip
        chart(figure, f"card.{self.name}", alt="The kernel's taps by query and key offset")
        told = (
            "Rows: query offsets, columns: key offsets; bars: sums of columns and rows. Framed: the own tap."
        )
        caption_with_save(
            told,
            file_parts(self.kernel, "taps"),
            figure,
            lambda: taps_csv(self.taps, self.offsets),
            "card.taps",
        )

    def _draw_scores(self) -> None:
        marks = remember(lambda: chance_marks(self.offsets), "chance marks", self.offsets)
        values = {name: self.row[name] for name in SHAPES if self.row[name] is not None}
        if not values:
            caption("This kernel is too small for any shape score.")
            return
        bars = [ScoreBar(name.replace("_", " "), value, marks.get(name)) for name, value in values.items()]
        figure = remember(lambda: score_bars(bars, width=CARD_WIDTH), "kernel scores", *self.key)
        chart(figure, f"card.scores.{self.name}", alt="Shape scores beside what random kernels reach")
        told = (
            "How much of each shape the taps hold, own tap left out; dominant share: the energy in one tap. "
            "A bar beyond its ticks is rare by chance."
        )
        parts = file_parts(self.kernel, "scores")
        caption_with_save(told, parts, figure, lambda: kernel_scores_csv(self.row), "card.scores")

    def _draw_probe(self, result: ProbeResult | None) -> None:
        own = PROBES[0] if result is None else result.probe
        chosen = st.selectbox(
            "Probe",
            PROBES,
            index=PROBES.index(own),
            key=f"card.probe.{self.name}",
            width=CARD_WIDTH,
            help="A synthetic score map run through this kernel's convolution.",
        )
        if result is None or chosen != own:
            result = self._probe(claims_of(chosen, self.row))
            rank = words.ranked(result, self._rank(chosen), int(self.stack.usable().sum()))
            st.markdown(plain(f"{result.sentence} {words.threshold(result)} {rank}"))
        figure = remember(lambda: probe_picture(result, width=WIDE), "probe picture", *self.key, result.claim)
        chart(figure, f"card.probe picture.{self.name}", alt="The probe's map before and after the kernel")
        told = (
            f"Probe “{result.probe}” for the shape “{result.claim}”: a part of a map whose keys all come "
            "before its queries. Rows: queries, columns: keys. Framed: where the number is read. "
            "Beyond the border the kernel reads 0."
        )
        caption_with_save(
            told, file_parts(self.kernel, "probe"), figure, lambda: probe_csv(result), "card.probe"
        )

    def _draw_neighbours(self) -> None:
        found = remember(lambda: nearest_kernels(self.stack, self.kernel), "nearest", *self.key)
        if not found:
            caption("No other kernel of this size to compare with, or this one has no tap besides its own.")
            return
        taps = np.stack([self.stack.taps[self.stack.ids.index(other)] for other, _ in found])
        labels = [
            f"{short_name(other, self.page.numbering)} · cosine {cosine:+.2f}" for other, cosine in found
        ]
        figure = remember(
            lambda: neighbour_tiles(
                taps, self.offsets, [label.replace(" · ", "<br>") for label in labels], width=CARD_WIDTH
            ),
            "nearest tiles", *self.key, self.page.numbering,
        )  # fmt: skip
        chart(figure, f"card.nearest.{self.name}", alt="The most similar kernels of this model")
        caption("The kernels most like this one, each on its own colour scale. Open one:")
        with st.container(horizontal=True):
            for place, ((other, _), label) in enumerate(zip(found, labels, strict=True)):
                st.button(plain(label), key=f"card.open.{place}", on_click=select_kernel, args=(other,))

    def _draw_frequencies(self) -> None:
        if not st.toggle("Frequency response", **state.kept("card_frequency", False)):
            return
        figure = remember(
            lambda: frequency_picture(*frequency_response(self.taps), width=CARD_WIDTH),
            "frequency picture", *self.key,
        )  # fmt: skip
        chart(figure, f"card.frequency.{self.name}", alt="The kernel's answer to waves of every frequency")
        caption(
            "How strongly the kernel answers waves over queries and keys. Large in the middle: it "
            "smooths; large away from it: it sharpens or finds edges; even: it passes scores as they are."
        )
