"""The atlas: every kernel of the model by what it does or by layer, filtered, sorted, and one of them chosen.

And what it says in words: the verdict line, what sizes cannot show, the query's help.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pandas as pd
import streamlit as st

from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.kernels import table as tables
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, WHERE, KernelId, Offsets
from mta_viz.analysis.kernels.measures import cannot_show, size_words
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE, UNNAMED
from mta_viz.analysis.kernels.query import NO_SORT, SORTS
from mta_viz.config import Where
from mta_viz.figures.base import Source
from mta_viz.figures.kernels import gallery as figures
from mta_viz.ui.kernels import parts
from mta_viz.ui.kernels.card import draw_card, kernel_name
from mta_viz.ui.kernels.parts import select_kernel
from mta_viz.ui.shell import address, state
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import arrow, on_kernel
from mta_viz.ui.shell.show import draw, save_line, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, layer_list, menu, plain, row_table
from mta_viz.ui.shell.work import Work

Arranged = Literal["layer", "meaning"]
Tiles = tuple[Source, figures.KernelGallery, figures.Gallery]
ARRANGED: dict[Arranged, str] = {"meaning": "by shape", "layer": "by layer"}
SHOWN: dict[str, tuple[Where, ...]] = {"pre": ("pre",), "post": ("post",), "head mixing": MIXING}
QUERY, SORT = Setting("kernel_query", ""), Setting("kernel_sort", NO_SORT)
ARRANGE, PLACES = Setting[Arranged]("arranged", "meaning"), Setting[Any]("kernel_places", list(SHOWN))
SHOWN_WORDS = {"pre": WHERE["pre"], "post": WHERE["post"], "head mixing": "head mixing"}
HIDE_OWN, NUMBERS = Setting("hide_own", True), Setting("kernel_numbers", False)
SMALLEST_P = 0.0001  # what chances measured on 10,000 surrogates bear
WIDTH, WIDE, FEW_HEADS, SCROLLBAR = 470, 900, 8, 20
EXAMPLES = (
    "diagonal > 0.5 and layer >= 3 and pre",
    "shape = edge and not priming",
    "energy_off_identity > 0.5, not 'none of these'",
    "survives",
    "head_post and contrast > 0.9",
)
SYNTAX = (
    "Compare a column of the table with a number (> < >= <= = !=), or name a place (pre, post, head_pre, "
    "head_post), a shape, faint or survives. A shape is that of any name of a kernel, not of the first "
    'alone, and of names of its kind: edge is edge-first too, diagonal is "diagonal at -2" too. Join with '
    "and, or, not, parentheses; a comma is and. A name with a space stands in quotes. Layers and heads "
    "count from 0 here, as in links and files. A kernel without a value in a column satisfies no comparison "
    "with it."
)


def verdict_line(counts: tables.ShapeCounts) -> str:
    """How many kernels have a name, and how many names chance alone would give."""
    shapes = counts.shapes
    faint = sum(number for name, number in shapes.items() if name.startswith("faint "))
    clear = {name: number for name, number in shapes.items() if not name.startswith("faint ")}
    named = sum(number for name, number in clear.items() if name not in UNNAMED)
    kinds = [
        f"{clear.get(IDENTITY, 0) + faint} near identity"
        + (f" ({faint} with a faint name)" if faint else ""),
        f"{named} with a named shape",
        f"{clear.get(NONE, 0)} changed without a name",
        *(f"{clear[name]} {name}" for name in (ALL_ZERO, NOT_FINITE) if name in clear),
    ]
    templates = (
        f"{counts.templates} template names (diagonal, priming, smoothing ...); kernels with this model's "
        f"own envelope, Gaussian with the energy at each tap, get {_chance(counts.envelope_templates)}. "
        f"{counts.survive} {'survives' if counts.survive == 1 else 'survive'} both tests."
    )
    edges = f"{counts.edges} edges; such kernels get {_chance(counts.envelope_edges)}."
    return f"{counts.kernels} kernels: {', '.join(kinds)}. {templates} {edges}"


def _chance(names: tables.NamesByChance) -> str:
    """`3.7 (95 % range 1 to 7), p of as many < 0.0001`."""
    p = f"= {names.p:.2g}" if names.p >= SMALLEST_P else f"< {SMALLEST_P}"
    return f"{names.mean:.1f} (95 % range {names.low} to {names.high}), p of as many {p}"


def limits_line(rows: Sequence[tables.Row]) -> str:
    """What kernels of these sizes have no room for; empty when they can show everything."""
    sizes = {(row["c_q"], row["c_k"], row["first_key"]) for row in rows if row["where"] in KEY_QUERY}
    limits = []
    for c_q, c_k, first in sorted(sizes):
        offsets = Offsets(tuple(range(1 - c_q, 1)), tuple(range(first, first + c_k)))
        missing = cannot_show(offsets)
        if missing:
            limits.append(
                f"A {size_words(c_q, c_k)} kernel cannot show: {', '.join(missing)}; see its dominant tap."
            )
    return " ".join(limits)


def draw_gallery(page: Page) -> None:
    """What is looked for, the tiles with the chosen kernel's card beside them, and the table."""
    if not parts.has_kernels(page):
        return
    line, source = st.container(), parts.weights_source(page)
    table, arranged = _draw_choice()
    rows = draw(source, table).result
    tiles = _tiles(page, table, rows, arranged)
    selected = _selected(figures.kernel_rows(source)) or _first(tiles)
    with line:
        name = kernel_name(selected, page.numbering) if selected else "all kernels"
        address.draw_address(f"{state.selection().checkpoint} · {name}")
    if not rows:
        way_out = "clear the box" + ("" if len(table.places) == 4 else ", or show more places")
        way_out = way_out if table.places else "choose where under View"
        st.info(plain(f"No kernel satisfies {table.query or 'no place'}; {way_out}."))
        return
    with st.container(horizontal=True, gap="small", key="gallery"):
        with st.container(width=tiles[0][1].width + SCROLLBAR, key="atlas"):
            for shown in tiles:
                _draw_tiles(page, *shown, selected)
        with st.container(key="card"):
            _draw_walk(tiles, selected)
            if selected is None:
                caption("Click a tile or a row of the table to open that kernel.")
            else:
                draw_card(page, selected)
    _draw_verdict(page, source)
    with st.expander(f"Table of {len(rows)} kernels"):
        _draw_table(page, source, table)


