"""The chosen head's map in the original run, in the edited one, and their difference."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.differences import DifferenceMap, changed_map
from mta_viz.analysis.maps import AttentionMap, head_maps, shared_limit
from mta_viz.exporting.data import map_csv
from mta_viz.interventions.plans import Plan
from mta_viz.plots.attention import SMALL, attention_map
from mta_viz.plots.difference import difference_caption, difference_map
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.tracing import Trace
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_cell
from mta_viz.ui.crops import WHOLE_UP_TO
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.spans_view import spans_of
from mta_viz.ui.surgery.strip import edited_run
from mta_viz.ui.widgets import caption_with_save, chart, side_by_side

MAP_PX = 300
SIZE = (MAP_PX, MAP_PX)


def draw_maps(page: Page, selected: Selected, plan: Plan) -> None:
    """Three maps in a row; the first two share a scale."""
    edited = edited_run(page, plan) if plan else page.trace
    _Maps(page, selected, plan, {"original": page.trace, "edited": edited}).draw()


@dataclass(frozen=True)
class _Maps:
    """The head's map in both runs. Maps of more than 256 tokens are pooled."""

    page: Page
    selected: Selected
    plan: Plan
    runs: Mapping[str, Trace]

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What maps depend on."""
        return self.page.key, self.selected.layer, self.selected.head, self.selected.stage, self.plan

    @property
    def look_key(self) -> tuple[Hashable, ...]:
        """What figures depend on besides."""
        cell = (self.selected.query, self.selected.key)
        return self.page.numbering, self.page.first_token, spans_of(self.page), cell

    def draw(self) -> None:
        maps = {name: remember(partial(self._map, run), "edit map", name, *self.key)
                for name, run in self.runs.items()}  # fmt: skip
        limit = shared_limit(maps.values(), self.page.first_token)
        with side_by_side("edited"):
            for name, one in maps.items():
                with st.container():
                    self._draw_one(name, one, limit)
            with st.container():
                self._draw_difference()

    def _map(self, run: Trace) -> AttentionMap:
        layer, head, stage = self.selected.layer, self.selected.head, self.selected.stage
        return head_maps(run, layer, head, WHOLE_UP_TO)[stage]

    def _draw_one(self, name: str, one: AttentionMap, limit: float) -> None:
        figure = remember(
            lambda: attention_map(one, limit=limit, look=SMALL, **self._drawing()),
            "edit figure", name, *self.key, *self.look_key,
        )  # fmt: skip
        st.markdown(f"**{name.capitalize()}**")
        self._show(name, one, figure, f"One scale for both, to {limit_text(limit)}.")

    def _draw_difference(self) -> None:
        layer, head, stage = self.selected.layer, self.selected.head, self.selected.stage
        before, after = self.runs["original"], self.runs["edited"]
        found: DifferenceMap = remember(
            lambda: changed_map(before, after, layer, stage, head, WHOLE_UP_TO), "edit change", *self.key
        )
        limit = shared_limit([found], self.page.first_token)
        figure = remember(
            lambda: difference_map(found, limit=limit, **self._drawing()),
            "edit change figure", *self.key, *self.look_key,
        )  # fmt: skip
        st.markdown("**Edited minus original**")
        changed = bool(found.values.any())
        told = difference_caption(found, limit) if changed else "No cell of this map changed."
        self._show("difference", found, figure, told)

    def _drawing(self) -> dict[str, Any]:
        """Arguments all three figures share."""
        return {
            "tokens": self.page.trace.tokens,
            "numbering_from": self.page.numbering,
            "size": SIZE,
            "selected": (self.selected.query, self.selected.key),
            "spans": spans_of(self.page),
        }

    def _show(self, name: str, one: AttentionMap, figure: Figure, told: str) -> None:
        chart(
            figure,
            f"edit.{name}.{hash(self.key)}.{hash(self.look_key)}",
            on_cell if one.block == 1 else None,
            alt=f"The head's map, {name}",
            square=True,
        )
        where = (f"L{one.layer}", f"H{one.head}", one.stage.value.key)
        caption_with_save(
            told,
            ("surgery", *where, name),
            figure,
            lambda: map_csv(one, self.page.trace.tokens),
            f"edit.{name}",
        )
