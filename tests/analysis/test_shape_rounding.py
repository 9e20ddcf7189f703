"""Rounding a kernel to its nearest template, by hand."""

import numpy as np
import pytest

from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.analysis.kernels.measures import round_to_template
from mta_viz.errors import ConfigError

OFFSETS = Offsets((-2, -1, 0), (-2, -1, 0, 1, 2))


def test_the_diagonal_keeps_its_mean_tap_and_the_own_tap_stays():
    taps = np.zeros((3, 5))
    taps[0, 0], taps[1, 1], taps[2, 2], taps[0, 4] = 0.5, 0.3, 2.0, 0.1
    # offsets (-2, -2) and (-1, -1): the diagonal; their mean is 0.4, the stray tap goes
    name, rounded = round_to_template(taps, OFFSETS)
    want = np.zeros((3, 5))
    want[0, 0] = want[1, 1] = 0.4
    want[2, 2] = 2.0
    assert name == "diagonal"
    np.testing.assert_allclose(rounded, want, atol=1e-12)
    assert round_to_template(rounded, OFFSETS)[0] == "diagonal"
    np.testing.assert_allclose(round_to_template(rounded, OFFSETS)[1], rounded, atol=1e-12)


def test_what_has_no_nearest_template_is_refused():
    own = np.zeros((3, 5))
    own[2, 2] = 1.0
    with pytest.raises(ConfigError, match="no tap besides its own"):
        round_to_template(own, OFFSETS)
    with pytest.raises(ConfigError, match="no room for any template"):
        round_to_template(np.ones((1, 1)), Offsets((0,), (0,)))
