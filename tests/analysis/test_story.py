"""A prompt's story: which head, kernel and words it is about, its numbers, and when it has nothing to say."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import mta_viz
from mta_viz.analysis.attention.heads import head_scores
from mta_viz.analysis.cause.answers import AnswerMeter, TwinAnswer, answer_after, log_odds, twin_of_model
from mta_viz.analysis.cause.choosing import answer_span, other_places
from mta_viz.analysis.cause.direct_effect import direct_effect
from mta_viz.analysis.cause.effects import Absent, Effect, Effects, Estimate, without, write_effects
from mta_viz.analysis.cause.story import LEAST_CHANGE, RULE, Story, percent, story, story_of
from mta_viz.analysis.cause.sweeps import place_of
from mta_viz.analysis.compare.comparing import answer_pairs
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.kernels.table import kernel_table
from mta_viz.analysis.labs.blocks import asked_block, block_spans
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_kernels, write_native
from mta_viz.checkpoint.relatives import plain_twin
from mta_viz.config import MTAOptions
from mta_viz.errors import PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import AblateHead
from mta_viz.model.plans import every_kernel
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, generate
from mta_viz.tokenizers.builtin import CharTokenizer
from tests.analysis.lab_models import byte_model
from tests.tiny_models import FULL, config, random_weights, write_models

NEEDLES = (
    "A fox ran. The magic number of Oslo is 88. It rained all day. The magic number of Lima is 23. "
    "The magic number of Oslo is"
)
PAIRS = (
    "The number that Ada has in Oslo is 88. It rained. The number that Ada has in Lima is 23. "
    "The number that Ada has in Oslo is"
)
BLOCKS = "abcde.fghij.klmno#ca"
TEXT = "Alice saw a rabbit and a fox"


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    """Bytes as tokens, every kind of kernel, from no file."""
    return byte_model()


@pytest.fixture(scope="module")
def opening(model: HookedMTA) -> Story:
    """Of a needle prompt."""
    return story(model, NEEDLES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`tiny-mta`, of which nothing is measured."""
    return write_models(tmp_path) / "tiny-mta"


def write_pair(root: Path) -> Path:
    """`pair-mta` and its plain twin, letters as tokens."""
    for name, options, seed in (("pair-mta", FULL, 0), ("pair-transformer", MTAOptions(), 1)):
        weights = random_weights(config(options, 32), seed)
        place = {"tokenizer_name": "char", "tokenizer_path": None, "dtype": torch.float32}
        write_native(root / name, config(options, 32), weights, **place)
    return root / "pair-mta"


def measured(folder: Path, kernel: KernelId, edit, task="needle", sha=None) -> None:
    """A file in which this kernel costs most, and head mixing even more."""
    mixing = KernelId(1, 0, "head_pre")
    nothing = Estimate(0.0, math.nan, math.nan)
    effects = tuple(
        Effect((without(other, edit),), 0.5, nothing, Estimate(change, math.nan, math.nan))
        for other, change in ((mixing, -9.0), (KernelId(1, 3, "pre"), -1.0), (kernel, -2.0))
    )
    table = Effects(sha or sha256(folder), task, 6, 0, "tiny", "1", 0.9, -0.3, effects, edit)
    write_effects(folder / ("effects.json" if edit == "identity" else "effects-own-tap.json"), table)


def gains_by_hand(opening: Story, trace) -> dict[KernelId, float]:
    """What every kernel adds to the asked span's share in the last row."""
    span, last, gains = opening.asked, len(trace.tokens) - 1, {}
    for layer, head in ((layer, head) for layer in (1, 3) for head in range(4)):
        for where, stages in (("pre", (Stage.RAW, Stage.KQ)), ("post", (Stage.SOFTMAX, Stage.SOFTMAX_KQ))):
            shares = []
            for stage in stages:
                row = trace.map(layer, stage, head)[last, : last + 1].double()
                weights = row.softmax(0) if where == "pre" else row.abs() / row.abs().sum()
                shares.append(float(weights[span.start : span.stop].sum()))
            gains[KernelId(layer, head, where)] = shares[1] - shares[0]
    return gains


