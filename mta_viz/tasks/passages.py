"""Passages whose last word is asked for, as LAMBADA does: where that word is, and files of passages.

The last word is the last run of letters, digits and underscores, with apostrophes, hyphens and decimal
points inside it; what follows it (punctuation, quotes, symbols) is neither read nor asked for. Owns text
alone: no tokenizer, no model.
"""

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
    found = [match.span() for match in _WORD.finditer(passage)]
    if not found:
        raise PromptError("it has no word: no letter and no digit. Give a passage of at least two words")
    if len(found) == 1:
        raise PromptError(
            "it has one word only, with nothing before it to be predicted from. Give two words or more"
        )
    return found[-1]


def parse_passages(text: str, name: str) -> tuple[str, ...]:
    """The passages in the content of the file `name`, in one of the two formats of `FORMAT_WORDS`.

    JSON lines are known by their first character, `{`. Raises PromptError saying what is wrong, and where.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    written = [line for line in lines if line.strip()]
    if not written:
        raise PromptError(f"{name} is empty; expected passages. {FORMAT_WORDS}")
    if written[0].lstrip().startswith("{"):
        found = [_from_json(line, place, name) for place, line in enumerate(lines, 1) if line.strip()]
    elif len(_paragraphs(lines)) > 1:
        found = _paragraphs(lines)
    else:
        found = [line.strip() for line in written]
    _check_sizes(found, name)
    return tuple(found)


def _paragraphs(lines: list[str]) -> list[str]:
    """Lines between empty ones, put together."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line.strip())
        elif found[-1]:
            found.append([])
    return ["\n".join(part) for part in found if part]


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


def _check_sizes(found: list[str], name: str) -> None:
    if len(found) > MOST_PASSAGES:
        raise PromptError(f"{name} has {len(found):,} passages; at most {MOST_PASSAGES:,} are taken. Cut it")
    long = next((place for place, one in enumerate(found, 1) if len(one) > LONGEST), None)
    if long is not None:
        raise PromptError(
            f"{name}, passage {long}: {len(found[long - 1]):,} characters; at most {LONGEST:,} are taken. "
            "For long texts there is the perplexity of the whole text"
        )
