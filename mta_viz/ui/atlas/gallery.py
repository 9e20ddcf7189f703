"""The gallery: every kernel of the model on one screen, filtered, sorted, and one of them selected."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.kernels import KernelId, MixPlace, Place
from mta_viz.analysis.shapes.query import select_rows
from mta_viz.analysis.shapes.table import (
    HEAD_SCORES,
    KEY_QUERY,
    KEY_QUERY_SCORES,
    MIXING,
    Row,
    kernel_frame,
    shape_counts,
)
from mta_viz.ui import state
from mta_viz.ui.address import draw_address
from mta_viz.ui.atlas.card import draw_card
from mta_viz.ui.atlas.card_parts import open_definitions
from mta_viz.ui.atlas.gallery_mosaics import draw_mosaics
from mta_viz.ui.atlas.gallery_tiles import Kernels, read_layers
from mta_viz.ui.atlas.gallery_words import MARKS, draw_help, limits_line, verdict_line
from mta_viz.ui.atlas.layer import no_kernels_text
from mta_viz.ui.atlas.model_kernels import kernel_of, rows_of, select_kernel, weights_key
from mta_viz.ui.cache import remember
from mta_viz.ui.numbering import layer_list
from mta_viz.ui.open_page import Page
from mta_viz.ui.steppers import arrow
from mta_viz.ui.widgets import caption, picked, plain, save_table

PILLS = {"pre": ("pre",), "post": ("post",), "head mixing": MIXING}
NO_SORT = "layer and head"
SORTS = (NO_SORT, "score", *KEY_QUERY_SCORES, *HEAD_SCORES)


@dataclass(frozen=True)
class Choice:
    """What the visitor wants to see: `query`, `sort` (a column), places."""

    query: str
    sort: str
    places: tuple[str, ...]

    @property
    def reordered(self) -> bool:
        """Whether tiles stand in reading order instead of layers down and heads across."""
        return bool(self.query.strip()) or self.sort != NO_SORT


def draw_gallery(page: Page) -> None:
    """Filter line, verdict, mosaics with the selected kernel's card, and the table."""
    config = page.model.config
    if not any(config.kernels(layer).any for layer in range(config.n_layers)):
        st.info(plain(no_kernels_text(config)))
        return
    kernels = _kernels(page)
    choice = _draw_choice()
    rows = remember(lambda: chosen_rows(kernels.rows, choice), "gallery rows", *weights_key(page), choice)
    selected = _selected(rows, kernels)
    draw_address(f"{state.view().checkpoint} · {kernels.label(selected) if selected else 'all kernels'}")
    _draw_verdict(page, kernels)
    if not rows:
        st.info(plain(f"No kernel satisfies {choice.query or 'no place'}; {_way_out(choice)}."))
        return
    with st.container(horizontal=True, gap="medium", key="gallery"):
        with st.container(width=920):
            draw_mosaics(page, kernels, rows, choice.reordered, selected)
            caption(MARKS)
        with st.container(width=440, key="card"):
            _draw_walk(rows, selected, 1 if choice.reordered else config.n_heads)
            if selected is None:
                caption("Click a tile or a row of the table to open that kernel.")
            else:
                draw_card(page, selected)
    _draw_table(page, rows, choice)


def _kernels(page: Page) -> Kernels:
    weights, config = page.model.state_dict(), page.model.config
    return remember(
        lambda: Kernels(rows_of(page), read_layers(weights, config), page.numbering),
        "all kernels", *weights_key(page), page.numbering,
    )  # fmt: skip


def _draw_choice() -> Choice:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        query = st.text_input(
            "Query",
            placeholder="diagonal > 0.5, layer >= 3, pre",
            width=340,
            **state.kept("kernel_query", ""),
        )
        draw_help()
        sort = st.selectbox("Sort", SORTS, width=190, **state.kept("kernel_sort", NO_SORT, SORTS))
        pills = st.pills(
            "Show",
            list(PILLS),
            selection_mode="multi",
            **state.kept("kernel_places", list(PILLS), list(PILLS)),
        )
    places = tuple(place for name in PILLS if name in pills for place in PILLS[name])
    return Choice(query.strip(), sort, places)