@pytest.mark.parametrize("prompt", [NEEDLES, TEXT])
def test_without_a_measurement_the_kernel_is_that_of_the_largest_gain(model, prompt):
    opening, trace = story(model, prompt), capture(model, prompt)
    gains = gains_by_hand(opening, trace)
    assert opening.by == "gain" and opening.kernel == max(gains, key=gains.get)
    assert opening.gain == pytest.approx(gains[opening.kernel], abs=1e-5)
    assert opening.place == (opening.kernel.layer, opening.kernel.head)


def test_spans_are_the_needles_and_the_question_of_a_needle_prompt(opening):
    assert [span.name for span in opening.spans] == ["Oslo (asked)", "Lima", "question"]
    assert opening.asked.name == "Oslo (asked)" and opening.asking.name == "question"
    assert opening.answer.source == "needle" and opening.answer.text == " 88"
    assert "the needle “Oslo”" in opening.sentence() and "(asked)" not in opening.sentence()


def test_weights_are_the_scores_of_heads(model):
    for prompt in (NEEDLES, TEXT):
        opening = story(model, prompt)
        scores = head_scores(capture(model, prompt), opening.asked).values
        for at in opening.weights:
            own = float(scores[f"span.{at.stage.value.key}"][opening.place])
            assert at.score == pytest.approx(own, abs=1e-4)
            share = 1 / (1 + math.exp(-own)) if at.stage.value.unit == "score" else own
            assert at.share == pytest.approx(share, abs=1e-5)


def test_rivals_are_the_other_places_of_the_span_s_length(model, opening):
    trace = capture(model, NEEDLES)
    span, last = opening.asked, len(trace.tokens) - 1
    row = trace.map(1, Stage.RAW, 2)[last].double().softmax(0)
    length = span.stop - span.start
    starts = [at for at in range(last + 2 - length) if at + length <= span.start or at >= span.stop]
    shares = other_places(trace, (1, 2), Stage.RAW, span)
    assert torch.isfinite(shares).nonzero().flatten().tolist() == starts
    assert float(shares[starts[3]]) == pytest.approx(
        float(row[starts[3] : starts[3] + length].sum()), abs=1e-6
    )
    before, after = (other_places(trace, opening.place, at.stage, span) for at in opening.weights)
    gains = (after - before)[starts]
    assert opening.other_gain == pytest.approx(float(gains.max()), abs=1e-6)


def test_the_answer_is_that_of_ablate_at_the_own_tap(model, opening):
    board = mta_viz.ablate(model, NEEDLES, opening.plan).board
    assert opening.answer == board.answer
    assert opening.standing.log_probability == pytest.approx(board.before, abs=1e-9)
    assert opening.without.log_probability == pytest.approx(board.after, abs=1e-9)
    assert opening.log_odds_change == pytest.approx(board.log_odds_change, abs=1e-9)
    assert opening.standing.log_odds == log_odds(board.before)


def test_the_rank_is_the_largest_of_the_answer_s_tokens(model):
    trace = capture(model, TEXT)
    meter = AnswerMeter(trace, answer_after(trace, "xy"))
    logits = capture(model, TEXT + "x").logits(slice(-2, None))
    ranks = [int((row > row[ord(letter)]).sum()) + 1 for row, letter in zip(logits, "xy", strict=True)]
    assert ranks[0] != ranks[1] and meter.standing().rank == max(ranks)
    assert meter.standing().log_probability == meter.before


def test_the_likeliest_answer_has_rank_1_and_is_what_is_written(model):
    opening = story(model, TEXT)
    assert opening.answer.source == "likeliest" and opening.standing.rank == 1
    assert opening.writes == model.tokenizer.decode(opening.answer.ids)
    other = story(model, TEXT, answer="zz")
    assert other.standing.rank > 1
    assert other.writes == model.tokenizer.decode(generate(model, TEXT, 2))


