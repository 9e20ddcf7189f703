"""What a topic of the grammar is, and how its word lists are written down."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """The words one paragraph draws on, so that its sentences belong together."""

    places: tuple[str, ...]
    things: tuple[str, ...]
    people: tuple[str, ...]
    adjectives: tuple[str, ...]
    deeds: tuple[str, ...]
    scenes: tuple[str, ...]


def words(text: str) -> tuple[str, ...]:
    """The entries of a list written as `one; two words; three`."""
    return tuple(entry.strip() for entry in text.split(";"))


def topic(*, places: str, things: str, people: str, adjectives: str, deeds: str, scenes: str) -> Topic:
    """A `Topic` from lists written as for `words`."""
    return Topic(words(places), words(things), words(people), words(adjectives), words(deeds), words(scenes))
