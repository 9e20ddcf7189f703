"""Figures as panels of one: every part finds its place on the new paper."""

import plotly.graph_objects as go
import pytest

from mta_viz.plots import theme
from mta_viz.plots.parts import Parts, side_by_side
from tests.figures.checked import assert_plotly_takes_it

MARGIN = {"l": 20, "r": 10, "t": 30, "b": 40}


def panel(width: int, height: int) -> go.Figure:
    """A map with a second axis on top of the first, a bar, a box, a mark at the edge and words."""
    parts = Parts((width, height), dict(MARGIN))
    parts.traces.append(go.Heatmap(z=[[1.0]], colorbar={"x": 0.5, "y": 1.0, "len": 0.8}))
    parts.traces.append(go.Scatter(x=[0], y=[0], xaxis="x2", yaxis="y2"))
    parts.layout |= {"xaxis": theme.axis(domain=(0, 0.5)), "yaxis": theme.axis()}
    parts.layout |= {name: theme.axis(overlaying=name[0], matches=name[0]) for name in ("xaxis2", "yaxis2")}
    parts.add_line((0, 1), (3, 3), {"width": 1}, xref="x domain", yref="y")
    parts.add_box((0, 0), color="#000000", width=2)  # on its own axes, which it does not name
    mark = {"xref": "paper", "xsizemode": "pixel", "xanchor": 0, "x0": -8, "x1": -2}
    parts.shapes.append({"type": "rect", **mark, "yref": "y", "y0": 0, "y1": 1})
    parts.add_words("corner", 12, x=1, y=0)
    return parts.figure()


@pytest.fixture(scope="module")
def figure() -> go.Figure:
    return side_by_side([panel(130, 170), panel(230, 270)], "<b> & a title")


def test_plotly_takes_the_figure_and_it_holds_all_panels(figure):
    assert_plotly_takes_it(figure)
    assert figure.layout.width == 360 and figure.layout.height == 270 + 31
    assert figure.layout.annotations[-1].text == "&lt;b&gt; &amp; a title"
    assert [(trace.xaxis, trace.yaxis) for trace in figure.data] == [
        ("x", "y"), ("x2", "y2"), ("x3", "y3"), ("x4", "y4")
    ]  # fmt: skip


def test_axes_lie_where_they_lay_in_pixels(figure):
    across, down = figure.layout.xaxis3, figure.layout.yaxis3
    left = 130 + MARGIN["l"]
    assert [end * 360 for end in across.domain] == pytest.approx([left, left + 0.5 * 200])
    assert [(1 - end) * 301 for end in down.domain] == pytest.approx([31 + 270 - 40, 31 + 30])
    assert (across.anchor, down.anchor) == ("y3", "x3")
    assert (figure.layout.xaxis4.overlaying, figure.layout.yaxis4.matches) == ("x3", "y3")


def test_words_marks_and_colour_bars_go_with_their_panel(figure):
    first, second = (words for words in figure.layout.annotations if words.text == "corner")
    assert (first.x * 360, second.x * 360) == pytest.approx((120, 350))
    assert ((1 - first.y) * 301, (1 - second.y) * 301) == pytest.approx((31 + 130, 31 + 230))
    lines = [shape for shape in figure.layout.shapes if shape.type == "line"]
    assert [(line.xref, line.yref) for line in lines] == [("x domain", "y"), ("x3 domain", "y3")]
    boxes = [shape for shape in figure.layout.shapes if shape.type == "rect" and shape.x0 == -0.5]
    assert [(box.xref, box.yref) for box in boxes] == [("x", "y"), ("x3", "y3")]
    mark = figure.layout.shapes[-1]
    assert (mark.x0, mark.x1) == (-8, -2) and mark.xanchor * 360 == pytest.approx(150) and mark.yref == "y3"
    bars = [trace.colorbar for trace in figure.data if trace.type == "heatmap"]
    assert [bar.len * 360 for bar in bars] == pytest.approx([80, 160])
    assert [bar.x * 360 for bar in bars] == pytest.approx([20 + 50, 150 + 100])
