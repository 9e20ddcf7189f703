"""Two runs side by side: which tokens are compared, the difference of maps, answers, shares, kernels."""

import json

import numpy as np
import pytest
import torch

import mta_viz
from mta_viz.analysis.attention.spans import Span, share_and_mass
from mta_viz.analysis.cause.answers import rerun
from mta_viz.analysis.compare.comparing import compare, compare_runs, identity_plan
from mta_viz.analysis.compare.maps import (
    agreement,
    asked_spans,
    compared_map,
    same_vocabulary,
    spans_beside,
    stage_beside,
)
from mta_viz.analysis.compare.pairs import NO_KERNEL, pair_taps
from mta_viz.config import MTAOptions
from mta_viz.errors import Cancelled, PromptError
from mta_viz.model.interventions import KernelToIdentity, KernelToZero, MixingToIdentity
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.builtin import BytesTokenizer, CharTokenizer
from tests.analysis.lab_models import byte_model
from tests.tiny_models import config, random_weights

NEEDLES = (
    "The magic number of Oslo is 88. Rain fell. The magic number of Rome is 17. The magic number of Oslo is"
)
OTHER = NEEDLES[:-7] + "Rome is"


def plain_model(seed: int = 1) -> HookedMTA:
    shapes = config(MTAOptions(), 258)
    model = HookedMTA(shapes).requires_grad_(False).eval()
    model.load_state_dict(random_weights(shapes, seed))
    model.tokenizer = BytesTokenizer()
    return model


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    return byte_model()


@pytest.fixture(scope="module")
def run(model) -> Trace:
    return capture(model, NEEDLES)


@pytest.fixture(scope="module")
def plain_run() -> Trace:
    return capture(plain_model(), NEEDLES)


def tokens(text: str) -> Tokens:
    return BytesTokenizer().encode(text)


def test_equally_long_prompts_are_compared_but_for_what_differs():
    found = agreement(tokens("a rabbit ran"), tokens("a cabbit ran"), same_ids=True)
    assert (found.n, found.unlike) == (13, (3,))
    assert found.why.startswith('Tokens differ at 1 position of 13: 3 ("r" / "c"). Rows and columns')
    assert agreement(tokens("same"), tokens("same"), same_ids=True).whole


def test_others_are_compared_up_to_the_first_token_that_differs():
    found = agreement(tokens("a rabbit"), tokens("a fox"), same_ids=True)
    assert (found.n, found.unlike) == (3, ())
    assert found.why == (
        'Tokens differ from position 3 on ("r" / "f"); A has 9 tokens, B 6: compared up to there.'
    )
    longer = agreement(tokens("a rabbit"), tokens("a rabbit ran"), same_ids=True)
    assert longer.n == 9 and "agree while both last: compared up to position 8" in longer.why
    one, two = Tokens((1,), ("a",), ((0, 0),), None), Tokens((2, 3), ("b", "c"), ((0, 0),) * 2, None)
    nothing = agreement(one, two, same_ids=True)
    assert nothing.n == 0 and nothing.why.endswith("there is nothing to subtract.")
    half = agreement(tokens("abcd"), tokens("axyz"), same_ids=True)  # 3 of 5 differ
    assert half.n == 2 and half.unlike == ()
    half = agreement(tokens("abc"), tokens("axy"), same_ids=True)
    assert (half.n, half.unlike) == (2, ())


def test_ids_mean_the_same_only_in_one_vocabulary(model):
    assert same_vocabulary(model, plain_model())
    chars = HookedMTA(config(MTAOptions(), 32))
    chars.tokenizer = CharTokenizer()
    assert not same_vocabulary(model, chars)