def test_the_shape_is_that_of_the_kernel_table(model, opening):
    rows = {
        (row["layer"], row["head"], row["where"]): row
        for row in kernel_table(model.state_dict(), model.config)
    }
    kernel = opening.kernel
    assert opening.shape == rows[kernel.layer, kernel.head, kernel.where]["shape"]


def test_a_measurement_of_these_weights_and_this_task_chooses(folder):
    by_gain = story(mta_viz.load(folder), NEEDLES).kernel
    identity, own_tap = KernelId(3, 1, "post"), KernelId(1, 0, "pre")
    assert by_gain not in (identity, own_tap)
    measured(folder, identity, "identity")
    model = mta_viz.load(folder)
    assert story(model, NEEDLES).kernel == identity and story(model, NEEDLES).by == "effects"
    measured(folder, own_tap, "own-tap")  # before what was measured at the identity
    assert story(model, NEEDLES).kernel == own_tap
    assert story(model, TEXT).by == "gain"  # no needle is asked for
    assert story(edited(model, every_kernel(model.config)[:1]), NEEDLES).by == "gain"
    for edit in ("identity", "own-tap"):
        measured(folder, identity, edit, sha="0" * 64)
    assert story(model, NEEDLES).kernel == by_gain
    for edit in ("identity", "own-tap"):
        measured(folder, identity, edit, task="pairs")
    assert story(model, NEEDLES).kernel == by_gain
    chosen = story(model, PAIRS)
    assert chosen.kernel == identity and chosen.by == "effects"


def test_the_span_of_another_prompt_is_what_the_answer_rests_on(model):
    trace, opening = capture(model, TEXT), story(model, TEXT)
    largest = [
        cell for layer in direct_effect(model, TEXT).layers for cell in layer.values.sum(1).flatten().tolist()
    ]
    layers = direct_effect(model, TEXT).layers
    layer = next(layer for layer in layers if float(layer.values.sum(1).max()) == max(largest))
    head, key = divmod(int(layer.values.sum(1).argmax()), len(trace.tokens))
    span = answer_span(AnswerMeter(trace, answer_after(trace)))
    assert key in span.positions and (span.start, span.stop) == (opening.asked.start, opening.asked.stop)
    row = trace.map(layer.layer, Stage.SOFTMAX, head)[-1]
    assert all(row[at] >= row[key] / 2 for at in span.positions)
    assert all(row[at] < row[key] / 2 for at in (span.start - 1, span.stop) if 0 <= at < len(row))
    assert opening.asking.positions == range(len(trace.tokens) - 1, len(trace.tokens))


def test_a_part_of_a_character_is_named_as_such(model):
    asked = [story(model, text).asked for text in ("é" * n for n in range(1, 5))]
    parts = [span for span in asked if len(span.positions) == 1 and span.start > 0]
    assert parts and all(re.fullmatch("part [12] of 2 of é", span.name) for span in parts)


def test_kernels_at_the_identity_do_not_stand_out(model):
    opening = story(edited(model, every_kernel(model.config)), NEEDLES)
    assert opening.gain == 0 and opening.log_odds_change == 0 and not opening.stands_out
    words = opening.sentence()  # of the one kernel that was looked at, and of no other
    assert " does not stand out: the head gives " in words and "Nothing" not in words
    assert opening.weights[-1].share == pytest.approx(_most_given(model), abs=1e-6)
    assert "stay as they are" in opening.sentence() and RULE in opening.as_data()["rule"]


def _most_given(model):
    """The most that a head with a kernel gives the asked needle after it, of all layers' stages."""
    trace = capture(edited(model, every_kernel(model.config)), NEEDLES)
    values = head_scores(trace, story(model, NEEDLES).asked).values
    kept = [values["span.kq"].sigmoid(), values["span.kq2"]]
    return max(float(each[each.isfinite()].max()) for each in kept)


