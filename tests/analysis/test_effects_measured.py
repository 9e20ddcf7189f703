"""Effects measured: the same numbers as plain runs of edited models, kept as they come, resumed."""

import math
from dataclasses import replace

import pytest
import torch

from mta_viz.analysis.cause.effects import Effects, Estimate, kernel_of
from mta_viz.analysis.cause.sweeps import Outcome, effect_plans, heads_alone, measure_effects, paired_effect
from mta_viz.analysis.labs.blocks import evaluate_blocks
from mta_viz.analysis.labs.needle import judge
from mta_viz.analysis.labs.task_samples import blocks_batches, series_batches
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import Cancelled, PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import AblateHead, KernelToIdentity, MixingToIdentity
from mta_viz.model.plans import every_kernel
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.named_tasks import series_of
from mta_viz.run.tracing import score
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.needles import NeedleTask
from mta_viz.tokenizers.builtin import BytesTokenizer
from tests.tiny_models import random_weights

CONFIG = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=32,
    mta=MTAOptions(pre_kernel=(2, 3), mta_layers=(1,), head_post_group=2),
)  # fmt: skip
TASK = BlockTask(n_letters=3, n_query=1, n_blocks=3)
EMPTY = Effects("x", "blocks", 200, 5, "tiny", "0", 0.0, 0.0, ())
HEADS_OFF = [(head_off,) for head_off in heads_alone(CONFIG)]


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    """A model that is right by chance only, so that edits turn answers both ways."""
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    model.load_state_dict(random_weights(CONFIG, seed=3))
    return model


def measured(model: HookedMTA, table: Effects = EMPTY, **more) -> Effects:
    batches = blocks_batches(model, TASK, 200, 5)
    return measure_effects(model, batches, table, **({"keep": lambda _: None} | more))


def test_plans_are_each_kernel_each_row_each_matrix_and_everything():
    kernels = [(KernelToIdentity(1, head, "pre"),) for head in (0, 1)]
    rows = {layer: [(MixingToIdentity(layer, "head_post", head),) for head in (0, 1)] for layer in (0, 1)}
    whole = {layer: (MixingToIdentity(layer, "head_post"),) for layer in (0, 1)}
    assert effect_plans(CONFIG) == [
        *rows[0], whole[0], *kernels, *rows[1], whole[1], every_kernel(CONFIG),
    ]  # fmt: skip
    assert effect_plans(replace(CONFIG, mta=MTAOptions())) == []


def test_each_effect_is_that_of_a_plain_run_of_the_edited_model(model: HookedMTA):
    found = measured(model)
    batch = TASK.sample_range(0, 200, 5)
    ids, gold = batch.tokens, batch.tokens[:, -3:]
    assert [effect.plan for effect in found.effects] != [] and len(found.effects) == len(effect_plans(CONFIG))

    def logs(one: HookedMTA) -> torch.Tensor:
        predicted = score(one, ids)[:, -4:-1].log_softmax(-1)
        return predicted.gather(-1, gold[..., None]).sum((1, 2))

    assert found.log_probability == pytest.approx(float(logs(model).mean()), abs=1e-4)
    for effect in found.effects:
        other = edited(model, effect.plan)
        accuracy = 1 - evaluate_blocks(other, TASK, n=200, seed=5).error
        assert effect.accuracy == pytest.approx(accuracy)
        assert effect.accuracy_change.value == pytest.approx(accuracy - found.accuracy)
        change = float((logs(other) - logs(model)).mean())
        assert effect.log_probability_change.value == pytest.approx(change, abs=1e-4)
        assert math.isnan(effect.log_probability_change.low)  # a mean without bounds has no interval
        median = effect.log_probability_change_median
        assert median.value == pytest.approx(float((logs(other) - logs(model)).median()), abs=0.01)
        assert median.low <= median.value <= median.high and median.level > 0.95


def test_a_stopped_measurement_keeps_what_is_done_and_goes_on_from_there(model: HookedMTA):
    kept: list[Effects] = []

    def stop(share: float) -> None:
        if share > 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        measured(model, keep=kept.append, progress=stop)
    assert 0 < len(kept[-1].effects) < len(effect_plans(CONFIG))
    shares: list[float] = []
    again = measured(model, kept[-1], progress=shares.append)
    assert len(shares) == len(effect_plans(CONFIG)) - len(kept[-1].effects)
    assert shares[-1] == 1.0
    assert {effect.plan: effect for effect in again.effects} == {
        effect.plan: effect for effect in measured(model).effects
    }


def test_heads_are_switched_off_where_asked(model: HookedMTA):
    table = measured(model, heads=True)
    found = {effect.plan: effect for effect in table.effects}
    assert set(found) == {*effect_plans(CONFIG), *HEADS_OFF} and len(HEADS_OFF) == 4
    plan = (AblateHead(1, 0),)
    accuracy = 1 - evaluate_blocks(edited(model, plan), TASK, n=200, seed=5).error
    assert found[plan].accuracy == pytest.approx(accuracy)
    assert all(kernel_of(effect) is None for plan, effect in found.items() if plan in HEADS_OFF)


def test_a_paired_effect_by_hand():
    before = Outcome((True, True, True, False), (-0.5, -0.5, -1.0, -3.0))
    after = Outcome((True, False, False, True), (-0.5, -1.5, -4.0, -1.0))
    effect = paired_effect((KernelToIdentity(0, 0, "pre"),), before, after)
    assert effect.accuracy == 0.5
    assert effect.accuracy_change.value == -0.25
    assert effect.log_probability_change.value == -0.5  # of 0, -1, -3, +2
    assert effect.accuracy_change.low < -0.25 < effect.accuracy_change.high
    assert isinstance(effect.log_probability_change, Estimate)
    median = effect.log_probability_change_median
    assert (median.low, median.value, median.high, median.level) == (-3.0, -0.5, 2.0, 0.875)  # the range of 4


def test_needle_batches_ask_at_every_depth_and_judge_as_the_evaluation_does():
    shapes = replace(CONFIG, vocab_size=258, n_ctx=1600)
    model, tokenizer = HookedMTA(shapes), BytesTokenizer()
    batches = series_batches(model, tokenizer, series_of("needle", 800), 6, 4)
    samples = [NeedleTask(4, 800, depth).sample(tokenizer, 4) for depth in (0, 25, 50, 75, 100)]
    samples.append(NeedleTask(4, 800, 0).sample(tokenizer, 5))
    answers = [answer for batch in batches for answer in batch.answers]
    assert answers == [sample.answer_ids for sample in samples]
    for batch, start in zip(batches, range(0, 6, 2), strict=True):
        part = samples[start : start + 2]
        # a model that knows the text: it predicts each next id, and after the answer id 0
        next_ids = torch.cat([batch.ids[:, 1:], torch.zeros(len(part), 1, dtype=torch.long)], dim=1)
        known = torch.nn.functional.one_hot(next_ids, 258).float()
        likeliest = known[:, -batch.n_last :].argmax(-1)
        assert batch.right(likeliest) == judge(likeliest, tokenizer, part) == [True] * len(part)
        known[0, -batch.n_last] = 0
        assert batch.right(known[:, -batch.n_last :].argmax(-1))[0] is False


def test_a_model_of_another_vocabulary_is_refused(model: HookedMTA):
    with pytest.raises(PromptError, match="only 32"):
        series_batches(model, BytesTokenizer(), series_of("needle", 800), 1, 0)
    other = HookedMTA(replace(CONFIG, vocab_size=40))
    with pytest.raises(PromptError, match="character vocabulary"):
        blocks_batches(other, TASK, 1, 0)
