"""Why a cell has its value: by hand, and as an exact sum for every variant."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES, blocks, prompts, random_case
from torch import Tensor

from mta_viz.analysis.attention.decomposition import (
    Convolved,
    Decomposition,
    Mixed,
    Passed,
    Scored,
    Softmaxed,
    chain,
    decompose,
    largest_first,
)
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import PromptError
from mta_viz.model.attention import Attention
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture, run_hooks

ROOT = math.sqrt(2)


def by_hand(mta: MTAOptions, n_layers: int = 1) -> HookedMTA:
    """Every token is the vector (1, 1); head h has q = (h + 1, 0) and k = (1, 0) before rotation.

    So the raw score of head h is (h + 1) cos(query - key) / sqrt(2), whatever the prompt.
    """
    config = ModelConfig(
        d_model=2, n_layers=n_layers, n_heads=2, n_kv_heads=2, d_head=2, d_mlp=2, vocab_size=5,
        norm_eps=1e-12, mta=mta,
    )  # fmt: skip
    torch.manual_seed(0)
    model = HookedMTA(config)
    with torch.no_grad():
        model.embed.weight.fill_(1.0)
        for block in model.blocks:
            block.attn.wq.weight.copy_(torch.tensor([[1.0, 0], [0, 0], [2, 0], [0, 0]]))
            block.attn.wk.weight.copy_(torch.tensor([[1.0, 0], [0, 0], [1, 0], [0, 0]]))
    return model


@pytest.fixture(scope="module")
def convolved() -> Trace:
    """A 2 x 3 kernel: own tap 1, 0.5 on the previous query and key, 0.25 on the next key."""
    model = by_hand(MTAOptions(pre_kernel=(2, 3), head_pre=True, head_post_group=2))
    with torch.no_grad():
        model.blocks[0].attn.kernel_pre.copy_(torch.tensor([[0.5, 0, 0], [0, 1, 0.25]]).expand(2, 2, 3))
        model.blocks[0].attn.head_pre.copy_(torch.tensor([[[1.0, 0.5], [-1, 2]]]))
        model.blocks[0].attn.head_post.copy_(torch.tensor([[[1.0, -0.5], [0, 1]]]))
    return capture(model, [0, 1, 2, 3])


def test_a_convolution_by_hand(convolved: Trace) -> None:
    found = decompose(convolved, 0, Stage.KQ, 0, 3, 1)
    assert isinstance(found, Convolved) and found.stage_before is Stage.RAW
    far, near = math.cos(2) / ROOT, math.cos(1) / ROOT
    assert found.value == pytest.approx(1.5 * far + 0.25 * near, abs=1e-6)
    used = [term for term in found.terms if term.weight]
    assert [(term.query, term.key, term.weight) for term in used] == [(3, 1, 1), (2, 0, 0.5), (3, 2, 0.25)]
    assert [term.source for term in used] == pytest.approx([far, far, near], abs=1e-6)
    assert [term.product for term in used] == pytest.approx([far, far / 2, near / 4], abs=1e-6)
    assert sum(term.product for term in found.terms[1:]) == pytest.approx(far / 2 + near / 4, abs=1e-6)
    assert len(found.terms) == 6 and found.residual < 1e-6


def test_taps_outside_and_in_the_future_are_told_apart(convolved: Trace) -> None:
    first = decompose(convolved, 0, Stage.KQ, 0, 0, 0)
    assert {(t.query, t.key): t.state for t in first.terms} == {
        (-1, -1): "outside", (-1, 0): "outside", (-1, 1): "outside",
        (0, -1): "outside", (0, 0): "inside", (0, 1): "future",
    }  # fmt: skip
    assert isinstance(first, Convolved) and first.residual < 1e-6
    assert first.window.sources[1].tolist() == pytest.approx([0, 1 / ROOT, 0], abs=1e-6)
    assert not first.window.sources[0].any()
    last = decompose(convolved, 0, Stage.KQ, 0, 3, 3)
    assert isinstance(last, Convolved)
    assert last.window.outside.tolist() == [[False, False, True]] * 2
    assert last.window.future.tolist() == [[False, True, False], [False, False, False]]
    assert last.window.sources[0, 1:].tolist() == [0, 0] and last.window.products[1, 2] == 0
    assert [t.state for t in last.terms[-3:]] == ["future", "outside", "outside"]


def test_head_mixing_by_hand(convolved: Trace) -> None:
    found = decompose(convolved, 0, Stage.MIX, 1, 2, 2)
    one = (1 + 0.5) / ROOT  # own tap on score 1 and the previous cell of score 1
    assert isinstance(found, Mixed) and found.stage_before is Stage.KQ
    assert [(t.head, t.weight) for t in found.terms] == [(1, 2), (0, -1)]
    assert [t.product for t in found.terms] == pytest.approx([4 * one, -one], abs=1e-6)
    assert found.value == pytest.approx(3 * one, abs=1e-6)


def test_the_softmax_by_hand(convolved: Trace) -> None:
    found = decompose(convolved, 0, Stage.SOFTMAX, 0, 1, 0)
    assert isinstance(found, Softmaxed) and found.stage_before is Stage.MIX and found.terms == ()
    # after the convolution head 0 has (1.25, 1.5) with cos(1) for the far key, head 1 twice that
    scores = [2 * (math.cos(1) + 0.25) / ROOT, 2 * 1.5 / ROOT]
    assert found.score == pytest.approx(scores[0], abs=1e-6)
    assert found.log_normaliser == pytest.approx(math.log(sum(map(math.exp, scores))), abs=1e-6)
    assert (found.rival, found.margin) == (1, pytest.approx(scores[0] - scores[1], abs=1e-6))
    assert found.value == pytest.approx(math.exp(found.score - found.log_normaliser), abs=1e-6)
    other = decompose(convolved, 0, Stage.SOFTMAX, 0, 1, 1)
    assert isinstance(other, Softmaxed)
    assert (other.rival, other.margin) == (0, pytest.approx(-found.margin, abs=1e-6))


def test_a_row_of_one_key_has_no_rival(convolved: Trace) -> None:
    found = decompose(convolved, 0, Stage.SOFTMAX, 1, 0, 0)
    assert isinstance(found, Softmaxed) and (found.value, found.rival, found.margin) == (1, None, None)


def test_a_raw_score_by_hand(convolved: Trace) -> None:
    found = decompose(convolved, 0, Stage.RAW, 1, 3, 1)
    assert isinstance(found, Scored) and found.stage_before is None
    assert (found.query_norm, found.key_norm) == pytest.approx((2, 1), abs=1e-6)
    assert found.cosine == pytest.approx(math.cos(2), abs=1e-6)
    assert found.value == pytest.approx(2 * math.cos(2) / ROOT, abs=1e-6) and found.d_head == 2


def test_the_largest_cause_is_not_the_own_tap(convolved: Trace) -> None:
    why = decompose(convolved, 0, Stage.KQ, 0, 3, 1)
    assert why.value == pytest.approx((1.5 * math.cos(2) + 0.25 * math.cos(1)) / ROOT, abs=1e-6)
    assert why.own is not None and (why.own.query, why.own.key) == (3, 1)
    assert why.own.source == pytest.approx(math.cos(2) / ROOT, abs=1e-6)
    assert why.largest is not None and (why.largest.query, why.largest.key) == (2, 0)
    mixed = decompose(convolved, 0, Stage.PATTERN, 0, 3, 1)
    assert mixed.largest is not None and (mixed.largest.head, mixed.largest.weight) == (1, -0.5)
    softmax = decompose(convolved, 0, Stage.SOFTMAX, 0, 3, 1)
    assert (softmax.own, softmax.largest) == (None, None)
    alone = decompose(convolved, 0, Stage.PATTERN, 1, 3, 1)  # takes 0 x head 0
    assert alone.largest is None and alone.own is not None and alone.own.source == alone.value


def test_the_chain_goes_from_final_weights_to_raw_scores(convolved: Trace) -> None:
    found = chain(convolved, 0, 1, 3, 2)
    assert list(found) == [Stage.PATTERN, Stage.SOFTMAX, Stage.MIX, Stage.KQ, Stage.RAW]
    for stage, value in found.items():
        assert value == pytest.approx(float(convolved.map(0, stage, 1)[3, 2]), abs=1e-6)
        assert value == pytest.approx(decompose(convolved, 0, stage, 1, 3, 2).value, abs=1e-6)


def test_a_plain_layer_passes_its_softmax_on() -> None:
    found = decompose(capture(by_hand(MTAOptions()), [0, 1]), 0, Stage.PATTERN, 0, 1, 0)
    assert isinstance(found, Passed) and found.stage_before is Stage.SOFTMAX and found.residual == 0
    assert [(term.weight, term.source) for term in found.terms] == [(1, found.value)]


def cells(trace: Trace) -> Iterator[tuple[int, Stage]]:
    for layer, block in enumerate(trace.model.blocks):
        for stage in block.attn.stages:
            yield layer, stage


@EXAMPLES
@given(blocks(), prompts(), st.integers(0, 2**16), st.data())
def test_terms_of_any_model_add_up(block: dict, ids: list[int], seed: int, data: st.DataObject) -> None:
    """To the value `trace.map` gives, from sources as a hook sees them one stage earlier."""
    model = random_case(block, seed).build()
    trace, query = capture(model, ids), data.draw(st.integers(0, len(ids) - 1))
    key, head = data.draw(st.integers(0, query)), data.draw(st.integers(0, block["n_heads"] - 1))
    cache = run_hooks(model, ids, [stage.hook_name(layer) for layer, stage in cells(trace)])
    for layer, stage in cells(trace):
        found, shown = decompose(trace, layer, stage, head, query, key), trace.map(layer, stage, head)
        near = 1e-6 * max(1.0, float(shown.abs().max()))
        assert found.residual <= 1e-5
        assert found.value == pytest.approx(float(shown[query, key]), abs=near)
        if found.stage_before is not None:
            sources = cache[found.stage_before.hook_name(layer)]
            check_sources(found, sources, near)


def check_sources(found: Decomposition, hooked: Tensor, near: float) -> None:
    """Terms add up to the value; sources are the hook's, masked and outside cells read as 0."""
    total, size = sum(term.product for term in found.terms), sum(abs(term.product) for term in found.terms)
    assert not found.terms or total == pytest.approx(found.value, abs=near + 1e-5 * size)
    for term in found.terms:
        inside = term.query >= 0 and 0 <= term.key < hooked.shape[2]
        state = "outside" if not inside else "future" if term.key > term.query else "inside"
        assert term.state == state
        want = float(hooked[term.head, term.query, term.key]) if state == "inside" else 0.0
        assert term.source == pytest.approx(want, abs=2e-5 * max(1.0, float(hooked.abs().max())))


