"""Needle samples: exact budget, depth, gold spans, distinctness, and errors that say by how much."""

import itertools
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.errors import MtaVizError, PromptError
from mta_viz.tasks import grammar
from mta_viz.tasks.facts import Piece, answer_ids, fill, split_sentences
from mta_viz.tasks.needles import PAPER_NEEDLE, RULER_NEEDLE, RULER_QUESTION, TEMPLATES, NeedleTask
from mta_viz.tokenizers.builtin import BytesTokenizer, CharTokenizer
from mta_viz.training.needle_data import as_tokenizer, train_tokenizer

TOKENIZER = as_tokenizer(train_tokenizer(itertools.islice(grammar.sentences(1, "tests"), 300), 700))
BOOK = " ".join(itertools.islice(grammar.sentences(2, "tests"), 120)) + " Mr. Pym saw 3 cats! Why?"


@st.composite
def tasks(draw):
    n = draw(st.integers(1, 8))
    ruler = draw(st.booleans())
    return NeedleTask(
        n_needles=n,
        length=draw(st.integers(70 + 75 * n, 1200)),
        depth=draw(st.none() | st.floats(0, 100)),
        **({"needle": RULER_NEEDLE, "question": RULER_QUESTION} if ruler else {}),
        haystack=draw(st.sampled_from([None, BOOK])),
    )


@settings(max_examples=25)
@given(tasks(), st.integers(0, 10**6))
def test_every_sample_keeps_its_promises(task, seed):
    sample = task.sample(TOKENIZER, seed)
    ids = sample.tokens.ids + sample.answer_ids
    assert len(sample.tokens) == task.length
    assert ids[0] == TOKENIZER.bos_id
    assert "".join(sample.tokens.text[a:b] for a, b in sample.tokens.spans) == sample.tokens.text
    for span in sample.spans:
        assert TOKENIZER.decode(ids[span.start : span.stop]) == span.text
        if span.kind in ("needle", "asked"):
            assert span.text == task.needle.replace("{city}", span.subject).replace("{value}", span.value)
    cities = [span.subject for span in sample.needles]
    assert len(set(cities)) == len({span.value for span in sample.needles}) == task.n_needles
    # exactly one right answer: the asked city is in its needle and the question only
    assert sample.tokens.text.count(sample.subject) == 1 + task.question_template.count("{city}")
    asked, question, answer = (
        [s for s in sample.spans if s.kind == k] for k in ("asked", "question", "answer")
    )
    assert len(asked) == len(question) == len(answer) == 1
    assert answer[0].text == " " + sample.answer == f" {asked[0].value}"
    assert question[0].stop == task.length == answer[0].start
    assert question[0] == sample.question
    taken = {position for span in sample.spans for position in range(span.start, span.stop)}
    starts = sample.sentences
    assert list(starts) == sorted(set(starts)) and not taken & set(starts)
    assert all(TOKENIZER.decode(ids[:start])[-1:] in ("", " ") for start in starts)


@settings(max_examples=15)
@given(st.sampled_from([0, 25, 50, 75, 100]), st.integers(1, 8), st.integers(0, 10**6))
def test_depth_is_met_at_a_sentence_end(depth, n, seed):
    sample = NeedleTask(n, 900, depth).sample(TOKENIZER, seed)
    asked = next(span for span in sample.spans if span.kind == "asked")
    others = sum(s.stop - s.start + 1 for s in sample.needles if s.start < asked.start)
    total = 900 - 1 - sum(s.stop - s.start + 1 for s in sample.needles)
    question = next(span for span in sample.spans if span.kind == "question")
    hay = total - (question.stop - question.start)
    assert math.isclose(100 * (asked.start - 1 - others) / hay, sample.depth, abs_tol=1e-9)
    assert abs(sample.depth - depth) < 5.0
    if depth == 0:
        assert asked.start == 1
    if depth == 100:
        assert asked.stop + 1 == question.start
    before = sample.tokens.text[: sample.tokens.spans[asked.start][0]].rstrip()
    assert before == "" or before[-1] in '.?!"'


@pytest.mark.parametrize("depth", [0, 100])
def test_the_asked_needle_is_outermost_also_where_several_needles_meet(depth):
    for seed in range(12):  # in 230 tokens, 8 needles share one or two places
        sample = NeedleTask(8, 230, depth).sample(TOKENIZER, seed)
        assert sample.needles[0 if depth == 0 else -1].kind == "asked"


