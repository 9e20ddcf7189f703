"""What the facts of a small story say, and what follows from them: people, places, things, directions.

Owns the words of facts and questions and the reader that answers them; stories.py makes stories up.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# None lies inside another or inside an everyday word: a label is found in an answer letter by letter.
PEOPLE = ("Henrik", "Keiko", "Mateo", "Tessa")
PLACES = ("ballroom", "nursery", "pantry", "scullery", "turret", "veranda")
OBJECTS = ("banjo", "hourglass", "locket")
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}

Verb = Literal["move", "take", "drop", "give", "lies"]
Asked = Literal["person", "object", "before", "neighbour", "giver", "receiver", "given"]

SENTENCES: dict[Verb, tuple[str, ...]] = {
    "move": (
        "{0} walked to the {1}.",
        "{0} strolled to the {1}.",
        "{0} hurried to the {1}.",
        "{0} ran to the {1}.",
    ),
    "take": ("{0} collected the {1} there.", "{0} picked the {1} up.", "{0} took hold of the {1}."),
    "drop": ("{0} put the {1} down.", "{0} left the {1} behind.", "{0} set the {1} aside there."),
    "give": (
        "{0} gave the {1} to {2}.",
        "{0} handed the {1} over to {2}.",
        "{0} presented {2} with the {1}.",
    ),
    "lies": ("The {0} lies {1} of the {2}.", "The {0} is found to the {1} of the {2}."),
}


@dataclass(frozen=True)
class Fact:
    """One sentence of a story; `words` fill its template.

    move: person, place. take, drop: person, object. give: giver, object, receiver. lies: place,
    direction, place.
    """

    verb: Verb
    words: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Query:
    """One question, and what it asks for.

    person: where a person is. object: where an object is. before: object, place; where the object
    was before that place. neighbour: direction, place; what lies there of the place. giver: object,
    receiver. receiver: giver, object. given: giver, receiver.
    """

    asked: Asked
    words: tuple[str, ...]
    text: str


def follows(facts: Sequence[Fact], query: Query) -> frozenset[str]:
    """Every answer to `query` that a reader of `facts` has, in their order: none, one, or several.

    The reader keeps track forwards: a thing is where its holder is, and whoever takes a thing is
    where it lies.
    """
    return frozenset(_ANSWERS[query.asked](facts, *query.words))


class _Reader:
    """What is known after some facts: where people are, who holds what, where each thing has been."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.place: dict[str, str] = {}
        self.holder: dict[str, str] = {}
        self.lying: dict[str, str | None] = {}
        self.been: dict[str, list[str | None]] = {}
        for fact in facts:
            self._read(fact)

    def where(self, thing: str) -> str | None:
        """The place of a thing, None where that does not follow."""
        return self.place.get(self.holder[thing]) if thing in self.holder else self.lying.get(thing)

    def _read(self, fact: Fact) -> None:
        person, other = fact.words[:2]
        if fact.verb == "move":
            self.place[person] = other
        elif fact.verb == "take":
            lay = self.where(other)
            if lay is not None and other not in self.holder:
                self.place[person] = lay
            self.holder[other] = person
        elif fact.verb == "drop":
            self.holder.pop(other, None)
            self.lying[other] = self.place.get(person)
        for thing in self.holder | self.lying:
            seen, now = self.been.setdefault(thing, []), self.where(thing)
            if not seen or seen[-1] != now:
                seen.append(now)


def _person(facts: Sequence[Fact], person: str) -> set[str]:
    return _known(_Reader(facts).place.get(person))


def _object(facts: Sequence[Fact], thing: str) -> set[str]:
    return _known(_Reader(facts).where(thing))


def _before(facts: Sequence[Fact], thing: str, place: str) -> set[str]:
    been = _Reader(facts).been.get(thing, [])
    found = (before for before, then in pairwise(been) if then == place)
    return {one for before in found for one in _known(before)}


def _known(place: str | None) -> set[str]:
    return set() if place is None else {place}


def _neighbour(facts: Sequence[Fact], direction: str, place: str) -> set[str]:
    """Places that lie there of `place`: by one fact, said this way or the opposite, or by a chain."""
    next_to: dict[str, set[str]] = {}
    for fact in facts:
        if fact.verb == "lies":
            there, said, here = fact.words
            if said == OPPOSITE[direction]:
                there, here = here, there
            if said in (direction, OPPOSITE[direction]):
                next_to.setdefault(here, set()).add(there)
    found: set[str] = set()
    ahead = [place]
    while ahead:
        new = next_to.get(ahead.pop(), set()) - found
        found |= new
        ahead += sorted(new)
    return found


def _gifts(facts: Sequence[Fact]) -> list[tuple[str, ...]]:
    return [fact.words for fact in facts if fact.verb == "give"]


_ANSWERS: dict[Asked, Callable[..., set[str]]] = {
    "person": _person,
    "object": _object,
    "before": _before,
    "neighbour": _neighbour,
    "giver": lambda facts, thing, to: {who for who, *rest in _gifts(facts) if rest == [thing, to]},
    "receiver": lambda facts, who, thing: {one[2] for one in _gifts(facts) if one[:2] == (who, thing)},
    "given": lambda facts, who, to: {one[1] for one in _gifts(facts) if (one[0], one[2]) == (who, to)},
}
