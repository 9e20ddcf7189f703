"""Bars over tokens, head tiles, score maps and the logit lens, told from the figures' own data."""

import itertools
import math
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from mta_viz.analysis.attention.cells import CrossSection, LogitLens, Prediction
from mta_viz.analysis.attention.heads import SCORES, HeadScores
from mta_viz.analysis.attention.patterns import MAX_CELLS, Thumbnails
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.attention.heads import head_tiles, score_map, value_text
from mta_viz.plots.attention.stages import MAX_BARS, Ends, section_bars, section_ends
from mta_viz.plots.attention.tokens import depth_names, lens_lines, lens_tokens
from mta_viz.plots.cause import sweep_map
from mta_viz.plots.parts import OTHERS
from mta_viz.tokenizers.base import Tokens


def tokens(count: int) -> Tokens:
    return Tokens(tuple(range(count)), tuple("ab<"[i % 3] for i in range(count)), ((0, 0),) * count, None)


def section(**stages: list[float]) -> CrossSection:
    values = {Stage[name]: torch.tensor(row) for name, row in stages.items()}
    count = len(next(iter(values.values())))
    return CrossSection(2, 1, "keys", count - 1, 0, values)


BOTH = section(RAW=[9.0, -2.0, 1.0], KQ=[1.0, 4.0, math.nan], SOFTMAX=[0.5, 0.25, 0.25])


def up_to(score: float) -> dict[Stage, Ends]:
    return {stage: (-score, score) if stage.value.unit == "score" else (0.0, 1.0) for stage in Stage}


def targets(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.meta == cells.TARGETS]


def bars(figure: go.Figure) -> list[go.Bar]:
    return [trace for trace in figure.data if isinstance(trace, go.Bar)]


