"""The chosen head's map in the original run, in the edited one, and their difference.

Patch: a head at a stage gets what it holds in another prompt's run; and each head so in turn.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.changes import DifferenceMap, changed_map
from mta_viz.analysis.attention.maps import AttentionMap, head_maps, shared_limit
from mta_viz.analysis.cause.sweeps import heads_patched
from mta_viz.errors import MtaVizError
from mta_viz.exporting.data import map_csv, sweep_csv
from mta_viz.model.interventions import HOOKS, PatchHead
from mta_viz.model.plans import Plan
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map, difference_caption, difference_map
from mta_viz.plots.cause import sweep_map
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.run.tracing import Trace, tokenize
from mta_viz.tokenizers.pasted import ids_from_text
from mta_viz.ui.attention.spans import spans_of
from mta_viz.ui.shell import plan, state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import WHOLE_UP_TO, Selected, on_cell, on_head
from mta_viz.ui.shell.plan import edited_run
from mta_viz.ui.shell.widgets import (
    caption,
    caption_with_save,
    chart,
    head_label,
    layer_label,
    plain,
    side_by_side,
)
from mta_viz.ui.surgery.board import meter_of
from mta_viz.ui.surgery.sweeps import MAP_PX, grid, swept

EDITED_MAP_PX = 300
SIZE = (EDITED_MAP_PX, EDITED_MAP_PX)


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


OUTPUT = "output (weighted values)"


def draw_patch(page: Page, selected: Selected) -> None:
    """The other prompt, the stage, Add; then the map of every head patched in turn."""
    caption(
        "Activation patching: the chosen head gets what it holds when the original model runs another "
        "prompt, position by position. Change one word (another asked city, another number) and see "
        "which heads carry it."
    )
    other = _other_prompt(page)
    if other is None:
        return
    stages = [
        key
        for key in HOOKS
        if not PatchHead(selected.layer, selected.head, key, other).problems(page.model.config)
    ]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        stage = st.selectbox(
            "Stage", stages, format_func=_stage_words, width=320, **state.kept("patch stage", "z", stages)
        )
        patch = PatchHead(selected.layer, selected.head, stage, other)
        head = f"{layer_label(selected.layer, page.numbering)} {head_label(selected.head, page.numbering)}"
        st.button(f"Patch {head}", key="patch.add", on_click=plan.add, args=(patch,))
    _draw_every_head(page, selected, other)


def _stage_words(key: str) -> str:
    return OUTPUT if key == "z" else Stage.from_key(key).value.long


def _other_prompt(page: Page) -> str | tuple[int, ...] | None:
    """What is typed, if it can be patched from; else it is said why not."""
    tokens = page.trace.tokens
    own = tokens.text if tokens.text is not None else ", ".join(map(str, tokens.ids))
    if state.get("other prompt of", page.key) != page.key:
        state.put("other prompt", own)
    state.put("other prompt of", page.key)
    typed = st.text_area("Other prompt", height=140, **state.kept("other prompt", own))
    try:
        other = typed if tokens.text is not None else ids_from_text(typed)
        count = len(tokenize(page.model, other)) if other else 0
    except MtaVizError as error:
        st.error(plain(str(error)))
        return None
    if count != len(tokens):
        st.warning(
            f"The other prompt has {count:,} tokens, this one {len(tokens):,}; they must be equally many."
        )
        return None
    if typed == own:
        st.info("This is the prompt itself: change a word of it, keeping the number of tokens.")
        return None
    return other


def _draw_every_head(page: Page, selected: Selected, other: str | tuple[int, ...]) -> None:
    tried, place = heads_patched(page.model.config, other), (selected.layer, selected.head)
    rows = swept(
        page, meter_of(page), f"heads patched from {other}", tried, "Patch each head's output in turn"
    )
    if rows is None:
        return
    figure = sweep_map(
        "Change, output patched",
        grid(page, list(rows)),
        selected=place,
        numbering_from=page.numbering,
        width=MAP_PX,
    )
    chart(figure, f"patch.{page.key}.{hash(other)}", on_head, alt="Change by patching each head's output")
    caption_with_save(
        "Each head's output patched alone: what that adds to the log-probability of this prompt's answer. "
        "Brown: the answer loses. Click a head to choose it.",
        ("patched",),
        figure,
        lambda: sweep_csv(rows),
        "patched",
    )
