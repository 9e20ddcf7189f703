"""Small stories with one question each, of the kinds of bAbI's tasks 1 to 5, made up from a seed.

Own people, places, things and wording. Every story keeps this: exactly one answer follows from all
facts; it follows from the supporting facts alone; without any one of them it follows neither from
the others of them nor from all the rest.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mta_viz.tasks.seeding import stream_seed
from mta_viz.tasks.story_facts import (
    OBJECTS,
    OPPOSITE,
    PEOPLE,
    PLACES,
    SENTENCES,
    Asked,
    Fact,
    Query,
    Verb,
    follows,
)

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
_STEP = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


@dataclass(frozen=True)
class Story:
    """Facts in the order in which they happen, and a question. `supports`: places in `facts`."""

    facts: tuple[Fact, ...]
    query: Query
    answer: str
    supports: tuple[int, ...]


def make_story(task: str, seed: int) -> Story:
    """Story number `seed` of a task of `TASKS`; it depends on these two alone.

    Each label of the task is the answer equally often.
    """
    rng = random.Random(stream_seed(f"story {task}", seed))
    asked = _asked(task, rng)
    while True:
        facts = _rooms(rng) if task == "qa4" else _life(task, rng)
        told = [story for story in _questions(facts, asked, rng) if keeps_its_promise(story)]
        if told:
            return rng.choice(told)


def keeps_its_promise(story: Story) -> bool:
    """One answer from all facts, the same from the supports, and another or none without any of them."""
    facts, query, right = story.facts, story.query, {story.answer}
    supports = [facts[place] for place in story.supports]
    if not follows(facts, query) == follows(supports, query) == right:
        return False
    without = [follows(_without(some, fact), query) for some in (facts, supports) for fact in supports]
    return all(found != right for found in without)


def _without(facts: Sequence[Fact], left_out: Fact) -> list[Fact]:
    return [fact for fact in facts if fact is not left_out]


def _asked(task: str, rng: random.Random) -> Asked:
    """What is asked for; drawn before the story, so that each label is as likely as any other."""
    if task == "qa5":
        people: Asked = rng.choice(("giver", "receiver"))
        return "given" if rng.randrange(len(LABELS[task])) < len(OBJECTS) else people
    kinds: dict[str, Asked] = {"qa1": "person", "qa2": "object", "qa3": "before", "qa4": "neighbour"}
    return kinds[task]


def _life(task: str, rng: random.Random) -> tuple[Fact, ...]:
    """What people do in a house, each sentence once. Unseen people and things can be anywhere."""
    place: dict[str, str] = {}
    holder: dict[str, str] = {}
    lying: dict[str, str] = {}
    facts: list[Fact] = []
    for _ in range(rng.randint(*_LENGTHS[task])):
        deeds = _possible(place, holder, lying)
        verbs = {verb: often for verb, often in _VERBS[task].items() if deeds[verb]}
        verb = rng.choices(list(verbs), list(verbs.values()))[0]
        words = rng.choice(deeds[verb])
        fact = _said(verb, words, facts, rng)
        if fact is None:
            continue
        facts.append(fact)
        if verb == "move":
            place[words[0]] = words[1]
        elif verb == "drop":
            lying[words[1]] = place[holder.pop(words[1])]
        else:
            holder[words[1]] = words[2] if verb == "give" else words[0]
    return tuple(facts)


def _possible(
    place: dict[str, str], holder: dict[str, str], lying: dict[str, str]
) -> dict[Verb, list[tuple[str, ...]]]:
    """What can happen next, by verb."""
    return {
        "move": [(who, to) for who in PEOPLE for to in PLACES if place.get(who) != to],
        "take": [
            (who, thing)
            for who in place
            for thing in OBJECTS
            if thing not in holder and lying.get(thing, place[who]) == place[who]
        ],
        "drop": [(who, thing) for thing, who in holder.items()],
        "give": [
            (who, thing, to)
            for thing, who in holder.items()
            for to in place
            if to != who and place[to] == place[who]
        ],
    }


def _said(verb: Verb, words: tuple[str, ...], before: Sequence[Fact], rng: random.Random) -> Fact | None:
    """The fact in words not used before; None when all are used up."""
    used = {fact.text for fact in before}
    texts = [text for one in SENTENCES[verb] if (text := one.format(*words)) not in used]
    return Fact(verb, words, rng.choice(texts)) if texts else None


def _rooms(rng: random.Random) -> tuple[Fact, ...]:
    """Rooms on a square grid, each told by its direction from one that was told before, or the reverse."""
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
        words = (at[here], OPPOSITE[way], name) if turned else (name, way, at[here])
        facts.append(Fact("lies", words, rng.choice(SENTENCES["lies"]).format(*words)))
    return tuple(rng.sample(facts, len(facts)))


def _questions(facts: tuple[Fact, ...], asked: Asked, rng: random.Random) -> Iterator[Story]:
    """Every question of the wanted kind, with the facts that should support its answer."""
    if asked == "neighbour":
        yield from _about_rooms(facts, rng)
    for at, fact in enumerate(facts):
        if asked in ("giver", "receiver", "given") and fact.verb == "give":
            yield _about_gift(facts, asked, at)
        elif asked == "person" and fact.verb == "move":
            query = Query(asked, fact.words[:1], f"Where is {fact.words[0]}?")
            yield Story(facts, query, fact.words[1], (at,))
        elif asked in ("object", "before") and fact.verb in ("take", "drop"):
            yield from _about_thing(facts, asked, at)


def _about_rooms(facts: tuple[Fact, ...], rng: random.Random) -> Iterator[Story]:
    for at, fact in enumerate(facts):
        there, way, here = fact.words
        for direction, place, answer in ((way, here, there), (OPPOSITE[way], there, here)):
            text = rng.choice(
                (
                    f"What lies {direction} of the {place}?",
                    f"What does the {place} lie {OPPOSITE[direction]} of?",
                )
            )
            yield Story(facts, Query("neighbour", (direction, place), text), answer, (at,))


def _about_gift(facts: tuple[Fact, ...], asked: Asked, at: int) -> Story:
    who, thing, to = facts[at].words
    query, answer = {
        "giver": (Query("giver", (thing, to), f"From whom did {to} get the {thing}?"), who),
        "receiver": (Query("receiver", (who, thing), f"To whom did {who} give the {thing}?"), to),
        "given": (Query("given", (who, to), f"What did {who} give to {to}?"), thing),
    }[asked]
    return Story(facts, query, answer, (at,))


def _about_thing(facts: tuple[Fact, ...], asked: Asked, at: int) -> Iterator[Story]:
    """Where a thing is, or was before: from where its holder was when fact `at`, a take or drop, happened."""
    fact = facts[at]
    who, thing = fact.words
    moves = [i for i, one in enumerate(facts) if one.verb == "move" and one.words[0] == who]
    if fact.verb == "drop":
        moves = [i for i in moves if i < at]
    else:
        ends = (i for i in range(at, len(facts)) if facts[i].verb == "drop" and facts[i].words[1] == thing)
        end = next(ends, len(facts))
        moves = [i for i in moves if i < end]
    if asked == "object" and moves:
        query = Query("object", (thing,), f"Where is the {thing}?")
        yield Story(facts, query, facts[moves[-1]].words[1], tuple(sorted((at, moves[-1]))))
    if asked == "before" and fact.verb == "take":
        for first, then in pairwise(moves):
            was, came = facts[first].words[1], facts[then].words[1]
            query = Query("before", (thing, came), f"Where was the {thing} before it came to the {came}?")
            yield Story(facts, query, was, tuple(sorted((first, then, at))))
