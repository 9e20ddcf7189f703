"""The conjunction test: prompts that differ in two words alone, and an interaction known by hand."""

import math

import pytest
import torch
from lab_models import byte_model

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.conjunction import (
    Conjunction,
    at_identity,
    check_reads_alike,
    conjunction,
    heads_table,
    measure_there,
    ranked,
    strongest,
)
from mta_viz.analysis.labs.four_prompts import (
    FourPrompts,
    block_prompts,
    pairs_prompts,
    words_of,
    written_prompts,
)
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import Cancelled, ConfigError, PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.intervals import mean_interval
from mta_viz.tasks.needles import PairsTask
from mta_viz.tokenizers.builtin import BytesTokenizer, CharTokenizer

A, B = 2.0, 3.0  # the score of a key that holds the first word, and of one that holds the second


def scored_model() -> HookedMTA:
    """One head: query "a" scores A at keys "m" and "p", query "b" scores B at "n" and "p", all else is 0.

    Its convolution adds the scores of the query before to those of the query. The rotation turns the
    last pair of dimensions by less than 1e-8 a token.
    """
    shapes = ModelConfig(
        d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_head=8, d_mlp=8, vocab_size=32, n_ctx=16,
        tied=True, norm_eps=1e-12, rope_theta=1e12, mta=MTAOptions(pre_kernel=(2, 1)),
    )  # fmt: skip
    model = HookedMTA(shapes).requires_grad_(False).eval()
    weights = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    weights["embed.weight"] = torch.eye(32)  # normalised: the square root of 32 at its own place
    for name in ("blocks.0.ln1.weight", "blocks.0.ln2.weight", "ln_final.weight"):
        weights[name] = torch.ones(32)
    a, b, m, n, p = (ord(letter) - ord("a") for letter in "abmnp")
    weights["blocks.0.attn.wq.weight"][6, a] = A * math.sqrt(8) / math.sqrt(32)
    weights["blocks.0.attn.wq.weight"][7, b] = B * math.sqrt(8) / math.sqrt(32)
    weights["blocks.0.attn.wk.weight"][6, [m, p]] = 1 / math.sqrt(32)
    weights["blocks.0.attn.wk.weight"][7, [n, p]] = 1 / math.sqrt(32)
    weights["blocks.0.attn.kernel_pre"] = torch.ones(1, 2, 1)
    model.load_state_dict(weights)
    model.tokenizer = CharTokenizer()
    return model


def letters(text: str, span: str) -> FourPrompts:
    return written_prompts(CharTokenizer(), text, span, [("a", "b", "x", "y")])[0]


def interaction(found: Conjunction, name: str, stage: Stage) -> float:
    return float(found.effects((name, stage)).interaction.mean[0, 0])


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_scores_that_add_up_have_no_interaction_in_log_odds_and_a_known_one_in_share():
    found = conjunction(scored_model(), [letters("zpz#{A?}{B?}", "p")])
    effects = found.effects(("odds", Stage.KQ))
    rest = math.log(6)  # six other keys, all of score 0
    both, only_a, only_b, neither = effects.means[:, 0, 0].tolist()
    assert (both, only_a, only_b, neither) == pytest.approx(
        (A + B - rest, A - rest, B - rest, -rest), abs=1e-5
    )
    assert float(effects.a.mean) == pytest.approx(A, abs=1e-5)
    assert float(effects.b.mean) == pytest.approx(B, abs=1e-5)
    assert interaction(found, "odds", Stage.KQ) == pytest.approx(0, abs=1e-5)
    by_hand = logistic(A + B - rest) - logistic(A - rest) - logistic(B - rest) + logistic(-rest)
    for stage in (Stage.KQ, Stage.SOFTMAX, Stage.PATTERN):
        assert interaction(found, "share", stage) == pytest.approx(by_hand, abs=1e-5)
    assert by_hand < -0.2  # among seven keys one word alone is enough


