"""The fast backward pass against autograd through conv2d, and against finite differences."""

import pytest
import torch
import torch.nn.functional as F

from mta_viz.model.ops import trainable_convolution


def by_conv2d(maps: torch.Tensor, kernel: torch.Tensor, pad_left: int) -> torch.Tensor:
    heads, c_q, c_k = kernel.shape
    return F.conv2d(F.pad(maps, (pad_left, c_k - 1 - pad_left, c_q - 1, 0)), kernel[:, None], groups=heads)


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "c_q", "c_k", "pad_left"),
    [(5, 5, 2, 3, 1), (7, 70, 6, 11, 5), (130, 130, 3, 4, 3), (3, 64, 1, 1, 0), (4, 9, 2, 3, 0)],
)
def test_values_and_gradients_equal_those_of_conv2d(n_queries, n_keys, c_q, c_k, pad_left):
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 3, n_queries, n_keys, generator=generator)
    kernel = torch.randn(3, c_q, c_k, generator=generator)
    upstream = torch.randn(2, 3, n_queries, n_keys, generator=generator)
    results = []
    for convolve in (by_conv2d, trainable_convolution):
        leaves = maps.clone().requires_grad_(), kernel.clone().requires_grad_()
        out = convolve(*leaves, pad_left)
        results.append((out.detach(), *torch.autograd.grad(out, leaves, upstream)))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_finite_differences():
    generator = torch.Generator().manual_seed(1)
    maps = torch.randn(1, 2, 4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, k: trainable_convolution(m, k, 1), (maps, kernel), atol=1e-4)
