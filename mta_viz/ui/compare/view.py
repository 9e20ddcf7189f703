"""What the Compare page draws: the pickers of A and B, answers, maps, needle shares, kernels."""

from dataclasses import replace

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.analysis.compare.pairs import Rule
from mta_viz.errors import MtaVizError
from mta_viz.ui.attention.spans import span_name, spans_of
from mta_viz.ui.compare.answers import draw_answers, draw_needle
from mta_viz.ui.compare.maps import draw_kernels, draw_maps
from mta_viz.ui.compare.sides import EDITS, MODE, Compared, Side, compared, pick_side
from mta_viz.ui.shell import plan, state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, pick_head, pick_layer, pick_stage, resolve
from mta_viz.ui.shell.widgets import caption, head_name, plain

AUTOMATIC, BY_NEEDLE = RULES = ("automatic", "needle share")


def draw_compare(page: Page) -> None:
    """The page's body. What cannot be compared is said in its place; the pickers stay."""
    chosen, address = state.selection().layer is not None, st.container()
    if page.stale:
        st.warning("Prompt changed. What is shown is of the previous run; press Run.")
    found = _compared(page)
    opened = None if chosen or found is None else _opened_at(page, found)
    selected = opened or resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    with address:
        draw_address(_place(page, selected))
    if found is not None:
        _draw_rows(page, selected, found)


def _compared(page: Page) -> Compared | None:
    """The header, and what it asks for; None: it was said why there is nothing."""
    try:
        side = pick_side(page)
        if side is None:
            return None
        _say_plan(page)
        return compared(page, side, *_draw_options(page, side))
    except MtaVizError as error:
        st.error(plain(str(error)))
        return None


def _opened_at(page: Page, found: Compared) -> Selected | None:
    """Where the page opens: at A's head that gives the needle most; None without a needle."""
    needle = found.found.needle
    if needle is None or not np.isfinite(needle.a).any():
        return None
    layer, head = np.unravel_index(int(np.nanargmax(needle.a)), needle.a.shape)
    return resolve(replace(state.selection(), layer=int(layer), head=int(head)), page.trace)


def _place(page: Page, selected: Selected) -> str:
    name = head_name(selected.layer, selected.head, page.numbering)
    return f"{state.selection().checkpoint} · {name} · {selected.stage.value.long} · A beside B"


def _say_plan(page: Page) -> None:
    if state.get(MODE) != EDITS and plan.current_plan(page.model.config):
        caption(f"A plan is active. Here A is the original model; choose “{EDITS}” to see the edited one.")


def _draw_options(page: Page, side: Side) -> tuple[Span | None, Rule | None]:
    """The answer, what shares are measured of, and how heads of models trained apart are paired."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Answer",
            placeholder="empty: the number asked for, or the likeliest token",
            help="What should follow the prompt. Type a space first where a word would have one.",
            width=300,
            **state.kept("answer", ""),
        )
        span = _pick_span(page)
        rule: Rule | None = None
        if span is not None and side.run is not None and side.run.model != page.model_key:
            help_text = (
                "Automatic: by index where one model comes from the other, else by likeness of maps. "
                "Needle share: A's best finder beside B's best."
            )
            kept = state.kept("pair by", AUTOMATIC, RULES)
            chosen = st.segmented_control("Pair heads by", RULES, required=True, help=help_text, **kept)
            rule = "needle" if chosen == BY_NEEDLE else None
    return span, rule


def _pick_span(page: Page) -> Span | None:
    """The part of the prompt whose share is measured: the asked needle, unless another is chosen."""
    spans = {span_name(span): span for span in spans_of(page) if span.letter != QUESTION}
    if not spans:
        return None
    asked = next((name for name in spans if name.endswith("(asked)")), next(iter(spans)))
    if len(spans) == 1:
        return spans[asked]
    chosen = st.selectbox(
        "Share of", list(spans), width=220, **state.kept("compared span", asked, list(spans))
    )
    return spans[chosen]


def _draw_rows(page: Page, selected: Selected, found: Compared) -> None:
    draw_answers(page, found)
    st.subheader("One head in A and in B", divider="gray")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(page.model.config, selected.layer, page.numbering)
        pick_head(page.model.config, selected.head, page.numbering)
        pick_stage(page.model.config, selected.layer, selected.stage)
    draw_maps(page, selected, found)
    st.subheader("What every head gives the needle", divider="gray")
    draw_needle(page, selected, found)
    st.subheader("Kernels", divider="gray")
    draw_kernels(page, selected, found)