def test_one_of_two_keys_is_enough_and_before_the_convolution_the_first_word_plays_no_part():
    found = conjunction(scored_model(), [letters("zmnz#{A?}{B?}", "mn")])
    a, b = math.exp(A), math.exp(B)
    by_hand = math.log(a + b) - math.log(a + 1) - math.log(1 + b) + math.log(2)
    assert interaction(found, "odds", Stage.KQ) == pytest.approx(by_hand, abs=1e-5)
    assert by_hand < -1
    raw = found.effects(("odds", Stage.RAW))
    assert float(raw.a.mean) == pytest.approx(0, abs=1e-6)
    assert float(raw.b.mean) == pytest.approx(math.log((1 + b) / 2), abs=1e-5)
    assert float(raw.interaction.mean) == pytest.approx(0, abs=1e-6)


def test_at_identity_the_convolution_adds_nothing():
    other = at_identity(scored_model())
    found = conjunction(other, [letters("zpz#{A?}{B?}", "p")])
    assert torch.equal(found.values["odds", Stage.KQ], found.values["odds", Stage.RAW])
    assert at_identity(other) is not None  # it still has kernels
    plain = ModelConfig(d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=32)
    assert at_identity(HookedMTA(plain)) is None


def values(*samples: tuple[float, float, float, float]) -> Conjunction:
    """One head of one layer; its f in the four prompts of each sample."""
    return Conjunction({("share", Stage.PATTERN): torch.tensor(samples)[:, :, None, None]})


def test_effects_are_means_and_medians_over_samples():
    found = values((0.9, 0.2, 0.3, 0.1), (0.8, 0.1, 0.1, 0.0), (0.5, 0.4, 0.3, 0.2))
    effects = found.effects(("share", Stage.PATTERN))
    each = {"a": [0.1, 0.1, 0.2], "b": [0.2, 0.1, 0.1], "interaction": [0.5, 0.6, 0.0]}
    bounds = {"a": (-1.0, 1.0), "b": (-1.0, 1.0), "interaction": (-2.0, 2.0)}
    for name, by_hand in each.items():
        score = getattr(effects, name)
        assert float(score.mean) == pytest.approx(sum(by_hand) / 3, abs=1e-6)
        ends = [float(score.low), float(score.high)]
        assert ends == pytest.approx([float(end) for end in mean_interval(by_hand, bounds[name])], abs=1e-6)
        middle = (float(score.median_low), float(score.median), float(score.median_high))
        assert (
            middle == pytest.approx(sorted(by_hand), abs=1e-6) and score.level == 0.75
        )  # the range of three
    means = effects.means[:, 0, 0].tolist()
    assert means[0] == pytest.approx(
        means[3] + float(effects.a.mean + effects.b.mean + effects.interaction.mean)
    )


def test_one_sample_has_no_interval_and_a_nan_no_rank():
    found = values((0.9, 0.2, 0.3, 0.1))
    (one,) = ranked(found, ("share", Stage.PATTERN))
    assert one.interaction == pytest.approx(0.5) and math.isnan(one.low) and math.isnan(one.median_high)
    assert strongest(values((math.nan, 0.2, 0.3, 0.1)), "share") is None
    with pytest.raises(PromptError, match="no odds at raw here; there are share at final"):
        found.effects(("odds", Stage.RAW))


def test_heads_are_ranked_by_the_lower_end():
    steady, wild = torch.tensor([0.3, 0.3, 0.3]), torch.tensor([0.0, 0.0, 1.5])
    f = torch.zeros(3, 4, 1, 2)
    f[:, 0, 0, 0], f[:, 0, 0, 1] = steady, wild
    found = Conjunction({("share", Stage.RAW): f * 0.1, ("share", Stage.KQ): f})
    assert [one.head for one in ranked(found, ("share", Stage.KQ))] == [0, 1]
    best = strongest(found, "share")
    assert (best.measure[1], best.head) == (Stage.KQ, 0)


