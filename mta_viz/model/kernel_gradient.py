"""The key-query convolution with a fast backward pass, for training.

A depthwise convolution's weight gradient is what `conv2d` is slowest at; here it is a few batched
matrix products. Same values as `ops.key_query_convolution`; owns no parameters.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

# keys per block of the weight gradient's matrix products: a GPU has spare ones, a CPU counts each
BLOCK = {"cpu": 16, "cuda": 64}


def key_query_convolution(
    maps: Float[Tensor, "batch head query key"], kernel: Float[Tensor, "head c_q c_k"], pad_left: int
) -> Float[Tensor, "batch head query key"]:
    """`ops.key_query_convolution`, differentiable once, without double backward."""
    return _Convolution.apply(maps, kernel.to(maps.dtype), pad_left)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, kernel: Tensor, pad_left: int) -> Tensor:
        ctx.save_for_backward(maps, kernel)
        ctx.pad_left = pad_left
        return _correlated(_padded(maps, kernel, pad_left), kernel)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        maps, kernel = ctx.saved_tensors
        c_q, c_k = kernel.shape[1:]
        # each input cell feeds outputs at later queries: the same correlation, kernel turned round
        reached = F.pad(grad, (c_k - 1 - ctx.pad_left, ctx.pad_left, 0, c_q - 1))
        grad_maps = _correlated(reached, kernel.flip(1, 2))
        return grad_maps, _kernel_gradient(_padded(maps, kernel, ctx.pad_left), grad, kernel), None


def _padded(maps: Tensor, kernel: Tensor, pad_left: int) -> Tensor:
    c_q, c_k = kernel.shape[1:]
    return F.pad(maps, (pad_left, c_k - 1 - pad_left, c_q - 1, 0))


def _correlated(padded: Tensor, kernel: Tensor) -> Tensor:
    """Each head's map with its kernel; with the heads last in memory a CPU takes a third of the time."""
    if padded.device.type == "cpu":
        padded = padded.contiguous(memory_format=torch.channels_last)
    return F.conv2d(padded, kernel[:, None], groups=len(kernel)).contiguous()


def _kernel_gradient(
    padded: Float[Tensor, "batch head rows columns"],
    grad: Float[Tensor, "batch head query key"],
    kernel: Float[Tensor, "head c_q c_k"],
) -> Float[Tensor, "head c_q c_k"]:
    """sum over batch, query, key of grad[i, j] * padded[i + a, j + b].

    Keys are cut into blocks. For one kernel row, the product of all blocks of `grad` with
    all windows of `padded` (block + c_k - 1 wide) is a [block, block + c_k - 1] matrix whose b-th
    diagonal sums to the gradient of tap b: tensor-core work instead of c_k passes over the maps.
    """
    batch, heads, n_queries, n_keys = grad.shape
    c_q, c_k = kernel.shape[1:]
    block = BLOCK.get(grad.device.type, BLOCK["cuda"])
    spare = -n_keys % block
    blocks = F.pad(grad, (0, spare)).reshape(batch * heads, -1, block).mT
    windows = F.pad(padded, (0, spare)).unfold(-1, block + c_k - 1, block).contiguous().flatten(0, 1)
    rows = []
    for a in range(c_q):
        product = blocks @ windows[:, a : a + n_queries].flatten(1, 2)
        summed = product.unflatten(0, (batch, heads)).float().sum(0)
        diagonals = [summed.diagonal(b, 1, 2).sum(-1) for b in range(c_k)]
        rows.append(torch.stack(diagonals, dim=-1))
    return torch.stack(rows, dim=1).to(kernel.dtype)
