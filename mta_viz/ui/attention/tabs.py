"""Views of the chosen head: predictions, differences, row and column, cells, and all heads at a glance."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.cells import TopCell, stage_before
from mta_viz.analysis.attention.changes import HeadStatistics
from mta_viz.analysis.attention.heads import HeadScores
from mta_viz.figures.attention import heads as figures
from mta_viz.figures.attention.heads import HeadScatter, HeadTiles, ScoreMap
from mta_viz.figures.attention.maps import RowStatistics, StageStrip, StepChange, changed_stages
from mta_viz.figures.attention.tokens import Column, Gate, Lens, NextToken, Row, TopCells
from mta_viz.figures.base import Source
from mta_viz.model.stages import Stage
from mta_viz.ui.attention.head import SCALE, SIDE, Head, chosen_span
from mta_viz.ui.linked.component import SIDES
from mta_viz.ui.shell import pickers, work
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.show import draw, save_line, show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, chart, explain, menu, row_table

ORDERS = {"value": "by |value|", "change": "by |change|", "contribution": "by |value| x value norm"}
BY = Setting("cells by", "value")
LENS, GATE = Setting("lens", False), Setting("gate", False)
WIDTH = 460  # of a difference, of each side of the predictions, and of what is drawn of all heads
ASK_FROM = 1024  # tokens: one pass over all layers takes long enough to be asked for
AS = _, MAPS = ("scores", "maps")
HEADS_AS, STEP = Setting("heads as", AS[0]), Setting("changed step", "")
ALL, _ = GRIDS = ("all layers", "this layer")
AXES = {
    "Score": (Setting("score", ""), "Of the map, the table and the colour of the points."),
    "Across": (Setting("scatter x", "distance"), "The horizontal axis of the points."),
    "Up": (Setting("scatter y", ""), "The vertical axis of the points."),
}
GRID, OWN = Setting("tiles of", ALL), Setting("tiles own", True)


def draw_cells(head: Head) -> None:
    """The cells that stand out; a row chooses its cell."""
    stage = head.selected.stage
    before = stage_before(head.page.trace, head.selected.layer, stage)
    there = {"value": True, "change": before is not None, "contribution": stage is Stage.PATTERN}
    orders = [name for name in ORDERS if there[name]]
    by = bar("Largest", {name: ORDERS[name] for name in orders}, BY)
    figure = draw(head.source, TopCells(**head.stage, by=by, first_token=head.page.first_token))
    cells: tuple[TopCell, ...] = figure.result
    key = head.widget("cells", *head.stage.values(), by, head.page.first_token)
    rows = [_cell_row(head, cell) for cell in cells]
    row_table(key, rows, cells, lambda cell: pickers.go_to(query=cell.query, key=cell.key))
    save_line(figure, f"Choose a row to select the cell. {figure.caption}")


def _cell_row(head: Head, cell: TopCell) -> dict[str, object]:
    pieces = head.tokens.pieces
    in_unit = f"({head.selected.stage.value.unit})"
    numbers = {f"value {in_unit}": cell.value, f"change {in_unit}": cell.change}
    numbers["contribution"] = cell.contribution
    shown = {name: float(f"{value:.5g}") for name, value in numbers.items() if value is not None}
    return {"query": f"{cell.query} {pieces[cell.query]}", "key": f"{cell.key} {pieces[cell.key]}", **shown}


def draw_difference(head: Head) -> None:
    """All stages side by side, and what each step changed."""
    source = head.source
    spec = StageStrip(**head.stage, first_token=head.page.first_token, scale=SCALE.value)
    strip = draw(source, spec)
    chart(strip.figure, "strip", pickers.on_stage, alt=strip.caption, stretch=True)
    save_line(strip, f"Click one to see it large. {strip.caption}")
    stages = changed_stages(source, *head.place.values())
    if not stages:
        caption("This layer has neither a key-query kernel nor head mixing: no step changes its map.")
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDTH):
            if stages:
                _draw_step(head, [*stages])
        with st.container(width=WIDTH):
            figure = draw(source, RowStatistics(**head.place))
            st.dataframe(_statistics(figure.result), hide_index=True)
            save_line(figure)


def _statistics(result: HeadStatistics) -> list[dict[str, str]]:
    """A line a fact, a column a stage: narrow enough to stand beside a map."""
    names = [stage.value.short for stage in result.stages]
    (_, _, *facts), rows = result.summary().columns, result.summary().rows
    columns = zip(
        *([f"{fact:.3g}" if fact is not None else "" for fact in row[2:]] for row in rows), strict=True
    )
    return [
        {"rows": fact} | dict(zip(names, line, strict=True))
        for fact, line in zip(facts, columns, strict=True)
    ]


def _draw_step(head: Head, stages: Sequence[Stage]) -> None:
    """What one step changed; the softmax changes the unit, so that across it there is no difference."""
    names = {stage.value.key: stage.value.short for stage in stages}
    usual = head.selected.stage if head.selected.stage in stages else stages[0]
    stage = bar("Changed by the step to", names, STEP, default=usual.value.key)
    spec = StepChange(**head.place | {"stage": stage}, **head.cell, **head.ranges, **head.looks, size=WIDTH)
    show(head.source, spec, pickers.on_cell, widget=head.widget("difference", stage, head.part))


def draw_rows(head: Head) -> None:
    """The query's row or the key's column, whichever colours the text."""
    side = bar("Bars", SIDES, SIDE, label_visibility="collapsed")
    kind, field, own = (Row, "key", "query") if side == SIDES[0] else (Column, "query", "key")
    figure, at = draw(head.source, kind(**head.place, **head.cell, **head.looks)), head.cell[own]
    widget, chosen = head.widget(kind.name, at), pickers.on_position(field, **{own: at})
    chart(figure.figure, widget, chosen, alt="Bars over the tokens, one row a stage")
    save_line(figure, f"Click a bar to select that {field}. {figure.caption}")


def draw_next_token(head: Head) -> None:
    """The next token, with the logit lens and the gate where they are asked for."""
    source, query = head.source, head.selected.query
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=WIDTH):
            show(source, NextToken(query), widget="next")
        with st.container(width=WIDTH):
            if st.toggle("Logit lens", **LENS.widget()):
                lines = draw(source, Lens(query, "lines"))
                chart(lines.figure, "lens.lines", alt="How probable the last layer's tokens become")
                show(source, Lens(query), widget="lens")
            gated = head.page.model.config.mta.gate
            if gated and st.toggle("Gate of this layer", **GATE.widget()):
                show(source, Gate(**head.place, position=query), widget="gate")


def draw_heads(head: Head) -> None:
    """All heads by what they do on this prompt."""
    if bar("Heads as", AS, HEADS_AS, label_visibility="collapsed") == MAPS:
        _draw_tiles(head)
        return
    about: dict[str, Any] = {"query": head.selected.query, "span": chosen_span(head)}
    key = figures.scores_key(head.source, **about)
    scores = _measured(head, "Score all heads", key, partial(figures.scores_of, **about))
    if scores is not None:
        _draw_scores(head, scores, about | {"selected": tuple(head.place.values())})


def _measured(head: Head, words: str, key: tuple[Hashable, ...], make: Callable[[Source], Any]) -> Any | None:
    """What a pass over all layers gives, kept under its figures' key; asked for on long prompts."""

    def do(beside: work.Work, keep: Keep) -> Any:
        return make(replace(head.source, progress=beside.report))

    long = f"One pass over every layer of {len(head.tokens):,} tokens."
    asked = len(head.tokens) > ASK_FROM
    return measured(Measurement(words, (head.page.key, *key), words, do, long, by_itself=not asked))


