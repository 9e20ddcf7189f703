"""What the Attention page shows of one head, computed once and remembered: maps, limits, figures."""

from collections.abc import Mapping
from dataclasses import dataclass

from mta_viz.analysis.decomposition import chain
from mta_viz.analysis.maps import AttentionMap, exact_map, head_maps, shared_limit
from mta_viz.analysis.predictions import Prediction, top_tokens
from mta_viz.analysis.spans import Span
from mta_viz.model.stages import Stage, Unit
from mta_viz.plots.attention import attention_map, stage_strip
from mta_viz.plots.predictions import next_tokens
from mta_viz.plots.theme import Figure
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.crops import WHOLE_UP_TO, Crop, around
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected

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
        chosen = state.get("crop")
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
    return state.view().checkpoint, f"L{drawn.selected.layer}", f"H{drawn.selected.head}"


def predictions(page: Page, position: int) -> tuple[Prediction, ...]:
    """The ten likeliest tokens after `position`."""
    return remember(lambda: top_tokens(page.trace, position), "top", page.key, position)


def predictions_figure(page: Page, position: int) -> Figure:
    """The same as bars."""
    return remember(
        lambda: next_tokens(predictions(page, position), width=NEXT_PX), "bars", page.key, position
    )
