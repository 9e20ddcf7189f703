"""The CPU's own way through a layer with kernels gives what slabs give and leaves the processor as it was."""

from pathlib import Path

import pytest
import torch
from model_cases import read_case
from safetensors.torch import load_file

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model import channels
from mta_viz.model.attention import Attention
from mta_viz.model.ops import denormals_flushed

FULL = MTAOptions(pre_kernel=(6, 11), post_kernel=(4, 3), head_pre=True, head_post_group=2, gate="1d")
CASES = {
    "full": (8, 8, FULL),
    "shared keys": (8, 2, FULL),
    "mixing alone before": (4, 4, MTAOptions(post_kernel=(3, 3), head_pre=True)),
    "a head": (1, 1, MTAOptions(pre_kernel=(2, 4), pad_key="left")),
    "six heads": (6, 3, MTAOptions(post_kernel=(3, 4), pad_key="right", head_pre=True)),
    "more heads than channels": (
        18,
        18,
        MTAOptions(pre_kernel=(1, 3), post_kernel=(5, 1), head_post_linear=True),
    ),
}


def _attention(heads: int, kv_heads: int, mta: MTAOptions) -> Attention:
    torch.manual_seed(0)
    config = ModelConfig(12, 1, heads, kv_heads, 4, 8, 5, mta=mta)
    attention = Attention(config, 0).requires_grad_(False)
    for parameter in attention.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    return attention


@pytest.mark.parametrize("n_tokens", [1, 7, 50])
@pytest.mark.parametrize("rows", [1, 3, channels.ROWS])
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_one_slab(
    case: str, rows: int, n_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a group has fewer rows than are read before it, and where the last one is not full."""
    monkeypatch.setattr(channels, "ROWS", rows)
    monkeypatch.setattr(channels, "LEAST", 1)
    attention = _attention(*CASES[case])
    with torch.no_grad():
        qkv = attention.project(3 * torch.randn(2, n_tokens, 12))
        want = attention.attend_rows(qkv, attention.rows(0, n_tokens))
        monkeypatch.delattr(Attention, "attend_rows")  # the way out where numbers are not finite
        torch.testing.assert_close(attention.attend(qkv), want, rtol=0, atol=2e-6 * float(want.abs().max()))


def test_a_huge_later_score_changes_nothing() -> None:
    """A key whose products overflow is not seen by earlier queries, in no step."""
    attention = _attention(*CASES["full"])
    with torch.no_grad():
        qkv = attention.project(torch.randn(1, 80, 12))
        before = attention.attend(qkv)[:, :70]
        qkv.k[:, 70:] = 3e38
        torch.testing.assert_close(attention.attend(qkv)[:, :70], before, rtol=0, atol=1e-5)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["mta_full", "mta_headgroups2", "mta_toy"])
def test_golden_logits(golden: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "LEAST", 1)
    monkeypatch.setattr(channels, "ROWS", 3)
    want = load_file(golden / name / "golden.safetensors")
    with torch.no_grad():
        got = read_case(golden / name).build()(want["tokens"])
    torch.testing.assert_close(got, want["logits"], rtol=0, atol=1e-4)


def test_rows_are_causal_to_the_last_bit() -> None:
    attention = _attention(*CASES["full"])
    x = torch.randn(1, 90, 12)
    with torch.no_grad():
        before = attention(x)
        x[:, 71] += 1.0
        after = attention(x)
    assert torch.equal(before[:, :71], after[:, :71]) and not torch.equal(before[:, 71:], after[:, 71:])


@pytest.mark.parametrize("already", [False, True])
def test_denormals_count_as_nothing_until_the_work_is_done(already: bool) -> None:
    def flushed() -> bool:
        return float(torch.tensor(2e-38) / 100) == 0.0

    torch.set_flush_denormal(already)
    try:
        with torch.no_grad(), denormals_flushed(torch.ones(1)):
            assert flushed()
        assert flushed() is already
    finally:
        torch.set_flush_denormal(False)