def test_every_head_and_stage_of_a_whole_model_with_partial_results():
    model, kept, shares = byte_model(), [], []
    text, lines = (
        "{A} saw the {B}. Did {A?} see the {B?}?",
        "Alice, rabbit, Clara, weasel\n\nTom, cat, Joe, dog\n",
    )
    samples = written_prompts(BytesTokenizer(), text, "{A} saw the {B}", words_of(lines))
    found = conjunction(model, samples, keep=kept.append, progress=shares.append)
    assert [one.n for one in kept] == [1, 2] and found.n == 2
    assert sorted(set(shares)) == pytest.approx([k / 8 for k in range(1, 9)]) and shares == sorted(shares)
    assert {measure[1] for measure in found.values if measure[0] == "share"} == {
        stage for stage in Stage if not stage.is_second
    }
    assert found.effects(("odds", Stage.KQ)).interaction.mean[0].isnan().all()  # layer 0 has none
    rows = found.table().records()
    assert len(rows) == 11 * 16 and {row["samples"] for row in rows} == {2}
    csv = heads_table({"tiny": found}).csv()
    assert "nan" not in csv
    csv = csv.splitlines()
    assert len(csv) == 1 + len(rows) and csv[0].startswith("model,measure,stage,layer,head,samples,both")
    kept = [("odds", Stage.RAW), ("share", Stage.RAW), ("share", Stage.SOFTMAX)]
    plain = Conjunction({key: found.values[key] for key in kept})
    assert measure_there(plain, ("odds", Stage.MIX)) == ("odds", Stage.RAW)
    assert measure_there(plain, ("share", Stage.SOFTMAX_KQ)) == ("share", Stage.SOFTMAX)


def test_it_can_be_stopped_and_needs_a_sample():
    def stop(_share):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        conjunction(scored_model(), [letters("zpz#{A?}{B?}", "p")], progress=stop)
    with pytest.raises(PromptError, match="no samples"):
        conjunction(scored_model(), [])


def test_another_vocabulary_cannot_run_beside():
    samples = [letters("zpz#{A?}{B?}", "p")]
    check_reads_alike(scored_model(), "the twin", samples)
    with pytest.raises(PromptError, match="the twin has other tokens"):
        check_reads_alike(byte_model(), "the twin", samples)


@pytest.mark.parametrize("seed", [0, 3])
def test_blocks_differ_in_the_letters_asked_for_and_only_both_name_a_block(seed):
    task = BlockTask(n_blocks=52)
    samples = block_prompts(task, 6, seed)
    assert samples == block_prompts(task, 6, seed) and samples[:2] == block_prompts(task, 2, seed)
    for sample in samples:
        texts = [prompt.text for prompt in sample.prompts]
        (blocks,) = {text[:-2] for text in texts}
        a, b, other_a, other_b = sample.words
        assert [text[-2:] for text in texts] == [a + b, a + other_b, other_a + b, other_a + other_b]
        span = "".join(
            texts[0][one[0] : one[1]] for one in sample.prompts[0].spans[sample.span.start : sample.span.stop]
        )
        holders = [[set(text[-2:]) <= set(block) for block in blocks[:-1].split(".")] for text in texts]
        assert [sum(one) for one in holders] == [1, 0, 0, 0]
        assert blocks[:-1].split(".")[holders[0].index(True)] == span
        assert not {other_a, other_b} & set(span) and other_a != other_b


def test_blocks_that_cannot_be_tested_are_refused():
    with pytest.raises(ConfigError, match="n_query is 3; expected 2"):
        block_prompts(BlockTask(5, 3, 6), 1)
    with pytest.raises(ConfigError, match="n is 0"):
        block_prompts(BlockTask(n_blocks=6), 0)
    with pytest.raises(ConfigError, match=r"10000 blocks of 5 letters .* use at most 81 blocks"):
        block_prompts(BlockTask(n_blocks=10_000), 1)
    assert len(block_prompts(BlockTask(n_blocks=81), 3)) == 3
    with pytest.raises(ConfigError, match="use shorter blocks"):
        block_prompts(BlockTask(25, 2, 1), 1)


