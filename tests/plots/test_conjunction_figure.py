"""The map of a conjunction test: brown to green about 0, a dot where nothing is sure."""

import numpy as np
import pytest
import torch

from mta_viz.analysis.labs.conjunction import Conjunction
from mta_viz.model.stages import Stage
from mta_viz.plots.labs import interaction_map, shared_interaction_limit

KQ, FINAL = ("share", Stage.KQ), ("share", Stage.PATTERN)


def one(*interactions: float) -> Conjunction:
    """A layer of two heads: the first has these interactions, one a sample, the second none."""
    values = torch.zeros(len(interactions), 4, 1, 2)
    values[:, 0, 0, 0] = torch.tensor(interactions)
    return Conjunction({KQ: values, FINAL: values})


def test_sure_heads_have_no_dot_and_hovers_say_all():
    figure = interaction_map(one(0.3, 0.32, 0.31), KQ)
    heat = figure.data[0]
    assert (heat.zmin, heat.zmax) == (-0.5, 0.5)
    assert heat.colorscale[0][1] == "rgb(84,48,5)" and heat.colorscale[-1][1] == "rgb(0,60,48)"  # BrBG
    assert np.allclose(heat.z, [[0.31, 0.0]])
    dots = figure.data[-1]
    assert dots.marker.size == 5 and len(dots.x) == 1 and round(dots.x[0]) == 1
    hover = next(trace.text[0] for trace in figure.data if trace.text is not None and trace is not heat)
    assert "both +0.310, A only +0.000" in hover and hover.endswith("<br>3 samples")
    assert "median of I +0.310, 75 % interval +0.300 to +0.320" in hover  # the range of three
    assert "95 % interval of the mean -1.3" in hover and " to +1.4" in hover  # within -2 to 2


def test_one_sample_has_no_dot():
    figure = interaction_map(one(0.3), KQ)
    assert all(trace.type == "heatmap" or trace.marker.size != 5 for trace in figure.data)
    texts = [trace.text[0] for trace in figure.data if trace.text is not None]
    assert any("one sample, no interval" in text for text in texts if isinstance(text, str))


def test_models_share_a_scale_and_noise_is_not_painted():
    assert shared_interaction_limit([one(0.3, 0.3), one(0.7, 0.7)], KQ) == 1.0
    assert shared_interaction_limit([one(1e-6, 1e-6)], KQ) == 0.1
    assert shared_interaction_limit([one(float("nan"), 0.5)], KQ) == pytest.approx(0.1)


def test_a_model_without_the_stage_shows_the_one_before():
    plain = Conjunction({("share", Stage.RAW): one(0.2, 0.2).values[KQ]})
    assert "I of share, raw (share)" in str(interaction_map(plain, KQ).layout)
