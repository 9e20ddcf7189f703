"""Health of planted models, and the next tokens of a run."""

from math import isnan

import pytest
import torch

from mta_viz.analysis.attention.cells import top_tokens
from mta_viz.analysis.attention.changes import health
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture
from mta_viz.tokenizers.builtin import BytesTokenizer


def model(**mta: object) -> HookedMTA:
    torch.manual_seed(0)
    return HookedMTA(
        ModelConfig(
            d_model=8,
            n_layers=2,
            n_heads=2,
            n_kv_heads=2,
            d_head=4,
            d_mlp=8,
            vocab_size=7,
            mta=MTAOptions(**mta),
        )
    )


def test_a_fresh_model_is_all_identity_and_sums_to_one() -> None:
    fresh = model(pre_kernel=(2, 3), post_kernel=(2, 3), gate="1d")
    found = health(fresh, capture(fresh, [1, 2, 3, 4]))
    assert (found.n_nan, found.n_inf, found.kernels_at_identity, found.largest_tap) == (0, 0, (8, 8), 1.0)
    assert found.row_sum_range == pytest.approx((1, 1), abs=1e-5)
    assert found.gates_below_0_05 == 0 and found.self_check.logits_error < 1e-4


def test_planted_faults_are_counted() -> None:
    broken = model(pre_kernel=(2, 3), gate="1d")
    with torch.no_grad():
        broken.blocks[0].attn.kernel_pre[1, 0, 0] = -7.0
        broken.blocks[1].mlp.w1.weight[0, :2] = float("nan")
        broken.blocks[1].mlp.w1.weight[1, 0] = float("-inf")
        broken.blocks[1].attn.gate.bias.fill_(-50.0)
    found = health(broken)
    assert (found.n_nan, found.n_inf, found.kernels_at_identity, found.largest_tap) == (2, 1, (3, 4), 7.0)
    assert found.gates_below_0_05 is found.row_sum_range is found.self_check is None
    # One of two layers has all its gates closed.
    assert health(broken, capture(broken, [1, 2])).gates_below_0_05 == 0.5


def test_a_plain_model_has_no_kernels_and_no_gates() -> None:
    plain = model()
    found = health(plain, capture(plain, [1, 2]))
    assert found.kernels_at_identity == (0, 0) and found.largest_tap is None
    assert found.gates_below_0_05 is None


def test_top_tokens_are_the_softmax_in_order() -> None:
    run = capture(model(), [1, 2, 3])
    found = top_tokens(run, 1, k=3)
    probabilities = run.logits()[1].softmax(0)
    assert [one.id for one in found] == probabilities.argsort(descending=True)[:3].tolist()
    assert [one.probability for one in found] == pytest.approx(
        probabilities.sort().values.flip(0)[:3].tolist()
    )
    assert found[0].piece == f"<{found[0].id}>"
    assert sum(one.probability for one in top_tokens(run, 2, k=100)) == pytest.approx(1)


def test_tokens_are_named_by_the_tokenizer() -> None:
    named = model()
    named.tokenizer = BytesTokenizer()
    found = top_tokens(capture(named, [1, 2]), 0, k=1)[0]
    assert found.piece == named.tokenizer.pieces((found.id,))[0]


@pytest.mark.parametrize("layer", [0, 1])
def test_a_nan_is_never_lost_on_the_way(layer: int) -> None:
    broken = model(pre_kernel=(2, 3), gate="1d")
    with torch.no_grad():
        broken.blocks[layer].attn.kernel_pre[0, 0, 0] = float("nan")
    found = health(broken, capture(broken, [1, 2, 3]))
    told = (found.largest_tap, found.gates_below_0_05, *found.row_sum_range)
    assert all(map(isnan, told)), told


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_no_prediction_is_better_than_one_from_nan(value: str) -> None:
    broken = model()
    with torch.no_grad():
        broken.ln_final.weight[0] = float(value)
    with pytest.raises(MtaVizError, match="NaN"):
        top_tokens(capture(broken, [1, 2]), 1)
    with pytest.raises(PromptError, match="position 2 does not exist; expected 0 to 1"):
        top_tokens(capture(model(), [1, 2]), 2)
