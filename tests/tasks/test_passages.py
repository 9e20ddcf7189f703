"""The last word of a passage, and files of passages in both formats, good and bad."""

import json

import pytest

from mta_viz.errors import PromptError
from mta_viz.tasks import written
from mta_viz.tasks.written import last_word, parse_passages


@pytest.mark.parametrize(
    ("passage", "word"),
    [
        ("the cat sat on the mat", "mat"),
        ('She said: "hello, world."', "world"),
        ("I don't. You well-known.", "well-known"),
        ("no, they don’t!", "don’t"),
        ("it costs 3.50 $", "3.50"),
        ("two words 🙂🙂", "words"),
        ("שלום עולם.", "עולם"),
        ("यह हिन्दी", "हिन्दी"),
        ("a <b>bold</b>", "b"),
        ("the dogs'", "dogs"),
    ],
)
def test_the_last_word_is_without_what_follows_it(passage, word):
    start, stop = last_word(passage)
    assert passage[start:stop] == word


@pytest.mark.parametrize(
    ("passage", "why"), [("", "no word"), ("🙂 ...", "no word"), ('"Hello!"', "one word only")]
)
def test_a_passage_needs_two_words(passage, why):
    with pytest.raises(PromptError, match=why):
        last_word(passage)


def test_a_paragraph_is_a_passage_where_there_are_empty_lines_else_a_line():
    assert parse_passages("one two\nthree\n\n\nfour five\n", "f") == ("one two\nthree", "four five")
    assert parse_passages("\ufeffone two\n  three four \n\n", "f") == ("one two", "three four")
    assert parse_passages("one two\r\n\r\nthree four", "f") == ("one two", "three four")


def test_json_lines_are_read_by_their_text():
    lines = [{"text": "one two\n\nthree "}, {"n": 1, "text": "four\u2028$5"}]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n"
    assert parse_passages(text, "f") == ("one two\n\nthree", "four\u2028$5")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" \n ", "f is empty; expected passages"),
        ('{"text": "a b"}\n{"text": ', "f, line 2: no JSON"),
        ('{"text": "a b"}\n[1]', 'f, line 2: expected an object with a "text"'),
        ('{"text": 3}', "f, line 1: expected an object"),
        ('{"text": ' + "[" * 100_000, "f, line 1: no JSON"),
        ("a " * 60_000, "f, passage 1: 119,999 characters"),
    ],
)
def test_a_bad_file_says_what_is_wrong_and_where(text, why):
    with pytest.raises(PromptError, match=why):
        parse_passages(text, "f")


def test_too_many_passages_are_refused(monkeypatch):
    monkeypatch.setattr(written, "MOST_PASSAGES", 2)
    with pytest.raises(PromptError, match="3 passages; at most 2"):
        parse_passages("a b\nc d\ne f", "f")