TEXT = "{A} saw the {B}. Did {A?} see the {B?}?"


@pytest.mark.parametrize(
    ("text", "span", "words", "told"),
    [
        (
            TEXT,
            "{A} saw",
            ("Alice", "rabbit", "Mary", "turtles"),
            "rabbit' the prompt has 1 more token; with 'Mary' for ",
        ),
        (
            TEXT,
            "{A} saw",
            ("Alice", "rabbit", "Mary", "turtle"),
            "56, 56, 55, 55|has 1 fewer token. Choose words",
        ),
        (TEXT, "Did {A}", ("Alice", "rabbit", "Clara", "turtle"), "put {A?} and {B?} after it"),
        (TEXT, "{B} fed", ("Alice", "rabbit", "Clara", "turtle"), "the span 'rabbit fed' is not in the text"),
        (TEXT, "{A} saw", ("Alice", "rabbit", "Clara"), "has 3 words; expected four"),
        (TEXT, "{A} saw", ("Alice", "rabbit", "Clara", ""), "has 3 words; expected four"),
        (TEXT, "{A} saw", ("Alice", "rabbit", "Clara", "rabbit"), "'rabbit' stands for itself"),
        ("{A} saw the {B}. Did {A?} see?", "{A}", ("a", "b", "c", "d"), "the text lacks {B?}"),
        ("", "", ("a", "b", "c", "d"), "the text lacks {A?} and {B?}"),
        (TEXT, "", ("a", "b", "c", "d"), "the span is empty"),
    ],
)
def test_a_text_that_cannot_be_tested_is_told_why(text, span, words, told):
    with pytest.raises(PromptError) as raised:
        written_prompts(BytesTokenizer(), text, span, [words])
    assert any(part in str(raised.value) for part in told.split("|")), str(raised.value)


def test_no_line_of_words_is_told():
    with pytest.raises(PromptError, match="no words; write a line such as"):
        written_prompts(BytesTokenizer(), TEXT, "{A} saw", words_of("\n \n"))


def test_prompts_whose_words_are_not_apart_are_refused():
    encode = BytesTokenizer().encode
    whole = tuple(encode(f"span{end}") for end in ("ab", "ay", "xb", "zz"))
    with pytest.raises(PromptError, match="are not apart"):
        FourPrompts(whole, Span("span", "A", 1, 5), ("a", "b", "x", "y"))


def test_four_prompts_of_pairs_ask_for_words_that_only_the_span_has_together():
    tokenizer, task = BytesTokenizer(), PairsTask(2, 2, 420)
    samples = pairs_prompts(tokenizer, task, 3, 7)
    assert samples == pairs_prompts(tokenizer, task, 3, 7) and samples[:1] == pairs_prompts(
        tokenizer, task, 1, 7
    )
    for sample in samples:
        name, city, other_name, other_city = sample.words
        facts, questions = zip(*(prompt.text.rsplit(" The ", 1) for prompt in sample.prompts), strict=True)
        assert len(set(facts)) == 1 and other_name not in facts[0] and other_city not in facts[0]
        asked = ((name, city), (name, other_city), (other_name, city), (other_name, other_city))
        assert questions == tuple(f"number that {a} has in {b} is" for a, b in asked)
        assert sample.span.name.startswith(f"The number that {name} has in {city} is ")
        ids = sample.prompts[0].ids[sample.span.start : sample.span.stop]
        assert tokenizer.decode(ids) == sample.span.name
    with pytest.raises(ConfigError, match="n is 0"):
        pairs_prompts(tokenizer, task, 0)
    few = PairsTask(2, 2, 420, names=("Ann", "Barbara"), cities=("Rome", "Oslo"))  # no name is left over
    with pytest.raises(PromptError, match="0 of 20 samples have another name and another city"):
        pairs_prompts(tokenizer, few, 1)
