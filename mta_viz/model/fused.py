"""Multi-token attention of one layer as Triton kernels: what CUDA computes when nobody asks for a map.

The steps are attention.py's, to rounding. Rows are computed in slabs of one or two buffers
[batch x head, row, column], and tiles of masked cells are skipped. Half precision keeps its maps in float16,
whose rounding is an eighth of bfloat16's, and probabilities times 256, so that small ones keep their digits;
convolved scores, which are large where attention is sharp, in float32: a softmax makes of their last digit
that share of a weight.

A buffer's row r is query `first + r`, its column c key `c - offset`: a convolution is then
out[r, c] = sum_ab kernel[a, b] maps[r + a, c + b] with aligned loads, and moves `first` and `offset` on.
What a causal cell's patch reads is always written, future cells as 0: elsewhere anything may lie.
Owns no choice of when to run: that is backends.py's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
from jaxtyping import Float
from torch import Tensor

from mta_viz.model import fused_kernels
from mta_viz.model.ops import Heads, Kernels, KeyHeads, Maps, Mixing

# batch x head x row of all buffers: enough to keep a GPU busy, and memory that grows with T
SLAB_ROWS = 2**15
ROWS, COLUMNS = 128, 512  # a buffer's height and width are multiples of these
TALL, WIDE = 4, 16  # a patch of the convolution: rows and columns that one row of its matrix product gives
PROBABILITY = 256.0  # what float16 holds for 1
LARGEST = 65504.0  # of float16


class Tiles(NamedTuple):
    """Sizes of each kernel's tiles, and its warps: what an H200 was fastest with (benchmarks/NOTES.md)."""

    scores: tuple[int, int, int, int]  # rows, keys, keys' tiles of a program, warps
    patches: tuple[int, int, int]  # down, across, warps
    map_patches: tuple[int, int, int]  # of maps as they lie
    row: tuple[int, int]  # heads x columns, warps
    values: tuple[int, int, int]  # rows, keys, warps


TILES = {
    torch.float16: Tiles((64, 64, 8, 4), (16, 8, 4), (8, 8, 4), (2048, 2), (128, 64, 8)),
    torch.float32: Tiles((32, 32, 4, 4), (8, 4, 4), (8, 4, 4), (4096, 4), (32, 32, 4)),
}


@dataclass(frozen=True)
class Kernel:
    """A key-query kernel [head, c_q, c_k] and how many keys it reaches back."""

    taps: Kernels
    pad_left: int


@dataclass(frozen=True)
class Steps:
    """What a layer does between its scores and its values, each step optional."""

    pre: Kernel | None
    head_pre: Tensor | None  # of `ops.Mixing`
    post: Kernel | None
    head_post: Tensor | None


class _Convolution:
    """A key-query kernel as banded matrices: how each cell of a patch weighs each that the patch reads."""

    def __init__(self, kernel: Kernel, dtype: torch.dtype) -> None:
        c_q, c_k = kernel.taps.shape[1:]
        self.pad_left, self.reach = kernel.pad_left, c_q - 1
        self.window = triton.next_power_of_2(WIDE + c_k - 1)  # columns that a patch reads
        self.margin = self.window + TALL + c_q  # how far past a row's own key patches with causal cells read
        taps = F.pad(kernel.taps.to(dtype).flatten(1), (0, 1))  # the last is 0
        self.weights = taps[:, _tap_of(c_q, c_k, self.window, taps.device)]


@dataclass(frozen=True)
class _Ready:
    """`Steps` as the kernels take them; mixing as matrices over all heads, with zeros up to a power of 2."""

    pre: _Convolution | None
    head_pre: Tensor | None
    post: _Convolution | None
    head_post: Tensor | None

    @classmethod
    def of(cls, steps: Steps, heads: int, dtype: torch.dtype) -> "_Ready":
        pre, post = (
            None if kernel is None else _Convolution(kernel, dtype) for kernel in (steps.pre, steps.post)
        )
        mixings = (
            None if mixing is None else _whole(mixing.to(dtype), heads)
            for mixing in (steps.head_pre, steps.head_post)
        )
        return cls(pre, next(mixings), post, next(mixings))

    @property
    def convolutions(self) -> list[_Convolution]:
        return [convolution for convolution in (self.pre, self.post) if convolution]


@dataclass(frozen=True)
class _Buffer:
    """Maps of a slab: `rows` of them in use, row 0 is query `first`, column `offset` key 0."""

    maps: Float[Tensor, "item row column"]
    first: int
    offset: int
    rows: int


