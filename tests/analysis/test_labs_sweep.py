"""Sweeps: verdicts against greedy decoding, no sample twice, the file, and what the results say."""

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from lab_models import byte_model

from mta_viz.analysis.labs import needle as answers
from mta_viz.analysis.labs.needle import answer, digits, judge
from mta_viz.analysis.labs.sweep import SampleResult, Sweep, run_sweep, vocabulary
from mta_viz.analysis.labs.sweep_file import (
    ModelResults,
    by_depth_and_length,
    by_length_and_needles,
    by_needles,
    by_place,
    by_setting,
    empty_results,
    misses,
    paired_difference,
    parse_sweep,
    read_sweep,
    sweep_text,
    write_sweep,
)
from mta_viz.errors import Cancelled, ConfigError, MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import end_logits
from mta_viz.run.tracing import generate, score
from mta_viz.tasks.intervals import accuracy_interval, paired_change_interval
from mta_viz.tasks.needles import NeedleTask
from mta_viz.tokenizers.builtin import BytesTokenizer
from tests.tiny_models import TWO_HEADS

SWEEP = Sweep((1, 2), (300,), (0, 100), samples=3)


@pytest.fixture(scope="module")
def model():
    return byte_model()


def oracle(monkeypatch, spoken):
    """Make every model answer `spoken(sample)` to the prompts of `samples`, then a full stop."""
    known, joined = {}, answers.with_answers

    def remembering(samples):
        for sample in samples:
            known.setdefault(sample.tokens.ids, f" {spoken(sample)}.".encode())
        return joined(samples)

    def logits(_model, ids, n_last):
        result = torch.zeros(len(ids), n_last, 258)
        for row, tokens in enumerate(map(tuple, ids.tolist())):
            prompt, given = tokens[: len(tokens) - n_last + 1], tokens[len(tokens) - n_last + 1 :]
            answer = tuple(known[prompt])
            for at in range(n_last):
                on_track = given[:at] == answer[:at]
                result[row, at, answer[min(at, len(answer) - 1)] if on_track else ord("#")] = 9.0
        return result

    monkeypatch.setattr(answers, "with_answers", remembering)
    monkeypatch.setattr(answers, "end_logits", logits)


@pytest.mark.parametrize("what", ["asked", "needle", "other", "longer", "nothing"])
def test_verdicts_name_the_needle_that_was_answered(model, monkeypatch, what):
    samples = [NeedleTask(4, 500, 50).sample(BytesTokenizer(), seed) for seed in range(4)]
    others = {one.tokens.ids: [n for n in one.needles if n.kind == "needle"][1] for one in samples}
    spoken = {
        "asked": lambda one: one.answer,
        "needle": lambda one: str(others[one.tokens.ids].value),
        "other": lambda one: "0000",
        "longer": lambda one: one.answer + "7",
        "nothing": lambda one: "the",
    }[what]
    oracle(monkeypatch, spoken)
    verdicts = answer(model, BytesTokenizer(), samples)
    outcome = {"asked": "right", "needle": "needle"}.get(what, "other")
    assert [one.outcome for one in verdicts] == [outcome] * 4
    for one, verdict in zip(samples, verdicts, strict=True):
        place = one.needles.index(others[one.tokens.ids]) if what == "needle" else None
        assert verdict.named == place


def test_one_pass_says_what_greedy_decoding_says(model):
    samples = [NeedleTask(2, 300, 50).sample(model.tokenizer, seed) for seed in range(3)]
    verdicts = answer(model, model.tokenizer, samples)
    for one, verdict in zip(samples, verdicts, strict=True):
        said = digits(model.tokenizer.decode(generate(model, one.tokens, 6)))
        assert (verdict.outcome == "right") == (said == one.answer)
        ids = torch.tensor([one.tokens.ids + one.answer_ids])
        logs = score(model, ids).float().log_softmax(-1)[0, -len(one.answer_ids) - 1 : -1]
        by_hand = sum(float(logs[at, token]) for at, token in enumerate(one.answer_ids))
        assert verdict.log_probability == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.parametrize("n_last", [1, 3, 40])
