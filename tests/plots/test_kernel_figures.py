"""Kernel and prediction figures: offsets, scales, names, and what is missing."""

import numpy as np
import plotly.graph_objects as go
import torch

from mta_viz.analysis.attention.cells import Prediction
from mta_viz.analysis.kernels.kernels import KernelId, LayerKernelSet, Offsets
from mta_viz.analysis.kernels.recurrence import Match, Recurrence, Recurring, Training
from mta_viz.plots import theme
from mta_viz.plots.attention.tokens import next_tokens
from mta_viz.plots.kernels.mosaic import kernel_grid, tap_limit
from mta_viz.plots.kernels.paper import head_mixing
from mta_viz.plots.kernels.training import recurring_grid

BOTH, LEFT = Offsets((-1, 0), (-1, 0, 1)), Offsets((-1, 0), (-2, -1, 0))


def kernels(pre: torch.Tensor | None = None, offsets: Offsets = BOTH, mixing: torch.Tensor | None = None):
    return LayerKernelSet(pre, None, None, mixing, None if pre is None else offsets, None)


def two_heads() -> torch.Tensor:
    taps = torch.zeros(2, 2, 3)
    taps[0, 1] = torch.tensor([0.25, 1.0, -0.3])
    taps[1, 0, 0], taps[1, 1, 1] = 0.02, 0.9
    return taps


def heat(figure: go.Figure) -> go.Heatmap:
    return next(trace for trace in figure.data if isinstance(trace, go.Heatmap))


def annotations(figure: go.Figure) -> set[str]:
    return {note.text for note in figure.layout.annotations}


def words(figure: go.Figure) -> str:
    return " | ".join(annotations(figure))


def test_the_shared_scale_comes_from_the_other_taps_of_all_heads() -> None:
    cells = heat(kernel_grid(kernels(two_heads()), "pre", layer=0))
    assert (cells.zmin, cells.zmax) == (-0.5, 0.5)
    assert np.nanmax(cells.z) == 1.0 and "> +0.5" in cells.colorbar.ticktext[-1]


def test_own_scales_are_printed_on_the_tiles() -> None:
    figure = kernel_grid(kernels(two_heads()), "pre", layer=0, scale="own")
    assert (heat(figure).zmin, heat(figure).zmax) == (-1, 1)
    assert "±0.5" in words(figure) and "±1" in words(figure)  # the second head is near the identity
    assert np.isclose(heat(figure).z, 0.02).any()


def test_the_limit_leaves_the_own_tap_out_but_an_identity_s_noise_is_not_blown_up() -> None:
    taps = np.zeros((1, 2, 3), np.float32)
    taps[0, 1, 1] = 1.0
    assert tap_limit(taps, (1, 1)) == 1.0
    taps[0, 0, 0] = 0.2  # 4 % of the energy
    assert tap_limit(taps, (1, 1)) == 1.0
    taps[0, 0, 0] = np.nan
    assert tap_limit(taps, (1, 1)) == 1.0
    taps[0, 0, 0] = 0.3
    assert tap_limit(taps, (1, 1)) == 0.5


def test_axes_are_offsets_now_at_the_bottom() -> None:
    figure = kernel_grid(kernels(two_heads()), "pre", layer=0)
    y = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    rows = [row for row, text in y.items() if text == "0 (now)"]
    assert y[rows[0] - 1] == "-1" and figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]
    assert figure.layout.xaxis.ticktext[:3] == ("-1", "0", "+1")
    assert "key offset (− earlier key | later key +)" in annotations(figure)


def test_the_own_tap_is_framed_where_it_is() -> None:
    for offsets, column in ((BOTH, 1), (LEFT, 2)):
        figure = kernel_grid(kernels(two_heads(), offsets), "pre", layer=0)
        frames = [shape for shape in figure.layout.shapes if shape.line.width == 2]
        assert frames[0].x0 == column - 0.5 and len(frames) == 2