def test_a_kernel_taller_than_a_slab(monkeypatch: pytest.MonkeyPatch) -> None:
    model = by_hand(MTAOptions(pre_kernel=(6, 3), post_kernel=(5, 2), pad_key="left"))
    torch.nn.init.normal_(model.blocks[0].attn.kernel_pre)
    torch.nn.init.normal_(model.blocks[0].attn.kernel_post)
    trace = capture(model, [0] * 9)
    whole = [decompose(trace, 0, stage, 1, 8, 4) for stage in (Stage.KQ, Stage.SOFTMAX_KQ)]
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 2)
    for one in whole:
        again = decompose(trace, 0, one.stage, 1, 8, 4)
        assert again.residual < 1e-5 and again.value == pytest.approx(one.value, abs=1e-5)
        assert [t.source for t in again.terms] == pytest.approx([t.source for t in one.terms], abs=1e-5)


def test_half_precision_shows_its_rounding(convolved: Trace) -> None:
    """The value is rounded to the model's format, the sum is not: the residual says so."""
    model = by_hand(MTAOptions(pre_kernel=(2, 3))).to(torch.bfloat16)
    torch.nn.init.normal_(model.blocks[0].attn.kernel_pre)
    residuals = [decompose(capture(model, [0] * 5), 0, Stage.KQ, 0, 4, key).residual for key in range(5)]
    assert 1e-5 < max(residuals) < 2**-8