def _draw_scores(head: Head, scores: HeadScores, about: dict[str, Any]) -> None:
    names = {score.key: f"{score.name} ({score.unit})" for score in scores.scores}
    best = figures.informative(scores)
    usual = {"Score": best, "Across": "distance", "Up": best}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        score, across, up = (
            menu(label, names, setting, default=usual[label], width=290, help=words)
            for label, (setting, words) in AXES.items()
        )
    axes: dict[str, Any] = {"across": across, "up": up, "colour": score}
    with st.container(horizontal=True):
        with st.container(width=WIDTH):
            _show(head, ScoreMap(**about, score=score), "Click a head to open it. Hatched: no such value.")
        with st.container(width=WIDTH):
            _show(head, HeadScatter(**about, **axes), "Point at one for its numbers, click to open it. {}")
    chosen = [figures.definition(scores, key) for key in dict.fromkeys(axes.values())]
    explain("What these scores are", "\n\n".join(chosen))


def _show(head: Head, spec: ScoreMap | HeadScatter | HeadTiles, words: str) -> None:
    """A figure of all heads, of which a click opens one; {} in the words is its caption."""
    figure, widget = draw(head.source, spec), head.widget(spec.name, *spec.file_parts(), spec.selected)
    chart(figure.figure, widget, pickers.on_head, alt=figure.caption)
    save_line(figure, words.format(figure.caption))


def _draw_tiles(head: Head) -> None:
    stage, layer = head.selected.stage, head.selected.layer
    with st.container(horizontal=True, vertical_alignment="center"):
        grid = bar("Maps of", GRIDS, GRID, label_visibility="collapsed")
        own = st.toggle("Own colour scale for each head", **OWN.widget())
    of = None if grid == ALL else layer
    make = partial(figures.tiles_of, stage=stage, layer=of)
    if _measured(head, "Pool all maps", figures.tiles_key(stage, of), make) is not None:
        selected, first = (layer, head.selected.head), head.page.first_token
        _show(head, HeadTiles(stage.value.key, of, own, first, selected), "Click one to open it. {}")