def test_the_future_side_is_named_only_where_there_is_one() -> None:
    both = kernel_grid(kernels(two_heads()), "pre", layer=0)
    left = kernel_grid(kernels(two_heads(), LEFT), "pre", layer=0)
    dotted = [[shape for shape in figure.layout.shapes if shape.line.dash] for figure in (both, left)]
    assert len(dotted[0]) == 2 and dotted[0][0].x0 == 1.5 and dotted[1] == []
    assert "key offset (− earlier key)" in annotations(left)
    assert "Later keys" in words(both) and "Later keys" not in words(left)


def test_hover_says_what_a_tap_reads() -> None:
    hover = heat(kernel_grid(kernels(two_heads()), "pre", layer=0)).hovertext
    texts = [text for row in hover for text in row if text]
    assert len(texts) == 12
    assert "tap +0.25<br>reads the query itself and the key 1 before<br>5% of the energy drawn" in texts
    assert any("reads the query 1 before and the key 1 after" in text for text in texts)


def test_zero_and_nan_kernels_say_so() -> None:
    taps = torch.zeros(2, 2, 3)
    taps[1, 0, 2] = float("nan")
    figure = kernel_grid(kernels(taps), "pre", layer=0)
    assert "all 0:<br>map erased here" in words(figure) and "NaN/inf: 1" in words(figure)
    assert [trace.marker.color for trace in figure.data if trace.type == "scatter"] == [theme.BAD_COLOR]


def test_mixing_rows_are_targets_and_groups_are_blocks() -> None:
    mixing = torch.tensor([[[1.0, -0.62], [0.1, 0.98]], [[1.0, 0.0], [0.0, 1.0]]])
    figure = head_mixing(kernels(mixing=mixing), "head_post", 0)
    cells = heat(figure)
    assert cells.z[0, 1] == np.float32(-0.62) and cells.z[1, 0] == np.float32(0.1)
    assert cells.hovertext[0][1] == "target head 0 takes -0.62 x source head 1<br>own weight +1"
    assert figure.layout.yaxis.ticktext == ("H0", "H1", "H2", "H3")
    assert {"target head (what it receives)", "source head"} <= annotations(figure)
    assert "source head" in {words.text for words in figure.layout.annotations}
    hatch = next(trace for trace in figure.data if trace.type == "scatter" and trace.fill == "toself")
    inside = np.asarray(hatch.x)[~np.isnan(hatch.x)]
    assert sorted(set(inside)) == [-0.5, 1.5, 3.5]


def test_the_mixing_limit_comes_from_other_heads() -> None:
    mixing = torch.tensor([[[1.0, -0.62], [0.1, 0.98]]])
    cells = heat(head_mixing(kernels(mixing=mixing), "head_post", 0))
    assert (cells.zmin, cells.zmax) == (-1, 1)
    assert heat(head_mixing(kernels(mixing=torch.eye(2)[None] * 3), "head_post", 0)).zmax == 5


def test_equal_tokens_are_two_bars() -> None:
    figure = next_tokens([Prediction(3, "<a>", 0.6), Prediction(4, "<a>", 0.00012)])
    assert figure.data[0].y == (0, 1) and figure.layout.yaxis.ticktext == ("&lt;a&gt;",) * 2
    assert figure.data[0].text == ("0.600", "1.2e-4")


def test_the_longest_names_fit_beside_and_in_the_cells_of_other_trainings():
    name = "negative diagonal at -2"
    match = Match(KernelId(21, 2, "pre"), name, KernelId(21, 3, "pre"), name, 0.92)
    drawn = recurring_grid(Recurring((Training("a", 1, False, Recurrence((match,), 1, 0.2, 0.001)),)))
    (label,), (text,) = drawn.layout.yaxis.ticktext, drawn.data[0].text[0]
    room = drawn.layout.width - drawn.layout.margin.l - drawn.layout.margin.r
    assert drawn.layout.margin.l > 6.5 * len(label)  # pixels of a letter that is as wide as any
    assert room > 6 * len(text.replace("<b>", "").replace("</b>", ""))
