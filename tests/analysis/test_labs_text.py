"""The text lab's numbers beside whole forward passes: last words of passages, losses of every token."""

import math
from dataclasses import replace

import pytest
import torch
from lab_models import byte_model

from mta_viz.analysis.labs import text as scoring
from mta_viz.analysis.labs.text import PassageScores, score_passages, text_losses
from mta_viz.errors import Cancelled, MtaVizError, PromptError
from mta_viz.run.tracing import capture, run_hooks
from mta_viz.tokenizers.base import Tokens

TEXT = "Alice was beginning to get very tired: 🙂 <b>$5</b> of sitting."
PASSAGES = ("The cat sat on the mat.", "She said “yes”!", "a b", TEXT, "Hello", "🙂 ünïcode wörd.")


@pytest.fixture(scope="module")
def model():
    return byte_model()


def forward(model, ids):
    """Log-probabilities of a whole pass, in double precision."""
    return run_hooks(model, ids, ())["logits"].double().log_softmax(-1)


def test_perplexity_is_exp_of_the_mean_loss_of_the_trace(model):
    found = text_losses(model, TEXT)
    ids = torch.tensor(found.tokens.ids)
    logits = capture(model, TEXT).logits()
    wanted = torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:])
    assert found.perplexity == pytest.approx(math.exp(float(wanted)), rel=1e-6)
    by_hooks = forward(model, found.tokens.ids)[torch.arange(len(ids) - 1), ids[1:]]
    assert torch.allclose(found.losses[1:], -by_hooks, atol=1e-5)
    assert found.losses[0].isnan() and found.n == len(ids) - 1 and found.windows == 1


def test_ranks_count_from_one_and_the_likeliest_has_none_before_it(model):
    found = text_losses(model, TEXT)
    logs = forward(model, found.tokens.ids)
    order = logs[:-1].argsort(-1, descending=True)
    for place, token in enumerate(found.tokens.ids[1:], 1):
        assert order[place - 1].tolist().index(token) + 1 == found.ranks[place]
    assert found.expected[1:] == model.tokenizer.pieces(tuple(order[:, 0].tolist()))
    assert (found.ranks[0], found.expected[0]) == (0, "")


def test_a_long_text_is_read_in_windows_that_begin_with_bos(model):
    """Window of 8, BOS and 19 bytes: read are 0-7, then BOS and 5-11, 9-15, 13-19; each counts once."""
    text, parts = "abcdefghijklmnopqrs", [(0, 1, 8), (5, 8, 12), (9, 12, 16), (13, 16, 20)]
    kept = []
    found = text_losses(model, text, window=8, keep=kept.append)
    ids, wanted = found.tokens.ids, []
    for start, scored, stop in parts:
        read = ids[start:stop] if start == 0 else (ids[0], *ids[start:stop])
        logs = forward(model, read)
        for place in range(scored, stop):
            wanted.append(-logs[place - stop + len(read) - 1, ids[place]])
    assert torch.allclose(found.losses[1:], torch.stack(wanted), atol=1e-5)
    assert [one.n for one in kept] == [7, 11, 15, 19] and found.windows == 4


def test_a_text_that_nothing_predicts_is_refused(model):
    with pytest.raises(PromptError, match="one token"):
        text_losses(model, "")
    with pytest.raises(PromptError, match="window of 3"):
        text_losses(model, TEXT, window=3)


def test_a_text_can_be_stopped_and_what_was_read_is_kept(model):
    kept = []

    def stop(share):
        if share >= 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        text_losses(model, "abcdefghijkl" * 4, window=8, keep=kept.append, progress=stop)
    assert 0 < kept[-1].n < 48


def test_last_words_are_those_of_whole_passes(model):
    found = score_passages(model, PASSAGES)
    assert [one.word for one in found.words] == ["mat", "yes", "b", "sitting", "wörd"]
    assert [(one.number, "one word only" in one.reason) for one in found.left_out] == [(5, True)]
    for one in found.words:
        passage = PASSAGES[one.number - 1]
        ids = model.tokenizer.encode(passage[: passage.rindex(one.word) + len(one.word)]).ids
        first = len(ids) - len(one.word.encode())
        logs = forward(model, ids)
        own = [float(logs[at - 1, ids[at]]) for at in range(first, len(ids))]
        assert one.log_probability == pytest.approx(sum(own), abs=1e-4)
        assert one.rank == 1 + int((logs[first - 1] > own[0]).sum())
        assert len(one.pieces) == len(own) and (one.n_read, one.n_before) == (first, first)
        assert one.perplexity == pytest.approx(1 / one.probability)
    mean = sum(one.log_probability for one in found.words) / 5
    assert found.perplexity == pytest.approx(math.exp(-mean))
    assert (found.accuracy.right, found.accuracy.n) == (0, 5)


