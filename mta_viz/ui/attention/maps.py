"""What the Attention page shows of one head, computed once and remembered: maps, limits, figures.

The large map of the selected stage with its caption; for long prompts an overview and an exact part.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.attention.decomposition import chain
from mta_viz.analysis.attention.maps import AttentionMap, exact_map, head_maps, shared_limit
from mta_viz.analysis.attention.predictions import Prediction, top_tokens
from mta_viz.analysis.attention.spans import Span
from mta_viz.errors import PromptError
from mta_viz.exporting.data import map_csv
from mta_viz.model.stages import Stage, Unit
from mta_viz.plots.attention.maps import attention_map
from mta_viz.plots.attention.predictions import next_tokens
from mta_viz.plots.attention.strip import stage_strip
from mta_viz.plots.theme import Figure
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import CROP_SIZE, WHOLE_UP_TO, Crop, Part, Selected, around
from mta_viz.ui.shell.shown import Range, Shown
from mta_viz.ui.shell.widgets import caption_with_save, chart, head_label, layer_label

STRIP_SIZE = (905, 170)
NEXT_PX = 300
THIS_MAP, ALL_STAGES = SCALES = ("this map", "all stages")


@dataclass(frozen=True)
class Drawn:
    """One head of one run. `maps` are whole (pooled beyond 256 tokens); limits are by unit.

    `scale`: whether the large map has its own colour limit (`this map`) or the strip's. `spans` are
    outlined on every map.
    """

    page: Page
    selected: Selected
    scale: str
    spans: tuple[Span, ...] = ()

    @property
    def tokens(self) -> Tokens:
        """The run's tokens."""
        return self.page.trace.tokens

    @property
    def head_key(self) -> tuple[str, int, int]:
        """The run, layer and head: what most of what is drawn depends on."""
        return self.page.key, self.selected.layer, self.selected.head

    @property
    def maps(self) -> Mapping[Stage, AttentionMap]:
        """Every stage of the head."""
        _, layer, head = self.head_key
        return remember(lambda: head_maps(self.page.trace, layer, head, WHOLE_UP_TO), "maps", *self.head_key)

    @property
    def limits(self) -> Mapping[Unit, float]:
        """One colour limit for the head's score stages, one for its weight stages."""
        first = self.page.first_token

        def limit(unit: Unit) -> float:
            return shared_limit([m for stage, m in self.maps.items() if stage.value.unit == unit], first)

        return remember(
            lambda: {"score": limit("score"), "weight": limit("weight")}, "limits", *self.head_key, first
        )

    @property
    def limit(self) -> float:
        """The large map's limit: its own, or that of all stages of its unit."""
        stage, first = self.selected.stage, self.page.first_token
        if self.scale == ALL_STAGES:
            return self.limits[stage.value.unit]
        return remember(
            lambda: shared_limit([self.maps[stage]], first), "limit", *self.head_key, stage, first
        )

    @property
    def stage_before(self) -> Stage | None:
        """The stage computed just before the selected one, if it has the same unit."""
        stage = self.selected.stage
        same_unit = [one for one in self.maps if one.value.unit == stage.value.unit]
        place = same_unit.index(stage)
        return same_unit[place - 1] if place else None

    @property
    def part(self) -> Crop | None:
        """The part of a long prompt that is shown exactly; None where the whole map is."""
        n_tokens = len(self.tokens)
        if n_tokens <= WHOLE_UP_TO:
            return None
        chosen = state.part(Part).crop
        if chosen is None or chosen.query_stop > n_tokens or chosen.key_stop > n_tokens:
            return around(self.selected.query, self.selected.key, n_tokens)
        return chosen

    def crop(self, part: Crop, stage: Stage) -> AttentionMap:
        """A stage of the head, exactly, in a part of the prompt."""
        layer, head = self.selected.layer, self.selected.head
        return remember(
            lambda: exact_map(self.page.trace, layer, stage, head, part.queries, part.keys),
            "crop", *self.head_key, stage, part,
        )  # fmt: skip

    def strip_figure(self) -> Figure:
        """All stages as thumbnails."""
        stage = self.selected.stage
        return remember(
            lambda: stage_strip(self.maps, self.tokens, self.limits, stage, size=STRIP_SIZE),
            "strip", *self.head_key, stage, self.page.first_token,
        )  # fmt: skip

    def map_figure(
        self,
        attention: AttentionMap,
        size: int,
        cell: tuple[int, int] | None,
        before: AttentionMap | None = None,
        part: Crop | None = None,
    ) -> Figure:
        """A map `size` pixels wide and high, with `cell` (query, key) marked in it.

        `before`: the same cells at `stage_before`, for the hover. `part`: outlined, and dragging
        draws a box.
        """
        limit = self.limit
        return remember(
            lambda: attention_map(
                attention,
                self.tokens,
                limit=limit,
                numbering_from=self.page.numbering,
                size=(size, size),
                before=before,
                selected=cell,
                part=None if part is None else (part.queries, part.keys),
                spans=self.spans,
            ),
            "map", *self.head_key, attention.stage, attention.block, attention.query_start,
            attention.key_start, tuple(attention.values.shape), limit, size, cell, part, self.spans,
            self.page.numbering,
        )  # fmt: skip

    @property
    def values(self) -> dict[Stage, float]:
        """The selected cell, which is not masked, at every stage of this head, the last one first."""
        query, key = self.selected.query, self.selected.key
        return remember(
            lambda: chain(self.page.trace, *self.head_key[1:], query, key), "cell", *self.head_key, query, key
        )


def file_parts(drawn: Drawn) -> tuple[object, ...]:
    """The first parts of file names; they count from 0 as the hook names do."""
    return state.selection().checkpoint, f"L{drawn.selected.layer}", f"H{drawn.selected.head}"


def predictions(page: Page, position: int) -> tuple[Prediction, ...]:
    """The ten likeliest tokens after `position`."""
    return remember(lambda: top_tokens(page.trace, position), "top", page.key, position)


def predictions_figure(page: Page, position: int) -> Figure:
    """The same as bars."""
    return remember(
        lambda: next_tokens(predictions(page, position), width=NEXT_PX), "bars", page.key, position
    )


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
    name, chosen = f"overview.{drawn.page.key}", pickers.on_overview(len(drawn.tokens))
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
    chart(figure, name, pickers.on_cell, alt=words)
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
