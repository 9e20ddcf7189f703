"""A seeded grammar of the project's own that writes English paragraphs: the haystack that ships.

Every sentence is invented here; none is quoted from a book. Owns the writing of paragraphs and what fills
the slots of a sentence; words and shapes of sentences are data, read by word_lists.py.
"""

import random
import re
from collections.abc import Iterator, Mapping

from mta_viz.tasks import inflection
from mta_viz.tasks.word_lists import word_lists

WORDS = word_lists("grammar")["words"]
SHAPES = word_lists("grammar")["shapes"]
TOPICS = tuple(word_lists("topics").values())

Paragraph = tuple[str, ...]
_SLOT = re.compile(r"\{(\^?)(\w+)\}")


def paragraphs(seed: int, stream: str = "haystack") -> Iterator[Paragraph]:
    """Endless paragraphs of 5 to 9 sentences each; no sentence comes twice.

    `seed` and `stream` alone decide the text, whatever the machine or the hash order. Different
    streams are independent: what is trained on and what is tested on never share one.
    """
    rng = random.Random(f"{stream}:{seed}")
    written: set[str] = set()
    while True:
        yield _paragraph(rng, written)


def sentences(seed: int, stream: str = "haystack") -> Iterator[str]:
    """The sentences of `paragraphs`, one by one."""
    for paragraph in paragraphs(seed, stream):
        yield from paragraph


def _paragraph(rng: random.Random, written: set[str]) -> Paragraph:
    scene = _Scene(rng, rng.choice(TOPICS))
    middles = rng.sample(SHAPES["middle"], rng.randint(3, 7))
    shapes = [rng.choice(SHAPES["opening"]), *middles, rng.choice(SHAPES["ending"])]
    return tuple(_new_sentence(scene, shape, written) for shape in shapes)


def _new_sentence(scene: "_Scene", shape: str, written: set[str]) -> str:
    """A sentence that is not in `written`; other shapes are tried once this one seems used up."""
    attempts = 0
    while (sentence := _sentence(scene, shape)) in written:
        attempts += 1
        if attempts >= 3:
            shape = scene.rng.choice(SHAPES["middle"])
    written.add(sentence)
    return sentence


def _sentence(scene: "_Scene", shape: str) -> str:
    """`shape` with its slots filled from left to right, the first letter a capital."""

    def filled(slot: re.Match[str]) -> str:
        words = scene.fill(slot[2])
        return inflection.with_article(words) if slot[1] else words

    text = _SLOT.sub(filled, shape)
    start = 1 if text.startswith('"') else 0
    return text[:start] + text[start].upper() + text[start + 1 :]


class _Scene:
    """One paragraph's cast and props: fills slots, drawing everything from `rng`.

    Two people of different pronouns, so that `he` and `she` are never ambiguous; a few things, which
    are `a lamp` when first mentioned and `the lamp` afterwards. A slot is one of the cast, a method
    here, or else a list of words.
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

    def fill(self, slot: str) -> str:
        """The words for one slot, e.g. `fill("hero")`; a new draw at every call."""
        if slot in self._cast:
            return self._cast[slot]
        method = getattr(self, slot, None)
        return method() if method else self._draw(slot)

    def _draw(self, name: str) -> str:
        """An entry of a list, none twice until all were used."""
        entries, used = self._lists[name], self._used.setdefault(name, set())
        if len(used) == len(entries):
            used.clear()
        while (drawn := self.rng.choice(entries)) in used:
            pass
        used.add(drawn)
        return drawn

    def _any(self, name: str) -> str:
        """An entry of a list, whatever was drawn before."""
        return self.rng.choice(self._lists[name])

    def hero(self) -> str:
        """The main person: by name at first, then now and then by pronoun."""
        if self._introduced and self.rng.random() < 0.4:
            return self._cast["she"]
        return self.hero_name()

    def hero_name(self) -> str:
        """The main person, by name."""
        self._introduced = True
        return self._hero

    def a_role(self) -> str:
        """A person known by trade, new to the reader."""
        return inflection.with_article(f"{self._any('trait')} {self._draw('role')}")

    def deed(self) -> str:
        """A verb phrase in the base form."""
        if self.rng.random() < 0.35:
            return f"{self._any('handling')} {self.thing()}"
        return self._draw("deed")

    def did(self) -> str:
        """A verb phrase in the past tense."""
        return inflection.past(self.deed())

    def doing(self) -> str:
        """A verb phrase in the -ing form."""
        return inflection.ing(self.deed())

    def noun(self) -> str:
        """A thing, bare."""
        return self._draw("thing")

    def adj(self) -> str:
        """An adjective for a thing."""
        return self._any("general_adjective" if self.rng.random() < 0.7 else "adjective")

    def a_thing(self) -> str:
        """A thing with an adjective, new to the reader."""
        noun = self.noun()
        self._mentioned.append(noun)
        return inflection.with_article(f"{self.adj()} {noun}")

    def thing(self) -> str:
        """A thing: one mentioned before, or a new one."""
        if self._mentioned and self.rng.random() < 0.6:
            return f"the {self.rng.choice(self._mentioned)}"
        return self.a_thing()

    def the_thing(self) -> str:
        """A thing with the definite article."""
        if self._mentioned and self.rng.random() < 0.7:
            return f"the {self.rng.choice(self._mentioned)}"
        return f"the {self.adj()} {self.noun()}"

    def things(self) -> str:
        """Several things, bare plural."""
        return inflection.plural(self.noun())

    def counted(self) -> str:
        """Several of something anybody counts."""
        return inflection.plural(self._draw("counted"))

    def civics(self) -> str:
        """Several of something a town has."""
        return inflection.plural(self._draw("civic"))

    def at(self) -> str:
        """Where: a preposition and a place."""
        return f"{self._any('preposition')} the {self._draw('place')}"

    def n(self) -> str:
        """A number from 2 to 999, small ones as likely as large ones."""
        return str(self.rng.randint(2, self.rng.choice((12, 60, 250, 999))))

    def many(self) -> str:
        """A number from 13 to 999."""
        return str(self.rng.randint(13, self.rng.choice((99, 999))))

    def few(self) -> str:
        """A small number, in words."""
        return self._any("small_number")

    def year(self) -> str:
        """A year near the paragraph's own."""
        return str(self._year + self.rng.randint(0, 12))

    def date(self) -> str:
        """A day, written in one of three ways; at the end of a clause only."""
        if self.rng.random() < 0.6:
            return self.day()
        weekday, month = self._any("weekday"), self._any("month")
        return f"{weekday}, {self.rng.randint(1, 28)} {month}"

    def day(self) -> str:
        """A day, written without a comma."""
        month, day = self._any("month"), self.rng.randint(1, 28)
        return self.rng.choice((f"{day} {month} {self.year()}", f"the {inflection.ordinal(day)} of {month}"))

    def clock(self) -> str:
        """A time of day, such as `7.45`."""
        minutes = ("05", "10", "15", "20", "30", "40", "45", "55")
        return f"{self.rng.randint(1, 12)}.{self.rng.choice(minutes)}"
