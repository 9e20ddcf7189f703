"""Small stories with one question each, of the kinds of bAbI's tasks 1 to 5, made up from a seed.

Own people, places, things and wording (stories.toml). Every story keeps this: exactly one answer follows
from all facts; it follows from the supporting facts alone; without any one of them it follows neither from
the others of them nor from all the rest. `follows` is the reader that decides it.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from mta_viz.tasks.words import stream_seed, word_lists

Verb = Literal["move", "take", "drop", "give", "lies"]
QuestionKind = Literal["person", "object", "before", "neighbour", "giver", "receiver", "given"]

PEOPLE, PLACES, OBJECTS = (word_lists("stories")["names"][kind] for kind in ("person", "place", "object"))
TASKS: dict[str, str] = {  # in the words of the paper's appendix
    "qa1": "one supporting fact",
    "qa2": "two supporting facts",
    "qa3": "three supporting facts",
    "qa4": "two-argument relations",
    "qa5": "three-argument relations",
}
LABELS: dict[str, tuple[str, ...]] = {  # what a question of the task can have as its answer
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), PLACES),
    "qa5": (*PEOPLE, *OBJECTS),
}
_LENGTHS = {"qa1": (4, 8), "qa2": (6, 12), "qa3": (9, 15), "qa4": (2, 5), "qa5": (8, 14)}  # facts
_VERBS: dict[str, dict[Verb, int]] = {  # how often each happens, where it can
    "qa1": {"move": 1},
    "qa2": {"move": 3, "take": 2, "drop": 1},
    "qa3": {"move": 3, "take": 2, "drop": 1},
    "qa5": {"move": 3, "take": 2, "drop": 1, "give": 6},
}
_ASKED: dict[str, QuestionKind] = {"qa1": "person", "qa2": "object", "qa3": "before", "qa4": "neighbour"}
# Places in a gift's words: of the two in the question, and the answer.
_GIFT: dict[QuestionKind, tuple[int, ...]] = {"giver": (1, 2, 0), "receiver": (0, 1, 2), "given": (0, 2, 1)}
_SENTENCES, _QUESTIONS = word_lists("stories")["facts"], word_lists("stories")["questions"]
_STEP = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
_OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}


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

    asked: QuestionKind
    words: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Story:
    """Facts in the order in which they happen, and a question. `supports`: places in `facts`."""

    facts: tuple[Fact, ...]
    query: Query
    answer: str
    supports: tuple[int, ...]


def make_story(task: str, seed: int) -> Story:
    """Story number `seed` of a task of `TASKS`; it depends on these two alone.

    Each label of the task is the answer equally often: what is asked for is drawn before the story.
    """
    rng = random.Random(stream_seed(f"story {task}", seed))
    if task == "qa5":
        people: QuestionKind = rng.choice(("giver", "receiver"))
        asked = "given" if rng.randrange(len(LABELS[task])) < len(OBJECTS) else people
    else:
        asked = _ASKED[task]
    while True:
        facts = _rooms(rng) if task == "qa4" else _life(task, rng)
        stories = [story for story in _questions(facts, asked, rng) if keeps_its_promise(story)]
        if stories:
            return rng.choice(stories)


def keeps_its_promise(story: Story) -> bool:
    """One answer from all facts, the same from the supports, and another or none without any of them."""
    facts, query, right = story.facts, story.query, {story.answer}
    supports = [facts[place] for place in story.supports]
    if not follows(facts, query) == follows(supports, query) == right:
        return False
    without = (
        [fact for fact in some if fact is not support] for some in (facts, supports) for support in supports
    )
    return all(follows(rest, query) != right for rest in without)


def follows(facts: Sequence[Fact], query: Query) -> frozenset[str]:
    """Every answer to `query` that a reader of `facts` has, in their order: none, one, or several.

    The reader keeps track forwards: a thing is where its holder is, and whoever takes a thing is
    where it lies.
    """
    if query.asked in _GIFT:
        *known, answer = _GIFT[query.asked]
        gifts = [fact.words for fact in facts if fact.verb == "give"]
        return frozenset(gift[answer] for gift in gifts if tuple(gift[at] for at in known) == query.words)
    if query.asked == "neighbour":
        return frozenset(_neighbours(facts, *query.words))
    state, name = _State(facts), query.words[0]
    if query.asked == "before":
        pairs = pairwise(state.been.get(name, []))
        places = {before for before, then in pairs if then == query.words[1]}
    else:
        places = {state.where(name) if query.asked == "object" else state.place.get(name)}
    return frozenset(place for place in places if place is not None)


def _life(task: str, rng: random.Random) -> tuple[Fact, ...]:
    """What people do in a house, each sentence once. Unseen people and things can be anywhere."""
    state = _State()
    facts: list[Fact] = []
    for _ in range(rng.randint(*_LENGTHS[task])):
        deeds = _possible(state)
        verbs = {verb: often for verb, often in _VERBS[task].items() if deeds[verb]}
        verb = rng.choices(list(verbs), list(verbs.values()))[0]
        words = rng.choice(deeds[verb])
        used = {fact.text for fact in facts}
        unused = [text for sentence in _SENTENCES[verb] if (text := sentence.format(*words)) not in used]
        if unused:
            facts.append(Fact(verb, words, rng.choice(unused)))
            state.add(facts[-1])
    return tuple(facts)


def _possible(state: "_State") -> dict[Verb, list[tuple[str, ...]]]:
    place, holder = state.place, state.holder
    return {
        "move": [(who, to) for who in PEOPLE for to in PLACES if place.get(who) != to],
        "take": [
            (who, thing)
            for who in place
            for thing in OBJECTS
            if thing not in holder and state.lying.get(thing, place[who]) == place[who]
        ],
        "drop": [(who, thing) for thing, who in holder.items()],
        "give": [
            (who, thing, to)
            for thing, who in holder.items()
            for to in place
            if to != who and place[to] == place[who]
        ],
    }


def _rooms(rng: random.Random) -> tuple[Fact, ...]:
    """Rooms on a square grid, each placed by its direction from one placed before, or the reverse."""
    names = rng.sample(PLACES, rng.randint(*_LENGTHS["qa4"]) + 1)
    at, facts = {(0, 0): names[0]}, []
    for name in names[1:]:
        free = [
            (here, way, there)
            for here in at
            for way, (x, y) in _STEP.items()
            if (there := (here[0] + x, here[1] + y)) not in at
        ]
        here, way, there = rng.choice(free)
        at[there] = name
        turned = rng.random() < 0.5
        words = (at[here], _OPPOSITE[way], name) if turned else (name, way, at[here])
        facts.append(Fact("lies", words, rng.choice(_SENTENCES["lies"]).format(*words)))
    return tuple(rng.sample(facts, len(facts)))


def _questions(facts: tuple[Fact, ...], asked: QuestionKind, rng: random.Random) -> Iterator[Story]:
    """Every question of the wanted kind, with the facts that should support its answer."""
    for at, fact in enumerate(facts):
        if asked == "neighbour":
            there, way, here = fact.words
            for direction, place, room in ((way, here, there), (_OPPOSITE[way], there, here)):
                text = rng.choice(_QUESTIONS[asked]).format(direction, place, _OPPOSITE[direction])
                yield Story(facts, Query(asked, (direction, place), text), room, (at,))
        elif asked in _GIFT and fact.verb == "give":
            *known, answer = _GIFT[asked]
            query = _query(asked, *(fact.words[index] for index in known))
            yield Story(facts, query, fact.words[answer], (at,))
        elif asked == "person" and fact.verb == "move":
            yield Story(facts, _query(asked, fact.words[0]), fact.words[1], (at,))
        elif asked in ("object", "before") and fact.verb in ("take", "drop"):
            yield from _about_thing(facts, asked, at)


def _query(asked: QuestionKind, *words: str) -> Query:
    return Query(asked, words, _QUESTIONS[asked][0].format(*words))


def _about_thing(facts: tuple[Fact, ...], asked: QuestionKind, at: int) -> Iterator[Story]:
    """Where a thing is, or was before: from where its holder was when fact `at`, a take or drop, happened."""
    who, thing = facts[at].words
    drops = (i for i in range(at, len(facts)) if facts[i].verb == "drop" and facts[i].words[1] == thing)
    end = next(drops, len(facts))
    moves = [i for i in range(end) if facts[i].verb == "move" and facts[i].words[0] == who]
    if asked == "object" and moves:
        supports = tuple(sorted((at, moves[-1])))
        yield Story(facts, _query("object", thing), facts[moves[-1]].words[1], supports)
    if asked == "before" and facts[at].verb == "take":
        for first, then in pairwise(moves):
            query = _query("before", thing, facts[then].words[1])
            yield Story(facts, query, facts[first].words[1], tuple(sorted((first, then, at))))


class _State:
    """What is known after some facts: where people are, who holds what, where each thing has been."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.place: dict[str, str] = {}
        self.holder: dict[str, str] = {}
        self.lying: dict[str, str | None] = {}
        self.been: dict[str, list[str | None]] = {}
        for fact in facts:
            self.add(fact)

    def where(self, thing: str) -> str | None:
        return self.place.get(self.holder[thing]) if thing in self.holder else self.lying.get(thing)

    def add(self, fact: Fact) -> None:
        person, other = fact.words[:2]
        if fact.verb == "move":
            self.place[person] = other
        elif fact.verb == "take":
            lay = self.where(other)
            if lay is not None and other not in self.holder:
                self.place[person] = lay
            self.holder[other] = person
        elif fact.verb == "give":
            self.holder[other] = fact.words[2]
        elif fact.verb == "drop":
            self.holder.pop(other, None)
            self.lying[other] = self.place.get(person)
        for thing in self.holder | self.lying:
            places, now = self.been.setdefault(thing, []), self.where(thing)
            if not places or places[-1] != now:
                places.append(now)


def _neighbours(facts: Sequence[Fact], direction: str, place: str) -> set[str]:
    """Places that lie there of `place`: by one fact, in this direction or the opposite, or by a chain."""
    lies = [fact.words for fact in facts if fact.verb == "lies"]
    steps = {(here, there) for there, way, here in lies if way == direction}
    steps |= {(there, here) for there, way, here in lies if way == _OPPOSITE[direction]}
    reached: set[str] = set()
    new = {place}
    while new:
        new = {there for here, there in steps if here in new} - reached
        reached |= new
    return reached
