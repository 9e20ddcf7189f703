"""The gallery: every kernel of the model on one screen, filtered, sorted, and one of them selected.

What the gallery says in words: the verdict line, what sizes cannot show, the marks, the query's help.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.kernels.kernels import KernelId, MixPlace, Offsets, Place
from mta_viz.analysis.kernels.measures import cannot_show, size_words
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE, UNNAMED
from mta_viz.analysis.kernels.query import select_rows
from mta_viz.analysis.kernels.table import (
    HEAD_SCORES,
    KEY_QUERY,
    KEY_QUERY_SCORES,
    MIXING,
    Row,
    ShapeCounts,
    kernel_frame,
    shape_counts,
)
from mta_viz.ui.kernels.card import draw_card, open_definitions
from mta_viz.ui.kernels.layer import no_kernels_text
from mta_viz.ui.kernels.model_kernels import kernel_of, rows_of, select_kernel, weights_key
from mta_viz.ui.kernels.tiles import Kernels, draw_mosaics, read_layers
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import arrow
from mta_viz.ui.shell.widgets import caption, layer_list, picked, plain, save_table

MARKS = (
    "Under each tile: D diagonal · I induction · A anti-diagonal · P priming or inhibition · F, L edge "
    "first, last · S key shift · T single tap · B blur or sharpening · = near identity · none "
    "of these as ·; small: faint. In head mixing: C contrast · M averaging · X swap or permutation."
)
EXAMPLES = (
    "diagonal > 0.5 and layer >= 3 and pre",
    "shape = edge-first or shape = edge-last",
    "energy_off_identity > 0.5, not 'none of these'",
    "survives",
    "head_post and contrast > 0.9",
)
SYNTAX = (
    "Compare a column of the table with a number (> < >= <= = !=), or name a place (pre, post, head_pre, "
    "head_post), a shape, faint or survives. Join with and, or, not, parentheses; a comma is and. A name "
    "with a space stands in quotes. Layers and heads count from 0 here, as in links and files. A kernel "
    "without a value in a column satisfies no comparison with it."
)


def verdict_line(counts: ShapeCounts) -> str:
    """How many kernels have a name, and how many names chance alone would give."""
    shapes = counts.shapes
    faint = sum(number for name, number in shapes.items() if name.startswith("faint "))
    plain = {name: number for name, number in shapes.items() if not name.startswith("faint ")}
    named = sum(number for name, number in plain.items() if name not in UNNAMED)
    parts = [
        f"{plain.get(IDENTITY, 0) + faint} near identity"
        + (f" ({faint} with a faint name)" if faint else ""),
        f"{named} with a named shape",
        f"{plain.get(NONE, 0)} changed without a name",
        *(f"{plain[name]} {name}" for name in (ALL_ZERO, NOT_FINITE) if name in plain),
    ]
    return f"{counts.kernels} kernels: {', '.join(parts)}. {_chance(counts)}"


def _chance(counts: ShapeCounts) -> str:
    told = (
        f"Names from templates (diagonal, priming, blur ...): {counts.templates}, expected by chance: "
        f"at most {counts.expected_templates:.2g}"
    )
    edge = f"edge-like, largest tap on the previous key with the opposite sign: {counts.edge_like}"
    return f"{told}; {edge}, expected by chance: {counts.expected_edge_like:.2g}."


def limits_line(rows: Sequence[Row]) -> str:
    """What kernels of these sizes have no room for; empty when they can show everything."""
    sizes = {(row["c_q"], row["c_k"], row["first_key"]) for row in rows if row["where"] in KEY_QUERY}
    told = []
    for c_q, c_k, first in sorted(sizes):
        offsets = Offsets(tuple(range(1 - c_q, 1)), tuple(range(first, first + c_k)))
        missing = cannot_show(offsets)
        if missing:
            told.append(
                f"A {size_words(c_q, c_k)} kernel cannot show: {', '.join(missing)}; see its dominant tap."
            )
    return " ".join(told)


def draw_help() -> None:
    """The query's syntax, with examples that are put in the box by a click."""
    with st.popover("Query help", icon=":material/help:"):
        st.text(SYNTAX)
        for example in EXAMPLES:
            st.button(
                f"`{example}`", key=f"query.{example}", on_click=state.put, args=("kernel_query", example),
                width="stretch",
            )  # fmt: skip


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
    draw_address(f"{state.selection().checkpoint} · {kernels.label(selected) if selected else 'all kernels'}")
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
    view = state.selection()
    there = {kernel_of(row) for row in kernels.rows}
    if view.layer is None:
        return None
    places: tuple[Place | MixPlace, ...] = (*KEY_QUERY, *MIXING)
    for where in [place for place in places if place == view.place] or places:
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
            (state.selection().checkpoint, "kernels"),
            lambda: kernel_frame(rows).to_csv(index=False, lineterminator="\n"),
            "kernels",
        )


def _open_row(index: int | None, rows: Sequence[Row]) -> None:
    if index is not None and 0 <= index < len(rows):
        select_kernel(kernel_of(rows[index]))