def test_what_stands_out_follows_the_rule(opening):
    before, after = opening.weights
    less = replace(opening.standing, log_probability=opening.standing.log_probability - 0.5)
    still = replace(opening, without=opening.standing)
    assert replace(opening, without=less).stands_out and abs(still.log_odds_change) < LEAST_CHANGE
    low, high = (
        replace(before, stage=Stage.SOFTMAX, score=0.1),
        replace(after, stage=Stage.SOFTMAX_KQ, score=0.2),
    )
    gaining = replace(still, weights=(low, high), other_gain=0.05)
    assert gaining.stands_out and not replace(gaining, other_gain=0.2).stands_out
    assert not replace(gaining, weights=(low, replace(high, score=0.14))).stands_out
    found = replace(gaining.asked, name="Oslo")  # not one that the prompt asks for
    assert not replace(gaining, asked=found).stands_out


def test_a_plain_model_opens_at_the_head_it_loses_most_without(tmp_path):
    model = mta_viz.load(write_models(tmp_path) / "tiny-plain")
    opening = story(model, NEEDLES)
    trace = capture(model, NEEDLES)
    final = head_scores(trace, opening.asked).values["span.final"]
    assert opening.kernel is None and opening.by == "loss" and opening.plan == (AblateHead(*opening.place),)
    assert opening.weights[0].share == pytest.approx(float(final[opening.place]), abs=1e-6)
    board = mta_viz.ablate(model, NEEDLES, opening.plan, sweeps=("heads",))
    assert opening.without.log_probability == pytest.approx(board.board.after, abs=1e-9)
    assert (opening.choice.tried, opening.choice.heads, opening.choice.resting) == (8, 16, 0)
    adds = {(row[0], row[1]): row[3] for row in direct_effect(model, NEEDLES).table().rows}
    tried = sorted(adds, key=adds.__getitem__, reverse=True)[:8]
    alone = [row for row in board.sweep if place_of(row.intervention) in tried]  # the most harmful first
    assert place_of(alone[0].intervention) == opening.place
    assert opening.sentence().endswith("of its weight; this model has no key-query kernels.")
    assert opening.twin == Absent("This model is plain itself.")


def test_a_head_that_rests_on_the_first_token_is_counted_and_not_opened(tmp_path):
    """Its weight is no finding: what the other heads give words is."""
    model = mta_viz.load(write_models(tmp_path) / "tiny-plain")
    q, k = (model.blocks[1].attn.get_submodule(name).weight for name in ("wq", "wk"))
    words = story(model, TEXT)

    with torch.no_grad():
        q.zero_()
        k.zero_()
        short = capture(model, [65, 66])  # even rows of two keys give half to the first
        told = story(model, [65, 66])
    heads = [(layer, head) for layer in range(4) for head in range(4)]
    rests = {place for place in heads if short.map(place[0], Stage.PATTERN, place[1])[1, 0] >= 0.5}
    assert {(1, head) for head in range(4)} <= rests and told.choice.resting == len(rests)
    assert told.place not in rests and told.choice.first < 0.5 and told.asked.start > 0
    assert f"{len(rests)} of 16 heads give half or more (an attention sink)" in told.sentence()
    assert words.choice.resting == 0 and "sink" not in words.sentence()


def test_a_prompt_of_one_token_says_what_it_can():
    model = byte_model()
    opening = story(model, [65])
    assert opening.place is None and opening.asked is None and not opening.stands_out
    assert opening.sentence().startswith("The last token sees no other key") and opening.standing.rank == 1
    assert opening.as_data()["kernel"] is None and len(opening.table().rows) == 1
    two = story(model, [65, 66])
    assert two.asked is not None and len(two.asked.positions) == 1 and two.kernel is not None


def test_kernels_alone_are_refused_in_words(tmp_path):
    shapes = config(FULL, 258)
    write_kernels(tmp_path / "kernels", shapes, random_weights(shapes))
    with pytest.raises(PromptError, match="holds kernels only, so no prompt can be run"):
        story(mta_viz.load(tmp_path / "kernels"), "Hello")