def test_the_quick_pass_gives_the_logits_of_the_whole_one(model, n_last):
    ids = torch.randint(258, (2, 40), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(end_logits(model, ids, n_last), score(model, ids)[:, -n_last:], atol=1e-5)
    one_layer = HookedMTA(TWO_HEADS).eval()
    ids = ids % TWO_HEADS.vocab_size
    assert torch.allclose(end_logits(one_layer, ids, n_last), score(one_layer, ids)[:, -n_last:], atol=1e-5)


def test_a_batch_gives_what_its_samples_give_alone(model):
    """Whatever stands after a shorter answer."""
    samples = [NeedleTask(2, 300, 50).sample(model.tokenizer, seed) for seed in range(6)]
    ids = answers.with_answers(samples)
    n_last = ids.shape[1] - len(samples[0].tokens) + 1
    other, together = ids.clone(), end_logits(model, ids, n_last)
    for row, sample in enumerate(samples):
        n_answer = len(sample.answer_ids)
        alone = torch.tensor([sample.tokens.ids + sample.answer_ids])
        want = end_logits(model, alone, n_answer + 1)
        torch.testing.assert_close(together[row : row + 1, : n_answer + 1], want, rtol=0, atol=1e-5)
        other[row, alone.shape[1] :] = 77
    assert not torch.equal(other, ids)
    kept = [len(sample.answer_ids) + 1 for sample in samples]
    changed = end_logits(model, other, n_last)
    assert all(torch.equal(changed[row, :n], together[row, :n]) for row, n in enumerate(kept))


def test_digits():
    assert digits(" 417. The") == "417" and digits("the 4") == "" and digits("") == ""


def asked_number(sample):
    return next(str(needle.value) for needle in sample.needles if needle.kind == "asked")


def counted(monkeypatch):
    """How many samples were scored in a first pass; in a second one they have another needle's answer."""
    seen, judged = [], judge

    def judging(greedy, tokenizer, samples):
        seen.extend(sample.tokens.ids for sample in samples if sample.answer == asked_number(sample))
        return judged(greedy, tokenizer, samples)

    monkeypatch.setattr(answers, "judge", judging)
    return seen


def test_samples_already_done_are_not_run_again(model, monkeypatch):
    seen, kept, shares = counted(monkeypatch), [], []

    def stop(share):
        shares.append(share)
        if len(shares) == 1:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        run_sweep(model, SWEEP, keep=kept.append, progress=stop)
    assert len(seen) == len(kept[-1]) == 3  # one batch holds a setting's three samples
    whole = run_sweep(model, SWEEP, kept[-1], keep=kept.append, progress=shares.append)
    assert len(seen) == len(set(seen)) == len(whole) == 12
    assert shares[-1] == pytest.approx(1.0)
    more = run_sweep(model, dataclasses.replace(SWEEP, samples=4, depths=(0,)), whole)
    assert len(seen) == 14 and len(more) == 8  # two new samples; the other depth's are not asked for
    assert {one.key for one in run_sweep(model, SWEEP)} == {one.key for one in whole}
    assert repr(run_sweep(model, SWEEP, whole[6:])) == repr(whole)  # in the plan's order, however it began


def test_settings_grow_together(model, monkeypatch):
    monkeypatch.setitem(answers.CELLS_AT_ONCE, "cpu", 300)  # one sample a batch
    kept = []
    run_sweep(model, SWEEP, keep=kept.append)
    assert len({one.key[0] for one in kept[3]}) == 4


def test_sweeps_that_make_no_sense_are_refused(model):
    with pytest.raises(ConfigError, match=r"(?s)needles are \[\].*depths are \[0, 0\].*samples are 0"):
        Sweep((), (300,), (0, 0), 0)
    with pytest.raises(ConfigError, match="99,999,999,999 tokens; at most 1,000,000"):
        Sweep((1,), (300, 99_999_999_999))
    with pytest.raises(ConfigError, match="1,000,002 samples in all; expected at most 1,000,000"):
        Sweep((1, 2), (300,), (0,), samples=500_001)
    with pytest.raises(PromptError, match="9 needles"):
        Sweep((9,))
    with pytest.raises(PromptError, match=r"take \d+ tokens, \d+ more than the length 100"):
        run_sweep(model, Sweep((2,), (300, 100), (0,), 1))
    model_without = byte_model()
    model_without.tokenizer = None
    with pytest.raises(PromptError, match="without its tokenizer"):
        run_sweep(model_without, SWEEP)


def test_vocabularies_tell_tokenizers_apart():
    wider = BytesTokenizer()
    wider.vocab_size = 300
    assert vocabulary(BytesTokenizer()) == vocabulary(BytesTokenizer()) != vocabulary(wider)


def result(needles, length, depth, seed, outcome="right", place=0, named=None):
    return SampleResult(needles, length, depth, seed, outcome, place, named, -0.5)


RESULTS = (
    result(2, 512, 0, 0),
    result(2, 512, 0, 1, "needle", 0, 1),
    result(2, 512, 100, 0, "right", 1),
    result(4, 512, 0, 0, "other", 1),
    result(4, 1024, 50, 0, "needle", 2, 0),
    result(4, 1024, 50, 1, "right", 3),
)


def test_summaries_by_hand():
    assert by_setting(RESULTS)[2, 512, 0].accuracy == 0.5
    assert [one.n for one in by_setting(RESULTS).values()] == [2, 1, 1, 2]
    assert {needles: (one.right, one.n) for needles, one in by_needles(RESULTS).items()} == {
        2: (2, 3),
        4: (1, 3),
    }
    assert {key: (one.right, one.n) for key, one in by_length_and_needles(RESULTS).items()} == {
        (512, 2): (2, 3),
        (512, 4): (0, 1),
        (1024, 4): (1, 2),
    }
    assert by_needles(RESULTS, 1024) == {4: by_length_and_needles(RESULTS)[1024, 4]}
    assert by_needles(RESULTS)[2].interval == accuracy_interval(2, 3)
    assert list(by_depth_and_length(RESULTS)) == [(0, 512), (50, 1024), (100, 512)]
    assert by_depth_and_length(RESULTS, 4)[0, 512].right == 0
    assert {place: (one.right, one.n) for place, one in by_place(RESULTS).items()} == {
        "first": (1, 2),
        "between": (0, 2),
        "last": (2, 2),
    }
    found = misses(RESULTS)
    assert (found.wrong, found.named, found.first, found.last) == (3, 2, 1, 1)
    # the 2-needle miss can name only the last; of the 4-needle one's three others one is first, one last
    assert (found.by_chance_first, found.by_chance_last) == pytest.approx((1 / 3, 1 + 1 / 3))


def test_the_paired_difference_takes_common_samples_alone():
    better = tuple(dataclasses.replace(one, outcome="right") for one in RESULTS[:5])
    found = paired_difference(RESULTS, better)
    assert found.n == 5 and found.value == pytest.approx(3 / 5)
    before = [one.outcome == "right" for one in RESULTS[:5]]
    assert found.interval == paired_change_interval(before, [True] * 5)
    with pytest.raises(PromptError, match="no sample in common"):
        paired_difference(RESULTS[:1], RESULTS[1:])


samples = some.builds(
    SampleResult,
    needles=some.integers(2, 8),
    length=some.integers(1, 10**5),
    depth=some.sampled_from([0, 12.5, 100]),
    seed=some.integers(),
    outcome=some.sampled_from(["right", "needle", "other"]),
    place=some.integers(0, 1),
    named=some.none() | some.integers(0, 1),
    log_probability=some.floats(max_value=0, allow_infinity=False),
)


@given(some.lists(samples, max_size=5, unique_by=lambda one: one.key).map(tuple), some.text())
def test_the_file_comes_back_as_it_was(rows, name):
    found = empty_results(SWEEP).with_model(ModelResults(name, "aa", "bb", rows))
    found = found.with_model(ModelResults("twin", "cc", "bb", rows[:1]))
    assert parse_sweep(sweep_text(found), "f") == found
    assert found.of("aa", "bb") == rows and found.of("aa", "cc") == ()
    assert found.with_model(ModelResults("twin", "cc", "bb", rows)).of("cc", "bb") == rows


def test_a_file_of_the_older_format_holds_needles_and_one_of_pairs_says_so():
    pairs = empty_results(Sweep((4, 9), kind="pairs"))
    assert parse_sweep(sweep_text(pairs), "f") == pairs and pairs.kind == "pairs"
    of_file = SampleResult(None, None, None, 0, "other", 0, None, -0.5)
    written = empty_results(Sweep(samples=1, kind="file", lines='{"prompt": "a", "answer": "b"}'))
    written = written.with_model(ModelResults("m", "a", "b", (of_file,)))
    assert parse_sweep(sweep_text(written), "f") == written
    new = empty_results(SWEEP).with_model(ModelResults("m", "a", "b", RESULTS))
    older = sweep_text(new).replace("needle sweep 2", "needle sweep 1").replace('"kind": "needle",', "")
    assert "kind" not in older and parse_sweep(older, "f") == new
    assert len({results.wording for results in (pairs, written, new)}) == 3


def test_prompts_of_a_file_are_as_long_as_they_are():
    lines = "\n".join(f'{{"prompt": "{"x" * n}", "answer": "y"}}' for n in (10, 40))
    sweep = Sweep(samples=2, kind="file", lines=lines)
    assert sweep.prompt_lengths(BytesTokenizer(), sweep.keys) == [12, 44]  # of 13 and 43, by their letters
    assert SWEEP.prompt_lengths(BytesTokenizer(), SWEEP.keys[:1]) == [SWEEP.lengths[0]]


def test_the_file_keeps_what_is_not_finite_as_null(tmp_path):
    rows = (dataclasses.replace(RESULTS[0], log_probability=math.inf),)
    write_sweep(tmp_path / "r.json", empty_results(SWEEP).with_model(ModelResults("m", "a", "b", rows)))
    assert "null" in (tmp_path / "r.json").read_text()
    assert math.isnan(read_sweep(tmp_path / "r.json").models[0].samples[0].log_probability)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    text = sweep_text(empty_results(SWEEP).with_model(ModelResults("m", "a", "b", RESULTS)))
    (tmp_path / "r.json").write_text(text, encoding="utf-8-sig")
    assert read_sweep(tmp_path / "r.json") == parse_sweep(text, "f")


DAMAGED = (
    ('"needles": \\d+', '"needles": 26', r"samples\[0\].needles is 26"),
    ('"length": \\d+', '"length": 0', "length is 0; expected at least 1"),
    ('"depth": \\d+', '"depth": 101', "depth is 101"),
    ('"depth": \\d+', '"depth": NaN', "no JSON"),
    ('"place": \\d+', '"place": 2', "has places 2 and"),
    ('"named": [a-z0-9]+', '"named": 2', "of 2 needles"),
    ('"log_probability": [-.0-9]+', '"log_probability": 0.5', "log_probability is 0.5; expected at most 0"),
    ('"log_probability": [-.0-9]+', f'"log_probability": -{"9" * 400}', "log_probability"),
    ('"seed": \\d+', '"seed": true', "seed is True; expected a whole number"),
    ('"name": "m"', '"name": 3', "name is 3; expected a text"),
    ('"name": "m"', r'"name": "\\ud800"', "no JSON"),
    ('"question": null', '"question": {"a": 1}', "question is {'a': 1}"),
    ('"needle": ".*?"', '"needle": "' + "x" * 10_001 + '"', "at most 10000 characters"),
    (r'(\{"needles.*?\})', r"\1, \1", "has a sample twice"),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "as a needle sweep cannot be used: it is no JSON"),
        ("[1]", "its format"),
        ("{", "as a needle sweep cannot be used: it is no JSON"),
        ('{"format": "mta_viz needle sweep 2"}', "'question' is missing"),
    ],
)
def test_other_files_are_refused(text, words, tmp_path):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(MtaVizError, match=words):
        read_sweep(tmp_path / "r.json")
    good = sweep_text(empty_results(SWEEP).with_model(ModelResults("m", "a", "b", RESULTS[:1])))
    with pytest.raises(MtaVizError, match="needles is '2'; expected a whole number"):
        parse_sweep(good.replace('"needles": 2', '"needles": "2"'), "f")
    rows = {one.key: one for one in RESULTS}
    good = sweep_text(empty_results(SWEEP).with_model(ModelResults("m", "a", "b", tuple(rows.values()))))
    for old, new, wrong in DAMAGED:
        with pytest.raises(MtaVizError, match=wrong):
            parse_sweep(re.sub(old, new, good, count=1), "f")
    with pytest.raises(MtaVizError, match="is missing"):
        read_sweep(tmp_path / "none.json")