def weighted_values(
    q: Heads, k: KeyHeads, v: KeyHeads, steps: Steps, on_rows: Callable[[int], None] | None = None
) -> Heads:
    """Values weighted by the final weights, of every query of whole prompts on a CUDA device.

    `on_rows(stop)` says that the work for rows before `stop` is on its way.
    """
    batch, n_tokens, heads, _ = q.shape
    dtype = torch.float32 if q.dtype == torch.float32 else torch.float16
    ready = _Ready.of(steps, heads, dtype)
    reach = sum(convolution.reach for convolution in ready.convolutions)
    offset = sum(convolution.pad_left for convolution in ready.convolutions)
    step = min(_height(batch * heads * (2 if ready.convolutions else 1), reach), n_tokens)
    buffers = _buffers(q, ready, step + reach, n_tokens + offset, dtype)
    values = v if v.dtype == dtype else v.clamp(-LARGEST, LARGEST).to(dtype)
    out = q.new_empty(batch, n_tokens, heads, v.shape[-1])
    for start in range(0, n_tokens, step):
        stop = min(start + step, n_tokens)
        scores = _Buffer(buffers[0], start - reach, offset, stop - start + reach)
        _values_into(out, _weights(scores, buffers[-1], q, k, ready), values)
        if on_rows:
            on_rows(stop)
    return out


def convolved(maps: Maps, kernel: Kernel, first: int) -> Maps:
    """`ops.causal_convolution` on a CUDA device, of maps whose first row is query `first`."""
    heads, c_q, c_k = kernel.taps.shape
    items, tiles = maps.flatten(0, 1), TILES.get(maps.dtype, TILES[torch.float16])
    items = items if items.stride(2) == 1 else items.contiguous()
    n_rows, n_keys = items.shape[1:]
    down, across, warps = tiles.map_patches
    out = torch.empty(maps.shape, dtype=maps.dtype, device=maps.device)
    grid = _tiles(n_keys, across * WIDE), _tiles(n_rows, down * TALL), len(items)
    with torch.cuda.device_of(maps):  # Triton takes the current device
        fused_kernels.convolve_maps[grid](
            items, kernel.taps.contiguous(), out, first, n_rows, n_keys, *items.stride()[:2],
            heads, c_q, c_k, kernel.pad_left, triton.next_power_of_2(WIDE + c_k - 1),
            TALL, WIDE, down, across, num_warps=warps,
        )  # fmt: skip
    return out