def test_nan_comes_first_and_stays_nan() -> None:
    model = by_hand(MTAOptions(pre_kernel=(2, 3)))
    with torch.no_grad():
        model.blocks[0].attn.kernel_pre[0, 0, 1] = torch.nan
    found = decompose(capture(model, [0, 1, 2]), 0, Stage.KQ, 0, 2, 1)
    assert math.isnan(found.value) and math.isnan(found.residual) and math.isnan(found.terms[0].product)
    assert largest_first(reversed(found.terms))[0] == found.terms[0]


def test_what_cannot_be_explained_is_said_in_the_pages_words() -> None:
    model = by_hand(MTAOptions(pre_kernel=(2, 3), mta_layers=(1, 3)), n_layers=4)
    trace = capture(model, [0, 1, 2])
    with pytest.raises(
        PromptError, match=r"^Key 2 comes after query 1\. The model never sees it: weight is 0 by"
    ):
        decompose(trace, 1, Stage.KQ, 0, 1, 2)
    with pytest.raises(PromptError, match=r"^Key 2 comes after query 1\."):
        chain(trace, 1, 0, 1, 2)
    words = r"^Layer 2 has no key-query kernel before the softmax; the score is q·k/√d of the two tokens\. "
    with pytest.raises(PromptError, match=words + r"Layers with one: 1, 3\.$"):
        decompose(trace, 2, Stage.KQ, 0, 1, 1)
    with pytest.raises(
        PromptError, match=r"no head mixing before the softmax; .*No layer of this model has one"
    ):
        decompose(trace, 1, Stage.MIX, 0, 1, 1)
    with pytest.raises(PromptError, match="no key-query kernel after the softmax"):
        decompose(trace, 1, Stage.SOFTMAX_KQ, 0, 1, 1)
    for at, message in (
        ((4, 0, 1, 1), "layer 4"),
        ((1, 2, 1, 1), "head 2"),
        ((1, 0, 3, 1), "query 3"),
        ((1, 0, 1, -1), "key -1"),
    ):
        layer, head, query, key = at
        with pytest.raises(PromptError, match=f"{message} does not exist"):
            decompose(trace, layer, Stage.RAW, head, query, key)
