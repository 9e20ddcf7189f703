"""Integrated gradients are complete, ablation is what a manual run without the input gives."""

import inspect
import math
from dataclasses import replace

import pytest
import torch

from mta_viz.analysis.cause import attributed_prompt, attribution_path
from mta_viz.analysis.cause.attributed_prompt import attribute, attribute_heads
from mta_viz.analysis.cause.attribution import (
    ablate_maps,
    ablate_tokens,
    integrated_gradients,
    integrated_gradients_of_maps,
    largest_tokens,
)
from mta_viz.config import ModelConfig
from mta_viz.errors import PromptError
from mta_viz.model.attention import Attention
from mta_viz.model.editing import edited
from mta_viz.model.interventions import BypassGroupNorm
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import Question, of_embeddings, of_ids, of_maps
from mta_viz.run.tracing import capture, score, tokenize
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


def test_attribution_goes_on_where_it_was_stopped(model):
    """What a second run adds to a first is what one run gives; another prompt's is refused."""
    ids, kept = random_question(3, 60).prompt, []
    whole = attribute(model, ids, max_seconds=1e9, keep=kept.append).found
    assert len(kept) >= 3 and not kept[1].found.reached
    again = attribute(model, ids, max_seconds=1e9, after=kept[1])
    assert again.found.reached and again.found.steps == whole.steps > kept[1].found.steps
    assert torch.allclose(again.found.values, whole.values, atol=1e-6, rtol=0)
    assert "integral" not in again.as_data()
    with pytest.raises(PromptError, match="of another question"):
        attribute(model, ids[1:], max_seconds=1e9, after=kept[1])


@pytest.mark.parametrize("stage", [Stage.RAW, Stage.KQ, Stage.SOFTMAX, Stage.PATTERN])
def test_integrated_gradients_of_maps_are_complete_and_blind_to_the_future(model, stage):
    question = random_question(5)
    trace = capture(model, question.prompt)
    found = integrated_gradients_of_maps(trace, 3, stage, question, max_error=1e-3, max_seconds=1e9)
    assert found.error is not None and found.error <= 1e-3
    assert found.values.shape == (4, 9, 9) and not found.values.triu(1).any()


@pytest.mark.parametrize("baseline", ["mean", 7])
def test_the_baseline_is_the_one_asked_for(model, baseline):
    question = random_question(2)
    found = integrated_gradients(model, question, baseline=baseline)
    if baseline == 7:
        assert found.baseline_score == pytest.approx(log_p(model, [7] * 9, question.answer), abs=1e-4)
    assert {"mean": "mean", 7: "token 7"}[baseline] in found.baseline


def test_embeddings_of_zeros_are_refused_where_the_norm_makes_them_a_jump(model):
    question = random_question(2)
    with pytest.raises(PromptError, match=r"\d\d% of its change comes in the first 1 %") as raised:
        integrated_gradients(model, question, baseline="zero")
    assert "Choose the vocabulary's mean, the embedding of a token, or ablation" in str(raised.value)
    wide = replace(CONFIG, norm_eps=10.0)  # larger than the embeddings: the norm hardly divides
    other = HookedMTA(wide).requires_grad_(False).eval()
    other.load_state_dict(model.state_dict())
    found = integrated_gradients(other, question, baseline="zero", max_seconds=1e9)
    assert found.reached and found.baseline == "embeddings of zeros"


def test_a_mean_next_to_zero_is_refused_like_zero_and_not_advised(model):
    other = HookedMTA(CONFIG).requires_grad_(False).eval()
    other.load_state_dict(model.state_dict())
    other.embed.weight -= other.embed.weight.mean(0)
    with pytest.raises(
        PromptError, match=r"the mean embedding of the vocabulary: no baseline .* Choose the embed"
    ):
        integrated_gradients(other, random_question(2))
    with pytest.raises(PromptError, match="Choose the embedding of a token"):
        integrated_gradients(other, random_question(2), baseline="zero")
    long = torch.arange(70) % 23  # more tokens than are replaced: gradients single out which, from a token
    assert len(attribute(other, long.tolist(), method="ablation").found.values) == 64


