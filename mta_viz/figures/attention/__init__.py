"""Figures of one prompt's attention, and those that files saved before figures had names speak of.

`maps` has the maps of one head, `heads` all heads at a glance, `tokens` cells, rows and positions,
`kernels` what a kernel does on the prompt.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mta_viz.analysis.attention.heads import largest_key
from mta_viz.analysis.attention.maps import AROUND_SIZE, centred
from mta_viz.analysis.attention.spans import Span, needle_spans
from mta_viz.errors import MtaVizError
from mta_viz.figures.attention import heads, kernels, maps, tokens  # noqa: F401  (they get their names)
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.model.stages import Stage

Older = Callable[[dict[str, str], Source], NamedFigure[Any]]


@dataclass(frozen=True)
class _View:
    """A page's address as it was: what it says, and the page's defaults for what it leaves out."""

    view: dict[str, Any]
    source: Source

    @property
    def head(self) -> dict[str, Any]:
        """Layer and head, which the page always wrote down. Raises MtaVizError where they are missing."""
        try:
            return {"layer": int(self.view["l"]), "head": int(self.view["h"])}
        except (KeyError, ValueError) as error:
            raise MtaVizError("the file does not say which layer and head its figure is of") from error

    @property
    def stage(self) -> dict[str, Any]:
        return self.head | {"stage": self.view.get("s", "final")}

    @property
    def cell(self) -> dict[str, Any]:
        """Query and key: by default the last token, and its largest key."""
        last = len(self.source.trace.tokens) - 1
        query, key = min(int(self.view.get("q", last)), last), self.view.get("k")
        if key is not None and int(key) <= last:
            return {"query": query, "key": int(key)}
        layer, head = self.head.values()
        stage = maps.stage_of(self.source, layer, self.stage["stage"])
        return {
            "query": query,
            "key": largest_key(self.source.trace, layer, head, stage, query, by_size=True),
        }

    @property
    def limits(self) -> dict[str, Any]:
        return {"first_token": self.view.get("first_token") == "true"}

    @property
    def looks(self) -> dict[str, Any]:
        return self.limits | {"spans": self._spans()}

    def _spans(self) -> tuple[Span, ...]:
        if "spans" in self.view:
            return tuple(Span(*row) for row in json.loads(self.view["spans"]))
        return needle_spans(self.source.trace.tokens)

    @property
    def part(self) -> dict[str, Any]:
        """The exact part of a long prompt, around the cell where none was chosen."""
        n_tokens = len(self.source.trace.tokens)
        if n_tokens <= maps.WHOLE_UP_TO:
            return {}
        if "crop" in self.view:
            top, bottom, left, right = map(int, self.view["crop"].split(","))
            return {"queries": (top, bottom), "keys": (left, right)}
        query, key = (centred(position, n_tokens, AROUND_SIZE) for position in self.cell.values())
        return {"queries": query, "keys": key}

    @property
    def scores(self) -> dict[str, Any]:
        spans = {f"{span.letter} {span.name}": span for span in self._spans()}
        asked = next((name for name in spans if name.endswith("(asked)")), "none")
        span = spans.get(self.view.get("span", asked))
        return {"query": self.cell["query"], "span": span, "selected": tuple(self.head.values())}

    @property
    def axes(self) -> dict[str, Any]:
        measured = heads.scores_of(self.source, self.cell["query"], self.scores["span"])
        return {
            "across": self.view.get("scatter x", "distance"),
            "up": self.view.get("scatter y", heads.informative(measured)),
            "colour": self.view.get("score", next(iter(measured.values))),
        }

    @property
    def map(self) -> maps.HeadMap:
        return maps.HeadMap(**self.stage, **self.looks, scale=self.view.get("scale", "this map"))

    @property
    def text(self) -> tokens.AttentionText:
        side = self.view.get("text side", "from the query")
        position = self.cell["query" if side == "from the query" else "key"]
        return tokens.AttentionText(**self.stage, position=position, side=side, **self.looks)

    @property
    def tiles(self) -> heads.HeadTiles:
        layer, head = self.head.values()
        one_layer = None if self.view.get("tiles of", "all layers") == "all layers" else layer
        own = self.view.get("tiles own", "true") == "true"
        stage, selected = self.stage["stage"], (layer, head)
        return heads.HeadTiles(stage, one_layer, own_scale=own, **self.limits, selected=selected)

    def difference(self, stage: Stage) -> maps.StepChange:
        shown = self.head | self.cell | self.part | self.looks
        return maps.StepChange(**shown, stage=stage.value.key)


def _older(make: Callable[[_View], NamedFigure[Any]]) -> Older:
    return lambda view, source: make(_View(view, source))


_MAKE: dict[str, Callable[[_View], NamedFigure[Any]]] = {
    "map": lambda old: replace(old.map, **old.cell, **old.part),
    "overview": lambda old: replace(old.map, outlined=tuple(old.part.values()) or None),
    "strip": lambda old: maps.StageStrip(**old.stage, **old.limits),
    "scores": lambda old: heads.ScoreMap(**old.scores, score=old.axes["colour"]),
    "scatter": lambda old: heads.HeadScatter(**old.scores, **old.axes),
    "tiles": lambda old: old.tiles,
    "why": lambda old: tokens.Why(**old.stage, **old.cell),
    "bars.keys": lambda old: tokens.Row(**old.head, **old.cell, **old.looks),
    "bars.queries": lambda old: tokens.Column(**old.head, **old.cell, **old.looks),
    "text": lambda old: old.text,
    "next": lambda old: tokens.NextToken(old.cell["query"]),
    "lens": lambda old: tokens.Lens(old.cell["query"]),
    "table.cells": lambda old: tokens.TopCells(
        **old.stage, by=old.view.get("cells by", "value"), **old.limits
    ),
    "table.facts": lambda old: maps.RowStatistics(**old.head),
    **{f"difference.{stage.value.key}": partial(_View.difference, stage=stage) for stage in Stage},
}
OLDER: dict[str, Older] = {key: _older(make) for key, make in _MAKE.items()}
