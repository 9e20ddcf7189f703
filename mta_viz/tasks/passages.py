"""Passages whose last word is asked for, as LAMBADA does: where that word is, and files of passages.

The last word is the last run of letters, digits and underscores, with apostrophes, hyphens and decimal
points inside it; what follows it (punctuation, quotes, symbols) is neither read nor asked for. Owns text
alone: no tokenizer, no model.
"""

import itertools
import json

import regex

from mta_viz.errors import PromptError

MOST_PASSAGES, LONGEST = 100_000, 100_000  # of a file; characters of one passage
FORMAT_WORDS = (
    "Plain text in UTF-8: one passage a paragraph, with empty lines between them; without any empty line, "
    'one a line. Or JSON lines: one object a line, its passage under "text".'
)
_WORD = regex.compile(r"\w+(?:['’‑-]\w+|[.,]\d+)*")


def last_word(passage: str) -> tuple[int, int]:
    """Where the last word begins and ends. Raises PromptError where there is none, or none before it."""
    words = [match.span() for match in _WORD.finditer(passage)]
    if not words:
        raise PromptError("it has no word: no letter and no digit. Give a passage of at least two words")
    if len(words) == 1:
        raise PromptError(
            "it has one word only, with nothing before it to be predicted from. Give two words or more"
        )
    return words[-1]


def parse_passages(text: str, name: str) -> tuple[str, ...]:
    """The passages in the content of the file `name`, in one of the two formats of `FORMAT_WORDS`.

    JSON lines are known by their first character, `{`. Raises PromptError saying what is wrong, and where.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    written = [line.strip() for line in lines if line.strip()]
    if not written:
        raise PromptError(f"{name} is empty; expected passages. {FORMAT_WORDS}")
    groups = itertools.groupby((line.strip() for line in lines), bool)
    passages = ["\n".join(group) for is_paragraph, group in groups if is_paragraph]
    if written[0].startswith("{"):
        passages = [_from_json(line, place, name) for place, line in enumerate(lines, 1) if line.strip()]
    elif len(passages) == 1:
        passages = written
    if len(passages) > MOST_PASSAGES:
        raise PromptError(
            f"{name} has {len(passages):,} passages; at most {MOST_PASSAGES:,} are taken. Cut it"
        )
    for place, passage in enumerate(passages, 1):
        if len(passage) > LONGEST:
            raise PromptError(
                f"{name}, passage {place}: {len(passage):,} characters; at most {LONGEST:,} are taken. "
                "For long texts there is the perplexity of the whole text"
            )
    return tuple(passages)


def _from_json(line: str, place: int, name: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(
            f"{name}, line {place}: no JSON ({error}). The file begins with {{, so must every line"
        ) from error
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise PromptError(f'{name}, line {place}: expected an object with a "text" that is a string')
    return entry["text"].strip()