def _draw_choice() -> tuple[figures.KernelTable, Arranged]:
    """One line: what to look for, and how to look at it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        look: Any = {"placeholder": "Find: diagonal > 0.5, layer >= 3, pre", "label_visibility": "collapsed"}
        query = st.text_input("Query", width=340, **look, **QUERY.widget())
        with st.popover("Query help", icon=":material/help:"):
            st.text(SYNTAX)
            for example in EXAMPLES:
                look = {"key": f"query.{example}", "width": "stretch"}
                st.button(f"`{example}`", on_click=QUERY.put, args=(example,), **look)
        with st.popover("View", icon=":material/tune:"):
            arranged: Arranged = bar("Tiles", ARRANGED, ARRANGE)
            usual = "effect" if arranged == "meaning" else NO_SORT
            sort = menu("Sort", {name: usual if name == NO_SORT else name for name in SORTS}, SORT)
            look = {"selection_mode": "multi", "format_func": SHOWN_WORDS.__getitem__}
            places = st.pills("Show", list(SHOWN), **look, **PLACES.widget(list(SHOWN)))
            st.markdown("**By layer, and head mixing**")
            words = "The own tap or own weight is near 1 almost everywhere: without it small structure shows."
            st.toggle("Hide own tap", help=words, **HIDE_OWN.widget())
            parts.pick_scale()
            st.toggle("Numbers", **NUMBERS.widget())
    shown = tuple(place for name in SHOWN if name in places for place in SHOWN[name])
    return figures.KernelTable(query.strip(), sort, shown), arranged


def _tiles(
    page: Page, table: figures.KernelTable, rows: Sequence[tables.Row], arranged: Arranged
) -> list[Tiles]:
    """What is drawn of key-query kernels and of head mixing; of the run only what is sorted by it."""
    kinds: tuple[tuple[Where, ...], ...] = (KEY_QUERY, MIXING)
    of_run = arranged == "meaning" and page.trace is not None
    of_run = of_run and isinstance(figures.effects_without(source_of(page)), Absent)
    width = WIDTH if arranged == "meaning" or page.model.config.n_heads <= FEW_HEADS else WIDE
    look: Any = {"hide_own": HIDE_OWN.value or arranged == "meaning", "scale": parts.SCALE.value}
    look |= {"numbers": NUMBERS.value, "width": width, "arranged": arranged}
    tiles = []
    for kind in kinds:
        places = tuple(place for place in kind if any(row["where"] == place for row in rows))
        if places:
            source = source_of(page) if of_run and kind is KEY_QUERY else parts.weights_source(page)
            spec = figures.KernelGallery(places, table.query, table.sort, **look)
            tiles.append((source, spec, spec.result(source)))
    return tiles


def _first(tiles: Sequence[Tiles]) -> KernelId | None:
    """The kernel that comes first in the atlas, whatever its group; None where there is no atlas."""
    order = tiles[0][2].order if tiles else None
    shown = [tables.kernel_of(row) for row in tiles[0][2].shown] if order else []
    return next((kernel for kernel in (*order.values, *shown) if kernel in shown), None) if order else None


def _draw_tiles(
    page: Page,
    source: Source,
    spec: figures.KernelGallery,
    result: figures.Gallery,
    selected: KernelId | None,
) -> None:
    words = None
    if result.order is not None:
        caption(f"Sorted by {result.order.words}.")
        words = "Each tile on its own colour scale; hatched: the own tap, hidden. Point at a tile: its probe."
    if selected:
        spec = replace(spec, layer=selected.layer, head=selected.head, where=selected.where)
    widget = f"gallery.{spec.places[0]}.{page.key}.{hash(spec)}"
    show(source, spec, on_kernel, widget=widget, words=words)


def _draw_walk(tiles: Sequence[Tiles], selected: KernelId | None) -> None:
    """Arrows to the tiles beside the chosen one, those of head mixing after the others."""
    order = [tables.kernel_of(row) for _, _, result in tiles for row in result.shown]
    source, spec, result = tiles[0]
    stride = spec.sheet(source, result)[0].columns
    at = order.index(selected) if selected in order else None
    steps = (("Kernel before", "chevron_left", "Left", -1), ("Kernel behind", "chevron_right", "Right", 1),
             ("Kernel above", "keyboard_arrow_up", "Up", -stride),
             ("Kernel below", "keyboard_arrow_down", "Down", stride))  # fmt: skip
    with st.container(horizontal=True, gap="xsmall"):
        for words, icon, key, step in steps:
            to = (0 if step > 0 else -1) if at is None else at + step
            target = order[to] if at is None or 0 <= to < len(order) else None
            go = None if target is None else partial(select_kernel, target)
            arrow(words, icon, f"kernel.{key}", go)
        caption(f"{at + 1} of {len(order)}" if at is not None else f"{len(order)} shown")


def _selected(rows: Sequence[tables.Row]) -> KernelId | None:
    """The kernel the view names, whether it is shown or not; without a place the first that head has."""
    view = state.selection()
    if view.layer is None:
        return None
    places: tuple[Where, ...] = (*KEY_QUERY, *MIXING)
    there = {tables.kernel_of(row) for row in rows}
    for where in [place for place in places if place == view.place] or places:
        kernel = KernelId(view.layer, view.head or 0, where)
        if kernel in there:
            select_kernel(kernel)
            return kernel
    return None


def _draw_verdict(page: Page, source: Source) -> None:
    rows, config = figures.kernel_rows(source), page.model.config
    counts = source.remember(lambda: tables.shape_counts(rows), "shape counts")
    if counts.kernels:
        st.text(verdict_line(counts), width="stretch")
    without = [at for at in range(config.n_layers) if not (config.kernels(at).pre or config.kernels(at).post)]
    if without:
        caption(f"No key-query kernel in L{layer_list(without, page.numbering)}.")
    if limits := limits_line(rows):
        caption(limits)


def _at_matches(page: Page) -> bool:
    """Whether all kernels are measured at this prompt's matches; draws what measures them."""
    if page.trace is None:
        return False

    def do(work: Work, keep: Keep) -> Any:
        return figures.kernels_at_matches(replace(source_of(page), progress=work.report))

    label, key = "What each does at matches", (page.key, *figures.KERNELS_AT_MATCHES)
    words = "Which way every kernel acts where this prompt's tokens repeat, as columns of the table."
    return measured(Measurement("kernels at matches", key, label, do, words)) is not None


def _draw_table(page: Page, source: Source, table: figures.KernelTable) -> None:
    if _at_matches(page):
        source, table = source_of(page), replace(table, matches=True)
    figure = draw(source, table)
    rows: Sequence[tables.Row] = figure.result

    def frame() -> pd.DataFrame:
        return tables.kernel_frame(rows).dropna(axis="columns", how="all")

    shown, key = source.remember(frame, "kernel frame", table), f"kernels.{page.key}.{table}"
    row_table(key, shown, rows, lambda row: select_kernel(tables.kernel_of(row)), height=360)
    words = f"{len(rows)} kernels, one a row; layers, heads from 0 as in files. Click one to open it."
    save_line(figure, words)
