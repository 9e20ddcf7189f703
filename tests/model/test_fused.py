"""The fused kernels against a float64 derivation, over options and odd lengths; a CPU interprets them."""

import os

import numpy as np
import pytest
import reference
import torch

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton")

from mta_viz.model import fused, fused_vectors, ops  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
# of bfloat16 1.66e-3 are the rounding of the result
LARGEST_ERROR = {torch.float32: 1e-5, torch.bfloat16: 2e-3, torch.float16: 7e-4}
# heads, heads of keys, width, kernel before, kernel after, padding, mixing before, group after
OPTIONS = {
    "paper": (16, 16, 96, (6, 11), (6, 11), "both", True, 16),
    "mixing alone": (16, 16, 96, None, None, "both", True, 16),
    "toy": (2, 2, 128, (2, 9), None, "both", False, None),
    "grouped queries": (9, 3, 64, (6, 11), None, "both", False, None),
    "after alone, left": (6, 2, 32, None, (3, 4), "left", True, 3),
    "right": (4, 4, 16, (1, 5), (4, 1), "right", False, 2),
    "wide": (3, 1, 48, (9, 21), (2, 33), "both", True, None),
    "many heads": (32, 8, 32, (2, 3), (2, 3), "both", True, 4),
}


def made(options, n_tokens, dtype, batch=1):
    """Random queries, keys, values, and steps: far enough from identity that every one matters."""
    heads, kv_heads, d, pre, post, pad, mixed, group = options
    draw = torch.Generator().manual_seed(n_tokens)
    normal = lambda *shape: torch.randn(*shape, generator=draw)  # noqa: E731
    q, k, v = (normal(batch, n_tokens, count, d) for count in (heads, kv_heads, kv_heads))

    def kernel(size):
        if size is None:
            return None
        left = {"both": (size[1] - 1) // 2, "left": size[1] - 1, "right": 0}[pad]
        taps = 0.3 * normal(heads, *size)
        taps[:, -1, left] += 1
        return fused.Kernel(taps.to(DEVICE, dtype), left)

    def mixing(size):
        return (
            None
            if size is None
            else (torch.eye(size) + 0.3 * normal(heads // size, size, size)).to(DEVICE, dtype)
        )

    steps = fused.Steps(kernel(pre), mixing(heads if mixed else None), kernel(post), mixing(group))
    return *(part.to(DEVICE, dtype) for part in (q, k, v)), steps, pad


def expected(q, k, v, steps, pad):
    """[position, head, d] of one prompt, float64."""
    wide = lambda part: np.asarray(part.detach().double().cpu())  # noqa: E731
    q, k, v = wide(q), wide(k), wide(v)
    shared = [head // (q.shape[1] // k.shape[1]) for head in range(q.shape[1])]
    maps = np.einsum("qhd,khd->hqk", q, k[:, shared]) / q.shape[-1] ** 0.5
    past = reference.causal(len(q))
    if steps.pre:
        maps = reference.convolve(np.where(past, maps, 0), wide(steps.pre.taps), pad)
    if steps.head_pre is not None:
        maps = reference.mix(maps, wide(torch.block_diag(*steps.head_pre)))
    maps = reference.softmax(np.where(past, maps, -np.inf))
    if steps.post:
        maps = np.where(past, reference.convolve(maps, wide(steps.post.taps), pad), 0)
    if steps.head_post is not None:
        maps = reference.mix(maps, wide(torch.block_diag(*steps.head_post)))
    return np.einsum("hqk,khd->qhd", maps, v[:, shared])


def error(found, want):
    found = np.asarray(found.double().cpu())
    return np.linalg.norm(found - want) / np.linalg.norm(want)


@pytest.fixture(autouse=True)
def poisoned():
    """New memory is full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, *[torch.bfloat16] * CUDA])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_values_are_those_of_float64(options, dtype, monkeypatch):
    monkeypatch.setattr(fused, "SLAB_ROWS", 64 * options[0])  # several slabs
    *qkv, steps, pad = made(options, 157 if CUDA else 83, dtype)
    found = fused.weighted_values(*qkv, steps)
    assert error(found[0], expected(*(part[0] for part in qkv), steps, pad)) < LARGEST_ERROR[dtype]


@pytest.mark.skipif(not CUDA, reason="an interpreter takes minutes")
def test_sharp_attention_over_a_long_prompt_keeps_bfloat16s_bar():
    *qkv, steps, pad = made(OPTIONS["grouped queries"], 1031, torch.bfloat16)
    found = fused.weighted_values(*qkv, steps)
    assert error(found[0], expected(*(part[0] for part in qkv), steps, pad)) < 1.9e-3


def test_prompts_of_a_batch_and_the_future_do_not_touch():
    q, k, v, steps, pad = made(OPTIONS["after alone, left"], 71, torch.float32, batch=2)
    found = fused.weighted_values(q, k, v, steps)
    for prompt, values in enumerate(found):
        assert error(values, expected(q[prompt], k[prompt], v[prompt], steps, pad)) < 1e-5
    k[:, 40:], v[:, 40:] = 7.0, -7.0
    assert torch.equal(fused.weighted_values(q, k, v, steps)[:, :40], found[:, :40])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, *[torch.bfloat16] * CUDA])
@pytest.mark.parametrize("broken", [False, True])
def test_maps_are_convolved_as_they_lie(broken, dtype):
    """A crop of rows 40 on, memory between its rows; NaN and infinite numbers reach what they reach."""
    draw = torch.Generator().manual_seed(0)
    maps, taps = torch.randn(2, 3, 39, 81, generator=draw), torch.randn(3, 6, 11, generator=draw)
    if broken:
        maps[0, 1, 20, 30], maps[1, 2, 7, 3], maps[1, 2, 9, 4] = torch.nan, torch.inf, -torch.inf
    maps, taps = maps.to(DEVICE, dtype)[:, :, 2:, :77], taps.to(DEVICE, dtype)
    future = ops.future_cells(range(40, 77), 77, maps.device)
    wide = [maps.double(), taps.double()]
    want = ops.causal_convolution(*wide, 5, future), ops.key_query_convolution(*wide, 5)
    bound = 1e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for first, there in zip((40, 77), want, strict=True):  # with 77, no cell is in the future
        found = fused.convolved(maps, fused.Kernel(taps, 5), first).double()
        close = {"rtol": bound, "atol": bound * float(there[there.isfinite()].abs().max())}
        torch.testing.assert_close(found, there, equal_nan=True, **close)


def test_huge_scores_give_numbers():
    q, k, v, steps, _ = made(OPTIONS["toy"], 37, torch.float16)
    assert fused.weighted_values(500 * q, 500 * k, v, steps).isfinite().all()


def test_rotary_norm_and_gate():
    from mta_viz.model import backends

    z, gain = torch.randn(2, 19, 3, 10, device=DEVICE), torch.randn(10, device=DEVICE)
    gate = torch.nn.Linear(10, 1, device=DEVICE)
    with torch.no_grad():
        want = ops.rms_normalize(z, 1e-5) * gain * 0.7
        want = want * torch.sigmoid(gate(want))
        torch.testing.assert_close(fused_vectors.normed_and_gated(z, gain, 0.7, 1e-5, gate), want)
        turned = fused_vectors.rotary(z, *backends.angles(19, 10, 100.0, None, z.device))
        turns = ops.rotary_frequencies(10, 100.0, None, DEVICE)
        torch.testing.assert_close(turned, ops.rotary(z, torch.arange(19, device=DEVICE), turns))
