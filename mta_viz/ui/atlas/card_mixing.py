"""The card of a head-mixing row: what one target head takes from each source head."""

import numpy as np
import streamlit as st

from mta_viz.analysis.kernels import WHERE, KernelId, LayerKernelSet, MixPlace, layer_kernels
from mta_viz.analysis.shapes.table import Row
from mta_viz.errors import ConfigError
from mta_viz.exporting.data import kernels_csv
from mta_viz.plots.kernel_probe import mixing_row
from mta_viz.plots.kernels import head_mixing
from mta_viz.ui.atlas import card_words as words
from mta_viz.ui.atlas.card_parts import file_parts, open_definitions, open_in_attention
from mta_viz.ui.atlas.matters import draw_matters, effects_of, matters_sentence
from mta_viz.ui.cache import remember
from mta_viz.ui.numbering import head_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.widgets import caption, caption_with_save, chart, plain

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
