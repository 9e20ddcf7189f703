"""The shapes in signatures are checked while tests run."""

from pathlib import Path

import jaxtyping
import pytest
import torch

from mta_viz.model.ops import mix_heads
from tests.conftest import SHAPED, with_shapes


def test_a_wrong_shape_is_refused() -> None:
    scores = torch.zeros(1, 4, 3, 3)
    mix_heads(scores, torch.eye(2).expand(2, 2, 2))
    with pytest.raises(jaxtyping.TypeCheckError):
        mix_heads(scores[0, 0, 0], torch.eye(2).expand(2, 2, 2))


def test_every_module_with_shapes_and_every_place_that_checks_them_is_there() -> None:
    assert {"mta_viz.model.ops", "mta_viz.analysis.kernels.measures"} <= set(with_shapes())
    tests = Path(__file__).parent
    assert all(any(tests.rglob(name)) for name in SHAPED)