def test_stages_are_rows_over_one_token_axis() -> None:
    figure = section_bars(BOTH, tokens(3), ends=up_to(10.0))
    found = bars(figure)
    assert [bar.yaxis for bar in found] == ["y", "y2", "y3"] and {bar.xaxis for bar in found} == {"x"}
    assert found[0].y.tolist() == [9, -2, 1] and found[1].y.tolist() == [1, 4, 0]
    assert list(found[0].marker.color) == [theme.POSITIVE_COLOR, theme.NEGATIVE_COLOR, theme.POSITIVE_COLOR]
    tops = [figure.layout[name].domain[1] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert tops == sorted(tops, reverse=True)
    assert figure.layout.xaxis.labelalias["2"] == '2 "&lt;"'


def test_a_stage_has_its_own_scale_and_only_signed_ones_go_below_zero() -> None:
    own = section_ends(BOTH)
    assert own == {Stage.RAW: (-10.0, 10.0), Stage.KQ: (0.0, 5.0), Stage.SOFTMAX: (0.0, 0.5)}
    layout = section_bars(BOTH, tokens(3), ends=own).layout
    ranges = layout.yaxis.range, layout.yaxis2.range, layout.yaxis3.range
    assert ranges == ((-10.8, 10.8), (0, 5.4), (0, 0.54))


def test_stages_of_a_unit_share_a_scale_where_they_are_compared() -> None:
    ends = section_ends(BOTH, shared=True)
    assert ends == {Stage.RAW: (-10.0, 10.0), Stage.KQ: (-10.0, 10.0), Stage.SOFTMAX: (0.0, 0.5)}


def test_limits_hold_all_bars_or_all_but_the_first() -> None:
    assert section_ends(BOTH, first_token=False, shared=True)[Stage.RAW] == (-5.0, 5.0)  # of 4
    assert section_ends(BOTH, first_token=False)[Stage.RAW] == (-2.0, 2.0)


def test_bars_beyond_the_limit_have_a_triangle_and_nan_a_cross() -> None:
    figure = section_bars(BOTH, tokens(3), ends=up_to(1.5))
    scatters = [trace for trace in figure.data if isinstance(trace, go.Scatter) and trace.meta is None]
    marks = {(t.yaxis, t.marker.symbol): t.x.tolist() for t in scatters if t.marker.symbol is not None}
    assert marks == {
        ("y", "triangle-up"): [0], ("y", "triangle-down"): [1], ("y2", "triangle-up"): [1], ("y2", "x"): [2],
    }  # fmt: skip


def test_every_token_of_every_stage_takes_clicks() -> None:
    shifted = replace(BOTH, along="queries", start=5, position=5)
    seen = targets(section_bars(shifted, tokens(9), ends=up_to(1.5)))
    assert [one.x.tolist() for one in seen] == [[5, 6, 7]] * 3
    assert seen[0].customdata.tolist() == [9, -2, 1]
    assert seen[2].hovertemplate.startswith("query %{x}<br>softmax: %{customdata:.4g} (weight)")


def test_long_rows_are_outlines_with_the_same_heights() -> None:
    values = torch.linspace(-1, 1, MAX_BARS + 1)
    figure = section_bars(section(RAW=values.tolist()), tokens(MAX_BARS + 1), ends=up_to(1.0))
    up, down = [t for t in figure.data if t.type == "scatter" and t.fill == "tozeroy"]
    np.testing.assert_allclose(up.y[1:-1] + down.y[1:-1], values.numpy(), atol=1e-6)
    assert (up.x[0], up.x[-1]) == (-0.5, MAX_BARS + 0.5) and not bars(figure)
    assert up.y.min() == 0 and down.y.max() == 0 and up.line.shape == "hvh"


def test_the_longest_rows_stay_under_two_megabytes() -> None:
    rows = {stage.name: torch.randn(4096).tolist() for stage in Stage}
    figure = section_bars(section(**rows), tokens(4096), ends=up_to(1.0), selected=7)
    assert len(figure.to_json()) < 2_000_000
    assert {shape.x0 for shape in figure.layout.shapes} == {7} and 7 in figure.layout.xaxis2.tickvals


def thumbnails(side: int = 3, layers: tuple[int, ...] = (1, 3), stage: Stage = Stage.KQ) -> Thumbnails:
    values = torch.zeros(len(layers), 2, side, side)
    for place, layer in enumerate(layers):
        for head in range(2):
            values[place, head] = torch.full((side, side), 10.0 * layer + head).tril()
    return Thumbnails(stage, layers, (0, 2) if layers == (1, 3) else (), 4, stage is Stage.SOFTMAX, values)


def heat(figure: go.Figure) -> go.Heatmap:
    return next(trace for trace in figure.data if isinstance(trace, go.Heatmap))


def test_each_head_is_a_tile_at_its_layer_and_head() -> None:
    figure = head_tiles(thumbnails(), limit=20.0)
    z = heat(figure).z
    assert z.shape == (4 * 5 - 2, 2 * 5 - 2)
    assert z[5, 0] == 10 and z[7, 7] == 11 and z[15, 0] == 30 and z[17, 7] == 31  # layers 1 and 3
    assert np.isnan(z[5, 1]) and np.isnan(z[:4]).all() and np.isnan(z[:, 3:5]).all()
    assert (heat(figure).zmin, heat(figure).zmax) == (-20, 20)
    assert figure.layout.yaxis.ticktext == ("L0", "L1", "L2", "L3")
    assert head_tiles(thumbnails(), limit=20.0, numbering=1).layout.xaxis.ticktext == ("H1", "H2")


def test_a_tile_is_one_target_that_names_its_head() -> None:
    (seen,) = targets(head_tiles(thumbnails(), limit=20.0))
    assert seen.customdata.tolist() == [[layer, head] for layer in range(4) for head in (0, 1)]
    assert (seen.x[3], seen.y[3]) == (6, 6)  # layer 1, head 1
    assert "no such stage" in seen.text[0] and seen.text[3].startswith("L1 H1<br>largest |score| 11")


def hatches(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.type == "scatter" and trace.fill == "toself"]


def area(x: list[float], y: list[float]) -> float:
    return abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2


def test_masked_corners_and_lacking_layers_are_hatched() -> None:
    (hatch,) = hatches(head_tiles(thumbnails(), limit=20.0))
    ends = [-1, *np.flatnonzero(np.isnan(hatch.x)).tolist()]
    areas = [area(hatch.x[a + 1 : b], hatch.y[a + 1 : b]) for a, b in itertools.pairwise(ends)]
    assert areas == [9, 9, 3, 3, 9, 9, 3, 3]


def test_tiles_on_their_own_scales_have_equal_colours() -> None:
    figure = head_tiles(thumbnails(), limit=1.0, own_scale=True)
    assert heat(figure).z[5, 0] == 1 and heat(figure).zmax == 1  # 10 of 10
    assert heat(figure).z[15, 0] == pytest.approx(30 / 50)
    assert heat(figure).colorbar.ticktext[-1] == "+ own limit"


def test_the_selected_tile_is_framed_and_nan_crossed() -> None:
    bad = thumbnails()
    values = bad.values.clone()
    values[0, 1, 2, 0] = math.nan
    figure = head_tiles(replace(bad, values=values), limit=20.0, selected=(3, 0))
    (frame,) = [box for box in figure.layout.shapes if box.line.color == theme.SELECTED_COLOR]
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (-0.5, 2.5, 14.5, 17.5)
    (cross,) = [trace for trace in figure.data[1:] if trace.marker.color == theme.BAD_COLOR]
    assert (cross.x, cross.y) == ((6.0,), (6.0,))
    assert "NaN or inf in 1 blocks" in targets(figure)[0].text[3]


def test_distributions_start_at_zero_and_no_layer_is_no_error() -> None:
    assert heat(head_tiles(thumbnails(layers=(0, 1), stage=Stage.SOFTMAX), limit=1.0)).zmin == 0
    none = Thumbnails(Stage.MIX, (), (0, 1), 4, False, torch.zeros(0, 2, 3, 3))
    assert "no such stage" in targets(head_tiles(none, limit=1.0))[0].text[0]


def test_large_models_stay_under_two_megabytes() -> None:
    side = math.isqrt(MAX_CELLS // (24 * 16))
    many = Thumbnails(Stage.KQ, tuple(range(24)), (), 4, False, torch.randn(24, 16, side, side))
    assert len(head_tiles(many, limit=1.0).to_json()) < 2_000_000


def scores() -> HeadScores:
    values = {"gain.kq": [[1.5, -3.0], [math.nan, math.nan]], "distance": [[12.0, 3.0], [1.0, 2.0]]}
    table = {key: torch.tensor(rows) for key, rows in values.items()}
    return HeadScores(3, None, table, torch.zeros(2, 2, dtype=torch.long), {})


def test_a_score_map_has_numbers_and_a_scale_of_its_kind() -> None:
    signed, size = score_map(scores(), "gain.kq"), score_map(scores(), "distance")
    assert (heat(signed).zmin, heat(signed).zmax) == (-5, 5) and (heat(size).zmin, heat(size).zmax) == (0, 20)
    assert list(heat(signed).text[0]) == ["+1.5", "-3"] and heat(signed).texttemplate == "%{text}"
    assert heat(score_map(scores(), "distance", width=110)).texttemplate is None
    (seen,) = targets(signed)
    assert seen.customdata.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]] and seen.x.tolist() == [0, 1, 0, 1]
    assert seen.text[0] == "L0 H0<br>gain on span, kq: +1.5 nats" and "not measured here" in seen.text[2]
    (hatch,) = hatches(signed)
    assert np.nanmin(hatch.y) == 0.5 and not hatches(size)


