"""Held-out cities and numbers; made-up cities, which hold nothing of a real or held-out one."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from mta_viz.tasks.grammar import WORDS
from mta_viz.tasks.words import CITIES, HELD_OUT_CITIES, HELD_OUT_NUMBERS, KNOWN_CITIES, made_up_cities

NAMES = made_up_cities(20_000)


def test_names_are_distinct_plain_and_of_many_kinds():
    assert len(set(NAMES)) == len(NAMES) == 20_000
    assert all(name.replace(" ", "").isalpha() and name[0].isupper() for name in NAMES)
    assert {len(name.split()) for name in NAMES} == {1, 2, 3}
    assert max(map(len, NAMES)) == max(map(len, CITIES))
    assert len({name[0] for name in NAMES}) == 26
    assert sum(name.startswith("San ") for name in NAMES) > 50


def test_more_names_begin_with_the_same_ones_whatever_the_hash_order():
    assert made_up_cities(0) == () and made_up_cities(500) == NAMES[:500]
    code = "from mta_viz.tasks.words import made_up_cities; print(made_up_cities(500))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=True,
    )
    assert other.stdout.decode().strip() == str(NAMES[:500])


def test_no_name_holds_a_city_a_town_or_a_word_only_held_out_cities_have():
    known_words = {word for city in KNOWN_CITIES for word in city.split()}
    own_words = {word for city in HELD_OUT_CITIES for word in city.split()} - known_words
    assert {"Dar", "Salt", "Minsk"} < own_words and "San" not in own_words
    many = made_up_cities(60_000)
    words = {word for name in many for word in name.split()}
    assert not own_words & words
    assert not words & {real for real in (*CITIES, *WORDS["town"]) if " " not in real}
    pairs = {" ".join(pair) for name in many for pair in pairwise(name.split())}
    assert not (pairs | set(many)) & {*CITIES, *WORDS["town"]}


def test_held_out_cities_and_numbers_are_a_fifth_and_a_tenth():
    assert len(set(CITIES)) == len(CITIES) >= 150
    assert len(HELD_OUT_CITIES) / len(CITIES) >= 0.2
    assert not set(KNOWN_CITIES) & set(HELD_OUT_CITIES)
    assert len(HELD_OUT_NUMBERS) == 100
    assert {number % 10 for number in HELD_OUT_NUMBERS} == set(range(10))
