"""Attribution as bars and as text: signs, scales, what is labelled, and what was not measured."""

import numpy as np
import torch

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.model.stages import Stage
from mta_viz.plots import theme
from mta_viz.plots.attention.maps import attention_map
from mta_viz.plots.cause import ATTRIBUTED, attribution_bars, attribution_text, value_limit
from mta_viz.tokenizers.base import Tokens

VALUES = np.array([0.5, -3.0, np.nan, 0.0], np.float32)
TOKENS = Tokens((1, 2, 3, 4), ("a", "bc", "<d>", "e"), ((0, 0),) * 4, None)


def test_the_limit_is_round_and_holds_every_value():
    assert value_limit(VALUES) == 5.0
    assert value_limit(np.array([np.nan, 0.0])) == 1.0


def test_a_bar_a_measured_token_green_for_and_brown_against():
    figure = attribution_bars(VALUES, TOKENS, title="x", limit=5.0)
    bars = figure.data[0]
    assert bars.x.tolist() == [0, 1, 3] and bars.y.tolist() == [0.5, -3.0, 0.0]
    assert bars.marker.color[:2] == (theme.RAISED_COLOR, theme.LOWERED_COLOR)
    assert list(figure.layout.yaxis.tickvals) == [-5, 0, 5]
    targets = next(trace for trace in figure.data if trace.customdata is not None)
    assert targets.x.tolist() == [0, 1, 3] and targets.customdata.tolist() == [0.5, -3.0, 0.0]
    assert "2 &lt;d&gt;" in figure.layout.xaxis2.ticktext


def test_nothing_measured_is_an_empty_axis():
    figure = attribution_bars(np.full(4, np.nan), TOKENS, title="x", limit=1.0)
    assert all(len(trace.x) == 0 for trace in figure.data if trace.customdata is not None)


def test_text_has_the_same_scale_about_zero_and_says_what_was_not_replaced():
    figure = attribution_text(VALUES, TOKENS, title="x", limit=5.0)
    colors = figure.data[0]
    assert (colors.zmin, colors.zmax) == (-5, 5)
    assert colors.z[0][:2].tolist() == [0.5, -3.0]  # a token of two letters has two cells
    told = [trace.hovertemplate for trace in figure.data if trace.customdata is not None]
    assert told == [
        "token %{text}<br>%{customdata[1]:+.4g} nats<extra></extra>",
        "token %{text} was not replaced<extra></extra>",
    ]


def test_a_map_of_contributions_names_its_unit_and_stage():
    values = np.array([[1.0, 0.0], [-2.0, 4.0]], np.float32)
    drawn = AttentionMap(2, 1, Stage.KQ, torch.from_numpy(values), 0, 0)
    figure = attention_map(drawn, TOKENS, limit=5.0, look=ATTRIBUTED, numbering=1)
    assert figure.layout.annotations[-1].text == "L3 H2 · attribution of kq (nats)"
    assert any("contribution" in (trace.hovertemplate or "") for trace in figure.data)