def test_own_tokenizer_encodes_a_whole_prompt_as_its_sentences():
    for seed in range(5):
        tokens = NeedleTask(6, 700).sample(TOKENIZER, seed).tokens
        assert TOKENIZER.encode(tokens.text).ids == tokens.ids


def test_a_sample_depends_on_task_and_seed_alone():
    task = NeedleTask(4, 400, 50)
    assert task.sample(TOKENIZER, 5) == task.sample(TOKENIZER, 5)
    assert task.sample(TOKENIZER, 5) != task.sample(TOKENIZER, 6)


def test_all_depths_and_orders_occur_when_depth_is_free():
    samples = [NeedleTask(4, 400).sample(TOKENIZER, seed) for seed in range(40)]
    assert min(sample.depth for sample in samples) < 15 and max(sample.depth for sample in samples) > 85
    ranks = {[span.kind for span in sample.needles].index("asked") for sample in samples}
    assert ranks == {0, 1, 2, 3}


def test_another_tokenizer_works_and_one_without_capitals_is_refused():
    tokenizer = BytesTokenizer()
    sample = NeedleTask(2, 900, 25).sample(tokenizer, 0)
    ids = sample.tokens.ids + sample.answer_ids
    assert all(tokenizer.decode(ids[s.start : s.stop]) == s.text for s in sample.spans)
    assert sample.answer_ids == tuple(f" {sample.answer}".encode())
    with pytest.raises(MtaVizError):
        NeedleTask(2, 900).sample(CharTokenizer(), 0)


def test_errors_say_by_how_much():
    with pytest.raises(PromptError) as raised:
        NeedleTask(4, 50).sample(TOKENIZER, 0)
    fixed, excess = map(
        int, re.search(r"take (\d+) tokens, (\d+) more than the length 50", str(raised.value)).groups()
    )
    assert fixed - excess == 50 and excess > 0
    # another length is another sample: with at most 24 tokens to a needle and 20 to a question, 120 is enough
    assert len(NeedleTask(4, 120).sample(TOKENIZER, 0).tokens) == 120
    with pytest.raises(PromptError, match=r"\d+ tokens too short"):
        NeedleTask(1, 900, haystack="One sentence only. And two.").sample(TOKENIZER, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_needles": 9}, "9 needles; expected 1 to 8"),
        ({"depth": 101.0}, "expected 0 to 100"),
        ({"needle": "No slots."}, r"lacks \{city\}.*lacks \{value\}"),
        ({"needle": "{value} belongs to {city}."}, "give one"),
        ({"cities": ("Rome", "Rome")}, "not all distinct"),
        ({"numbers": (1, 2)}, "2 numbers for 4 needles"),
        ({"haystack": "  "}, "empty"),
    ],
)
def test_tasks_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(PromptError, match=message):
        NeedleTask(**changes)


def test_a_number_is_continued_as_the_answer_is():
    for question, template in [(None, PAPER_NEEDLE), TEMPLATES["RULER's"][::-1]]:
        task = NeedleTask(3, 500, needle=template, question=question)
        sample = task.sample(TOKENIZER, 4)
        ids = answer_ids(TOKENIZER, sample.question.text, sample.answer)
        assert ids == sample.answer_ids and TOKENIZER.decode(ids) == f" {sample.answer}"


def test_sentences_are_split_at_their_ends_only():
    text = 'Mr. Pym saw 3.5 cats. "Why?" he\nasked. No!  Yes'
    assert split_sentences(text) == ["Mr. Pym saw 3.5 cats.", '"Why?"', "he asked.", "No!", "Yes"]


def test_fill_by_hand():
    def piece(n):
        """`n` letters, and the space before them."""
        return Piece("x" * n, n + 1, tuple(range(n)))

    assert [len(p.text) for p in fill(map(piece, (5, 3, 4, 2)), 9)] == [3, 4]  # 3 + 1 + 4 + 1
    assert [len(p.text) for p in fill(map(piece, (5, 5)), 9)] == [2, 5]  # nothing fits, so 3 tokens are cut
    with pytest.raises(PromptError, match="4 tokens too short: 10"):
        fill(map(piece, (5,)), 10)