def _buffers(q: Heads, ready: _Ready, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
    """Room for the maps of a slab, and for those that a convolution makes of them."""
    beyond = max((convolution.margin for convolution in ready.convolutions), default=0)
    width = TILES[dtype].patches[1] * WIDE if beyond else 0  # of a tile, which may begin at the last column
    height = _up(rows + TALL - 1, ROWS) + beyond if beyond else _up(rows, ROWS)
    shape = (q.shape[0] * q.shape[2], height, _up(columns + beyond + width, COLUMNS))
    dtypes = [dtype, *[torch.float32 if ready.pre else dtype] * bool(beyond)]
    return [q.new_empty(shape, dtype=each) for each in dtypes]


def _weights(scores: _Buffer, other: Tensor, q: Heads, k: KeyHeads, ready: _Ready) -> _Buffer:
    """The final weights of a slab, times what `_scale` says."""
    pre, post, batch = ready.pre, ready.post, len(q)
    _scores_into(scores, q, k, pre)
    maps = _convolved(scores, other, pre) if pre else scores
    head_post = None if post else ready.head_post
    weights = _rows_into(scores.maps, maps, batch, ready.head_pre, head_post, before=post, softmax=True)
    if post:
        weights = _convolved(weights, _like(weights.maps, other), post)
        if ready.head_post is not None:
            _rows_into(weights.maps, weights, batch, None, ready.head_post, before=None, softmax=False)
    return weights


def _like(maps: Tensor, memory: Tensor) -> Tensor:
    """Memory as maps of this shape and dtype, which need no more than there is."""
    return memory.flatten().view(maps.dtype)[: maps.numel()].view(maps.shape)


def _scores_into(scores: _Buffer, q: Heads, k: KeyHeads, before: _Convolution | None) -> None:
    """`before`: the convolution that reads them; it needs zeros after each query, and whole patches."""
    heads, d = q.shape[2:]
    rows, keys, span, warps = TILES[scores.maps.dtype].scores
    margin, more = (before.margin, TALL - 1) if before else (0, 0)
    width = min(scores.first + scores.rows + scores.offset + margin, scores.maps.shape[2])
    wide, rest = _widths(d)
    fused_kernels.scores[_tiles(width, keys * span), _tiles(scores.rows + more, rows), len(scores.maps)](
        q, k, scores.maps, q.shape[1], scores.first, scores.offset, margin, width, d**-0.5,
        *q.stride()[:3], *k.stride()[:3], *scores.maps.stride()[:2],
        heads, heads // k.shape[2], d, wide, rest, before is not None, rows, keys, span, num_warps=warps,
    )  # fmt: skip


def _convolved(maps: _Buffer, into: Tensor, kernel: _Convolution) -> _Buffer:
    heads, n_read = kernel.weights.shape[:2]
    out = _Buffer(into, maps.first + kernel.reach, maps.offset - kernel.pad_left, maps.rows - kernel.reach)
    down, across, warps = TILES[maps.maps.dtype].patches
    tall, wide = down * TALL, across * WIDE
    width = out.first + out.rows + out.offset
    fused_kernels.convolve[_tiles(width, wide), _tiles(out.rows, tall), len(into)](
        maps.maps, kernel.weights, into, out.first, out.offset,
        *into.stride()[:2], n_read, heads, kernel.window, TALL, WIDE, down, across, num_warps=warps,
    )  # fmt: skip
    return out


def _rows_into(
    into: Tensor,
    maps: _Buffer,
    batch: int,
    head_pre: Tensor | None,
    head_post: Tensor | None,
    *,
    before: _Convolution | None,
    softmax: bool,
) -> _Buffer:
    """Mixing, softmax, mixing of every row, each left out where not wanted; `into` may be the maps.

    `before` as above.
    """
    heads = len(into) // batch
    padded, (cells, warps) = _padded(heads), TILES[into.dtype].row
    columns = min(max(cells // padded, 32), COLUMNS)
    scale = PROBABILITY if into.dtype == torch.float16 and softmax else 1.0
    margin, more = (before.margin, TALL - 1) if before else (0, 0)
    last = maps.first + maps.rows
    fused_kernels.rows[maps.rows + more, batch](
        maps.maps, into, *(into if mixing is None else mixing for mixing in (head_pre, head_post)), scale,
        maps.first, last, maps.offset, margin, *into.stride()[:2],
        heads, padded, head_pre is not None, softmax, head_post is not None, columns, num_warps=warps,
    )  # fmt: skip
    return _Buffer(into, maps.first, maps.offset, maps.rows)


def _values_into(out: Heads, maps: _Buffer, v: KeyHeads) -> None:
    heads, d = v.shape[2], v.shape[3]
    rows, keys, warps = TILES[v.dtype].values
    wide, rest = _widths(d)
    fused_kernels.values[_tiles(maps.rows, rows), len(maps.maps)](
        maps.maps, v, out, v.shape[1], maps.first, maps.rows, 1 / _scale(v.dtype),
        *maps.maps.stride()[:2], *v.stride()[:3], *out.stride()[:3],
        out.shape[2], out.shape[2] // heads, d, wide, rest, rows, keys, num_warps=warps, num_stages=3,
    )  # fmt: skip


def _scale(dtype: torch.dtype) -> float:
    return PROBABILITY if dtype == torch.float16 else 1.0


def _height(items: int, reach: int) -> int:
    """Rows of a slab: those that its convolutions read besides make full tiles with them."""
    rows, besides = max(SLAB_ROWS // items, ROWS // 2), reach + TALL - 1
    return max(rows // ROWS * ROWS or rows, 2 * besides) - (besides if reach else 0)


def _tiles(n: int, size: int) -> int:
    return -(-n // size)


def _up(n: int, multiple: int) -> int:
    return _tiles(n, multiple) * multiple


def _padded(heads: int) -> int:
    return max(16, triton.next_power_of_2(heads))


def _widths(d: int) -> tuple[int, int]:
    """d as a power of 2 and a rest: 96 is 64 and 32, without the waste of 128; 40 is 64 and no rest."""
    whole, wide = triton.next_power_of_2(max(d, 16)), triton.next_power_of_2(d + 1) // 2
    rest = triton.next_power_of_2(d - wide) if d > wide else 0
    return (wide, rest) if rest >= 32 and wide + rest < whole else (whole, 0)


def _whole(mixing: Mixing, heads: int) -> Float[Tensor, "whole whole"]:
    """Groups as one matrix over all heads."""
    matrix = mixing[0] if len(mixing) == 1 else torch.block_diag(*mixing)
    spare = _padded(heads) - heads
    return F.pad(matrix, (0, spare, 0, spare)) if spare else matrix.contiguous()


@lru_cache(maxsize=16)
def _tap_of(c_q: int, c_k: int, window: int, device: torch.device) -> Tensor:
    """[row read, column read, cell of the patch]: which tap, counted through the kernel; c_q c_k for none."""
    read, column = torch.arange(TALL + c_q - 1)[:, None, None, None], torch.arange(window)[:, None, None]
    a, b = read - torch.arange(TALL)[:, None], column - torch.arange(WIDE)
    inside = (a >= 0) & (a < c_q) & (b >= 0) & (b < c_k)
    return torch.where(inside, a * c_k + b, c_q * c_k).flatten(2).to(device)
