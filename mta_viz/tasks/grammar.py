"""A seeded grammar of the project's own that writes English paragraphs: the haystack that ships.

Every sentence is invented here; none is quoted from a book. Owns the writing of paragraphs, what fills the
slots of a sentence, and how English words are inflected; words and shapes of sentences are data.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping

from mta_viz.tasks.words import word_lists

WORDS = word_lists("grammar")["words"]
SHAPES = word_lists("grammar")["shapes"]
TOPICS = tuple(word_lists("topics").values())

Paragraph = tuple[str, ...]
_SLOT = re.compile(r"\{(\^?)(\w+)\}")
_IRREGULAR = word_lists("grammar")["irregular"]
_PAST = dict(pair.split() for pair in _IRREGULAR["past"])
_PLURALS = dict(pair.split() for pair in _IRREGULAR["plural"])
_VOWEL_SOUND = re.compile(r"(?i)^(?:hour|honest|heir|[aeiou])")
_CONSONANT_SOUND = re.compile(r"(?i)^(?:uni|use|usual|eu|one)")
_DOUBLING = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprt]$")


def paragraphs(seed: int, stream: str = "haystack") -> Iterator[Paragraph]:
    """Endless paragraphs of 5 to 9 sentences each; no sentence comes twice.

    `seed` and `stream` alone decide the text, whatever the machine or the hash order. Different
    streams are independent: what is trained on and what is tested on never share one.
    """
    rng = random.Random(f"{stream}:{seed}")
    written: set[str] = set()
    while True:
        scene = _Scene(rng, rng.choice(TOPICS))
        middles = rng.sample(SHAPES["middle"], rng.randint(3, 7))
        shapes = [rng.choice(SHAPES["opening"]), *middles, rng.choice(SHAPES["ending"])]
        yield tuple(scene.new_sentence(shape, written) for shape in shapes)


def sentences(seed: int, stream: str = "haystack") -> Iterator[str]:
    """The sentences of `paragraphs`, one by one."""
    return itertools.chain.from_iterable(paragraphs(seed, stream))


class _Scene:
    """One paragraph's cast and props: fills slots, drawing everything from `rng`.

    Two people of different pronouns, so that `he` and `she` are never ambiguous; a few things, which
    are `a lamp` when first mentioned and `the lamp` afterwards. A slot is one of the cast, one of
    `_SLOTS`, or else a list of words.
    """

    def __init__(self, rng: random.Random, topic: Mapping[str, tuple[str, ...]]) -> None:
        self.rng = rng
        self._lists = {**WORDS, **topic}
        people = [(rng.choice(WORDS["woman"]), "she", "her"), (rng.choice(WORDS["man"]), "he", "his")]
        rng.shuffle(people)
        (self._hero, she, her), (friend, _, friends) = people
        self._cast = {"she": she, "her": her, "friend": friend, "friends": friends}
        self._introduced = False
        self._used: dict[str, set[str]] = {}
        self._mentioned: list[str] = []
        self._year = rng.randint(1780, 1995)

    def new_sentence(self, shape: str, written: set[str]) -> str:
        """A sentence that is not in `written`; other shapes are tried once this one seems used up."""
        attempts = 0
        while (sentence := self._sentence(shape)) in written:
            attempts += 1
            if attempts >= 3:
                shape = self.rng.choice(SHAPES["middle"])
        written.add(sentence)
        return sentence

    def _sentence(self, shape: str) -> str:
        """`shape` with its slots filled from left to right, the first letter a capital."""
        text = _SLOT.sub(self._filled, shape)
        start = 1 if text.startswith('"') else 0
        return text[:start] + text[start].upper() + text[start + 1 :]

    def _filled(self, match: re.Match[str]) -> str:
        slot = match[2]
        words = self._cast.get(slot) or (_SLOTS[slot](self) if slot in _SLOTS else self.draw(slot))
        return with_article(words) if match[1] else words

    def draw(self, name: str) -> str:
        """An entry of a list, none twice until all were used."""
        entries, used = self._lists[name], self._used.setdefault(name, set())
        if len(used) == len(entries):
            used.clear()
        while (drawn := self.rng.choice(entries)) in used:
            pass
        used.add(drawn)
        return drawn

    def any(self, name: str) -> str:
        return self.rng.choice(self._lists[name])

    def hero(self) -> str:
        by_pronoun = self._introduced and self.rng.random() < 0.4
        return self._cast["she"] if by_pronoun else self.hero_name()

    def hero_name(self) -> str:
        self._introduced = True
        return self._hero

    def deed(self) -> str:
        handling = self.rng.random() < 0.35
        return f"{self.any('handling')} {self.thing()}" if handling else self.draw("deed")

    def adjective(self) -> str:
        return self.any("general_adjective" if self.rng.random() < 0.7 else "adjective")

    def new_thing(self) -> str:
        noun = self.draw("thing")
        self._mentioned.append(noun)
        return with_article(f"{self.adjective()} {noun}")

    def thing(self) -> str:
        return self._mentioned_thing(0.6) or self.new_thing()

    def the_thing(self) -> str:
        return self._mentioned_thing(0.7) or f"the {self.adjective()} {self.draw('thing')}"

    def _mentioned_thing(self, share: float) -> str:
        mentioned = self._mentioned and self.rng.random() < share
        return f"the {self.rng.choice(self._mentioned)}" if mentioned else ""

    def number(self, least: int, *most: int) -> str:
        """Up to any of `most`, so that small ones are as likely as large ones."""
        return str(self.rng.randint(least, self.rng.choice(most)))

    def year(self) -> str:
        return str(self._year + self.rng.randint(0, 12))

    def date(self) -> str:
        """A day, written in one of three ways; at the end of a clause only."""
        if self.rng.random() < 0.6:
            return self.day()
        weekday, month = self.any("weekday"), self.any("month")
        return f"{weekday}, {self.rng.randint(1, 28)} {month}"

    def day(self) -> str:
        month, day = self.any("month"), self.rng.randint(1, 28)
        suffix = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        return self.rng.choice((f"{day} {month} {self.year()}", f"the {day}{suffix} of {month}"))

    def clock(self) -> str:
        minutes = ("05", "10", "15", "20", "30", "40", "45", "55")
        return f"{self.rng.randint(1, 12)}.{self.rng.choice(minutes)}"


_SLOTS: dict[str, Callable[[_Scene], str]] = {
    "hero": _Scene.hero,
    "hero_name": _Scene.hero_name,
    "a_role": lambda scene: with_article(f"{scene.any('trait')} {scene.draw('role')}"),
    "deed": _Scene.deed,
    "did": lambda scene: past(scene.deed()),
    "doing": lambda scene: ing(scene.deed()),
    "noun": lambda scene: scene.draw("thing"),
    "adj": _Scene.adjective,
    "a_thing": _Scene.new_thing,
    "thing": _Scene.thing,
    "the_thing": _Scene.the_thing,
    "things": lambda scene: plural(scene.draw("thing")),
    "counted": lambda scene: plural(scene.draw("counted")),
    "civics": lambda scene: plural(scene.draw("civic")),
    "at": lambda scene: f"{scene.any('preposition')} the {scene.draw('place')}",
    "n": lambda scene: scene.number(2, 12, 60, 250, 999),
    "many": lambda scene: scene.number(13, 99, 999),
    "few": lambda scene: scene.any("small_number"),
    "year": _Scene.year,
    "date": _Scene.date,
    "day": _Scene.day,
    "clock": _Scene.clock,
}


def with_article(phrase: str) -> str:
    """`phrase` after `a` or `an`, by the sound it begins with (a number is read aloud: an 8, an 11)."""
    first = re.split(r"[\s-]", phrase)[0]
    if first.isdigit():
        vowel = first[0] == "8" or first in ("11", "18")
    else:
        vowel = bool(_VOWEL_SOUND.match(first) and not _CONSONANT_SOUND.match(first))
    return f"{'an' if vowel else 'a'} {phrase}"


def plural(phrase: str) -> str:
    """Plural of a noun phrase: its head is the word before ` of `, otherwise the last one."""
    head, of, rest = phrase.partition(" of ")
    before, space, noun = head.rpartition(" ")
    if noun in _PLURALS:
        several = _PLURALS[noun]
    elif noun.endswith("y") and noun[-2] not in "aeiou":
        several = noun[:-1] + "ies"
    else:
        several = noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
    return f"{before}{space}{several}{of}{rest}"


def past(deed: str) -> str:
    """Past tense of a verb phrase in the base form; its first word is the verb."""
    verb, space, rest = deed.partition(" ")
    if verb.endswith("e"):
        regular = verb + "d"
    elif verb.endswith("y") and verb[-2] not in "aeiou":
        regular = verb[:-1] + "ied"
    else:
        regular = verb + (verb[-1] if _DOUBLING.match(verb) else "") + "ed"
    return _PAST.get(verb, regular) + space + rest


def ing(deed: str) -> str:
    """The -ing form of a verb phrase in the base form."""
    verb, space, rest = deed.partition(" ")
    if verb.endswith("ie"):
        stem = verb[:-2] + "y"
    elif verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        stem = verb[:-1]
    else:
        doubled = _DOUBLING.match(verb) or verb in _IRREGULAR["doubled_ing"]
        stem = verb + (verb[-1] if doubled else "")
    return f"{stem}ing{space}{rest}"
