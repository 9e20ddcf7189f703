"""Search in a prompt, and named spans."""

import re
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some
from model_cases import EXAMPLES

from mta_viz.analysis.attention.spans import MAX_PATTERN, Span, find, needle_spans, next_letter
from mta_viz.errors import PromptError
from mta_viz.tasks.needles import NeedleTask
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.builtin import BytesTokenizer

# "The cat sat": three tokens after BOS, spaces at the front
CATS = Tokens(
    (9, 1, 2, 3), ("<bos>", "The", "␣cat", "␣sat"), ((0, 0), (0, 3), (3, 7), (7, 11)), "The cat sat"
)
LABELS = Tokens((1, 2, 3), ("␣San", "␣Francisco", "<id 7>"), ((0, 0),) * 3, None)


@pytest.mark.parametrize(
    ("wanted", "pattern", "hits"),
    [
        ("cat", False, [(2, 3)]),
        ("CAT", False, [(2, 3)]),
        ("at", False, [(2, 3), (3, 4)]),  # inside a token: the token
        ("e c", False, [(1, 3)]),
        ("", False, []),
        ("", True, []),
        ("a.", False, []),  # plain text is no pattern
        ("a.", True, [(2, 3), (3, 4)]),
        ("a. ", True, [(2, 4)]),
        ("[cs]at", True, [(2, 3), (3, 4)]),
        ("CAT", True, []),
        ("(?i)CAT", True, [(2, 3)]),
        ("x*", True, []),  # empty matches select nothing
        ("^The", True, [(1, 2)]),
        ("sat$", True, [(3, 4)]),
    ],
)
def test_hits_are_token_ranges(wanted: str, pattern: bool, hits: list[tuple[int, int]]) -> None:
    assert find(CATS, wanted, pattern=pattern) == tuple(range(*hit) for hit in hits)


def test_several_hits_in_a_token_are_one() -> None:
    one = Tokens((1,), ("aaaa",), ((0, 4),), "aaaa")
    assert find(one, "a") == find(one, "a", pattern=True) == (range(0, 1),)


def test_letters_whose_case_changes_their_length_move_no_place() -> None:
    assert len(find(BytesTokenizer().encode("İİ needle"), "needle")) == 1


def test_plain_hits_may_overlap() -> None:
    assert find(BytesTokenizer().encode("aaa"), "aa") == (range(1, 3), range(2, 4))


def test_a_split_character_is_the_token_that_completes_it() -> None:
    tokens = BytesTokenizer().encode("a€b")  # BOS, a, three bytes of which the last completes it, b
    assert find(tokens, "€") == (range(4, 5),)
    assert find(tokens, "€b") == (range(4, 6),)


@pytest.mark.parametrize(
    ("wanted", "pattern", "hits"),
    [
        ("San Francisco", False, [(0, 2)]),
        ("san␣francisco", False, [(0, 2)]),
        ("id 7", False, [(2, 3)]),
        (r"<id \d>", True, [(2, 3)]),
        ("San.*7", True, [(0, 3)]),
    ],
)
def test_without_text_the_labels_are_searched(
    wanted: str, pattern: bool, hits: list[tuple[int, int]]
) -> None:
    assert find(LABELS, wanted, pattern=pattern) == tuple(range(*hit) for hit in hits)


@given(some.text(min_size=1, max_size=30), some.data())
@EXAMPLES
def test_the_tokens_of_a_hit_hold_its_text(text: str, data: some.DataObject) -> None:
    assume(not any("\ud800" <= c <= "\udfff" for c in text))
    tokens = BytesTokenizer().encode(text)
    start = data.draw(some.integers(0, len(text) - 1))
    wanted = text[start : data.draw(some.integers(start + 1, len(text)))]
    for hits in (find(tokens, wanted), find(tokens, re.escape(wanted), pattern=True)):
        assert hits
        for hit in hits:
            shown = text[tokens.spans[hit.start][0] : tokens.spans[hit.stop - 1][1]]
            assert shown.casefold() == wanted.casefold() or re.fullmatch(re.escape(wanted), shown, re.I)


@pytest.mark.parametrize(("pattern", "says"), [("(", "missing )"), ("[a", "at character"), ("*", "nothing")])
def test_a_wrong_pattern_is_said_in_words(pattern: str, says: str) -> None:
    with pytest.raises(PromptError, match=re.escape(says)) as caught:
        find(CATS, pattern, pattern=True)
    assert repr(pattern) in str(caught.value) and "no regular expression" in str(caught.value)


def test_a_pattern_without_end_is_stopped() -> None:
    tokens = BytesTokenizer().encode("x" * 3000 + "a" * 3000)
    start = time.perf_counter()
    with pytest.raises(PromptError, match="not done after 1 s"):
        find(tokens, r"(?:a?){30}a{30}x|(x+x+)+y", pattern=True)
    assert time.perf_counter() - start < 10


def test_a_pattern_too_long_is_refused() -> None:
    with pytest.raises(PromptError, match="1,001 characters"):
        find(CATS, "a" * (MAX_PATTERN + 1), pattern=True)


def test_a_span_has_tokens() -> None:
    assert list(Span("x", "A", 2, 4).positions) == [2, 3]
    for start, stop in ((2, 2), (3, 2), (-1, 2)):
        with pytest.raises(PromptError, match="at least one"):
            Span("x", "A", start, stop)


def test_letters_are_given_in_order() -> None:
    assert next_letter([]) == "A"
    assert next_letter([Span("x", "A", 0, 1), Span("y", "C", 0, 1)]) == "B"
    assert next_letter([Span("x", chr(65 + n), 0, 1) for n in range(26)]) == "#"


@pytest.mark.parametrize("seed", range(4))
def test_the_needles_of_a_prompt_are_those_it_was_made_of(seed: int) -> None:
    sample = NeedleTask(n_needles=3, length=400).sample(BytesTokenizer(), seed)
    gold = [one for one in sample.spans if one.kind != "answer"]
    spans = needle_spans(sample.tokens)
    assert [(one.start, one.stop) for one in spans] == [(one.start, one.stop) for one in gold]
    assert [one.letter for one in spans] == ["A", "B", "C", "?"]
    asked = [one.subject + (" (asked)" if one.kind == "asked" else "") for one in gold[:-1]]
    assert [one.name for one in spans] == [*asked, "question"]


def test_prompts_without_needles_have_no_spans() -> None:
    for text in ("", "The magic number of Oslo is", "The magic number is 3."):
        assert needle_spans(BytesTokenizer().encode(text)) == ()
    assert needle_spans(Tokens(ids=(5,), pieces=("<id 5>",), spans=((0, 0),), text=None)) == ()


def test_a_needle_named_twice_is_two_spans() -> None:
    spans = needle_spans(BytesTokenizer().encode("The magic number of A is 1. " * 2))
    assert [(one.letter, one.start, one.stop) for one in spans] == [("A", 1, 28), ("B", 29, 56)]


def test_a_deeply_nested_pattern_is_refused_in_words():
    with pytest.raises(PromptError, match="nested too deeply"):
        find(BytesTokenizer().encode("hello"), "(" * 490 + "l" + ")" * 490, pattern=True)
