"""Integrated gradients are complete, ablation is what a manual run without the input gives."""

import pytest
import torch

from mta_viz.analysis.attribution import (
    ablate_maps,
    ablate_tokens,
    integrated_gradients,
    integrated_gradients_of_maps,
    largest_tokens,
)
from mta_viz.config import ModelConfig
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.scorers import Question, of_embeddings, of_ids, of_maps
from mta_viz.tracing import capture, score
from tests.tiny_models import FULL, random_weights

CONFIG = ModelConfig(
    d_model=32, n_layers=4, n_heads=4, n_kv_heads=4, d_head=8, d_mlp=16, vocab_size=23, mta=FULL
)


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    made = HookedMTA(CONFIG)
    made.load_state_dict(random_weights(CONFIG, 3))
    return made.requires_grad_(False).eval()


def random_question(seed: int, length: int = 9, n_answer: int = 1) -> Question:
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 23, (length + n_answer,), generator=random).tolist()
    return Question(tuple(ids[:length]), tuple(ids[length:]))


def log_p(model, prompt, ids) -> float:
    """The answer's log-probability from the logits of one plain run."""
    logits = score(model, torch.tensor([[*prompt, *ids[:-1]]])).log_softmax(-1)[0]
    return sum(float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(ids))


@pytest.mark.parametrize("n_answer", [1, 3])
def test_the_three_scorers_give_the_log_probability(model, n_answer):
    question = random_question(1, n_answer=n_answer)
    expected = pytest.approx(log_p(model, question.prompt, question.answer), abs=1e-4)
    ids = torch.tensor([question.prompt, question.prompt])
    assert of_ids(model, question)(ids).tolist() == [expected, expected]
    assert float(of_embeddings(model, question)(model.embed(ids[:1]))) == expected
    trace = capture(model, question.prompt + question.before)
    for stage in (Stage.RAW, Stage.MIX, Stage.SOFTMAX, Stage.PATTERN):
        assert float(of_maps(trace, 1, stage, question)(trace.maps(1, stage)[None])) == expected


@pytest.mark.parametrize("seed", range(20))
def test_integrated_gradients_of_tokens_sum_to_the_difference(model, seed):
    question = random_question(seed, n_answer=1 + seed % 2)
    found = integrated_gradients(model, question, max_error=1e-3, max_seconds=1e9)
    assert found.error is not None and found.error <= 1e-3
    assert found.values.shape == (9,) and found.baseline_score is not None
    assert float(found.values.sum()) == pytest.approx(found.score - found.baseline_score, rel=2e-3)
    assert found.score == pytest.approx(log_p(model, question.prompt, question.answer), abs=1e-4)


@pytest.mark.parametrize("stage", [Stage.RAW, Stage.KQ, Stage.SOFTMAX, Stage.PATTERN])
def test_integrated_gradients_of_maps_are_complete_and_blind_to_the_future(model, stage):
    question = random_question(5)
    trace = capture(model, question.prompt)
    found = integrated_gradients_of_maps(trace, 3, stage, question, max_error=1e-3, max_seconds=1e9)
    assert found.error is not None and found.error <= 1e-3
    assert found.values.shape == (4, 9, 9) and not found.values.triu(1).any()


@pytest.mark.parametrize("baseline", ["zero", "mean", 7])
def test_the_baseline_is_the_one_asked_for(model, baseline):
    question = random_question(2)
    found = integrated_gradients(model, question, baseline=baseline)
    if baseline == 7:
        assert found.baseline_score == pytest.approx(log_p(model, [7] * 9, question.answer), abs=1e-4)
    assert {"zero": "zeros", "mean": "mean", 7: "token 7"}[baseline] in found.baseline


def test_ablation_of_tokens_is_a_run_with_other_tokens(model):
    question = random_question(4)
    groups = ((0,), (2, 3, 4), (8,))
    found = ablate_tokens(model, question, groups, baseline=11)
    for group, value in zip(groups, found.values.tolist(), strict=True):
        ids = [11 if at in group else token for at, token in enumerate(question.prompt)]
        expected = found.score - log_p(model, ids, question.answer)
        assert value == pytest.approx(expected, abs=1e-4)


def test_ablation_of_a_head_is_a_hook_that_zeroes_its_map(model):
    question = random_question(6)
    trace = capture(model, question.prompt)
    found = ablate_maps(trace, 1, Stage.KQ, question)
    for head in range(4):

        def zero(maps, hook, head=head):
            maps = maps.clone()
            maps[:, head] = 0
            return maps

        logits = model.run_with_hooks(
            torch.tensor([question.prompt]), fwd_hooks=[("blocks.1.attn.hook_scores_kq", zero)]
        )
        lost = found.score - float(logits[0, -1].log_softmax(-1)[question.answer[0]])
        assert float(found.values[head]) == pytest.approx(lost, abs=1e-4)


def test_nothing_stays_on_the_model(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    question = random_question(8)
    trace = capture(model, question.prompt)
    ablate_maps(trace, 1, Stage.RAW, question)
    integrated_gradients(model, question)
    with pytest.raises((RuntimeError, TypeError)):  # half-way: the layer's own convolution refuses these maps
        of_maps(trace, 1, Stage.RAW, question)(torch.zeros(1, 3, 9, 9))
    assert not any(point._forward_hooks for point in model.hook_dict.values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_largest_tokens_are_what_is_ablated(model):
    found = integrated_gradients(model, random_question(9))
    kept = largest_tokens(found, 3)
    sizes = found.values.abs().tolist()
    assert sorted(sizes, reverse=True)[:3] == sorted((sizes[at] for (at,) in kept), reverse=True)
    assert len(largest_tokens(found)) == 9


def test_what_cannot_be_done_is_told(model):
    question = random_question(0)
    with pytest.raises(PromptError, match="group 1 shares a position"):
        ablate_tokens(model, question, ((0, 1), (1,)))
    with pytest.raises(PromptError, match=r"group 0 is \[9\]; expected positions of 0 to 8"):
        ablate_tokens(model, question, ((9,),))
    with pytest.raises(PromptError, match="token 23 does not exist"):
        integrated_gradients(model, question, baseline=23)
    with pytest.raises(PromptError, match=r"GiB for 8,000 tokens. Shorten the prompt to [0-9,]+ tokens"):
        integrated_gradients(model, random_question(0, 8000))
    with pytest.raises(PromptError, match="of another prompt"):
        ablate_maps(capture(model, [1, 2]), 1, Stage.RAW, question)


def test_cancelling_in_the_progress_stops(model):
    def stop(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        integrated_gradients(model, random_question(0), progress=stop)