def test_the_difference_is_a_less_b_where_tokens_agree(model, run):
    other = capture(model, NEEDLES.replace("Rain", "Pain"))
    shared = agreement(run.tokens, other.tokens, same_ids=True)
    (at,) = shared.unlike
    found = compared_map(run, other, (1, 2), (3, 0), Stage.KQ, shared)
    expected = run.map(1, Stage.KQ, 2) - other.map(3, Stage.KQ, 0)
    expected[at, :], expected[:, at] = 0.0, 0.0
    torch.testing.assert_close(found.values, expected, atol=1e-5, rtol=0)
    assert found.masked[at, 0] and found.masked[-1, at] and not found.masked[at + 1, 0]
    assert not found.future[at, 0] and (found.layer, found.head, found.other) == (1, 2, (3, 0))


def test_a_long_difference_is_pooled(run):
    plan = (KernelToZero(1, 2, "pre"),)
    shared = agreement(run.tokens, run.tokens, same_ids=True)
    found = compared_map(run, rerun(run, plan), (1, 2), (1, 2), Stage.KQ, shared, max_cells=40)
    assert found.block == 3 and found.pooled is not None
    exact = compared_map(run, rerun(run, plan), (1, 2), (1, 2), Stage.KQ, shared)
    assert float(found.values.abs().max()) == pytest.approx(float(exact.values.abs().max()))


def test_what_a_layer_lacks_is_what_would_enter_it():
    plain, full = config(MTAOptions(), 258), byte_model().config
    assert stage_beside(full, 1, Stage.KQ) is Stage.KQ and stage_beside(full, 0, Stage.KQ) is Stage.RAW
    assert (
        stage_beside(plain, 1, Stage.MIX) is Stage.RAW
        and stage_beside(plain, 1, Stage.PATTERN) is Stage.PATTERN
    )


def test_a_model_beside_itself_shows_no_difference(run):
    found = compare_runs(run, run)
    assert found.pairs.rule == "index" and found.kernels == () and found.shared.whole
    assert [one.difference for one in found.answers] == [0.0]
    assert all(one.a == one.b for one in found.top)
    assert found.needle is not None and not found.needle.difference.any()


def test_the_answers_are_those_of_each_prompt(model, run):
    other = capture(model, OTHER)
    found = compare_runs(run, other)
    assert [(one.of, one.text, one.source) for one in found.answers] == [
        ("A", " 88", "needle"), ("B", " 17", "needle"),
    ]  # fmt: skip
    (mine, theirs), (swapped_theirs, swapped_mine) = found.answers, compare_runs(other, run).answers
    assert (mine.a, mine.b) == pytest.approx((swapped_mine.b, swapped_mine.a), abs=1e-5)
    assert (theirs.a, theirs.b) == pytest.approx((swapped_theirs.b, swapped_theirs.a), abs=1e-5)
    assert found.needle.spans[0].name == "Oslo (asked)" and found.needle.spans[1].name == "Rome (asked)"


def test_with_edits_the_numbers_are_surgerys(model, run):
    plan = (KernelToIdentity(1, 2, "pre"), MixingToIdentity(0, "head_pre"))
    found, board = compare(model, None, NEEDLES, plan=plan), mta_viz.ablate(model, NEEDLES, plan).board
    assert (found.answers[0].a, found.answers[0].b) == (board.before, board.after)
    assert {one.piece: (one.a, one.b) for one in found.top} == {
        one.piece: (pytest.approx(one.before), pytest.approx(one.after)) for one in board.top
    }
    changed = {(one.layer, one.head, one.where) for one in found.kernels if one.distance > 0}
    assert changed == {(1, 2, "pre"), *((0, head, "head_pre") for head in range(4))}
    (kernel,) = (one for one in found.kernels if (one.layer, one.head, one.where) == (1, 2, "pre"))
    assert kernel.distance == kernel.off_a and kernel.off_b == 0
    assert kernel.shape_b == "near identity"