@pytest.mark.parametrize("stage", [Stage.SOFTMAX, Stage.SOFTMAX_KQ, Stage.PATTERN])
def test_weights_under_a_group_norm_start_at_even_rows(model, stage):
    """The first row sees one key, so it is even and brings nothing. From zeros all would be a jump."""
    question = random_question(5)
    trace = capture(model, question.prompt)
    found = integrated_gradients_of_maps(trace, 3, stage, question, max_error=1e-3, max_seconds=1e9)
    assert "even rows" in found.baseline and found.reached and not found.values[:, 0].any()
    maps = trace.maps(3, stage)
    even = maps.sum(-1, keepdim=True) * torch.ones(9, 9).tril() / torch.arange(1.0, 10)[:, None]
    score = of_maps(trace, 3, stage, question)
    assert found.baseline_score == pytest.approx(float(score(even[None])), abs=1e-4)
    nothing, little, all_of_it = (float(score(share * maps[None])) for share in (0.0, 0.01, 1.0))
    assert abs(little - nothing) > 0.5 * abs(all_of_it - nothing) or stage is not Stage.PATTERN
    plain = edited(model, [BypassGroupNorm(3)])
    again = integrated_gradients_of_maps(capture(plain, question.prompt), 3, stage, question)
    assert again.baseline == "maps of zeros"


def test_an_error_that_is_not_known_is_no_number(model):
    heads = attribute_heads(model, [1, 2, 3], Stage.RAW, layers=[0])
    unknown = replace(heads, layers=(replace(heads.layers[0], error=None),))
    assert [row["completeness_error"] for row in unknown.table().records()] == [None] * 4
    assert ",,maps of zeros" in unknown.table().csv()


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


def test_gradients_do_not_hang_on_the_slabs_the_rows_come_in(model, monkeypatch):
    question = random_question(3, 70)  # four slabs of 18 rows, each with the halo its convolutions read
    embeddings = model.embed(torch.tensor([question.prompt])).requires_grad_()
    score = of_embeddings(model, question)
    assert model.blocks[0].attn.slab_rows(1, 70) == 18
    (in_slabs,) = torch.autograd.grad(score(embeddings).sum(), embeddings)
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 70)
    (at_once,) = torch.autograd.grad(score(embeddings).sum(), embeddings)
    assert torch.allclose(in_slabs, at_once, atol=1e-5) and float(at_once.norm()) > 1e-3


@pytest.mark.parametrize("hooked", [False, True])
def test_the_last_rows_of_a_layer_are_those_of_the_whole(model, hooked):
    resid = torch.randn(2, 30, 32, generator=torch.Generator().manual_seed(0))
    block, seen = model.blocks[-1], []
    hooks = [("blocks.3.attn.hook_pattern", lambda maps, hook: seen.append(maps.shape))] if hooked else []
    with torch.no_grad(), model.hooks(fwd_hooks=hooks):
        assert torch.allclose(block.last_rows(resid, 3), block(resid)[:, -3:], atol=1e-5)
    assert seen == ([(2, 4, 30, 30)] * 2 if hooked else [])  # a hook gets whole maps