def test_a_block_sequence_asks_for_the_block_that_holds_the_letters(tmp_path):
    folder = write_pair(tmp_path)
    tokens = CharTokenizer().encode(BLOCKS)
    target, query = block_spans(tokens)
    assert target.name == "abcde (target)" and "".join(tokens.pieces[target.start : target.stop]) == "abcde"
    assert "".join(tokens.pieces[query.start : query.stop]) == "ca"
    for text in ("abcde.bcdea#ca", "abcde.fghij#kl", "abcde#ca", "abcde.fghij#", "A b.c#d"):
        assert (
            block_spans(
                CharTokenizer().encode(text) if text.islower() else byte_model().tokenizer.encode(text)
            )
            == ()
        )
    model = mta_viz.load(folder)
    opening = story(model, BLOCKS)
    assert opening.answer.text == "abcde" and opening.asking.name == "query letters"
    assert "the block “abcde”" in opening.sentence()
    (folder / "card.json").write_text(json.dumps({"config": {"output": "last"}}))
    assert asked_block(capture(model, BLOCKS)) == "e"


def test_every_measure_of_an_answer_has_the_storys_answer(tmp_path):
    """A number of the whole block beside one of its first letter cannot be compared."""
    model = mta_viz.load(write_pair(tmp_path))
    trace = capture(model, BLOCKS)
    told = story(model, BLOCKS).answer
    assert (told.text, told.source) == ("abcde", "block")
    asked = (
        mta_viz.attribute(model, BLOCKS, method="ablation").answer,
        mta_viz.direct_effect(model, BLOCKS).answer,
    )
    compared = answer_pairs(trace, trace, None, same_ids=True)[0]
    assert {mta_viz.ablate(model, BLOCKS).board.answer, answer_after(trace), *asked} == {told}
    assert (compared.text, compared.source) == (told.text, told.source)


def test_the_twin_beside_the_folder_answers_the_same_prompt(tmp_path):
    folder = write_pair(tmp_path)
    model, twin = mta_viz.load(folder), mta_viz.load(tmp_path / "pair-transformer")
    assert (
        plain_twin(folder) == tmp_path / "pair-transformer"
        and plain_twin(tmp_path / "pair-transformer") is None
    )
    twins = story(model, BLOCKS).twin
    assert isinstance(twins, TwinAnswer) and twins.name == "pair-transformer"
    board = mta_viz.ablate(twin, BLOCKS, answer="abcde").board
    assert twins.standing.log_probability == pytest.approx(board.before, abs=1e-9)
    run, ids = capture(twin, BLOCKS), generate(twin, BLOCKS, 5)
    own = AnswerMeter(run, replace(answer_after(run, "abcde"), ids=ids))
    assert twins.own.log_probability == pytest.approx(own.before, abs=1e-9) and twins.own.rank == 1
    assert twins.writes == twin.tokenizer.decode(ids)
    given = story_of(capture(model, BLOCKS), twin=twin)
    assert given.twin == twins and "pair-transformer writes" in given.twin_words
    assert story_of(capture(model, BLOCKS)).twin == Absent("No plain twin was given.")


def test_a_twin_that_is_gone_or_broken_is_said(tmp_path):
    folder = write_pair(tmp_path)
    model = mta_viz.load(folder)
    assert (
        story_of(capture(model, BLOCKS), twin=byte_model()).twin.reason
        == "The plain twin has another vocabulary."
    )
    (tmp_path / "pair-transformer" / "model.safetensors").write_bytes(b"nothing")
    assert "cannot be read" in twin_of_model(model).reason
    assert twin_of_model(byte_model()).reason == "No plain twin lies beside this model."


def test_a_story_prints_in_a_few_lines_and_counts_as_asked(opening):
    lines = repr(opening).splitlines()
    assert " ".join(lines[:-3]) == opening.sentence() and max(map(len, lines)) <= 120
    layer, head = opening.place
    assert opening.sentence(1).startswith(f"L{layer + 1} H{head + 1}")
    json.dumps(opening.as_data(), allow_nan=False)


def test_shares_are_rounded_towards_the_middle():
    shares = {0.0: "0 %", 0.0004: "0.04 %", 0.12: "12 %", 0.994: "99.4 %", 0.99999: "99.9 %", 1.0: "100 %"}
    assert {share: percent(share) for share in shares} == shares
