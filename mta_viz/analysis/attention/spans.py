"""Named token ranges of a prompt, and the search that finds them: plain text or a regular expression.

A user's pattern may need longer than the universe has; `re` can be neither stopped nor run beside
other work, so patterns go through the `regex` library (its default syntax is that of `re`), which
lets go of the interpreter and gives up after a time limit.

How much of one query's row lies on a span, at every stage, and what each step adds to it.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from string import ascii_uppercase

import regex
import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.tokenizers.base import Tokens, label, quoted

Characters = tuple[int, int]  # the first, and the one after the last
QUESTION = "?"  # its letter
ASKED = " (asked)"  # how the name of the asked needle ends
MAX_PATTERN = 1000  # characters
SECONDS = 1.0  # for one search; a sound pattern takes milliseconds on the longest prompts
_WORDS = r"[^.\n]{1,40}?"
_PAIR = rf"number that (?P<name>{_WORDS}) has in (?P<place>{_WORDS})"
_OF = rf"The (?:magic number of (?P<city>{_WORDS})|{_PAIR}) is"
_NEEDLE, _QUESTION = re.compile(rf"{_OF} \d{{1,6}}\."), re.compile(rf"{_OF}$")


@dataclass(frozen=True)
class Span:
    """Tokens `start`..`stop`-1 under a name; `letter` is its sign where there is no room for more."""

    name: str
    letter: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise PromptError(
                f"the span {self.name!r} has tokens {self.start} to {self.stop - 1}; "
                "it needs at least one, counted from 0"
            )

    @property
    def positions(self) -> range:
        """Its token positions."""
        return range(self.start, self.stop)

    @property
    def words(self) -> str:
        """As sentences name it: `the needle “Oslo”`, `the block “kemub”`, `“rabbit”`."""
        name, _, kind = self.name.partition(" (")
        kinds = {"asked)": "the needle ", "target)": "the block "}
        return f"{kinds[kind]}{quoted(name)}" if kind in kinds else quoted(self.name)


def find(tokens: Tokens, wanted: str, *, pattern: bool = False) -> tuple[range, ...]:
    """Token ranges of every place where `wanted` occurs, in order, each range once.

    Plain text ignores case and places may overlap. With `pattern` it is a regular expression as in
    Python's `re`, upper and lower case distinct unless it begins with (?i); matches do not overlap,
    empty ones are left out. A hit inside a token selects that token; a character cut into several
    tokens belongs to the one that completes it. A prompt given as ids has no text: its labels, put
    together, are searched.

    Raises PromptError for a pattern that is wrong, too long or too slow.
    """
    if not wanted:
        return ()
    text, spans = tokens.text, tokens.spans
    if text is None:
        text, spans = "".join(tokens.pieces), tuple(pairwise(accumulate(map(len, tokens.pieces), initial=0)))
    if pattern:
        places = _pattern_places(text, wanted)
    else:
        labelled = [label(wanted)] if tokens.text is None else []  # which write a space as "␣"
        either = "|".join(map(re.escape, dict.fromkeys([wanted, *labelled])))
        matches = re.finditer(f"(?=({either}))", text, re.IGNORECASE)  # look ahead: places may overlap
        places = [match.span(1) for match in matches]
    return tuple(dict.fromkeys(_token_ranges(spans, places)))


def _token_ranges(spans: Sequence[Characters], places: Iterable[Characters]) -> list[range]:
    """The tokens, whose characters are `spans`, that hold each place."""
    owners = [(position, span) for position, span in enumerate(spans) if span[0] < span[1]]
    starts, stops = [span[0] for _, span in owners], [span[1] for _, span in owners]
    return [
        range(owners[bisect_right(stops, start)][0], owners[bisect_left(starts, stop) - 1][0] + 1)
        for start, stop in places
    ]


def _pattern_places(text: str, pattern: str) -> list[tuple[int, int]]:
    if len(pattern) > MAX_PATTERN:
        raise PromptError(
            f"the pattern has {len(pattern):,} characters; at most {MAX_PATTERN:,} are searched"
        )
    try:
        matches = regex.finditer(pattern, text, timeout=SECONDS, concurrent=True)
        return [match.span() for match in matches if match.end() > match.start()]
    except regex.error as error:
        where = "" if error.pos is None else f" at character {error.pos}"
        raise PromptError(
            f"the pattern {pattern!r} is no regular expression: {error.msg}{where}. "
            "Correct it, or search plain text"
        ) from error
    except RecursionError as error:
        raise PromptError(
            "the pattern is nested too deeply. Make it simpler, or search plain text"
        ) from error
    except TimeoutError as error:
        raise PromptError(
            f"the pattern {pattern!r} was not done after {SECONDS:g} s; it repeats what already repeats, "
            "as (a+)+ does. Make it simpler"
        ) from error


def next_letter(spans: Sequence[Span]) -> str:
    """The first of A to Z no span has; "#" when all are taken."""
    taken = {span.letter for span in spans}
    return next((letter for letter in ascii_uppercase if letter not in taken), "#")


def task_of_prompt(tokens: Tokens) -> str:
    """The task a prompt is of, by its question, else its first fact: needle, pairs, or else blocks."""
    text = tokens.text or ""
    asked = _QUESTION.search(text) or _NEEDLE.search(text)
    return "blocks" if asked is None else "pairs" if asked["name"] else "needle"


def needle_spans(tokens: Tokens) -> tuple[Span, ...]:
    """The needles a prompt's text holds, and its question at the end.

    "The magic number of X is 12." or "The number that X has in Y is 12.", which is called "X in Y".

    The asked needle says so in its name. Empty for prompts without any, and for ids without text.
    """
    needles = list(_NEEDLE.finditer(tokens.text or ""))
    if not needles or tokens.text is None:
        return ()
    question = _QUESTION.search(tokens.text)
    spans: list[Span] = []
    places = _token_ranges(tokens.spans, (match.span() for match in needles))
    for needle, place in zip(needles, places, strict=True):
        asked = ASKED if question and _subject(question) == _subject(needle) else ""
        spans.append(Span(_subject(needle) + asked, next_letter(spans), place.start, place.stop))
    if question:
        (place,) = _token_ranges(tokens.spans, [question.span()])
        spans.append(Span("question", QUESTION, place.start, place.stop))
    return tuple(spans)


def asked_span(named: Sequence[Span]) -> Span | None:
    """The asked needle among a prompt's named spans."""
    return next((span for span in named if span.name.endswith(ASKED)), None)


