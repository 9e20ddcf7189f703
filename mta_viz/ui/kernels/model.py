"""What the parts of the Kernels page share: the source of their figures, choosing one, what is missing."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from mta_viz.analysis.kernels.kernels import MADE_BY, WHERE, KernelId, MixPlace, Place
from mta_viz.config import ModelConfig
from mta_viz.figures.base import Source
from mta_viz.plots.kernels.mosaic import Scale
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import changed, remember
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.plan import draw_test_button
from mta_viz.ui.shell.show import source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import layer_label, layer_list

T = TypeVar("T")
PARTS = ("Gallery", "One layer", "Over training", "Paper figures", "Definitions")
PART = Setting("part", PARTS[0])
SCALE = Setting[Scale]("kernel_scale", "shared")


def weights_source(page: Page) -> Source:
    """What figures of the weights alone are drawn from: kept for the file and its time, not the prompt."""
    origin = page.model.source
    weights = (
        (page.key,) if origin is None else (str(origin.path), changed(origin.path), str(page.model.dtype))
    )

    def keep(make: Callable[[], T], *key: Hashable) -> T:
        return remember(make, *weights, *key)

    return replace(source_of(page), run=None, remember=keep)


def select_kernel(kernel: KernelId) -> None:
    """Make a kernel the chosen one, here and on the other pages."""
    state.select(layer=kernel.layer, head=kernel.head, place=kernel.where)


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
        on_click=PART.put, args=("Definitions",),
        help="What every score and name means, and how often each is wrong.",
    )  # fmt: skip


def has_kernels(config: ModelConfig) -> bool:
    """Whether any layer has key-query kernels or mixes heads."""
    return any(config.kernels(layer).any for layer in range(config.n_layers))


def no_kernels_text(config: ModelConfig) -> str:
    """What to say of a model with neither kernels nor head mixing."""
    return (
        f"This checkpoint has no key-query kernels (plain {VARIANTS[config.variant]}). Head mixing: none. "
        "Choose another checkpoint to see kernels."
    )


def missing_text(page: Page, layer: int, where: Place | MixPlace) -> str:
    """What to say of a layer without such kernels: which layers have some."""
    config = page.model.config
    having = [at for at in range(config.n_layers) if getattr(config.kernels(at), where)]
    others = f"Layers that have one: {layer_list(having, page.numbering)}." if having else "No layer has one."
    return f"{layer_label(layer, page.numbering)} has no key-query kernel {WHERE[where]}. {others}"


def draw_scale(*, labelled: bool) -> Scale:
    """One colour scale for all, or each its own."""
    return st.segmented_control(
        "Scale",
        ("shared", "own"),
        required=True,
        label_visibility="visible" if labelled else "collapsed",
        help="shared: one colour scale for all; own: each its own.",
        **SCALE.widget(("shared", "own")),
    )
