"""On a GPU: half precision gives the answers of float32, and the fast kernel gradient is conv2d's."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

from mta_viz.analysis.labs.blocks import evaluate_blocks
from mta_viz.model import ops
from mta_viz.run import tracing
from mta_viz.tasks.blocks import BlockTask

pytestmark = pytest.mark.gpu

CHECKPOINT = Path(__file__).parents[2] / "assets" / "blocks-n5-mta"
N, BATCH = 1000, 20


def answers(dtype: torch.dtype) -> torch.Tensor:
    """Most probable letter before each answer letter: [sample, letter]."""
    task = BlockTask()
    model = tracing.load(CHECKPOINT, device="cuda", dtype=dtype)
    tokens = task.sample_range(0, N, seed=0).tokens
    before = slice(-task.n_answer - 1, -1)
    return torch.cat([tracing.score(model, part)[:, before].argmax(-1).cpu() for part in tokens.split(BATCH)])


def test_bfloat16_answers_like_float32():
    same = (answers(torch.float32) == answers(torch.bfloat16)).all(1)
    assert same.float().mean() >= 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_shipped_model_keeps_its_error(dtype):
    model = tracing.load(CHECKPOINT, device="cuda", dtype=dtype)
    assert evaluate_blocks(model, BlockTask(), n=N).error <= 0.01


@pytest.mark.parametrize(("c_q", "c_k", "pad_left"), [(2, 9, 4), (6, 11, 5), (1, 3, 2)])
def test_training_uses_the_fast_gradient_and_it_is_that_of_conv2d(monkeypatch, c_q, c_k, pad_left):
    """cuDNN's TF32, whose 10-bit products would hide or fake a difference, is off for both."""
    fast = Mock(wraps=ops.trainable_convolution)
    monkeypatch.setattr(ops, "trainable_convolution", fast)
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 3, 130, 130), (3, c_q, c_k)
    maps, kernel = (torch.randn(shape, generator=generator).cuda().requires_grad_() for shape in shapes)
    upstream = torch.randn(shapes[0], generator=generator).cuda()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found = ops.key_query_convolution(maps, kernel, pad_left)
        padded = F.pad(maps, (pad_left, c_k - 1 - pad_left, c_q - 1, 0))
        expected = F.conv2d(padded, kernel[:, None], groups=3)
        ours, theirs = (torch.autograd.grad(out, (maps, kernel), upstream) for out in (found, expected))
    fast.assert_called_once()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