def chosen_rows(rows: Sequence[Row], choice: Choice) -> tuple[Row, ...]:
    """The rows of the chosen places that satisfy the query, the largest of the sorted column first.

    Rows without a value in that column come last. Raises QueryError.
    """
    found = [row for row in select_rows(rows, choice.query) if row["where"] in choice.places]
    if choice.sort == NO_SORT:
        return tuple(found)

    def place(row: Row) -> tuple[bool, float]:
        value = row[choice.sort]
        return value is None, -float(value or 0)

    return tuple(sorted(found, key=place))


def _selected(rows: Sequence[Row], kernels: Kernels) -> KernelId | None:
    """The kernel the view names, whether it is shown or not; without a place the first that head has."""
    view = state.view()
    there = {kernel_of(row) for row in kernels.rows}
    if view.layer is None:
        return None
    places: tuple[Place | MixPlace, ...] = (*KEY_QUERY, *MIXING)
    for where in [place for place in places if place == view.where] or places:
        found = KernelId(view.layer, view.head or 0, where)
        if found in there:
            select_kernel(found)
            return found
    return None


def _way_out(choice: Choice) -> str:
    if not choice.places:
        return "choose pre, post or head mixing"
    return "clear the box" + ("" if len(choice.places) == 4 else ", or show more places")


def _draw_verdict(page: Page, kernels: Kernels) -> None:
    counts = remember(lambda: shape_counts(kernels.rows), "shape counts", *weights_key(page))
    if counts.kernels:
        with st.container(horizontal=True, wrap=False, vertical_alignment="top"):
            st.text(verdict_line(counts), width="stretch")
            open_definitions("to_definitions")
    config = page.model.config
    if lacking := [
        at for at in range(config.n_layers) if not (config.kernels(at).pre or config.kernels(at).post)
    ]:
        caption(f"No key-query kernel in L{layer_list(lacking, page.numbering)}.")
    if limits := limits_line(kernels.rows):
        caption(limits)


def _draw_walk(rows: Sequence[Row], selected: KernelId | None, stride: int) -> None:
    """Arrows through the shown kernels: one by one, or a row of the mosaic up and down."""
    order = [kernel_of(row) for row in rows]
    at = order.index(selected) if selected in order else None
    steps = (("chevron_left", "Left", -1), ("chevron_right", "Right", 1),
             ("keyboard_arrow_up", "Up", -stride), ("keyboard_arrow_down", "Down", stride))  # fmt: skip
    with st.container(horizontal=True, gap="xsmall"):
        for icon, key, step in steps:
            to = (0 if step > 0 else -1) if at is None else at + step
            target = order[to] if at is None or 0 <= to < len(order) else None
            go = None if target is None else partial(select_kernel, target)
            arrow("kernel", f":material/{icon}:", key, go)
        caption(f"{at + 1} of {len(order)}" if at is not None else f"{len(order)} shown")


def _draw_table(page: Page, rows: Sequence[Row], choice: Choice) -> None:
    frame = remember(
        lambda: kernel_frame(rows).dropna(axis="columns", how="all"),
        "kernel frame",
        *weights_key(page),
        choice,
    )
    key = f"kernels.{page.key}.{choice}"
    st.dataframe(
        frame, hide_index=True, height=360, key=key, selection_mode="single-row",
        on_select=lambda: _open_row(picked(key), rows),
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center"):
        caption(f"{len(rows)} kernels, one a row; layers, heads from 0 as in files. Click one to open it.")
        save_table(
            (state.view().checkpoint, "kernels"),
            lambda: kernel_frame(rows).to_csv(index=False, lineterminator="\n"),
            "kernels",
        )


def _open_row(index: int | None, rows: Sequence[Row]) -> None:
    if index is not None and 0 <= index < len(rows):
        select_kernel(kernel_of(rows[index]))
