"""English inflection for the grammar: articles, plurals, past tense, -ing forms, ordinals."""

import re

from mta_viz.tasks.word_lists import word_lists

_IRREGULAR = word_lists("grammar")["irregular"]
_PAST = dict(pair.split() for pair in _IRREGULAR["past"])
_PLURALS = dict(pair.split() for pair in _IRREGULAR["plural"])
_VOWEL_SOUND = re.compile(r"(?i)^(?:hour|honest|heir|[aeiou])")
_CONSONANT_SOUND = re.compile(r"(?i)^(?:uni|use|usual|eu|one)")
_DOUBLING = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprt]$")


def article(phrase: str) -> str:
    """`a` or `an`, by the sound `phrase` begins with (a number is read aloud: an 8, an 11)."""
    first = re.split(r"[\s-]", phrase)[0]
    if first.isdigit():
        return "an" if first[0] == "8" or first in ("11", "18") else "a"
    if _CONSONANT_SOUND.match(first):
        return "a"
    return "an" if _VOWEL_SOUND.match(first) else "a"


def with_article(phrase: str) -> str:
    """`phrase` with its indefinite article."""
    return f"{article(phrase)} {phrase}"


def plural(phrase: str) -> str:
    """Plural of a noun phrase: its head is the word before ` of `, otherwise the last one."""
    head, of, rest = phrase.partition(" of ")
    before, space, noun = head.rpartition(" ")
    return f"{before}{space}{_plural_noun(noun)}{of}{rest}"


def _plural_noun(noun: str) -> str:
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def past(deed: str) -> str:
    """Past tense of a verb phrase in the base form; its first word is the verb."""
    verb, space, rest = deed.partition(" ")
    return _PAST.get(verb, _regular_past(verb)) + space + rest


def _regular_past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] if _DOUBLING.match(verb) else "") + "ed"


def ing(deed: str) -> str:
    """The -ing form of a verb phrase in the base form."""
    verb, space, rest = deed.partition(" ")
    return _ing_verb(verb) + space + rest


def _ing_verb(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        return verb[:-1] + "ing"
    doubled = _DOUBLING.match(verb) or verb in _IRREGULAR["doubled_ing"]
    return verb + (verb[-1] if doubled else "") + "ing"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