def test_a_word_is_right_when_all_its_tokens_are_the_likeliest(model, monkeypatch):
    """A model that always says m, then a, then x: right about "ma", not about "mat"."""
    said = {ord("_"): "m", ord("m"): "a", ord("a"): "x"}

    def sure(model, ids, n_last):
        logits = torch.zeros(*ids.shape, 258)
        for old, new in said.items():
            logits[..., ord(new)] += (ids == old) * 50.0
        return logits[:, -n_last:]

    monkeypatch.setattr(scoring, "end_logits", sure)
    found = score_passages(model, ["of 1_, ma", "of 2_. mat"])
    assert [one.greedy for one in found.words] == [False, False]  # a space comes before them
    monkeypatch.setattr(scoring, "last_word", lambda passage: (passage.index("_") + 1, len(passage)))
    found = score_passages(model, ["of_ma", "of _mat"])
    assert [(one.word, one.rank, one.greedy) for one in found.words] == [("ma", 1, True), ("mat", 1, False)]
    assert found.words[0].probability == pytest.approx(1.0) and found.words[0].instead == "m"
    assert found.accuracy.accuracy == 0.5 and found.accuracy.interval[0] > 0


def test_the_first_bytes_of_a_split_letter_belong_to_the_word(model):
    (one,) = score_passages(model, ["yes ünïcode"]).words
    assert one.pieces[:2] == ("<0xC3>", "<0xBC>") and one.n_read == 5


def test_a_passage_beyond_the_window_is_read_from_its_end(model):
    (one,) = score_passages(model, ["abcdef ghi"], window=6).words
    ids = model.tokenizer.encode("abcdef ghi").ids
    logs = forward(model, (ids[0], *ids[-6:]))
    own = sum(float(logs[at - 1, ids[at - 7]]) for at in range(4, 7))
    assert one.log_probability == pytest.approx(own, abs=1e-4)
    assert (one.n_read, one.n_before) == (4, 8)
    (refused,) = score_passages(model, ["abcdef ghi"], window=3).left_out
    assert "more tokens than the window of 3" in refused.reason


def test_a_word_without_a_token_before_it_is_refused(model, monkeypatch):
    bos = model.tokenizer.bos_id  # a tokenizer with long tokens
    whole = Tokens((bos, 100), ("<s>", "ab cd"), ((0, 0), (0, 5)), "ab cd")
    monkeypatch.setattr(scoring, "tokenize", lambda model, passage: whole)
    (refused,) = score_passages(model, ["ab cd"]).left_out
    assert "shares its first token with all before it" in refused.reason


def test_partial_results_come_in_the_order_of_the_file_and_can_be_stopped(model, monkeypatch):
    monkeypatch.setattr(scoring, "CHUNK", 2)
    kept = []

    def stop(share):
        if share > 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        score_passages(model, PASSAGES, keep=kept.append, progress=stop)
    assert [len(one.words) for one in kept] == [2, 4]
    assert [one.number for one in kept[-1].words] == [1, 2, 3, 4]


def test_what_cannot_be_told_is_refused(model):
    with pytest.raises(PromptError, match="no passages"):
        score_passages(model, [])
    other = byte_model()
    other.tokenizer = None
    with pytest.raises(PromptError, match="without its tokenizer"):
        score_passages(other, ["a b"])
    broken = byte_model()
    next(broken.parameters()).data.fill_(torch.nan)
    for measure in (lambda: score_passages(broken, ["a b"]), lambda: text_losses(broken, "ab")):
        with pytest.raises(MtaVizError, match="NaN or inf"):
            measure()
    assert math.isnan(PassageScores(3).perplexity)
    assert replace(PassageScores(1), left_out=()).accuracy.n == 0