def _subject(match: re.Match[str]) -> str:
    return match["city"] or f"{match['name']} in {match['place']}"


def check_span(span: Span, query: int) -> None:
    """Raises PromptError unless the query sees keys of the span and others too."""
    if span.start > query:
        raise PromptError(
            f"the span {span.name!r} begins at token {span.start}, after query {query}, which never sees it; "
            "choose a later query"
        )
    if span.start == 0 and span.stop > query:
        raise PromptError(
            f"the span {span.name!r} holds every key that query {query} sees: nothing is left to compare it "
            "with; choose a shorter span or a later query"
        )


def log_odds(scores: Float[Tensor, "head key"], span: Span) -> Float[Tensor, " head"]:
    """logsumexp over the span less logsumexp over the other keys of the row, in nats.

    The logit of the span's share if the softmax came right here.
    """
    inside = _inside(scores, span)
    return scores[:, inside].double().logsumexp(-1) - scores[:, ~inside].double().logsumexp(-1)


def share_and_mass(
    weights: Float[Tensor, "head key"], span: Span
) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """sum_span |P| / sum |P|, and the signed sum_span P. The share of a row of zeros is NaN."""
    on_span = weights[:, _inside(weights, span)].double()
    return on_span.abs().sum(-1) / weights.double().abs().sum(-1), on_span.sum(-1)


def selectivity(
    weights: Float[Tensor, "head key"], asked: Span, needles: Sequence[Span]
) -> Float[Tensor, " head"]:
    """Share of `asked` over the sum of the shares of all `needles`, it among them; NaN when all are 0.

    A head that lights every needle is no finder: its selectivity is 1 / their number.
    """
    shares = torch.stack([share_and_mass(weights, needle)[0] for needle in needles])
    return share_and_mass(weights, asked)[0] / shares.sum(0)


def span_results(
    rows: Mapping[Stage, Float[Tensor, "head key"]], span: Span, steps: Sequence[tuple[Stage, Stage]]
) -> dict[str, Float[Tensor, " head"]]:
    """By score key: `span.STAGE` at each stage, `mass.STAGE` of weights, `gain.STAGE` of each step.

    `rows`: one query's row over the keys it sees, at every stage of the layer; second halves have no scores.
    """
    results: dict[str, Tensor] = {}
    for stage, row in rows.items():
        if stage.is_second:
            continue
        if stage.value.unit == "score":
            results[f"span.{stage.value.key}"] = log_odds(row, span)
        else:
            results[f"span.{stage.value.key}"], results[f"mass.{stage.value.key}"] = share_and_mass(row, span)
    for before, after in steps:
        gain = results[f"span.{after.value.key}"] - results[f"span.{before.value.key}"]
        results[f"gain.{after.value.key}"] = gain
    return results


def _inside(row: Tensor, span: Span) -> Tensor:
    keys = torch.arange(row.shape[1], device=row.device)
    return (keys >= span.start) & (keys < span.stop)
