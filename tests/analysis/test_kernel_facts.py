"""Kernels read from a state dict: offsets on every padding, identity, absence."""

import math

import pytest
import torch

from mta_viz.analysis.kernels.kernels import Offsets, kernel_offsets, layer_kernels, near_identity
from mta_viz.analysis.kernels.measures import energy_off_identity
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError


def config(**mta: object) -> ModelConfig:
    return ModelConfig(
        d_model=8, n_layers=2, n_heads=2, n_kv_heads=2, d_head=4, d_mlp=8, vocab_size=5, mta=MTAOptions(**mta)
    )


@pytest.mark.parametrize(
    ("pad", "size", "keys", "own"),
    [
        ("both", (6, 11), range(-5, 6), (5, 5)),
        ("left", (3, 4), range(-3, 1), (2, 3)),
        ("right", (3, 4), range(0, 4), (2, 0)),
        ("both", (1, 1), range(0, 1), (0, 0)),
    ],
)
def test_offsets(pad: str, size: tuple[int, int], keys: range, own: tuple[int, int]) -> None:
    offsets = kernel_offsets(config(pad_key=pad), *size)
    assert offsets.query == tuple(range(1 - size[0], 1))
    assert offsets.key == tuple(keys)
    assert offsets.own == own


def test_each_place_has_its_own_kernels_and_offsets() -> None:
    options = config(pre_kernel=(2, 3), post_kernel=(1, 5), mta_layers=(1,), head_post_group=2)
    state = {
        "blocks.1.attn.kernel_pre": torch.ones(2, 2, 3, dtype=torch.float16),
        "blocks.1.attn.kernel_post": torch.zeros(2, 1, 5),
        "blocks.1.attn.head_post": torch.eye(2)[None],
    }
    kernels = layer_kernels(state, options, 1)
    (pre, before), (post, after) = kernels.taps("pre"), kernels.taps("post")
    assert pre.dtype == torch.float32 and post.shape == (2, 1, 5)
    assert before.key == (-1, 0, 1) and after.key == (-2, -1, 0, 1, 2)
    assert kernels.mixing("head_post").shape == (1, 2, 2)
    with pytest.raises(MtaVizError, match="mixes no heads before the softmax"):
        kernels.mixing("head_pre")
    with pytest.raises(MtaVizError, match="no key-query kernel before the softmax"):
        layer_kernels(state, options, 0).taps("pre")
    plain = layer_kernels(state, options, 0)
    assert plain.pre is plain.post is plain.pre_offsets is None


def test_energy_off_the_own_tap() -> None:
    kernels = torch.zeros(3, 1, 2)
    kernels[0, 0] = torch.tensor([0.0, -2.0])
    kernels[1, 0] = torch.tensor([1.0, 3.0])
    found = energy_off_identity(kernels.numpy(), Offsets((0,), (-1, 0)))
    assert found.tolist() == pytest.approx([0.0, 0.1, math.nan], nan_ok=True)
    assert near_identity(kernels, (0, 1)).tolist() == [True, False, False]
