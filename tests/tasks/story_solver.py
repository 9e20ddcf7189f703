"""A second reader of the stories: from the sentences alone, by other means than the package's."""

import itertools
import re

MOVE = re.compile(r"(\w+) (?:walked|strolled|hurried|ran) to the (\w+)\.")
TAKE = re.compile(r"(\w+) (?:collected the|picked the|took hold of the) (\w+)")
DROP = re.compile(r"(\w+) (?:put|left|set) the (\w+) (?:down|behind|aside)")
GIVE = re.compile(r"(\w+) (?:gave|handed) the (\w+) (?:over )?to (\w+)\.")
PRESENT = re.compile(r"(\w+) presented (\w+) with the (\w+)\.")
LIES = re.compile(r"The (\w+) (?:lies|is found to the) (\w+) of the (\w+)\.")
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}


def solve(sentences, question):
    """The set of answers that follow."""
    for pattern, answers in QUESTIONS.items():
        if match := re.fullmatch(pattern, question):
            return answers(sentences, *match.groups())
    raise ValueError(question)


def person_at(sentences, person):
    """Its last move, found from the end."""
    moves = [MOVE.fullmatch(sentence) for sentence in sentences]
    return next(([m[2]] for m in reversed(moves) if m and m[1] == person), [])


def ways(sentences, thing):
    """Where a thing is after every sentence: replayed from the start for every prefix, None for unknown."""
    for n in range(1, len(sentences) + 1):
        yield place_of(sentences[:n], thing)


def place_of(sentences, thing):
    """Backwards: the last take or drop of the thing says whom to follow, and until when."""
    for at in range(len(sentences) - 1, -1, -1):
        take, drop = TAKE.match(sentences[at]), DROP.match(sentences[at])
        if drop and drop[2] == thing:
            return who_is_where(sentences[:at], drop[1])
        if take and take[2] == thing:
            return who_is_where(sentences, take[1])
    return None


def who_is_where(sentences, person):
    """Where someone is by the last of: a move, or a take of a thing that was known to lie somewhere."""
    for at in range(len(sentences) - 1, -1, -1):
        move, take = MOVE.fullmatch(sentences[at]), TAKE.match(sentences[at])
        if move and move[1] == person:
            return move[2]
        if take and take[1] == person and (place := lies_at(sentences[:at], take[2])):
            return place
    return None


def lies_at(sentences, thing):
    """Where a thing lies that nobody holds."""
    deeds = [sentence for sentence in sentences if re.search(rf"the {thing}\b", sentence)]
    if not deeds or not DROP.match(deeds[-1]):
        return None
    return place_of(sentences, thing)


def object_at(sentences, thing):
    place = place_of(sentences, thing)
    return [place] if place else []


def before(sentences, thing, place):
    path = [key for key, _ in itertools.groupby(ways(sentences, thing))]
    return [a for a, b in itertools.pairwise(path) if b == place and a]


def neighbours(sentences, direction, place):
    """Floyd and Warshall's closure of one axis."""
    facts = [LIES.fullmatch(sentence).groups() for sentence in sentences]
    names = {name for a, _, b in facts for name in (a, b)}
    ahead = {(a, b) for a, way, b in facts if way == direction}
    ahead |= {(b, a) for a, way, b in facts if way == OPPOSITE[direction]}
    for middle, a, b in itertools.product(names, repeat=3):
        if (a, middle) in ahead and (middle, b) in ahead:
            ahead.add((a, b))
    return [a for a in names if (a, place) in ahead]


def gifts(sentences):
    for sentence in sentences:
        if match := GIVE.fullmatch(sentence):
            yield match.groups()
        if match := PRESENT.fullmatch(sentence):
            yield match[1], match[3], match[2]


QUESTIONS = {
    r"Where is ([A-Z]\w+)\?": lambda s, who: set(person_at(s, who)),
    r"Where is the (\w+)\?": lambda s, thing: set(object_at(s, thing)),
    r"Where was the (\w+) before it came to the (\w+)\?": lambda s, *asked: set(before(s, *asked)),
    r"What lies (\w+) of the (\w+)\?": lambda s, way, place: set(neighbours(s, way, place)),
    r"What does the (\w+) lie (\w+) of\?": lambda s, place, way: set(neighbours(s, OPPOSITE[way], place)),
    r"From whom did (\w+) get the (\w+)\?": lambda s, to, o: {a for a, b, c in gifts(s) if (b, c) == (o, to)},
    r"To whom did (\w+) give the (\w+)\?": lambda s, who, o: {
        c for a, b, c in gifts(s) if (a, b) == (who, o)
    },
    r"What did (\w+) give to (\w+)\?": lambda s, who, to: {b for a, b, c in gifts(s) if (a, c) == (who, to)},
}
