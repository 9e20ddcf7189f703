"""The Triton kernels of fused.py, which says what lies where; each is one pass over a slab's maps.

Strides are in numbers. Addresses of cells that are left out stay inside their tensor.
"""

from typing import no_type_check

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def _narrowed(x, dtype: tl.constexpr):
    """As `dtype`; float16 holds its largest number for what is larger."""
    if dtype == tl.float16:
        x = tl.clamp(x, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
    return x.to(dtype)


@triton.jit
@no_type_check
def _times(a, b, total):
    """total + a b; float32 in three products of the tensor cores, exact to its own rounding."""
    return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
@no_type_check
def scores(
    q, k, out, n_tokens, first, offset, margin, width, scale,
    q_batch, q_token, q_head, k_batch, k_token, k_head, out_item, out_row,
    HEADS: tl.constexpr, SHARED: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, REST: tl.constexpr,
    CAUSAL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """q.k times `scale`, SPAN tiles a program up to `margin` cells after its last query; CAUSAL: 0 there."""
    start, row, item = tl.program_id(0) * (SPAN * COLUMNS), tl.program_id(1) * ROWS, tl.program_id(2)
    batch, head = (item // HEADS).to(tl.int64), item % HEADS
    rows, at, beyond = row + tl.arange(0, ROWS), tl.arange(0, WIDE), WIDE + tl.arange(0, max(REST, 1))
    queries = first + rows
    out += item.to(tl.int64) * out_item
    stop = tl.minimum(tl.minimum(start + SPAN * COLUMNS, width), first + row + ROWS + offset + margin)
    if start < stop:
        asked = ((queries >= 0) & (queries < n_tokens))[:, None]
        left = q + batch * q_batch + head * q_head + tl.where(asked, queries[:, None], 0) * q_token
        k += batch * k_batch + head // SHARED * k_head
        query = tl.load(left + at, asked & (at < D), 0.0)
        if REST > 0:
            query_rest = tl.load(left + beyond, asked & (beyond < D), 0.0)
        for column in range(start, stop, COLUMNS):
            keys = column - offset + tl.arange(0, COLUMNS)
            there = (keys >= 0) & (keys < n_tokens)
            right = k + tl.where(there, keys, 0) * k_token
            total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
            total = _times(query, tl.load(right + at[:, None], there & (at < D)[:, None], 0.0), total)
            if REST > 0:
                key_rest = tl.load(right + beyond[:, None], there & (beyond < D)[:, None], 0.0)
                total = _times(query_rest, key_rest, total)
            total *= scale
            if CAUSAL:
                total = tl.where(keys <= queries[:, None], total, 0.0)
            place = out + rows[:, None] * out_row + column + tl.arange(0, COLUMNS)
            tl.store(place, _narrowed(total, out.dtype.element_ty))


@triton.jit
@no_type_check
def convolve(
    maps, weights, out, first, offset, item_stride, row_stride, n_read,
    HEADS: tl.constexpr, WINDOW: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """A row of the product is a patch of TALL x WIDE cells: what it reads, row after row, times weights."""
    column, row, item = tl.program_id(0) * (ACROSS * WIDE), tl.program_id(1) * (DOWN * TALL), tl.program_id(2)
    if column - offset <= first + row + DOWN * TALL - 1:
        patch, cell, window = tl.arange(0, DOWN * ACROSS), tl.arange(0, TALL * WIDE), tl.arange(0, WINDOW)
        down, across = row + patch // ACROSS * TALL, column + patch % ACROSS * WIDE
        start = item.to(tl.int64) * item_stride
        at = maps + start + down[:, None] * row_stride + across[:, None] + window
        weights += item % HEADS * n_read * (WINDOW * TALL * WIDE)
        at_weights = weights + window[:, None] * (TALL * WIDE) + cell
        total = tl.zeros([DOWN * ACROSS, TALL * WIDE], dtype=tl.float32)
        for read in range(n_read):
            total = _times(
                tl.load(at + read * row_stride), tl.load(at_weights + read * (WINDOW * TALL * WIDE)), total
            )
        at_rows, at_columns = down[:, None] + cell // WIDE, across[:, None] + cell % WIDE
        tl.store(out + start + at_rows * row_stride + at_columns, _narrowed(total, out.dtype.element_ty))


@triton.jit(do_not_specialize=["first", "n_rows", "n_keys", "item_stride", "row_stride"])
@no_type_check
def convolve_maps(
    maps, taps, out, first, n_rows, n_keys, item_stride, row_stride,
    HEADS: tl.constexpr, C_Q: tl.constexpr, C_K: tl.constexpr, PAD_LEFT: tl.constexpr, WINDOW: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """`convolve` of maps as they lie; row 0 is query `first`, and cells after a row's query are read as 0.

    A number that is not finite would spread over its patches: those are computed again, tap by tap. A map has
    fewer than 2**31 cells.
    """
    patch, cell, window = tl.arange(0, DOWN * ACROSS), tl.arange(0, TALL * WIDE), tl.arange(0, WINDOW)
    down = tl.program_id(1) * (DOWN * TALL) + patch // ACROSS * TALL
    across, item = tl.program_id(0) * (ACROSS * WIDE) + patch % ACROSS * WIDE, tl.program_id(2)
    maps += item.to(tl.int64) * item_stride - PAD_LEFT
    taps += item % HEADS * (C_Q * C_K)
    columns, tap_columns = across[:, None] + window, window[:, None] - cell % WIDE
    total = tl.zeros([DOWN * ACROSS, TALL * WIDE], dtype=tl.float32)
    for read in range(C_Q + TALL - 1):
        rows, tap_rows = down[:, None] + read - (C_Q - 1), read - cell // WIDE
        seen = (rows >= 0) & (rows < n_rows) & (columns >= PAD_LEFT) & (columns < n_keys + PAD_LEFT)
        seen &= columns <= first + rows + PAD_LEFT
        of_kernel = (tap_rows >= 0) & (tap_rows < C_Q) & (tap_columns >= 0) & (tap_columns < C_K)
        weights = tl.load(taps + tap_rows * C_K + tap_columns, of_kernel, 0.0).to(maps.dtype.element_ty)
        total = _times(tl.load(maps + rows * row_stride + columns, seen, 0.0), weights, total)
    at_rows, at_columns = down[:, None] + cell // WIDE, across[:, None] + cell % WIDE
    if tl.sum(tl.sum(tl.where(total - total == 0.0, 0, 1), 1), 0) > 0:
        total = tl.zeros([DOWN * ACROSS, TALL * WIDE], dtype=tl.float32)
        for tap in range(C_Q * C_K):
            above, beside = at_rows + tap // C_K - (C_Q - 1), at_columns + tap % C_K
            inside = (above >= 0) & (above < n_rows) & (beside >= PAD_LEFT) & (beside < n_keys + PAD_LEFT)
            inside &= beside <= first + above + PAD_LEFT
            cells = tl.load(maps + above * row_stride + beside, inside, 0.0)
            total += cells.to(tl.float32) * tl.load(taps + tap).to(maps.dtype.element_ty).to(tl.float32)
    valid = (at_rows < n_rows) & (at_columns < n_keys)
    out += item.to(tl.int64) * n_rows * n_keys
    tl.store(out + at_rows * n_keys + at_columns, total.to(out.dtype.element_ty), valid)


@triton.jit
@no_type_check
def _row_scores(at, matrix, valid, BEFORE: tl.constexpr):
    maps = tl.load(at, valid, 0.0)
    if BEFORE:
        return _times(matrix, maps, tl.zeros(maps.shape, dtype=tl.float32))
    return maps.to(tl.float32)


@triton.jit
@no_type_check
def rows(
    maps, into, before, after, scale, first, last, offset, margin, item_stride, row_stride,
    HEADS: tl.constexpr, PADDED: tl.constexpr, BEFORE: tl.constexpr, SOFTMAX: tl.constexpr,
    AFTER: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One query's row of every head: mix, softmax, mix, and zeros up to `margin` cells past it.

    `into` has the strides of `maps`, and may be them.
    """
    row = tl.num_programs(0) - 1 - tl.program_id(0)  # the long ones first
    heads, columns = tl.arange(0, PADDED), tl.arange(0, COLUMNS)
    own = first + row + offset  # the column of its own key; below `offset` before the first token
    stop = tl.where(first + row < last, own, -1)  # rows beyond the slab are all zeros
    # rows that are left out stay within the buffer: their addresses are made all the same
    item = tl.program_id(1).to(tl.int64) * HEADS + tl.minimum(heads, HEADS - 1)
    place = item[:, None] * item_stride + row.to(tl.int64) * row_stride + columns
    at = maps + place
    valid = (heads < HEADS)[:, None]
    square = heads[:, None] * PADDED + heads
    matrix_before, matrix_after = before, after
    if BEFORE:
        matrix_before = tl.load(before + square).to(maps.dtype.element_ty)
    if AFTER:
        matrix_after = tl.load(after + square)
    top, total = tl.full([PADDED], 0.0, dtype=tl.float32), tl.full([PADDED], 1.0, dtype=tl.float32)
    if SOFTMAX:  # noqa: SIM102 - known when the kernel is made
        if stop >= offset:
            top, total = top - float("inf"), total * 0.0
            # from key 0 on, so that no part is without a cell
            for start in range(offset // COLUMNS * COLUMNS, own + 1, COLUMNS):
                inside = (start + columns >= offset) & (start + columns <= stop)
                scores = _row_scores(at + start, matrix_before, valid, BEFORE)
                scores = tl.where(inside, scores, float("-inf"))
                higher = tl.maximum(top, tl.max(scores, 1) * LOG2_E)
                shares = tl.exp2(scores * LOG2_E - higher[:, None])
                total = total * tl.exp2(top - higher) + tl.sum(shares, 1)
                top = higher
    for start in range(0, own + 1 + margin, COLUMNS):
        inside = (start + columns >= offset) & (start + columns <= stop)
        weights = _row_scores(at + start, matrix_before, valid, BEFORE)
        if SOFTMAX:
            weights = tl.exp2(weights * LOG2_E - top[:, None]) * (scale / total)[:, None]
        weights = tl.where(inside, weights, 0.0)
        if AFTER:
            zeros = tl.zeros([PADDED, COLUMNS], dtype=tl.float32)
            weights = _times(matrix_after, weights.to(into.dtype.element_ty), zeros)
        tl.store(into + place + start, _narrowed(weights, into.dtype.element_ty), valid)


@triton.jit
@no_type_check
def values(
    maps, v, out, n_tokens, first, n_rows, factor,
    item_stride, row_stride, v_batch, v_token, v_head, out_batch, out_token, out_head,
    HEADS: tl.constexpr, SHARED: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, REST: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Maps times values times `factor`, ROWS queries a program."""
    row, item = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS, tl.program_id(1)
    batch, head = (item // HEADS).to(tl.int64), item % HEADS
    rows, keys, at = row + tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, WIDE)
    beyond, queries = WIDE + tl.arange(0, max(REST, 1)), first + rows
    maps += item.to(tl.int64) * item_stride + rows[:, None] * row_stride + keys
    v += batch * v_batch + head // SHARED * v_head
    total = tl.zeros([ROWS, WIDE], dtype=tl.float32)
    total_rest = tl.zeros([ROWS, max(REST, 1)], dtype=tl.float32)
    past = (first + row + 1) // KEYS * KEYS  # up to here no row has a masked cell
    for start in range(0, past, KEYS):
        weights, values = tl.load(maps + start), v + (start + keys)[:, None] * v_token
        total = _times(weights, tl.load(values + at, at < D, 0.0), total)
        if REST > 0:
            total_rest = _times(weights, tl.load(values + beyond, beyond < D, 0.0), total_rest)
    for start in range(past, tl.minimum(first + row + ROWS, n_tokens), KEYS):
        there = start + keys
        weights = tl.where(there <= queries[:, None], tl.load(maps + start), 0.0)
        valid = (there < n_tokens)[:, None]
        values = v + tl.minimum(there, n_tokens - 1)[:, None] * v_token
        total = _times(weights, tl.load(values + at, valid & (at < D), 0.0), total)
        if REST > 0:
            total_rest = _times(weights, tl.load(values + beyond, valid & (beyond < D), 0.0), total_rest)
    valid = (rows < n_rows)[:, None]
    place = out + batch * out_batch + head * out_head + queries.to(tl.int64)[:, None] * out_token
    tl.store(place + at, (total * factor).to(out.dtype.element_ty), valid & (at < D))
    if REST > 0:
        tl.store(place + beyond, (total_rest * factor).to(out.dtype.element_ty), valid & (beyond < D))
