"""The large map of the selected stage with its caption; for long prompts an overview and an exact part."""

import time
from collections.abc import Callable
from functools import partial

import streamlit as st

from mta_viz.analysis.maps import AttentionMap
from mta_viz.errors import PromptError
from mta_viz.exporting.data import map_csv
from mta_viz.model.stages import Stage
from mta_viz.ui import clicks, state
from mta_viz.ui.crops import CROP_SIZE, Crop
from mta_viz.ui.drawn import Drawn, file_parts
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.shown import Range, Shown
from mta_viz.ui.widgets import caption_with_save, chart

MAP_PX = 600
PAIR_PX = 460  # overview and crop side by side
MAP_FIRST_SECONDS = 0.15


def draw_map(drawn: Drawn) -> None:
    """All cells of a prompt short enough for it; else an overview and the exact part."""
    if drawn.part is not None:
        _draw_pair(drawn, drawn.part)
        return
    with st.container(key="exact"):
        _draw_map(drawn, drawn.maps.__getitem__, MAP_PX)


def _draw_pair(drawn: Drawn, part: Crop) -> None:
    """Pooled overview with a box to choose from, and beside it the exact part, which is sent first."""
    left = st.container()
    with st.container(key="exact"):
        _draw_map(drawn, partial(drawn.crop, part), PAIR_PX)
    with left:
        _draw_overview(drawn, part)


def _draw_overview(drawn: Drawn, part: Crop) -> None:
    overview = drawn.maps[drawn.selected.stage]
    figure = drawn.map_figure(overview, PAIR_PX, None, part=part)
    name, chosen = f"overview.{drawn.page.key}", clicks.on_overview(len(drawn.tokens))
    chart(figure, name, chosen, modes=("points", "box"))
    caption_with_save(
        f"Draw a box to see that part exactly. {_map_caption(drawn, overview)}",
        (*file_parts(drawn), overview.stage.value.key, "overview"),
        figure,
        lambda: map_csv(overview, drawn.tokens),
        "overview",
    )


def _draw_map(drawn: Drawn, exact: Callable[[Stage], AttentionMap], size: int) -> None:
    """The exact map of the selected stage with its caption; a click selects a cell."""
    attention = exact(drawn.selected.stage)
    before = exact(drawn.stage_before) if drawn.stage_before else None
    cell = (drawn.selected.query, drawn.selected.key)
    figure = drawn.map_figure(attention, size, cell, before)
    name = f"map.{drawn.page.key}.{attention.query_start}.{attention.key_start}"
    words = _map_caption(drawn, attention)
    chart(figure, name, clicks.on_cell, alt=words)
    _let_it_be_drawn(drawn)
    file = (*file_parts(drawn), attention.stage.value.key)
    numbers = partial(map_csv, attention, drawn.tokens)
    caption_with_save(words, file, figure, numbers, "map", partial(_cropped, drawn, size, attention))


def _cropped(
    drawn: Drawn, size: int, shown: AttentionMap, queries: Range | None, keys: Range | None
) -> Shown:
    """The map of some queries and keys only. Raises PromptError where that is more than can be drawn."""
    rows = queries or (shown.query_start, shown.query_start + shown.values.shape[0])
    columns = keys or (shown.key_start, shown.key_start + shown.values.shape[1])
    if max(rows[1] - rows[0], columns[1] - columns[0]) > CROP_SIZE:
        raise PromptError(f"at most {CROP_SIZE} queries and {CROP_SIZE} keys are drawn; choose shorter spans")
    attention = drawn.crop(Crop(*rows, *columns), drawn.selected.stage)
    figure = drawn.map_figure(attention, size, None)
    places = f"q{rows[0]}-{rows[1] - 1}", f"k{columns[0]}-{columns[1] - 1}"
    words = f"Queries {rows[0]} to {rows[1] - 1}, keys {columns[0]} to {columns[1] - 1}."
    return Shown(
        "map",
        (*file_parts(drawn), attention.stage.value.key, *places),
        figure,
        f"{_map_caption(drawn, attention)} {words}",
        partial(map_csv, attention, drawn.tokens),
    )


def _let_it_be_drawn(drawn: Drawn) -> None:
    """Wait a moment after sending a new map: the browser would take in the rest before it draws the map."""
    shown = (*drawn.head_key, drawn.selected.stage, drawn.part)
    if state.get("map sent") != shown:
        state.put("map sent", shown)
        time.sleep(MAP_FIRST_SECONDS)


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
