"""Pure tensor functions of the forward pass: no state, no hooks, nothing written in place.

Axes: batch, head, query, key, position, d (head width). Owns the mathematics, not the order of the steps
(attention.py), and the fast backward pass of the key-query convolution, for training.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mta_viz.config import RopeScaling

Maps = Float[Tensor, "batch head query key"]  # of one stage
Heads = Float[Tensor, "batch position head d"]
KeyHeads = Float[Tensor, "batch key kv_head d"]
Kernels = Float[Tensor, "head c_q c_k"]
Mixing = Float[Tensor, "group target source"]
Resid = Float[Tensor, "batch position d_model"]
Future = Bool[Tensor, "query key"]


def rms_normalize(x: Float[Tensor, "*axes width"], eps: float) -> Float[Tensor, "*axes width"]:
    """x / sqrt(mean(x^2) + eps) over the last axis, in float32, cast back; no weight."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def rotary_frequencies(
    d: int, theta: float, scaling: RopeScaling | None, device: torch.device | str
) -> Float[Tensor, " pair"]:
    """Radians a position by which each pair of a head turns: theta^(-2i/d), scaled as `RopeScaling` says."""
    # float64: at position 4,096 a float32 product is already off by 1e-4 radians
    turns = theta ** (-torch.arange(0, d, 2, dtype=torch.float64, device=device) / d)
    if scaling is None:
        return turns
    rotations = scaling.original_n_ctx * turns / (2 * math.pi)  # of the pair, over the length trained on
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((rotations - low) / (high - low)).clamp(0, 1)
    return kept * turns + (1 - kept) * turns / scaling.factor


def rotary(x: Heads, positions: Int[Tensor, " position"], turns: Float[Tensor, " pair"]) -> Heads:
    """Rotary embedding on interleaved pairs (2i, 2i+1), angle position * turns[i], in float32."""
    angle = positions.to(torch.float64)[:, None] * turns
    turned = torch.complex(angle.cos().float(), angle.sin().float())[:, None]
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turned).flatten(-2).to(x.dtype)


def attention_scores(q: Heads, k: KeyHeads) -> Maps:
    """q.k / sqrt(d) before any mask; query head h reads kv head h // (heads / kv_heads)."""
    k = repeat_kv_heads(k, q.shape[2])
    return torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5


def repeat_kv_heads(x: KeyHeads, heads: int) -> Float[Tensor, "batch key head d"]:
    """Give each query head its kv head (grouped-query attention)."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def future_cells(rows: range, n_keys: int, device: torch.device) -> Future:
    """True where the key comes after the query; row i stands for position `rows[i]`."""
    queries = torch.arange(rows.start, rows.stop, device=device)
    return torch.arange(n_keys, device=device) > queries[:, None]


def key_query_convolution(maps: Maps, kernel: Kernels, pad_left: int) -> Maps:
    """Convolve each head's map over queries and keys (paper eq. for key-query convolution).

    out[h,i,j] = sum_{a,b} kernel[h,a,b] * maps[h, i+a-(c_q-1), j+b-pad_left], zero outside the
    array. The caller has set cells with key > query to 0. Never reads a later query.
    """
    if maps.device.type == "cpu" and maps.dtype in (torch.bfloat16, torch.float16):
        # half-precision depthwise convolution is 12 times slower than float32 on a CPU
        return key_query_convolution(maps.float(), kernel, pad_left).to(maps.dtype)
    if kernel.requires_grad and torch.is_grad_enabled():
        return trainable_convolution(maps, kernel, pad_left)
    return F.conv2d(_padded(maps, kernel, pad_left), kernel[:, None].to(maps.dtype), groups=len(kernel))


def causal_convolution(maps: Maps, kernel: Kernels, pad_left: int, future: Future) -> Maps:
    """The key-query convolution of scores: their cells with key > query read as 0."""
    return key_query_convolution(maps.masked_fill(future, 0.0), kernel, pad_left)


def mix_heads(maps: Maps, mixing: Mixing) -> Maps:
    """out[g, target] = sum_source mixing[g, target, source] * maps[g, source], per group of heads."""
    grouped = maps.unflatten(1, (mixing.shape[0], mixing.shape[2]))
    return torch.einsum("gts,bgsqk->bgtqk", mixing.to(maps.dtype), grouped).flatten(1, 2)


def masked_softmax(scores: Maps, future: Future) -> Maps:
    """Softmax over keys <= query, in float32, cast back; future cells are exactly 0."""
    return scores.masked_fill(future, -torch.inf).softmax(dim=-1, dtype=torch.float32).to(scores.dtype)


@contextmanager
def denormals_flushed(x: Tensor, *, wanted: bool = True) -> Iterator[None]:
    """Numbers below the smallest normal one count as 0 in this thread, where `x` is on a CPU; no gradients.

    The tails of a sharp softmax are full of them, and each takes a CPU a hundred times as long.
    """
    smallest = torch.finfo(torch.float32).smallest_normal
    free = wanted and x.device.type == "cpu" and not torch.is_grad_enabled()
    if not free or float(torch.tensor(smallest) / 2) == 0.0:  # it is so already
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def weighted_values(pattern: Maps, v: KeyHeads) -> Heads:
    """Sum of values weighted by the final attention weights of each head."""
    return torch.einsum("bhqk,bkhd->bqhd", pattern, repeat_kv_heads(v, pattern.shape[1]))


def with_heads(
    parts: Float[Tensor, "batch head position other"],
    heads: Mapping[int, Float[Tensor, "row column"]],
    first: int,
) -> Float[Tensor, "batch head position other"]:
    """`parts`, from position `first` on, with some heads taken from tables as far as these reach."""
    changed = parts.clone()
    for head, table in heads.items():
        rows = table[first : first + parts.shape[2], : parts.shape[3]]
        changed[:, head, : rows.shape[0], : rows.shape[1]] = rows.to(parts)
    return changed


# keys per block of the weight gradient's matrix products: a GPU has spare ones, a CPU counts each
BLOCK = {"cpu": 16, "cuda": 64}


def trainable_convolution(maps: Maps, kernel: Kernels, pad_left: int) -> Maps:
    """`key_query_convolution` with a fast backward pass: differentiable once, without double backward.

    A depthwise convolution's weight gradient is what `conv2d` is slowest at; here it is a few batched matrix
    products.
    """
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