def test_shares_are_those_of_the_last_token_and_pairs_are_subtracted(run, plain_run):
    found = compare_runs(run, plain_run, pair_by="needle")
    for trace, span, shares in zip(
        (run, plain_run), found.needle.spans, (found.needle.a, found.needle.b), strict=True
    ):
        row = trace.maps(2, Stage.PATTERN)[:, -1]
        assert shares[2] == pytest.approx(share_and_mass(row, span)[0].numpy(), abs=1e-6)
    best = np.unravel_index(found.needle.a.argmax(), found.needle.a.shape)
    assert found.needle.difference[best] == pytest.approx(found.needle.a.max() - found.needle.b.max())


def test_a_head_without_a_kernel_convolves_with_the_identity(run, plain_run):
    found = compare_runs(run, plain_run)
    assert found.pairs.rule == "similarity" and "trained apart" in found.pairs.why
    taps = run.model.state_dict()["blocks.1.attn.kernel_pre"][3].double().clone()
    taps[-1, 5] -= 1
    (kernel,) = (one for one in found.kernels if (one.layer, one.head, one.where) == (1, 3, "pre"))
    assert kernel.distance == pytest.approx(float(taps.norm())) and kernel.shape_b == NO_KERNEL
    assert {one.where for one in found.kernels} == {"pre", "post"}  # mixing only by index


def test_kernels_of_two_sizes_are_laid_over_by_their_offsets():
    sizes = [MTAOptions(pre_kernel=(2, 3)), MTAOptions(pre_kernel=(3, 1))]
    models = [HookedMTA(config(one, 258)) for one in sizes]
    taps = [torch.arange(6.0).reshape(2, 3), torch.tensor([[7.0], [8.0], [9.0]])]
    for model, one in zip(models, taps, strict=True):
        model.load_state_dict({**model.state_dict(), "blocks.0.attn.kernel_pre": one.expand(4, *one.shape)})
    a, b, offsets = pair_taps(*models, (0, 1), (0, 2), "pre")
    assert (offsets.query, offsets.key) == ((-2, -1, 0), (-1, 0, 1))
    assert a.tolist() == [[0, 0, 0], [0, 1, 2], [3, 4, 5]]
    assert b.tolist() == [[0, 7, 0], [0, 8, 0], [0, 9, 0]]


def test_a_model_without_a_twin_stands_beside_itself_at_identity_kernels(model):
    found = compare(model, None, NEEDLES)
    again = compare(model, None, NEEDLES, plan=identity_plan(model))
    assert json.dumps(found.as_data()) == json.dumps(again.as_data())  # NaN is no equal of itself
    assert all(one.off_b == 0 for one in found.kernels)
    with pytest.raises(PromptError, match="no kernels and no head mixing"):
        compare(plain_model(), None, NEEDLES)
    with pytest.raises(PromptError, match="one thing that differs"):
        compare(model, None, NEEDLES, prompt_b="x", plan=identity_plan(model))


def test_a_named_span_is_found_in_the_other_prompt(model, run):
    other = capture(model, "Well. " + NEEDLES)
    asked = asked_spans(run, other)
    assert asked[1].start == asked[0].start + 6
    rain = Span("Rain", "C", 33, 37)
    assert spans_beside(run, other, rain)[1].positions == range(39, 43)
    assert spans_beside(run, run, rain) == (rain, rain)
    assert spans_beside(run, capture(model, "Nothing of it here"), rain) is None
    whole = Span("all", "D", 0, len(run.tokens))
    assert spans_beside(run, run, whole) is None
    assert compare_runs(run, run, spans=None).needle is None


def test_other_tokenizers_are_compared_by_words(run):
    chars = HookedMTA(config(MTAOptions(), 32)).requires_grad_(False).eval()
    chars.tokenizer = CharTokenizer()
    a, b = capture(run.model, "abc.def.ghi.jkl"), capture(chars, "abc.def.ghi.jkl")
    found = compare_runs(a, b, answer="m")
    assert not found.same_ids and found.answers[0].b < 0
    assert all((one.a is None) != (one.b is None) for one in found.top)


def test_stopping_stops(run, plain_run):
    def stop(share: float) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        compare_runs(run, plain_run, progress=stop)