def test_values_are_written_with_their_sign_where_they_have_one() -> None:
    by_key = {score.key: score for score in SCORES}
    written = {
        key: value_text(by_key[key], 0.25)
        for key in (
            "previous",
            "gain.kq",
            "span.sm",
            "change.kq",
            "mass.final",
            "keys",
            "span.raw",
            "negative",
        )
    }
    assert written == {
        "previous": "+0.250", "gain.kq": "+0.25", "span.sm": "0.250", "change.kq": "0.250",
        "mass.final": "+0.250", "keys": "0.25", "span.raw": "+0.25", "negative": "0.250",
    }  # fmt: skip
    assert value_text(by_key["keys"], math.nan) == "–"


def lens() -> LogitLens:
    top = (
        (Prediction(1, "<b>", 0.5), Prediction(2, "␣c", 0.2)),
        (Prediction(2, "␣c", 0.9), Prediction(1, "<b>", 0.05)),
    )
    logits, probabilities = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([[0.5, 0.2], [0.05, 0.9]])
    return LogitLens(4, (1, 2), ("<b>", "␣c"), logits, probabilities, torch.tensor([[1, 2], [200, 1]]), top)


def test_a_line_a_token_over_the_depths() -> None:
    figure = lens_lines(lens(), numbering=1)
    assert [[*map(float, trace.y)] for trace in figure.data] == [
        [0.5, pytest.approx(0.05)],
        pytest.approx([0.2, 0.9]),
    ]
    assert [trace.name for trace in figure.data] == ["&lt;b&gt;", "␣c"] and figure.layout.showlegend
    assert figure.layout.xaxis.ticktext == ("embed", "L1") == tuple(depth_names(lens(), 1))
    assert figure.data[0].text[1] == '"&lt;b&gt;" (token 1)<br>logit +3 · probability 0.050 · rank 200'
    styles = [(trace.line.color, trace.line.dash) for trace in figure.data]
    assert len(set(styles)) == 2


