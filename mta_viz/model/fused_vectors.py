"""The steps on each head's vectors as Triton kernels, one pass over memory each: rotary, group norm, gate.

The mathematics and its rounding are those of ops.py and attention.py. Owns no choice of when to run.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from mta_viz.model.ops import Heads

ROWS = 32  # heads' vectors of one program


def rotary(x: Heads, cos: Float[Tensor, "position pair"], sin: Float[Tensor, "position pair"]) -> Heads:
    """`ops.rotary`, from tables of the angles."""
    x, (n_tokens, pairs) = x.contiguous(), cos.shape
    out, width = torch.empty_like(x), x.shape[2] * x.shape[3]
    block = triton.next_power_of_2(width // 2)
    with torch.cuda.device_of(x):  # Triton takes the current device
        _rotary[(x.shape[0] * n_tokens,)](x, cos, sin, out, n_tokens, width, pairs, block)
    return out


def normed_and_gated(
    z: Heads, gain: Tensor | None, factor: float, eps: float, gate: torch.nn.Linear | None
) -> Heads:
    """The group norm and the gate of one number a head, each optional."""
    z = z.contiguous()
    out, d = torch.empty_like(z), z.shape[-1]
    rows = z.numel() // d
    with torch.cuda.device_of(z):
        _normed_and_gated[(triton.cdiv(rows, ROWS),)](
            z, gain, gate.weight if gate else None, gate.bias if gate else None, out, rows, eps, factor,
            gain is not None, gate is not None, d, triton.next_power_of_2(d), ROWS,
        )  # fmt: skip
    return out


@triton.jit
@no_type_check
def _rotary(x, cos, sin, out, n_tokens, WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr):
    token, pair = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    valid, turn = pair < WIDTH // 2, token % n_tokens * PAIRS + pair % PAIRS
    at = token * WIDTH + 2 * pair
    even, odd = tl.load(x + at, valid, 0.0).to(tl.float32), tl.load(x + at + 1, valid, 0.0).to(tl.float32)
    c, s = tl.load(cos + turn, valid, 0.0), tl.load(sin + turn, valid, 0.0)
    tl.store(out + at, (even * c - odd * s).to(out.dtype.element_ty), valid)
    tl.store(out + at + 1, (even * s + odd * c).to(out.dtype.element_ty), valid)


@triton.jit
@no_type_check
def _normed_and_gated(
    z, gain, gate, bias, out, n_rows, eps, factor,
    NORM: tl.constexpr, GATE: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row, at = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PADDED)
    valid = (row < n_rows)[:, None] & (at < D)
    places = row.to(tl.int64)[:, None] * D + at
    dtype = out.dtype.element_ty
    values = tl.load(z + places, valid, 0.0).to(tl.float32)
    if NORM:
        values *= tl.rsqrt(tl.sum(values * values, 1) / D + eps)[:, None]
        values = values.to(dtype).to(tl.float32) * tl.load(gain + at, at < D, 0.0).to(tl.float32)
        values = (values * factor).to(dtype).to(tl.float32)
    if GATE:
        opening = tl.sum(values * tl.load(gate + at, at < D, 0.0).to(tl.float32), 1)
        values *= tl.sigmoid(opening + tl.load(bias).to(tl.float32))[:, None]
    tl.store(out + places, values.to(dtype), valid)
