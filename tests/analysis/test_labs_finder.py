"""The needle finder: its numbers are sums over hook values, its ranks those of a slow count."""

import math

import pytest
import torch
from lab_models import byte_model

from mta_viz.analysis.attention.heads import head_scores
from mta_viz.analysis.attention.spans import Span, needle_spans
from mta_viz.analysis.labs.blocks import (
    answer_block,
    block_parts,
    block_sample,
    chance_error,
    evaluate_blocks,
)
from mta_viz.analysis.labs.finder import Parts, find, prompt_spans, sample_parts
from mta_viz.config import MTAOptions
from mta_viz.errors import Cancelled, PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, generate, run_hooks
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.needles import NeedleTask
from tests.tiny_models import config, random_weights

TASK = NeedleTask(3, 420, 50)


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    return byte_model()


@pytest.fixture(scope="module")
def sample(model):
    return TASK.sample(model.tokenizer, 1)


@pytest.fixture(scope="module")
def finder(model, sample):
    return find(capture(model, sample.tokens), sample_parts(sample))


def test_parts_are_named_as_the_attention_page_names_them(sample):
    assert prompt_spans(sample) == needle_spans(sample.tokens)
    assert sample_parts(sample).asked.name.endswith("(asked)")


def test_it_gives_the_scores_of_the_whole_pass(model, sample, finder):
    parts = finder.parts
    for part in parts.all:
        slow = head_scores(capture(model, sample.tokens), part, needles=parts.all).values
        for key, values in finder.scores[part].values.items():
            assert torch.allclose(values, slow[key], atol=1e-6, equal_nan=True), key
    assert {"span.kq", "mass.final", "gain.kq2", "selectivity"} <= set(finder.asked.values)


def test_shares_are_sums_over_hook_values(model, sample, finder):
    layer, span = 1, finder.parts.asked  # has every stage
    stages = [stage for stage in Stage if not stage.is_second]
    names = [stage.hook_name(layer) for stage in stages]
    hooks = run_hooks(model, sample.tokens, names)
    for stage in stages:
        index = list(Stage).index(stage)
        row = hooks[stage.hook_name(layer)][:, -1].double()
        weights = row.softmax(-1) if stage.value.unit == "score" else row.abs()
        by_hand = weights[:, span.start : span.stop].sum(-1) / weights.sum(-1)
        assert torch.allclose(finder.shares[index, layer].double(), by_hand, atol=1e-5), stage
        assert finder.shares[index, 0].isnan().all() == (stage not in model.blocks[0].attn.stages)


def test_the_rank_among_passages_counts_them_one_by_one(model, sample, finder):
    span, length = finder.parts.asked, finder.parts.asked.stop - finder.parts.asked.start
    row = run_hooks(model, sample.tokens, [Stage.PATTERN.hook_name(3)])[Stage.PATTERN.hook_name(3)][:, -1]
    taken = {position for part in finder.parts.all for position in part.positions}
    starts = [
        start
        for start in sample.sentences
        if start + length <= len(sample.tokens) and not taken & set(range(start, start + length))
    ]
    assert finder.n_null == len(starts) > 1
    for head in range(4):
        sums = [float(row[head, s : s + length].abs().sum()) for s in starts]
        own = float(row[head, span.start : span.stop].abs().sum())
        assert float(finder.p[3, head]) == pytest.approx(
            (1 + sum(one >= own for one in sums)) / (1 + len(sums))
        )


def test_it_can_be_stopped_and_refuses_what_is_not_there(model, sample):
    trace = capture(model, sample.tokens)
    seen: list[float] = []

    def stop(share: float) -> None:
        seen.append(share)
        if share >= 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        find(trace, sample_parts(sample), progress=stop)
    assert seen == [0.25, 0.5]
    late = Span("late", "A", 400, 410)
    with pytest.raises(PromptError, match="begins at token 400"):
        find(trace, Parts(late, (late,), 50))
    with pytest.raises(PromptError, match="query 420 does not exist; expected 0 to"):
        find(trace, Parts(late, (late,), 420))
    early = Span("early", "A", 3, 9)
    assert find(trace, Parts(early, (early,), 100)).p.isnan().all()  # nothing to compare with


