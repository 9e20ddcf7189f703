"""Answers: a token for a space alone carries none; what is explained is the first token that is seen."""

import pytest
import torch

import mta_viz
from mta_viz.analysis.cause.answers import answer_after, carrying, is_white_space, past_white_space
from mta_viz.analysis.cause.kernel_effect import kernel_effect
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, capture
from mta_viz.tokenizers.builtin import BytesTokenizer

SHAPES = ModelConfig(
    d_model=64, n_layers=1, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=258,
    mta=MTAOptions(pre_kernel=(2, 3)),
)  # fmt: skip


def writer(*follows: str) -> HookedMTA:
    """A model that writes the second letter of each pair after the first, whatever came before."""
    model, tokenizer = HookedMTA(SHAPES).requires_grad_(False).eval(), BytesTokenizer()
    weights = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    weights["embed.weight"] = torch.randn(258, 64, generator=torch.Generator().manual_seed(0))
    weights |= {name: torch.ones(64) for name in weights if name.endswith("ln_final.weight")}
    for first, second in follows:
        at = [tokenizer.encode(letter).ids[-1] for letter in (first, second)]
        weights["unembed.weight"][at[1]] += weights["embed.weight"][at[0]]
    model.load_state_dict(weights)
    model.tokenizer = tokenizer
    return model


def run(*follows: str, prompt: str = "It is") -> Trace:
    return capture(writer(*follows), prompt)


def test_the_likeliest_answer_goes_on_past_white_space():
    trace = run("s ", " 7", "7.")
    answer = answer_after(trace)
    assert (answer.text, answer.place, answer.piece, answer.source) == ("␣7", 1, "7", "likeliest")
    assert trace.model.tokenizer.decode(answer.ids) == " 7"
    assert answer.explains(1, "7") == 'token 2 of 2 of the answer: "7"'
    assert answer.as_data() | {"place": 1, "piece": "7"} == answer.as_data()
    assert past_white_space(trace).tokens.ids == (*trace.tokens.ids, answer.ids[0])


def test_without_white_space_it_is_the_next_token():
    trace = run("s7")
    answer = answer_after(trace)
    assert (answer.text, answer.place, len(answer.ids)) == ("7", 0, 1)
    assert past_white_space(trace) is trace


def test_a_model_that_writes_nothing_else_is_taken_as_it_is():
    trace = run("s ", "  ")
    assert past_white_space(trace) is trace and answer_after(trace).text == "␣"


@pytest.mark.parametrize(
    ("text", "place", "piece"), [(" 417", 1, "4"), ("417", 0, "4"), (" \n4", 2, "4"), ("  ", 0, "␣")]
)
def test_a_given_answer_is_carried_by_its_first_token_that_is_seen(text, place, piece):
    answer = answer_after(run("s7"), text)
    assert (answer.place, answer.piece, answer.text) == (place, piece, text)


def test_special_tokens_and_no_tokenizer_are_no_white_space():
    tokenizer = BytesTokenizer()
    last = tokenizer.encode("a").ids[-1]
    assert not is_white_space(tokenizer, last, tokenizer.bos_id)
    assert carrying(None, 0, (1, 2)) == 0


def test_the_effect_on_this_prompt_is_of_the_same_answer():
    trace = run("s ", " 7", "7.")
    effect = kernel_effect(trace, KernelId(0, 1, "pre"))
    assert effect.answer == answer_after(trace) and effect.answer.text == "␣7"
    change = effect.without.log_probability - effect.standing.log_probability
    assert change == pytest.approx(0, abs=1e-6)  # attention adds nothing here


def test_a_logit_explained_is_that_of_the_token_after_the_space():
    trace = run("s ", " 7", "7.")
    for answer in (None, " 7"):
        found = mta_viz.responsibilities(trace.model, "It is", answer=answer)
        assert found.place == 1 and found.as_data()["explains"] == 'token 2 of 2 of the answer: "7"'
        assert found.logit == pytest.approx(
            float(past_white_space(trace).logits(slice(-1, None))[0].max()), rel=1e-5
        )
    assert mta_viz.responsibilities(trace.model, "It is", answer=" 7", place=0).explained.startswith(
        "token 1 of 2"
    )
    assert 'on the logit of token 2 of 2 of the answer: "7"' in repr(found)
