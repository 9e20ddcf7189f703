"""What the Attention page draws: pickers, stage strip, the map, the selected cell, predictions.

Owns the layout and the words; what is computed and drawn comes from `drawn`.
"""

from collections.abc import Callable
from functools import partial

import streamlit as st

from mta_viz.analysis.maps import AttentionMap
from mta_viz.errors import MtaVizError
from mta_viz.exporting.data import map_csv, predictions_csv, stages_csv
from mta_viz.model.stages import Stage, is_distribution
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.ui import clicks, crops, state
from mta_viz.ui.address import draw_address
from mta_viz.ui.drawn import SCALES, THIS_MAP, Drawn, predictions, predictions_figure
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected, resolve
from mta_viz.ui.steppers import pick_head, pick_layer, pick_position, pick_stage
from mta_viz.ui.widgets import caption, caption_with_save, chart, lines, plain

MAP_PX = 600
PAIR_PX = 460  # overview and crop side by side


def draw_attention(page: Page) -> None:
    """The page's body."""
    if page.trace is None:
        st.info(plain(page.empty))
        return
    selected = resolve(state.view(), page.trace)
    state.select(layer=selected.layer, head=selected.head, stage=selected.stage.value.key)
    draw_address(_place(page, selected))
    scale = _draw_pickers(page, selected)
    if page.stale:
        st.warning("Prompt changed. These maps are of the previous run.")
    with st.container(key="stale" if page.stale else "fresh"):
        _draw_body(Drawn(page, selected, scale))


def _place(page: Page, selected: Selected) -> str:
    pieces = page.trace.tokens.pieces
    return " · ".join(
        [
            str(state.view().checkpoint),
            layer_label(selected.layer, page.numbering),
            head_label(selected.head, page.numbering),
            selected.stage.value.long,
            f'query {selected.query} "{pieces[selected.query]}"',
            f'key {selected.key} "{pieces[selected.key]}"',
        ]
    )


def _draw_pickers(page: Page, selected: Selected) -> str:
    """Layer, head, stage; returns the scale."""
    config = page.trace.model.config
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pick_layer(config, selected.layer, page.numbering)
        pick_head(config, selected.head, page.numbering)
        pick_stage(config, selected.layer, selected.stage)
        scale = st.selectbox(
            "Scale",
            SCALES,
            width=120,
            help="Colour limits of the large map: its own, or those all stages of the strip share.",
            **state.kept("scale", THIS_MAP, SCALES),
        )
    if selected.why:
        state.put("why", (page.key, selected.layer, selected.head, selected.why))
    opened = state.get("why")
    if opened is not None and opened[:3] == (page.key, selected.layer, selected.head):
        caption(f"Opened at this head: {opened[3]}.")
    return scale


def _draw_body(drawn: Drawn) -> None:
    if len(drawn.tokens) == 1:
        st.info("A one-token prompt attends only to itself: nothing to see. Add text.")
    strip = st.container()  # filled last: the map a visitor waits for is sent first
    long = len(drawn.tokens) > crops.WHOLE_UP_TO
    if long:
        _draw_search(drawn)
    with st.container(key="pair" if long else "single"):
        if long:
            _draw_pair(drawn)
        else:
            with st.container(key="exact"):
                _draw_map(drawn, drawn.maps.__getitem__, MAP_PX)
        with st.container():
            _draw_cell(drawn)
        with st.container():
            _draw_predictions(drawn)
    with strip:
        _draw_strip(drawn)


def _draw_strip(drawn: Drawn) -> None:
    figure = drawn.strip_figure()
    chart(figure, "strip", clicks.on_stage, alt="All stages of this head as small maps", stretch=True)
    caption_with_save(
        f"All stages of this head. Scores share the limits ±{drawn.limits['score']:g}, weights share "
        f"±{drawn.limits['weight']:g}. Click one to see it large.",
        (*_name(drawn), "stages"),
        figure,
        lambda: stages_csv(drawn.maps, drawn.tokens),
        "strip",
    )


def _name(drawn: Drawn) -> tuple[object, ...]:
    """The first parts of file names; they count from 0 as the hook names do."""
    return state.view().checkpoint, f"L{drawn.selected.layer}", f"H{drawn.selected.head}"


def _draw_map(drawn: Drawn, exact: Callable[[Stage], AttentionMap], size: int) -> None:
    """The exact map of the selected stage with its caption; a click selects a cell."""
    attention = exact(drawn.selected.stage)
    before = exact(drawn.stage_before) if drawn.stage_before else None
    cell = (drawn.selected.query, drawn.selected.key)
    figure = drawn.map_figure(attention, size, cell, before)
    name = f"map.{drawn.page.key}.{attention.query_start}.{attention.key_start}"
    words = _map_caption(drawn, attention)
    chart(figure, name, clicks.on_cell, alt=words)
    file = (*_name(drawn), attention.stage.value.key)
    caption_with_save(words, file, figure, lambda: map_csv(attention, drawn.tokens), "map")