def test_the_most_probable_tokens_of_every_depth() -> None:
    grid = heat(lens_tokens(lens()))
    assert list(map(list, grid.text)) == [["&lt;b&gt;", "␣c"], ["␣c", "&lt;b&gt;"]]
    np.testing.assert_allclose(grid.z, [[0.5, 0.2], [0.9, 0.05]])


def test_spans_are_outlined_over_the_bars_with_their_letters() -> None:
    spans = (Span("first", "A", 0, 2), Span("gone", "B", 5, 7))
    figure = section_bars(BOTH, tokens(3), ends=up_to(10.0), spans=spans)
    frames = [shape for shape in figure.layout.shapes if shape.type == "rect" and shape.line.width == 1]
    assert [(frame.x0, frame.x1, frame.line.color) for frame in frames] == [(-0.5, 1.5, OTHERS[0].line)]
    letters = [one for one in figure.layout.annotations if one.text in ("A", "B")]
    assert [(letter.text, letter.x) for letter in letters] == [("A", 0.5)]


def test_numbers_of_a_map_have_the_digits_of_its_scale_and_none_where_it_has_no_colour() -> None:
    values = np.array([[-0.01972, 0.00758, 1e-7, 0.0], [0.0005, -0.0005, 0.01, math.nan]])
    figure = sweep_map("x", values, limit=0.02, unsure=((1, 0), (1, 2)))
    (first, second), pale = heat(figure).text, theme.pale
    assert list(first) == ["-0.0197", "+0.0076", pale("~0"), "0"]
    assert list(second) == [pale("+0.0005"), "-0.0005", "+0.01", "–"]  # what is dark keeps dark letters
    hovers = [text for trace in targets(figure) for text in trace.text]
    assert "L0 H1<br>x: +0.00758 nats" in hovers
    tiny = heat(sweep_map("x", values / 1000, limit=2e-5)).text
    assert list(tiny[0][:2]) == ["-2e-05", "+8e-06"]
