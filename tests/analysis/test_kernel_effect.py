"""What a kernel does on a prompt, on a model small enough to redo by hand."""

import math
from dataclasses import replace

import pytest
import torch

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.cause.kernel_effect import kernel_effect, moved_mass
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import KernelToIdentity
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace, capture
from tests.tiny_models import TWO_HEADS, two_head_trace

PRE = KernelId(0, 1, "pre")


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Nine tokens through one layer of two heads: raw, kq, softmax, final."""
    return two_head_trace()


def test_moved_mass_by_hand():
    before = torch.tensor([[0.5, 0.5, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    after = torch.tensor([[0.25, 0.75, 0.0], [-1.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 8.0]])
    moved = moved_mass(before, after)
    assert moved[:2].tolist() == [0.25, 0.5]  # a quarter of the row; a half changes its sign
    assert math.isnan(moved[2])
    assert float(moved[3]) == 1.0  # scale is no movement: 2 and 8 are both the whole row


def test_the_change_of_its_own_map(trace: Trace):
    before, after = (trace.map(0, stage, 1).double() for stage in (Stage.RAW, Stage.KQ))
    seen = torch.ones(9, 9).tril().bool()

    def centred(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([row[: i + 1] - row[: i + 1].mean() for i, row in enumerate(rows)])

    assert seen.sum() == centred(before).numel()
    want = centred(after - before).norm() / centred(before).norm()
    effect = kernel_effect(trace, PRE)
    assert effect.change.after is Stage.KQ
    assert effect.change.size == pytest.approx(float(want), rel=1e-5)


def test_mass_and_span_gain_compare_with_the_edited_model_on_the_same_input(trace: Trace):
    span = Span("three", "A", 2, 4)
    effect = kernel_effect(trace, PRE, span, query=7)
    other = replace(trace, model=edited(trace.model, (KernelToIdentity(0, 1, "pre"),)))
    new, old = (one.map(0, Stage.PATTERN, 1).double() for one in (other, trace))
    weights = [rows / rows.abs().sum(-1, keepdim=True) for rows in (new, old)]
    assert effect.mass_moved == pytest.approx(
        float((weights[0] - weights[1]).abs().sum(-1).mean() / 2), rel=1e-5
    )
    shares = [float(rows[7, 2:4].abs().sum()) for rows in weights]
    assert effect.gain.without == pytest.approx(shares[0], rel=1e-5)
    assert effect.gain.gain == pytest.approx(shares[1] - shares[0], abs=1e-6)
    assert abs(effect.gain.gain) > 1e-3


@pytest.mark.parametrize("kernel", [PRE, KernelId(0, 0, "head_post")])
def test_the_answer_is_that_of_a_whole_run_of_the_edited_model(trace: Trace, kernel: KernelId):
    effect = kernel_effect(trace, kernel)
    own = trace.logits()[-1].log_softmax(-1)
    run = capture(edited(trace.model, (without(kernel),)), trace.tokens).logits()[-1].log_softmax(-1)
    assert effect.answer.ids == (token := int(own.argmax()),)
    assert effect.standing.log_probability == pytest.approx(float(own[token]), abs=1e-5)
    assert effect.without.log_probability == pytest.approx(float(run[token]), abs=1e-5)
    assert effect.without.rank == 1 + int((run > run[token]).sum())
    assert abs(effect.without.log_probability - effect.standing.log_probability) > 1e-4


def test_an_identity_kernel_does_nothing(trace: Trace):
    plain = capture(edited(trace.model, (KernelToIdentity(0, 1, "pre"),)), trace.tokens)
    effect = kernel_effect(plain, PRE, Span("three", "A", 2, 4))
    assert (effect.change.size, effect.mass_moved, effect.gain.gain) == (0, 0, 0)
    assert effect.standing == effect.without


def test_what_is_not_there_is_refused(trace: Trace):
    assert TWO_HEADS.mta.post_kernel is None
    with pytest.raises(ConfigError, match="no post kernel"):
        kernel_effect(trace, KernelId(0, 1, "post"))
    with pytest.raises(PromptError, match="after query"):
        kernel_effect(trace, PRE, Span("late", "A", 5, 6), query=3)
