"""One paragraph's cast and props: what each slot of a sentence shape is filled with.

Two people of different pronouns, so that `he` and `she` are never ambiguous; a few things, which
are `a lamp` when first mentioned and `the lamp` afterwards. Every slot is a method.
"""

import random
from collections.abc import Sequence

from mta_viz.tasks.grammar import inflect, lexicon
from mta_viz.tasks.grammar.topic import Topic


class Scene:
    """Fills slots for one paragraph, drawing everything from `rng`."""

    def __init__(self, rng: random.Random, topic: Topic) -> None:
        self.rng = rng
        self.topic = topic
        names = [(rng.choice(lexicon.WOMEN), "she", "her"), (rng.choice(lexicon.MEN), "he", "his")]
        rng.shuffle(names)
        (self._hero, self._pronoun, self._her), (self._friend, _, self._friends) = names
        self._introduced = False
        self._used: dict[str, set[str]] = {}
        self._known: list[str] = []
        self._year = rng.randint(1780, 1995)

    def fill(self, slot: str) -> str:
        """The words for one slot, e.g. `fill("hero")`; a new draw at every call."""
        return getattr(self, slot)()

    def _draw(self, name: str, entries: Sequence[str]) -> str:
        """An entry of a list, none twice until all were used."""
        used = self._used.setdefault(name, set())
        if len(used) == len(entries):
            used.clear()
        while (drawn := self.rng.choice(entries)) in used:
            pass
        used.add(drawn)
        return drawn

    def hero(self) -> str:
        """The main person: by name at first, then now and then by pronoun."""
        if self._introduced and self.rng.random() < 0.4:
            return self._pronoun
        self._introduced = True
        return self._hero

    def hero_name(self) -> str:
        """The main person, by name."""
        self._introduced = True
        return self._hero

    def she(self) -> str:
        """The main person's pronoun, for the second half of a sentence."""
        return self._pronoun

    def her(self) -> str:
        """The main person's possessive."""
        return self._her

    def friend(self) -> str:
        """The other person, always by name."""
        return self._friend

    def friends(self) -> str:
        """The other person's possessive pronoun."""
        return self._friends

    def role(self) -> str:
        """A person known by trade, without article."""
        return self._draw("role", self.topic.people)

    def a_role(self) -> str:
        """A person known by trade, new to the reader."""
        trait = self.rng.choice(lexicon.TRAITS)
        return inflect.with_article(f"{trait} {self.role()}")

    def deed(self) -> str:
        """A verb phrase in the base form."""
        if self.rng.random() < 0.35:
            return f"{self.rng.choice(lexicon.HANDLING)} {self.thing()}"
        return self._draw("deed", self.topic.deeds)

    def did(self) -> str:
        """A verb phrase in the past tense."""
        return inflect.past(self.deed())

    def doing(self) -> str:
        """A verb phrase in the -ing form."""
        return inflect.ing(self.deed())

    def noun(self) -> str:
        """A thing, bare."""
        return self._draw("thing", self.topic.things)

    def adj(self) -> str:
        """An adjective for a thing."""
        general = self.rng.random() < 0.7
        return self.rng.choice(lexicon.ADJECTIVES if general else self.topic.adjectives)

    def a_thing(self) -> str:
        """A thing with an adjective, new to the reader."""
        noun = self.noun()
        self._known.append(noun)
        return inflect.with_article(f"{self.adj()} {noun}")

    def thing(self) -> str:
        """A thing: one mentioned before, or a new one."""
        if self._known and self.rng.random() < 0.6:
            return f"the {self.rng.choice(self._known)}"
        return self.a_thing()

    def the_thing(self) -> str:
        """A thing with the definite article."""
        if self._known and self.rng.random() < 0.7:
            return f"the {self.rng.choice(self._known)}"
        return f"the {self.adj()} {self.noun()}"

    def things(self) -> str:
        """Several things, bare plural."""
        return inflect.plural(self.noun())

    def counted(self) -> str:
        """Several of something anybody counts."""
        return inflect.plural(self._draw("counted", lexicon.COUNTED))

    def civics(self) -> str:
        """Several of something a town has."""
        return inflect.plural(self._draw("civic", lexicon.CIVIC))

    def place(self) -> str:
        """A place, without article."""
        return self._draw("place", self.topic.places)

    def at(self) -> str:
        """Where: a preposition and a place."""
        return f"{self.rng.choice(lexicon.PREPOSITIONS)} the {self.place()}"

    def scene(self) -> str:
        """A whole clause about the surroundings."""
        return self._draw("scene", self.topic.scenes)

    def town(self) -> str:
        """A town."""
        return self._draw("town", lexicon.TOWNS)

    def n(self) -> str:
        """A number from 2 to 999, small ones as likely as large ones."""
        return str(self.rng.randint(2, self.rng.choice((12, 60, 250, 999))))

    def many(self) -> str:
        """A number from 13 to 999."""
        return str(self.rng.randint(13, self.rng.choice((99, 999))))

    def few(self) -> str:
        """A small number, in words."""
        return self.rng.choice(lexicon.SMALL_NUMBERS)

    def year(self) -> str:
        """A year near the paragraph's own."""
        return str(self._year + self.rng.randint(0, 12))

    def date(self) -> str:
        """A day, written in one of three ways; at the end of a clause only."""
        if self.rng.random() < 0.6:
            return self.day()
        weekday, month = self.rng.choice(lexicon.WEEKDAYS), self.rng.choice(lexicon.MONTHS)
        return f"{weekday}, {self.rng.randint(1, 28)} {month}"

    def day(self) -> str:
        """A day, written without a comma."""
        month, day = self.rng.choice(lexicon.MONTHS), self.rng.randint(1, 28)
        return self.rng.choice((f"{day} {month} {self.year()}", f"the {inflect.ordinal(day)} of {month}"))

    def clock(self) -> str:
        """A time of day, such as `7.45`."""
        return (
            f"{self.rng.randint(1, 12)}.{self.rng.choice(('05', '10', '15', '20', '30', '40', '45', '55'))}"
        )


