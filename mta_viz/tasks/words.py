"""What the generators draw from: random streams, words in data files, cities and numbers.

Owns which cities and numbers training never sees. Made-up place names are pronounceable, so that a
model can train on more cities than there are.
"""

import functools
import hashlib
import itertools
import random
import tomllib
from importlib import resources


def stream_seed(stream: str, *numbers: int) -> int:
    """A 63-bit seed of (`stream`, *numbers): equal on every machine, unrelated between streams."""
    text = "/".join([stream, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@functools.cache
def word_lists(name: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """The lists of the data file `name`, by table and key, in the file's order."""
    text = resources.files("mta_viz.tasks").joinpath("data", f"{name}.toml").read_text("utf-8")
    return {
        table: {key: tuple(entries) for key, entries in lists.items()}
        for table, lists in tomllib.loads(text).items()
    }


KNOWN_CITIES = word_lists("cities")["real"]["known"]
HELD_OUT_CITIES = word_lists("cities")["real"]["held_out"]
CITIES = KNOWN_CITIES + HELD_OUT_CITIES
LONGEST = 16  # characters of a made-up name, as of the longest real one
_PARTS = word_lists("cities")["made_up"]
# s a made-up word, f and l a shared first and last word, m a small word between
_SHAPES = (*["s"] * 9, *["fs"] * 4, *["ss"] * 2, *["sl"] * 2, "fsl", "ssl", "sms", "fms")
_SHARED = {"f": _PARTS["first"], "m": _PARTS["small"], "l": _PARTS["last"]}
_VOWEL_LETTERS = "aeiou"


def is_held_out(number: int) -> bool:
    """Whether training never sees `number` as an answer: 100 of 1..999, spread over all digits."""
    # 7919 has no common factor with 1000, so number -> (7919 * number) % 1000 only reorders 0..999
    return (7919 * number + 150) % 1000 < 100


NUMBERS = tuple(range(1, 1000))
HELD_OUT_NUMBERS = tuple(filter(is_held_out, NUMBERS))
KNOWN_NUMBERS = tuple(itertools.filterfalse(is_held_out, NUMBERS))


@functools.cache
def made_up_cities(count: int) -> tuple[str, ...]:
    """The first `count` of a fixed sequence of distinct names, of one to three words each.

    No name holds a real city of the needle task or a town of the grammar, nor a word that only
    held-out cities have. The same everywhere: no seed, no hash order.
    """
    rng = random.Random("made-up cities")
    known, held_out = ({*" ".join(cities).lower().split()} for cities in (KNOWN_CITIES, HELD_OUT_CITIES))
    towns = word_lists("grammar")["words"]["town"]
    taken = {name.lower() for name in (*CITIES, *towns)} | (held_out - known)
    names: dict[str, None] = {}
    while len(names) < count:
        shape = rng.choice(_SHAPES)
        words = [rng.choice(_SHARED[slot]) if slot in _SHARED else _word(rng) for slot in shape]
        name = " ".join(words)
        small = name.lower().split()
        runs = itertools.combinations(range(len(small) + 1), 2)
        if len(name) <= LONGEST and not any(" ".join(small[start:stop]) in taken for start, stop in runs):
            names[name] = None
    return tuple(names)


def _word(rng: random.Random) -> str:
    """An opening, up to two syllables and an ending, with a vowel wherever consonants would meet."""
    text = rng.choice(_PARTS["opening"])
    for _ in range(rng.choice((0, 0, 0, 1, 1, 1, 1, 2))):
        text += rng.choice(_PARTS["vowel"]) if text[-1].lower() not in _VOWEL_LETTERS else ""
        text += rng.choice(_PARTS["between"])
    ending = rng.choice(_PARTS["ending"])
    if (text[-1].lower() in _VOWEL_LETTERS) == (ending[0] in _VOWEL_LETTERS):
        text += rng.choice(_PARTS["between" if ending[0] in _VOWEL_LETTERS else "vowel"])
    return text + ending