def test_values_of_groups_and_of_heads_as_they_are_drawn(model):
    tokens = tokenize(model, list(range(9)))
    found = attribute(model, tokens, method="ablation", groups=((1, 2), (5,)), baseline=11)
    one, two = found.found.values.tolist()
    drawn = found.by_token().tolist()
    assert drawn[1] == drawn[2] == pytest.approx(one) and drawn[5] == pytest.approx(two)
    assert [place for place, value in enumerate(drawn) if not math.isnan(value)] == [1, 2, 5]
    heads = attribute_heads(model, tokens, Stage.KQ, layers=[3])
    question = Question(tokens.ids, heads.answer.ids)
    whole = integrated_gradients_of_maps(heads.trace, 3, Stage.KQ, question).values
    assert torch.allclose(torch.stack([one.values for one in heads.of(3).maps]), whole)
    assert torch.allclose(heads.of(3).sizes, whole.abs().sum((1, 2)))
    assert torch.allclose(heads.of(3).ablated, ablate_maps(heads.trace, 3, Stage.KQ, question).values)
    assert heads.of(1) is None
    with pytest.raises(PromptError, match="values of maps, not of tokens"):
        attribute(model, tokens, layer=3, stage=Stage.KQ).by_token()


def test_maps_of_long_prompts_are_pooled_where_they_are_largest(model, monkeypatch):
    tokens = tokenize(model, list(range(9)))
    monkeypatch.setattr(attributed_prompt, "CELLS", 5)
    pooled = attribute_heads(model, tokens, Stage.KQ, layers=[3]).of(3).maps[1]
    monkeypatch.undo()
    exact = attribute_heads(model, tokens, Stage.KQ, layers=[3]).of(3).maps[1].values
    assert pooled.block == 2 and pooled.values.shape == (5, 5)
    block = exact[4:6, 2:4].flatten()
    assert float(pooled.values[2, 1]) == pytest.approx(float(block[block.abs().argmax()]))


def test_what_cannot_be_done_is_told(model):
    with pytest.raises(PromptError, match="has no BOS token; choose another baseline"):
        integrated_gradients(model, random_question(0), baseline="bos")
    question = random_question(0)
    with pytest.raises(PromptError, match="group 1 shares a position"):
        ablate_tokens(model, question, ((0, 1), (1,)))
    with pytest.raises(PromptError, match=r"group 0 is \[9\]; expected positions of 0 to 8"):
        ablate_tokens(model, question, ((9,),))
    with pytest.raises(PromptError, match="token 23 does not exist"):
        integrated_gradients(model, question, baseline=23)
    with pytest.raises(PromptError, match="no method 'gradient'; expected gradients or ablation"):
        inspect.unwrap(attribute)(model, [1, 2], method="gradient")  # tests check types, notebooks do not
    with pytest.raises(PromptError, match=r"GiB for 8,000 tokens. Shorten the prompt to [0-9,]+ tokens"):
        integrated_gradients(model, random_question(0, 8000))
    with pytest.raises(PromptError, match="of another prompt"):
        ablate_maps(capture(model, [1, 2]), 1, Stage.RAW, question)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"layer": 1}, "a layer and a stage go together"),
        ({"layer": 1, "stage": Stage.RAW, "baseline": "zero"}, "leave out the baseline"),
        ({"layer": 1, "stage": Stage.RAW, "groups": [[0]]}, "leave out the baseline and the groups"),
        ({"groups": [[0]]}, "which is ablation"),
        ({"method": "ablation", "baseline": "mean"}, "'mean' is no token's id"),
    ],
)
def test_choices_that_would_have_no_effect_are_refused(model, choices, said):
    with pytest.raises(PromptError, match=said):
        attribute(model, [1, 2, 3], **choices)


def test_cancelling_in_the_progress_stops(model):
    def stop(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        integrated_gradients(model, random_question(0), progress=stop)


def test_how_complete_gradients_are_is_printed(model, monkeypatch):
    assert "completeness error" in repr(attribute(model, [1, 2, 3])) and "rough" not in repr(
        attribute(model, [1, 2, 3], method="ablation")
    )
    for name, count in (("MOST_STEPS", 0), ("STEPS", 1), ("FIRST", 1)):
        monkeypatch.setattr(attribution_path, name, count)
    assert "rough, allow more seconds)" in repr(attribute(model, [1, 2, 3]))
    assert "rough, allow more seconds)" in repr(attribute_heads(model, [1, 2, 3], Stage.RAW))
