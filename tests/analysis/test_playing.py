"""A painted kernel is convolved as the model does it, and kernels to begin with have their names."""

import numpy as np
import pytest
import torch

from mta_viz.analysis.attention.kernel_map import PRESETS, convolved, play, play_on, preset
from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets
from mta_viz.analysis.kernels.naming import IDENTITY
from mta_viz.config import MTAOptions
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import capture
from tests.tiny_models import config, random_weights


def trace_padded(pad_key: str, n_tokens: int = 60) -> Trace:
    shapes = config(MTAOptions(pre_kernel=(4, 7), pad_key=pad_key), 32)
    model = HookedMTA(shapes)
    model.load_state_dict(random_weights(shapes), strict=False)
    return capture(model, [(7 * at * at + at) % 32 for at in range(n_tokens)])


@pytest.mark.parametrize("pad_key", ["both", "left", "right"])
@pytest.mark.parametrize("cell", [(40, 20), (59, 59), (3, 1)])
def test_a_heads_own_kernel_on_its_own_scores_gives_what_the_model_has_after_its_convolution(pad_key, cell):
    trace = trace_padded(pad_key)
    taps = trace.model.blocks[2].attn.kernel_pre[1].detach().double().numpy()
    _, after = play_on(trace, 2, 1, cell, taps).maps
    rows, columns = (slice(start, start + 24) for start in (after.query_start, after.key_start))
    expected = trace.map(2, Stage.KQ, 1, rows, columns)
    seen = ~after.masked
    assert after.values.shape == (24, 24) and after.query_start <= cell[0] < after.query_start + 24
    assert torch.allclose(after.values[seen], expected[seen], atol=1e-6)
    identity = np.zeros_like(taps)
    identity[kernel_offsets(trace.model.config, *taps.shape).own] = 1
    before, same = play_on(trace, 2, 1, cell, identity).maps
    assert torch.equal(same.values[seen], before.values[seen])


def test_scores_of_the_future_add_nothing():
    shapes, taps = trace_padded("both", 2).model.config, np.ones((4, 7))
    scores = torch.randn(24, 24)
    assert torch.equal(convolved(scores, taps, shapes), convolved(scores.tril(), taps, shapes))
    assert not torch.equal(convolved(scores, taps, shapes), convolved(scores.tril(-1), taps, shapes))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("size", [(4, 7), (6, 11)])
def test_a_kernel_to_begin_with_has_its_name(name, size):
    shapes = trace_padded("both", 2).model.config
    taps = preset(name, kernel_offsets(shapes, *size))
    names = play(taps, shapes, "one match").names
    assert (IDENTITY if name == "identity" else name) in names


def test_a_diagonal_gathers_a_stripe_and_a_kernel_without_room_is_the_identity():
    shapes = trace_padded("both", 2).model.config
    before, after = play(preset("diagonal", kernel_offsets(shapes, 4, 7)), shapes, "diagonal stripe").maps
    assert before.values.max() == 1 and after.values.max() == 4
    assert after.values[19, 11] == 4  # the end of the stripe: all four taps read a match
    assert preset("diagonal", Offsets((0,), (0,))).tolist() == [[1.0]]
