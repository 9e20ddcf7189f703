"""The pickers of the figure with a kernel beside its map: which prompt, which tokens of it, which head."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from mta_viz.analysis.kernels import KernelId, MixPlace, Place
from mta_viz.analysis.paper_figures import kernel_places, layers_having
from mta_viz.analysis.paper_map import (
    KernelBesideMap,
    asked_span,
    kernel_beside_map,
    needle_sample,
    question_span,
    strongest_head,
)
from mta_viz.analysis.spans import Span
from mta_viz.errors import MtaVizError
from mta_viz.exporting.paper import span_words
from mta_viz.ui import state
from mta_viz.ui.atlas.layer import missing_text
from mta_viz.ui.atlas.model_kernels import SHORT, select_kernel
from mta_viz.ui.cache import remember
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.sidebar import use_prompt
from mta_viz.ui.spans_view import spans_of
from mta_viz.ui.steppers import pick_head, pick_layer
from mta_viz.ui.widgets import caption, plain

NAME_A_SPAN = (
    "This prompt has no named span to cut the map to. On the Attention page find a text in it and name it; "
    "its keys are then offered here"
)


def kernel_and_map(page: Page) -> KernelBesideMap | None:
    """The chosen kernel with its map on the prompt that was run; None: it was said what is missing."""
    places = kernel_places(page.model.config)
    if page.trace is None:
        st.info(plain(page.empty))
        _offer_needles(page)
        return None
    spans = spans_of(page)
    if not spans:
        st.info(plain(f"{NAME_A_SPAN}."))
        _offer_needles(page)
        return None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        where: Place = pick_place("figure_where", places)
        rows, keys = _pick_spans(page, spans, where)
    strongest = remember(
        lambda: strongest_head(page.trace, rows, keys, where), "strongest head", page.key, rows, keys, where
    )
    layer, head = _pick_head(page, where, strongest, keys)
    if layer not in layers_having(page.model.config, where):
        st.info(plain(missing_text(page, layer, where)))
        return None
    kernel = KernelId(layer, head, where)
    return remember(
        lambda: kernel_beside_map(page.trace, kernel, rows, keys),
        "kernel and map",
        page.key,
        kernel,
        rows,
        keys,
    )


def pick_place(name: str, places: tuple[Place, ...] | tuple[MixPlace, ...]) -> Any:
    """Before or after the softmax, as far as the model has it."""
    return st.segmented_control(
        "Softmax",
        places,
        required=True,
        format_func=lambda place: SHORT[place],
        **state.kept(name, places[0], places),
    )


def _pick_spans(page: Page, spans: Sequence[Span], where: Place) -> tuple[Span, Span]:
    """Rows and keys: at first the question and the asked needle, or what comes closest to them."""
    mta = page.model.config.mta
    n_queries, _ = (mta.pre_kernel if where == "pre" else mta.post_kernel) or (1, 1)
    last = question_span(spans, len(page.trace.tokens), n_queries)
    rows = {span_words(span): span for span in (last, *spans)}
    keys = {span_words(span): span for span in spans}
    first = span_words(asked_span(spans) or spans[0])
    chosen_rows = st.selectbox(
        "Rows (queries)", list(rows), width=280, **state.kept("figure_rows", span_words(last), list(rows))
    )
    chosen_keys = st.selectbox(
        "Columns (keys)", list(keys), width=280, **state.kept("figure_keys", first, list(keys))
    )
    return rows[chosen_rows], keys[chosen_keys]


def _pick_head(page: Page, where: Place, strongest: tuple[int, int], keys: Span) -> tuple[int, int]:
    """The selected head, where this page was given one; else the one that attends most to the keys."""
    config, view = page.model.config, state.view()
    of = state.get("figure head", (page.key, where) if _opened_with_head() else None)
    chosen = of == (page.key, where) and view.layer is not None
    layer, head = (view.layer or 0, view.head or 0) if chosen else strongest
    layer, head = min(layer, config.n_layers - 1), min(head, config.n_heads - 1)
    state.put("figure head", (page.key, where))
    state.select(layer=layer, head=head)
    name = f"{layer_label(strongest[0], page.numbering)} {head_label(strongest[1], page.numbering)}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, layer, page.numbering)
        pick_head(config, head, page.numbering)
        if (layer, head) != strongest:
            target = KernelId(*strongest, where)
            st.button(f"Go to {name}", key="figure.strongest", on_click=select_kernel, args=(target,))
    caption(
        f"Of all heads with such a kernel {name} attends most to “{keys.name}” from the last of the rows."
    )
    return layer, head


def _opened_with_head() -> bool:
    """Whether the address this session was opened with names the head of this figure."""
    opened = state.get("opened with", {})
    return opened.get("figure") == "kernel-map" and {"l", "h"} <= set(opened)


def _offer_needles(page: Page) -> None:
    """A button that runs a prompt of the needle task, if the model can be given one."""
    if page.model.kernels_only:  # it was said that no prompt can be run
        return
    try:
        sample = remember(lambda: needle_sample(page.model), "needle sample", page.key)
    except MtaVizError as error:
        caption(f"The needle task does not fit this model: {str(error).rstrip('.')}.")
        return
    st.button(
        f"Run a needle prompt, {len(sample.tokens)} tokens",
        key="figure.needles",
        on_click=use_prompt,
        args=(sample.tokens.text,),
        help="Four needles and a question about one of them; it takes the place of the prompt at the left.",
    )
