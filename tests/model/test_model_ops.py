"""The mathematics of one step at a time, on cases small enough to redo by hand."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model import ops
from mta_viz.model.attention import Attention

# each tap is one decimal place, so every digit of the result names the tap that put it there:
# ones, tens, hundreds = previous query; thousands and up = current query
TAPS = torch.tensor([[[1.0, 10.0, 100.0], [1e3, 1e4, 1e5]]])
SCORES = torch.tensor([[[[1.0, 0, 0], [2, 3, 0], [4, 5, 6]]]])
CONVOLVED = {
    "both": [[10_000, 1_000, 0], [320_010, 32_001, 3_000], [540_320, 654_032, 65_003]],
    "left": [[100_000, 10_000, 1_000], [200_100, 320_010, 32_001], [400_200, 540_320, 654_032]],
    "right": [[1_000, 0, 0], [32_001, 3_000, 0], [654_032, 65_003, 6_000]],
}


@pytest.mark.parametrize("pad_key", ["both", "left", "right"])
def test_key_query_convolution_by_hand(pad_key: str) -> None:
    """Scores 1 / 2 3 / 4 5 6 with a 2 x 3 kernel.

    "both", query 2, key 1: previous query's keys 0..2 are 2 3 0 -> 2*1 + 3*10 + 0*100 = 32; its own
    keys 0..2 are 4 5 6 -> 4*1000 + 5*10000 + 6*100000 = 654000; together 654032. "left" puts that
    number at key 2 (it reads keys 0..2 there), "right" at key 0.
    """
    config = ModelConfig(2, 1, 1, 1, 2, 4, 5, mta=MTAOptions(pre_kernel=(2, 3), pad_key=pad_key))
    out = ops.key_query_convolution(SCORES, TAPS, config.key_pad_left(3))
    assert out[0, 0].tolist() == CONVOLVED[pad_key]


def test_each_head_has_its_own_kernel() -> None:
    """Kernels 2 and 3 of size 1 x 1 on maps of ones."""
    out = ops.key_query_convolution(torch.ones(1, 2, 2, 2), torch.tensor([[[2.0]], [[3.0]]]), 0)
    assert out[0, :, 1, 1].tolist() == [2.0, 3.0]


def test_head_mixing_is_target_by_source() -> None:
    """Maps 10 and 1: target 0 = 1*10 + 2*1 = 12, target 1 = 3*10 + 4*1 = 34 (transposed: 13, 24)."""
    maps = torch.tensor([10.0, 1.0]).reshape(1, 2, 1, 1)
    mixed = ops.mix_heads(maps, torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    assert mixed.flatten().tolist() == [12.0, 34.0]


def test_head_groups_are_consecutive_heads() -> None:
    """Heads 1 2 | 3 4; group 0 sums its heads into head 0, group 1 swaps: 3 0 | 4 3."""
    maps = torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    mixing = torch.tensor([[[1.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert ops.mix_heads(maps, mixing).flatten().tolist() == [3.0, 0.0, 4.0, 3.0]


def test_rotary_turns_interleaved_pairs() -> None:
    """theta 100, d 4: pair (0, 1) turns by the position, pair (2, 3) by position / 10.

    (1, 0) at position 2 -> (cos 2, sin 2); (0, 1) at 0.2 -> (-sin 0.2, cos 0.2).
    """
    x = torch.tensor([1.0, 0.0, 0.0, 1.0]).reshape(1, 1, 1, 4)
    expected = [math.cos(2), math.sin(2), -math.sin(0.2), math.cos(0.2)]
    turns = ops.rotary_frequencies(4, 100.0, None, "cpu")
    assert ops.rotary(x, torch.tensor([2]), turns).flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_scores_are_divided_by_the_root_of_the_head_width() -> None:
    """q = (1, 1, 1, 1), k = (1, 2, 3, 4): 10 / sqrt(4) = 5."""
    scores = ops.attention_scores(torch.ones(1, 1, 1, 4), torch.tensor([1.0, 2, 3, 4]).reshape(1, 1, 1, 4))
    assert scores.item() == 5.0


def test_query_heads_share_consecutively() -> None:
    """Four query heads, two kv heads worth 1 and 2: heads 0 and 1 read the first."""
    kv = torch.tensor([1.0, 2.0]).reshape(1, 1, 2, 1)
    assert ops.repeat_kv_heads(kv, 4).flatten().tolist() == [1.0, 1.0, 2.0, 2.0]


def test_softmax_ignores_later_keys() -> None:
    """Row 0 sees one key; row 1 two equal ones; a huge future score changes nothing."""
    future = ops.future_cells(range(0, 2), 3, torch.device("cpu"))
    scores = torch.tensor([[[[0.0, 99.0, 99.0], [5.0, 5.0, 99.0]]]])
    assert ops.masked_softmax(scores, future)[0, 0].tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]


class SoftmaxDtypes(TorchDispatchMode):
    """Notes the dtype every softmax is computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.dtype] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "softmax" in str(function):
            self.seen.append(args[0].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_softmax_of_half_precision_runs_in_float32(dtype: torch.dtype) -> None:
    """ln 3 against 0: 0.25 and 0.75, from a softmax in float32, cast back."""
    scores = torch.tensor([[[[0.0, math.log(3)]]]], dtype=dtype)
    with SoftmaxDtypes() as dtypes:
        out = ops.masked_softmax(scores, torch.zeros(1, 2, dtype=torch.bool))
    assert dtypes.seen == [torch.float32]
    assert out.dtype == dtype
    assert out.flatten().tolist() == pytest.approx([0.25, 0.75], abs=2e-3)


def test_future_cells_of_a_slab() -> None:
    """Rows 1 and 2 of four keys: row 1 may see keys 0..1, row 2 keys 0..2."""
    cells = ops.future_cells(range(1, 3), 4, torch.device("cpu"))
    assert cells.tolist() == [[False, False, True, True], [False, False, False, True]]


def _attention(layer: int, **options: object) -> Attention:
    """One head of width 2, output projection the identity."""
    attention = Attention(ModelConfig(2, 2, 1, 1, 2, 4, 5, mta=MTAOptions(**options)), layer)
    with torch.no_grad():
        attention.wo.weight.copy_(torch.eye(2))
    return attention.requires_grad_(False)


def test_group_norm_by_hand() -> None:
    """z = (3, 4): mean square 12.5, so (3, 4) / 3.5355 = (0.8485, 1.1314); weights 1 and 2."""
    attention = _attention(1, group_norm=True)
    attention.group_norm.copy_(torch.tensor([1.0, 2.0]))
    out = attention.output(torch.tensor([3.0, 4.0]).reshape(1, 1, 1, 2))
    assert out.flatten().tolist() == pytest.approx([0.84853, 2.26274], abs=1e-5)


def test_group_norm_has_its_own_epsilon() -> None:
    """z = (0.001, 0.001): mean square 1e-6, with eps 1e-5 -> 0.001 / sqrt(1.1e-5) = 0.30151."""
    out = _attention(0, group_norm=True).output(torch.full((1, 1, 1, 2), 0.001))
    assert out.flatten().tolist() == pytest.approx([0.30151, 0.30151], abs=1e-5)


def test_depth_scale_by_hand() -> None:
    """Layer 0: 1 - (0.8 - 0.6) = 0.8; layer 1: 0.2 + 0.6 exp(-0.3) = 0.64449. Unit values stay 1."""
    ones = torch.ones(1, 1, 1, 2)
    for layer, factor in ((0, 0.8), (1, 0.64449)):
        out = _attention(layer, group_norm=True, depth_scale=True).output(ones)
        assert out.flatten().tolist() == pytest.approx([factor, factor], abs=1e-5)


def test_gate_per_head_by_hand() -> None:
    """z = (3, 4), weight (1, -1), bias 1 + ln 3: sigmoid(3 - 4 + 1 + ln 3) = 3/4 on both widths."""
    attention = _attention(0, gate="1d")
    attention.gate.weight.copy_(torch.tensor([[1.0, -1.0]]))
    attention.gate.bias.fill_(1 + math.log(3))
    out = attention.output(torch.tensor([3.0, 4.0]).reshape(1, 1, 1, 2))
    assert out.flatten().tolist() == pytest.approx([2.25, 3.0], abs=1e-6)


def test_gate_per_width_reads_the_normed_output() -> None:
    """z = (3, 4) normed is (0.84853, 1.13137); gate logits (0 + ln 3, 1.13137): 0.75 and 0.75609."""
    attention = _attention(0, gate="dd", group_norm=True)
    attention.gate.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    attention.gate.bias.copy_(torch.tensor([math.log(3), 0.0]))
    out = attention.output(torch.tensor([3.0, 4.0]).reshape(1, 1, 1, 2))
    assert out.flatten().tolist() == pytest.approx([0.63640, 0.85542], abs=1e-5)
