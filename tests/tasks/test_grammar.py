"""The grammar's promises: varied, never twice, agreed, independent of hash order."""

import itertools
import os
import re
import subprocess
import sys

import pytest

from mta_viz.tasks import grammar
from mta_viz.tasks.grammar import TOPICS, WORDS, paragraphs, sentences
from mta_viz.tasks.words import CITIES


@pytest.fixture(scope="module")
def written() -> list[str]:
    return list(itertools.islice(sentences(0), 10_000))


def test_no_sentence_twice_in_ten_thousand_and_at_least_1500_word_types(written):
    assert len(set(written)) == 10_000
    types = {word.lower() for sentence in written for word in re.findall(r"[A-Za-zéö'-]+", sentence)}
    assert len(types) >= 1500


def test_sentences_are_capitalised_punctuated_and_complete(written):
    for sentence in written:
        assert re.fullmatch(r'["]?[A-Z0-9].*[.!?]["]?', sentence), sentence
        assert not re.search(r"[{}^_]|  | [,.;?!]|\.\.|,,", sentence), sentence
        assert sentence.count('"') % 2 == 0, sentence


def test_articles_agree_with_the_following_sound(written):
    silent_h, like_you = ("honest", "hour", "heir"), ("uni", "use", "usual", "eu", "one")
    for sentence in written:
        for article, word in re.findall(r"\b([Aa]n?) ([a-z]+)", sentence):
            vowel = (word[0] in "aeiou" or word.startswith(silent_h)) and not word.startswith(like_you)
            assert (article.lower() == "an") == vowel, sentence


def test_numbers_and_other_towns_are_mentioned(written):
    assert sum(bool(re.search(r"\d", sentence)) for sentence in written) > 1000
    assert sum(any(town in sentence for town in WORDS["town"]) for sentence in written) > 1000
    assert not any("magic" in sentence for sentence in written)


def test_no_needle_city_is_ever_mentioned(written):
    names = re.compile(r"\b(" + "|".join(CITIES) + r")\b")
    assert not [sentence for sentence in written if names.search(sentence)]


def test_same_seed_same_text_whatever_the_hash_order():
    code = (
        "import itertools; from mta_viz.tasks.grammar import sentences; "
        "print(list(itertools.islice(sentences(3), 200)))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_seeds_and_streams_differ():
    first = next(paragraphs(0))
    assert first != next(paragraphs(1))
    assert first != next(paragraphs(0, "another"))
    assert first == next(paragraphs(0))


@pytest.mark.parametrize(
    ("deed", "past", "ing"),
    [
        ("coil the ropes", "coiled the ropes", "coiling the ropes"),
        ("carry a lamp", "carried a lamp", "carrying a lamp"),
        ("tie the knot", "tied the knot", "tying the knot"),
        ("skim a stone", "skimmed a stone", "skimming a stone"),
        ("write a reply", "wrote a reply", "writing a reply"),
        ("row out", "rowed out", "rowing out"),
        ("free a bird", "freed a bird", "freeing a bird"),
    ],
)
def test_verbs(deed, past, ing):
    assert grammar.past(deed) == past
    assert grammar.ing(deed) == ing


def test_plurals_and_articles():
    plurals = {"piece of chalk": "pieces of chalk", "loaf": "loaves", "torch": "torches", "key": "keys"}
    assert {noun: grammar.plural(noun) for noun in plurals} == plurals
    a, an = ("1", "one-eyed cat", "uniform"), ("18", "8", "hour", "owl")
    assert [grammar.with_article(word).split()[0] for word in (*a, *an)] == ["a"] * len(a) + ["an"] * len(an)


def test_every_verb_of_every_list_has_a_plausible_past():
    for deed in (*WORDS["handling"], *(deed for topic in TOPICS for deed in topic["deed"])):
        assert grammar.past(deed).split()[0] != deed.split()[0] + "eed"
        assert " " not in grammar.past(deed.split()[0])