BLOCKS = BlockTask(n_blocks=6)


@pytest.fixture(scope="module")
def block_model() -> HookedMTA:
    shapes = config(MTAOptions(pre_kernel=(2, 9), post_kernel=(2, 3)), 32)
    model = HookedMTA(shapes).requires_grad_(False).eval()
    model.load_state_dict(random_weights(shapes))
    return model


def test_a_block_sample_is_one_the_error_is_measured_on():
    for number in (0, 7):
        sample = block_sample(BLOCKS, number)
        ids = BLOCKS.sample_range(number, number + 1, 0).tokens[0].tolist()
        assert sample.tokens.ids == tuple(ids[:-5])
        assert sample.blocks[sample.target] == sample.answer
        assert set(sample.query) <= set(sample.answer) and len(sample.blocks) == 6
        holders = [block for block in sample.blocks if set(sample.query) <= set(block)]
        assert holders == [sample.answer]
    assert block_sample(BlockTask(n_blocks=6, output="last"), 0).answer == block_sample(BLOCKS, 0).answer[-1]


def test_mass_on_the_target_before_and_after_each_convolution(block_model):
    sample = block_sample(BLOCKS, 3)
    finder = find(capture(block_model, sample.tokens), block_parts(sample))
    target = finder.parts.asked
    assert "".join(sample.tokens.text[a:b] for a, b in sample.tokens.spans[target.start : target.stop]) == (
        sample.answer
    )
    stages = (Stage.RAW, Stage.KQ, Stage.SOFTMAX, Stage.SOFTMAX_KQ, Stage.PATTERN)
    for layer in range(4):
        hooks = run_hooks(block_model, sample.tokens, [stage.hook_name(layer) for stage in stages])
        before, after = (hooks[s.hook_name(layer)][:, -1].softmax(-1) for s in (Stage.RAW, Stage.KQ))
        places = list(Stage)
        for stage, row in ((Stage.RAW, before), (Stage.KQ, after)):
            share = row[:, target.start : target.stop].sum(-1)
            assert torch.allclose(finder.shares[places.index(stage), layer], share, atol=1e-5)
        for stage in (Stage.SOFTMAX, Stage.SOFTMAX_KQ):
            mass = hooks[stage.hook_name(layer)][:, -1, target.start : target.stop].sum(-1)
            assert torch.allclose(finder.asked.values[f"mass.{stage.value.key}"][layer], mass, atol=1e-5)
    assert finder.n_null == 5  # the other blocks


def test_the_answer_letter_by_letter_agrees_with_generate_and_the_measured_error(block_model):
    right = []
    for number in range(12):
        sample = block_sample(BLOCKS, number)
        found = answer_block(block_model, sample)
        first = generate(block_model, [*sample.tokens.ids], 1)
        assert 0 <= found.probability <= 1
        assert found.right[0] == (first == (ord(sample.answer[0]) - ord("a"),))
        right.append(found.all_right)
    evaluation = evaluate_blocks(block_model, BLOCKS, n=12)
    assert evaluation.wrong == right.count(False)
    assert chance_error(BlockTask(n_blocks=50)) == pytest.approx(0.98)


def test_partial_results_of_the_error_grow_batch_by_batch(block_model):
    kept = []
    whole = evaluate_blocks(block_model, BLOCKS, n=12, batch=5, keep=kept.append)
    assert [one.n for one in kept] == [5, 10, 12] and kept[-1] == whole


def test_a_model_of_words_is_refused(model):
    with pytest.raises(PromptError, match="character vocabulary of 32"):
        answer_block(model, block_sample(BLOCKS, 0))
    assert math.isclose(chance_error(BLOCKS), 5 / 6)
