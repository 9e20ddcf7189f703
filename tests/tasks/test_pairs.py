"""Pairs samples: a full grid of names and cities, one right answer, exact length, and words held out."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.errors import PromptError
from mta_viz.run.named_tasks import series_of
from mta_viz.tasks import grammar
from mta_viz.tasks.facts import DEPTHS
from mta_viz.tasks.needles import HELD_OUT, KNOWN, NAMES, PairsTask
from mta_viz.tasks.stories import PEOPLE
from mta_viz.tasks.words import CITIES, HELD_OUT_CITIES, made_up_cities
from mta_viz.tokenizers.builtin import BytesTokenizer

TOKENIZER = BytesTokenizer()
FACT = re.compile(r"The number that (\S+) has in (.+) is (\d+)\.")
BOOK = " ".join(itertools.islice(grammar.sentences(2, "tests"), 60))


@settings(max_examples=10)
@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([None, 0, 50, 100]), st.integers(0, 10**6))
def test_every_name_has_a_number_in_every_city_and_one_is_asked_for(n_names, n_cities, depth, seed):
    task = PairsTask(n_names, n_cities, 300 + 62 * n_names * n_cities, depth)
    sample = task.sample(TOKENIZER, seed)
    facts = [FACT.fullmatch(span.text).groups() for span in sample.needles]
    names, cities, numbers = map(set, zip(*facts, strict=True))
    assert {(name, city) for name, city, _ in facts} == set(itertools.product(names, cities))
    assert (len(names), len(cities), len(numbers)) == (n_names, n_cities, n_names * n_cities)
    assert [f"{name} in {city}" for name, city, _ in facts] == [span.subject for span in sample.needles]
    asked = [span for span in sample.needles if span.kind == "asked"]
    assert [(span.subject, span.value) for span in asked] == [(sample.subject, sample.answer)]
    assert f"{sample.question.text} {sample.answer}." == asked[0].text
    assert sample.tokens.text.count(sample.question.text + " ") == 1  # besides the question itself
    assert len(sample.tokens) == task.length


def test_the_sentences_are_shuffled_among_the_text_and_any_of_them_is_asked_for():
    samples = [PairsTask(length=900).sample(TOKENIZER, seed) for seed in range(40)]
    places = {[span.kind for span in sample.needles].index("asked") for sample in samples}
    assert {0, 8} < places and len(places) >= 7
    assert sum(bool(sample.sentences) for sample in samples) == 40
    assert min(sample.depth for sample in samples) < 15 and max(sample.depth for sample in samples) > 85


def test_a_text_of_ones_own_gives_the_haystack_without_the_names_and_cities_of_the_sample():
    first = PairsTask(length=900).sample(TOKENIZER, 3).subject
    name, city = first.split(" in ")
    spoiled = f"{name} slept. {city} burned. " + BOOK
    sample = PairsTask(length=900, haystack=spoiled).sample(TOKENIZER, 3)
    assert sample.subject == first
    assert f"{name} slept" not in sample.tokens.text and f"{city} burned" not in sample.tokens.text
    assert any(sentence[:30] in sample.tokens.text for sentence in BOOK.split(". "))


def test_samples_for_kernels_have_the_asked_sentence_at_every_depth_in_turn():
    samples = series_of("pairs", 1500).samples(TOKENIZER, 6, 4)
    wanted = [PairsTask(length=1500, depth=depth) for depth in (*DEPTHS, 0)]
    seeds = (4, 4, 4, 4, 4, 5)
    assert samples == [task.sample(TOKENIZER, seed) for task, seed in zip(wanted, seeds, strict=True)]


def test_held_out_words_are_never_known_ones():
    for known, held_out in zip(vars(KNOWN).values(), vars(HELD_OUT).values(), strict=True):
        assert held_out and not set(known) & set(held_out)
    assert HELD_OUT.cities == HELD_OUT_CITIES and KNOWN.names + HELD_OUT.names == NAMES
    task = PairsTask(length=900, names=HELD_OUT.names, cities=HELD_OUT.cities, numbers=HELD_OUT.numbers)
    for span in task.sample(TOKENIZER, 0).needles:
        name, city = span.subject.split(" in ")
        assert (name in HELD_OUT.names, city in HELD_OUT.cities) == (True, True)
        assert int(span.value) in HELD_OUT.numbers


def test_a_name_stands_in_nothing_else_a_prompt_holds():
    text = " ".join((*itertools.islice(grammar.sentences(5, "tests"), 3000), *CITIES, *PEOPLE)).lower()
    made_up = {word for city in made_up_cities(20_000) for word in city.lower().split()}
    assert len(set(NAMES)) == len(NAMES) == 113
    for name in NAMES:
        assert not re.search(rf"\b{name.lower()}\b", text) and name.lower() not in made_up
        assert not any(name in other for other in NAMES if other != name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_names": 6}, "6 names; expected 1 to 5"),
        ({"n_cities": 0}, "0 cities; expected 1 to 5"),
        ({"names": ("Ann", "Ann", "Bob")}, "names are not all distinct; 2 names for 3 in a sample"),
        ({"numbers": (1, 2)}, "2 numbers for 9 pairs"),
        ({"depth": 101}, "expected 0 to 100"),
        ({"haystack": " "}, "empty"),
    ],
)
def test_tasks_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(PromptError, match=message):
        PairsTask(**changes)


def test_a_length_that_does_not_hold_the_sentences_is_refused_with_the_difference():
    with pytest.raises(
        PromptError, match=r"9 needles and the question take \d+ tokens, \d+ more than the len"
    ):
        PairsTask(length=100).sample(TOKENIZER, 0)