def _word_slot(name: str, entries: Sequence[str]) -> None:
    """Give `Scene` a slot that draws from one list of the lexicon."""

    def slot(self: Scene) -> str:
        return self._draw(name, entries)

    slot.__name__ = name
    slot.__doc__ = f"An entry of one of the lexicon's lists, for the slot {name!r}."
    setattr(Scene, name, slot)


for _name, _entries in {
    "time": lexicon.TIMES,
    "front": lexicon.FRONT_TIMES,
    "link": lexicon.LINKS,
    "manner": lexicon.MANNERS,
    "speech": lexicon.SPEECH_MANNERS,
    "predicate": lexicon.PREDICATES,
    "colour": lexicon.COLOURS,
    "garment": lexicon.GARMENTS,
    "accessory": lexicon.ACCESSORIES,
    "morning": lexicon.MORNINGS,
    "feeling": lexicon.FEELINGS,
    "trait": lexicon.TRAITS,
    "subject": lexicon.SUBJECTS,
    "abstract": lexicon.ABSTRACTS,
    "judgement": lexicon.JUDGEMENTS,
    "animal": lexicon.ANIMALS,
    "look": lexicon.ANIMAL_LOOKS,
    "animal_did": lexicon.ANIMAL_DEEDS,
    "sky": lexicon.SKIES,
    "weather": lexicon.WEATHERS,
    "thought": lexicon.MENTAL,
    "said": lexicon.SPEAKING,
    "asked": lexicon.ASKING,
    "reacted": lexicon.REACTIONS,
    "measure": lexicon.MEASURES,
    "event": lexicon.EVENTS,
    "month": lexicon.MONTHS,
    "weekday": lexicon.WEEKDAYS,
    "season": lexicon.SEASONS,
}.items():
    _word_slot(_name, _entries)
