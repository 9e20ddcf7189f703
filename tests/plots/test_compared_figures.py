"""Figures of two runs: colours of differences, hatched rows of other tokens, two lines, three kernels."""

import numpy as np
import plotly.graph_objects as go
import pytest

from mta_viz.analysis.compare.maps import agreement, compared_map
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.model.stages import Stage
from mta_viz.plots import theme
from mta_viz.plots.compare import compared_caption, compared_figure, kernel_trio, share_lines
from mta_viz.run.tracing import capture
from tests.tiny_models import two_head_trace


def test_a_difference_has_its_own_colours_and_hatches_what_differs():
    a = two_head_trace()
    b = capture(a.model, [1, 2, 3, 4, 10, 6, 7, 8, 9])
    shared = agreement(a.tokens, b.tokens, same_ids=True)
    found = compared_map(a, b, (0, 0), (0, 1), Stage.KQ, shared)
    figure = compared_figure(found, a.tokens, limit=2.0)
    heat = figure.data[1]
    assert (heat.zmin, heat.zmax) == (-2, 2)
    assert heat.colorscale == go.Heatmap(colorscale=theme.DIFFERENCE_SCALE).colorscale
    z = np.asarray(heat.z)
    assert np.isnan(z[4]).all() and np.isnan(z[:, 4]).all() and np.isfinite(z[5, 3])
    hatch = figure.data[-1]
    assert hatch.fill == "toself" and {3.5, 4.5} <= set(hatch.y[~np.isnan(hatch.y)].tolist())
    assert any("L0 H0 − L0 H1 (score)" in one.text for one in figure.layout.annotations)
    assert "not compared" in "".join(str(trace.hovertemplate) for trace in figure.data)
    assert compared_caption(found, 2.0).startswith("Score in A minus score in B. Green: A has more")


def test_lines_are_each_layers_best_head():
    a, b = np.array([[0.1, 0.5], [0.9, 0.2]]), np.array([[0.3, 0.2], [0.1, np.nan]])
    figure = share_lines(a, b, ("one", "<two>"), numbering=1)
    first, second = figure.data
    assert list(first.y) == [0.5, 0.9] and list(second.y) == [0.3, 0.1]
    assert first.text[1] == "A, one: L2 H1<br>share 0.900" and "&lt;two&gt;" in second.text[0]
    assert first.line.dash != second.line.dash and (first.name, second.name) == ("A", "B")
    assert (
        figure.layout.showlegend and figure.layout.legend.yanchor == "bottom"
    )  # over the lines, not on them
    assert list(figure.layout.xaxis.ticktext) == ["L1", "L2"]


def test_two_kernels_stand_beside_their_difference_on_one_scale():
    offsets = Offsets((-1, 0), (-1, 0))
    a, b = np.array([[0.5, 0.0], [0.0, 1.0]]), np.array([[0.0, 0.0], [0.2, 1.0]])
    figure = kernel_trio(a, b, offsets, ("A <x>", "B", "A − B"), "Kernels")
    z = np.asarray(figure.data[0].z)
    values = z[np.isfinite(z)]
    assert sorted(values.tolist()) == pytest.approx([-0.2, *[0] * 6, 0.2, 0.5, 0.5, 1, 1])
    assert figure.data[0].zmax == 0.5
    assert theme.escape("A <x>") in [one.text for one in figure.layout.annotations]