def _map_caption(drawn: Drawn, attention: AttentionMap) -> str:
    info, limit = attention.stage.value, drawn.limit
    numbering = drawn.page.numbering
    where = f"{layer_label(attention.layer, numbering)} {head_label(attention.head, numbering)}"
    left_out = "" if drawn.page.first_token else " (first token left out)"
    low = "0" if attention.distribution else f"-{limit:g}"
    counted = "blocks" if attention.block > 1 else "cells"
    parts = [
        f"{where}, {info.long}, {len(drawn.tokens):,} tokens. Rows: query, columns: key.",
        f"Colour: {info.unit}, {low} to {limit:g}: 99.5 % of the {counted} and the largest one of half "
        f"of the rows lie within{left_out}. Hatched: masked.",
    ]
    if attention.n_bad:
        parts.append(f"{attention.n_bad:,} cells are NaN or inf, marked x.")
    if attention.block > 1:
        parts.append(
            f"Each cell is the value of largest size in a {attention.block} x {attention.block} block, "
            "sign kept; it overstates rare peaks."
        )
    if info.unit == "weight" and not attention.distribution:
        parts.append("These rows are not probabilities: they may be negative and need not sum to 1.")
    if attention.negative_share > 0 and info.unit == "weight":
        parts.append(f"Negative: {attention.negative_share:.0%} of all |weight|.")
    return " ".join(parts)


def _draw_pair(drawn: Drawn) -> None:
    """Pooled overview with a box to choose from, and the exact part beside it."""
    n_tokens = len(drawn.tokens)
    part = state.get("crop")
    if part is None or part.query_stop > n_tokens or part.key_stop > n_tokens:
        part = crops.around(drawn.selected.query, drawn.selected.key, n_tokens)
    overview = drawn.maps[drawn.selected.stage]
    with st.container():
        figure = drawn.map_figure(overview, PAIR_PX, None, part=part)
        chart(figure, f"overview.{drawn.page.key}", clicks.on_overview(n_tokens), modes=("points", "box"))
        caption_with_save(
            f"Draw a box to see that part exactly. {_map_caption(drawn, overview)}",
            (*_name(drawn), overview.stage.value.key, "overview"),
            figure,
            lambda: map_csv(overview, drawn.tokens),
            "overview",
        )
    with st.container(key="exact"):
        _draw_map(drawn, partial(drawn.crop, part), PAIR_PX)


def _draw_search(drawn: Drawn) -> None:
    """Find a token by plain text and bring it into the exact part, as query or as key."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input("Find text", placeholder="plain text", **state.kept("search", ""))
        hits = crops.search(drawn.tokens, text)
        if not hits:
            caption("No such text in the prompt." if text else "")
            return
        hit = st.selectbox(
            f"{len(hits)} places",
            hits,
            format_func=lambda place: f"{place} {drawn.tokens.pieces[place]}",
            **state.kept("hit", hits[-1], hits),
        )
        st.button(
            "Show as key", key="show.key", on_click=_show, args=(drawn.selected.query, hit, len(drawn.tokens))
        )
        st.button("Show as query", key="show.query", on_click=_show, args=(hit, None, len(drawn.tokens)))


def _show(query: int, key: int | None, n_tokens: int) -> None:
    state.select(query=query, key=key)
    state.put("crop", crops.around(query, query if key is None else key, n_tokens))


def _draw_cell(drawn: Drawn) -> None:
    """The selected query and key, and the cell's value at every stage of this head."""
    selected, tokens = drawn.selected, drawn.tokens
    with st.container(horizontal=True):
        pick_position("query", selected.query, len(tokens))
        pick_position("key", selected.key, len(tokens))
    pieces = tokens.pieces
    st.text(f'query {selected.query} "{pieces[selected.query]}"\nkey {selected.key} "{pieces[selected.key]}"')
    if selected.key > selected.query:
        caption(
            f"Key {selected.key} comes after query {selected.query}. The model never sees it: "
            "its weight is 0 by the mask."
        )
        return
    lines("\n".join(_cell_lines(drawn)), "cell")


def _cell_lines(drawn: Drawn) -> list[str]:
    kernels, found = drawn.page.trace.model.config.kernels(drawn.selected.layer), []
    for stage, value in drawn.values.items():
        text = score_text(value) if stage.value.unit == "score" else weight_text(value)
        mark = ">" if stage is drawn.selected.stage else " "
        kind = "probability" if is_distribution(stage, kernels) else stage.value.unit
        found.append(f"{mark} {stage.value.short:<6}{text:>9} {kind}")
    return found


def _draw_predictions(drawn: Drawn) -> None:
    query = drawn.selected.query
    try:
        figure = predictions_figure(drawn.page, query)
    except MtaVizError as error:  # here, so that the maps of a broken model are still drawn
        st.error(plain(str(error)))
        return
    chart(figure, "next", alt="The ten likeliest next tokens with their probabilities")
    caption_with_save(
        f'Next token after {query} "{drawn.tokens.pieces[query]}".',
        (state.view().checkpoint, "next", query),
        figure,
        lambda: predictions_csv(predictions(drawn.page, query)),
        "next",
    )
