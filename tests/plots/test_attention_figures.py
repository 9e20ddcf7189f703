"""Attention figures: what is drawn where, told from the figure's own data."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.pooling import Pooler
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.attention.maps import attention_map
from mta_viz.plots.attention.stages import stage_strip
from mta_viz.plots.attention.tokens import gate_map
from mta_viz.tokenizers.base import Tokens

MEGABYTE = 1_000_000


def tokens(count: int, pieces: tuple[str, ...] = ("the", "the", "<s>", "␣unbelievable")) -> Tokens:
    named = tuple(pieces[i % len(pieces)] for i in range(count))
    return Tokens(tuple(range(count)), named, ((0, 0),) * count, None)


def random_map(count: int, stage: Stage = Stage.KQ, **options: object) -> AttentionMap:
    values = torch.randn(count, count, generator=torch.Generator().manual_seed(count)).tril()
    return replace(AttentionMap(2, 1, stage, values, 0, 0, row_sums=(0.0, 1.0)), **options)


def pooled_map(count: int, block: int) -> AttentionMap:
    pooler = Pooler(block, count)
    pooler.add(random_map(count).values)
    pooled = pooler.result()
    return AttentionMap(2, 1, Stage.KQ, pooled.values, 0, 0, block, pooled=pooled)


def heat(figure: go.Figure) -> go.Heatmap:
    return next(trace for trace in figure.data if isinstance(trace, go.Heatmap))


def targets(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.meta == cells.TARGETS]


def hatches(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.type == "scatter" and trace.fill == "toself"]


def polygon_area(trace: go.Scatter) -> float:
    x, y = np.asarray(trace.x, float), np.asarray(trace.y, float)
    return abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2


def test_signed_maps_are_symmetric_about_zero_and_distributions_start_at_zero() -> None:
    signed = heat(attention_map(random_map(5), tokens(5), limit=2.0))
    assert (signed.zmin, signed.zmax) == (-2, 2)
    assert signed.colorscale[0][1] == "rgb(5,48,97)" and signed.colorscale[-1][1] == "rgb(103,0,31)"
    softmax = random_map(5, Stage.SOFTMAX, distribution=True)
    assert heat(attention_map(softmax, tokens(5), limit=2.0)).zmin == 0


def test_every_position_has_its_own_name_and_axes_with_cells_have_no_labels() -> None:
    figure = attention_map(random_map(300), tokens(300), limit=2.0, numbering=1)  # layers and heads only
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert len(axis.labelalias) == 300 and axis.ticktext is None and axis.showticklabels is False
        assert axis.labelalias["298"] == '298 "&lt;s&gt;"'
        assert axis.labelalias["299"] == '299 "␣unbelievable"'
    assert "%{x}" in heat(figure).hovertemplate and "%{y}" in heat(figure).hovertemplate


def test_repeated_tokens_do_not_merge_and_query_runs_down() -> None:
    figure = attention_map(random_map(6), tokens(6, ("a",)), limit=2.0)
    assert heat(figure).z.shape == (6, 6) and figure.layout.yaxis.range == (5.5, -0.5)
    assert figure.layout.xaxis2.ticktext == tuple(f"{i} a" for i in range(6))
    assert figure.layout.xaxis2.tickvals == tuple(range(6))


def test_the_future_is_one_staircase_and_no_value() -> None:
    figure = attention_map(random_map(4), tokens(4), limit=2.0)
    hatched = hatches(figure)
    assert len(hatched) == 1 and polygon_area(hatched[0]) == 6
    # Rows 0 to 2 have a future, and only there: the top right corner of the map.
    assert (min(hatched[0].y), max(hatched[0].y)) == (-0.5, 2.5)
    assert (min(hatched[0].x), max(hatched[0].x)) == (0.5, 3.5)
    assert np.isnan(heat(figure).z[np.triu_indices(4, 1)]).all()
    assert np.isfinite(heat(figure).z[np.tril_indices(4)]).all()


@pytest.mark.parametrize(("query_start", "key_start", "area"), [(9, 0, 0), (0, 9, 9), (1, 2, 6)])
def test_the_future_of_a_crop(query_start: int, key_start: int, area: float) -> None:
    crop = replace(random_map(3), query_start=query_start, key_start=key_start)
    figure = attention_map(crop, tokens(12), limit=2.0)
    hatched = hatches(figure)
    assert sum(map(polygon_area, hatched)) == area == int(crop.masked.sum())
    names = [f'{p} "{theme.escape(tokens(12).pieces[p])}"' for p in range(key_start, key_start + 3)]
    assert list(figure.layout.xaxis.labelalias.values()) == names


def test_bad_cells_are_crosses_and_zero_is_a_colour() -> None:
    values = torch.zeros(3, 3)
    values[1, 0], values[2, 1], values[0, 2] = float("nan"), float("inf"), float("nan")
    figure = attention_map(replace(random_map(3), values=values), tokens(3), limit=1.0)
    crosses = next(trace for trace in figure.data if trace.type == "scatter" and trace.marker.symbol == "x")
    assert sorted(zip(crosses.y, crosses.x, strict=True)) == [(1, 0), (2, 1)]
    assert crosses.marker.color == theme.BAD_COLOR
    drawn = heat(figure).z
    assert np.isnan(drawn[1, 0]) and np.isnan(drawn[2, 1]) and drawn[2, 0] == 0


def test_cells_beyond_the_limit_put_an_arrow_on_that_end_only() -> None:
    values = torch.tensor([[1.0, 0.0], [-9.0, 2.0]])
    bar = heat(attention_map(replace(random_map(2), values=values), tokens(2), limit=5.0)).colorbar
    assert bar.ticktext == ("◀ < −5", "0", "+5")


def test_click_targets_cover_every_cell_and_masked_ones_say_so() -> None:
    seen, masked = targets(attention_map(random_map(5), tokens(5), limit=2.0))
    assert len(seen.x) == 15 and len(masked.x) == 10
    assert seen.x.dtype == seen.y.dtype == np.uint8 and seen.customdata.dtype == np.float32
    assert all(key <= query for key, query in zip(seen.x, seen.y, strict=True))
    assert masked.hovertemplate.startswith("masked: key %{x} is after query %{y}")
    assert targets(attention_map(random_map(257), tokens(257), limit=2.0)) == []


def hover_at(figure: go.Figure, query: int, key: int) -> list[float]:
    seen = targets(figure)[0]
    at = np.flatnonzero((seen.x == key) & (seen.y == query))[0]
    return [float(number) for number in seen.customdata[at]]


def test_hover_numbers_of_a_score() -> None:
    values = torch.tensor([[5.0, 0, 0], [1, 2, 0], [3, 9, -1]])
    one = replace(random_map(3), values=values)
    figure = attention_map(one, tokens(3), limit=2.0, before=replace(one, values=values - 4))
    assert hover_at(figure, 2, 0) == [3, -1, 4, 2, 3]
    text = targets(figure)[0].hovertemplate
    assert "after key-query conv: %{customdata[0]:+.4g} (score)" in text
    assert "before: %{customdata[1]:+.4g} · change %{customdata[2]:+.4g}" in text
    assert "row rank %{customdata[3]:d} of %{customdata[4]:d}" in text


def test_hover_numbers_of_weights() -> None:
    values = torch.tensor([[1.0, 0], [-0.25, 0.75]])
    final = replace(random_map(2, Stage.PATTERN), values=values)
    figure = attention_map(final, tokens(2), limit=1.0)
    assert hover_at(figure, 1, 0) == [-0.25, 0.25, 0.5]
    assert "of |row|, row sums to" in targets(figure)[0].hovertemplate
    softmax = replace(random_map(2, Stage.SOFTMAX), values=values.abs(), distribution=True)
    assert hover_at(attention_map(softmax, tokens(2), limit=1.0), 1, 1) == [0.75, 0.75, 1, 2]


def test_a_pooled_map_says_so() -> None:
    attention = pooled_map(10, 4)
    figure = attention_map(attention, tokens(10, ("a", "b")), limit=2.0)
    assert figure.layout.xaxis.labelalias["9.5"] == "8-9 a … b"
    assert figure.layout.xaxis.hoverformat == ".1f" and "4 x 4 blocks" in figure.layout.annotations[-1].text
    seen = targets(figure)[0]
    at = np.flatnonzero((seen.x == 1.5) & (seen.y == 5.5))[0]
    value, query, key, mean = seen.customdata[at]
    assert value == attention.values[1, 0] == random_map(10).values[int(query), int(key)]
    assert mean == pytest.approx(float(random_map(10).values[4:8, 0:4].mean()), abs=1e-6)
    assert "draw a box to see exact cells" in seen.hovertemplate


def test_a_part_is_outlined_and_dragging_draws_a_box() -> None:
    figure = attention_map(random_map(100), tokens(100), limit=2.0, part=(slice(10, 40), slice(0, 30)))
    (box,) = figure.layout.shapes
    assert (box.y0, box.y1, box.x0, box.x1) == (9.5, 39.5, -0.5, 29.5)
    assert figure.layout.dragmode == "select"
    assert attention_map(random_map(5), tokens(5), limit=2.0).layout.dragmode == "zoom"


def test_all_cells_take_clicks_but_one_marker_is_drawn() -> None:
    both = targets(attention_map(random_map(20), tokens(20), limit=2.0))
    assert sum(len(one.x) for one in both) == 400
    assert all(one.type == "scatter" and one.marker.maxdisplayed == 1 for one in both)


def test_the_selection_is_labelled_and_framed() -> None:
    figure = attention_map(
        random_map(100), tokens(100), limit=2.0, selected=(57, 33), spans=[Span("x", "A", 71, 74)]
    )
    assert {57, 71} <= set(figure.layout.yaxis2.tickvals)
    assert {33, 71} <= set(figure.layout.xaxis2.tickvals)
    boxes = [shape for shape in figure.layout.shapes if shape.line.color in ("#000000", "#FFFFFF")]
    assert [(box.x0, box.x1, box.y0, box.y1) for box in boxes] == 2 * [(32.5, 33.5, 56.5, 57.5)]


def test_a_span_has_bars_along_both_axes_a_letter_and_an_outline_in_the_row() -> None:
    spans = [Span("needle", "A", 71, 74), Span("elsewhere", "B", 200, 210)]
    figure = attention_map(random_map(100), tokens(100), limit=2.0, selected=(57, 33), spans=spans)
    bars = [shape for shape in figure.layout.shapes if shape.fillcolor]
    assert [(bar.xref, bar.yref) for bar in bars] == [("paper", "y"), ("x", "paper")]
    assert (bars[0].y0, bars[0].y1) == (bars[1].x0, bars[1].x1) == (70.5, 73.5)
    (outline,) = [shape for shape in figure.layout.shapes if shape.line.color == bars[0].fillcolor]
    assert (outline.x0, outline.x1, outline.y0, outline.y1) == (70.5, 73.5, 56.5, 57.5)
    assert [note.x for note in figure.layout.annotations if note.text == "A"] == [72]
    assert not [note for note in figure.layout.annotations if note.text == "B"]  # not in this part


@pytest.mark.parametrize(
    "make", [lambda: random_map(512), lambda: pooled_map(1024, 4), lambda: pooled_map(1024, 2)]
)
def test_big_figures_stay_under_two_megabytes(make) -> None:
    attention = make()
    figure = attention_map(attention, tokens(1024), limit=2.0)
    assert len(figure.to_json()) < 2 * MEGABYTE


def test_the_richest_hovers_stay_under_two_megabytes() -> None:
    for stage in (Stage.KQ, Stage.PATTERN):
        figure = attention_map(random_map(256, stage), tokens(256), limit=2.0, before=random_map(256, stage))
        assert len(figure.to_json()) < 2 * MEGABYTE


def strip(**limits: float) -> go.Figure:
    stages = [Stage.RAW, Stage.KQ, Stage.SOFTMAX, Stage.PATTERN]
    maps = {stage: random_map(4, stage, distribution=stage is Stage.SOFTMAX) for stage in stages}
    ends = {"score": 5.0, "weight": 0.5} | limits
    return stage_strip(maps, {stage: ends[stage.value.unit] for stage in maps}, Stage.KQ)


def test_the_strip_draws_each_stage_to_its_limit() -> None:
    maps = [trace for trace in strip().data if isinstance(trace, go.Heatmap)]
    assert [(one.zmin, one.zmax) for one in maps] == [(-5, 5), (-5, 5), (0, 0.5), (-0.5, 0.5)]


def test_the_strip_names_what_the_layer_does_not_compute() -> None:
    words = " ".join(note.text for note in strip().layout.annotations)
    assert "no head mixing<br>before the softmax" in words and "no 2nd conv<br>in this layer" in words
    assert "no key-query conv" not in words
    for stage in Stage:
        assert (f"<b>{theme.escape(stage.value.short)}</b>" in words) is not stage.is_second


def test_each_thumbnail_is_one_click_target_that_names_its_stage() -> None:
    clicks = [trace for trace in strip().data if trace.meta == cells.TARGETS]
    assert [click.customdata[0] for click in clicks] == ["raw", "kq", "sm", "final"]


def test_big_maps_are_pooled_for_the_strip() -> None:
    maps = {stage: random_map(300, stage) for stage in Stage}
    figure = stage_strip(maps, dict.fromkeys(maps, 1.0), Stage.RAW)
    assert max(heat(figure).z.shape) <= 128


def test_a_gates_axis_title_stands_under_its_longest_label():
    named = Tokens(tuple(range(2000)), ("abcdefghij",) * 2000, ((0, 0),) * 2000, None)
    layout = gate_map(np.ones((2, 2000), np.float32), named, layer=0).layout
    assert layout.margin.b >= theme.text_px(layout.xaxis.ticktext) + 20
