"""Prompts somebody wrote: with answers, as samples like those of needles, and passages to be completed.

Owns what a written sample may hold and how it becomes tokens; the file they stand in is
`run.named_tasks`'s. Of passages, as LAMBADA asks them, it owns the format of their files and where the
last word is: the last run of letters, digits and underscores, with apostrophes, hyphens and decimal
points inside it; what follows it (punctuation, quotes, symbols) is neither read nor asked for.
"""

import itertools
import json
import math
from dataclasses import dataclass
from typing import Annotated, Literal

import regex
from pydantic import Field

from mta_viz.errors import ConfigError, PromptError
from mta_viz.tasks.facts import GoldSpan, NeedleSample, ids_after, sentence_starts, tokens_between
from mta_viz.tokenizers.base import Tokenizer

# of a prompt; spans as there are letters; of a span's name
MOST_LETTERS, MOST_SPANS, NAME = 2_000_000, 26, 40
ENCODED, LETTERS = 16, 2000  # prompts of a file that say how many tokens its letters are, and letters of each
Place = Annotated[int, Field(ge=0, le=MOST_LETTERS)]


@dataclass(frozen=True)
class WrittenSpan:
    """Characters `start`..`stop`-1 of the prompt: the fact asked for, another one, the question."""

    kind: Literal["asked", "needle", "question"]
    start: Place
    stop: Place


@dataclass(frozen=True)
class WrittenSample:
    """One line. The answer follows the prompt, after a space unless white space stands on either side.

    Raises ConfigError listing spans that are not in the prompt, or of one kind too many.
    """

    prompt: Annotated[str, Field(min_length=1, max_length=MOST_LETTERS)]
    answer: Annotated[str, Field(min_length=1, max_length=1000)]
    spans: Annotated[tuple[WrittenSpan, ...], Field(max_length=MOST_SPANS)] = ()

    def __post_init__(self) -> None:
        problems = [
            f"the span {span.kind!r} of characters {span.start} to {span.stop} is not inside the prompt of "
            f"{len(self.prompt):,}"
            for span in self.spans
            if not span.start < span.stop <= len(self.prompt)
        ]
        for kind in ("asked", "question"):
            if (n := sum(span.kind == kind for span in self.spans)) > 1:
                problems.append(f"{n} spans are {kind!r}; at most 1 is")
        if not self.answer.strip():
            problems.append("the answer is white space")
        if problems:
            raise ConfigError(problems, subject="The sample")

    @property
    def continuation(self) -> str:
        """What comes after the prompt, the space before the answer included."""
        joined = self.prompt[-1].isspace() or self.answer[0].isspace()
        return self.answer if joined else f" {self.answer}"

    @property
    def marked(self) -> list[WrittenSpan]:
        """Its spans in order of position, the prompt's last sentence as the question where none is marked."""
        spans = list(self.spans)
        if not any(span.kind == "question" for span in spans):
            start = sentence_starts(self.prompt)[-1]
            spans.append(WrittenSpan("question", start, len(self.prompt)))
        return sorted(spans, key=lambda span: (span.start, span.stop))


@dataclass(frozen=True)
class WrittenTask:
    """The samples of a file called `name`; `digest` is a short one of its content."""

    name: str
    digest: str
    samples: tuple[WrittenSample, ...]

    @property
    def n_trained(self) -> int:
        """How many samples a training may read, the first ones: the last tenth, at least one, is held out."""
        return len(self.samples) - max(len(self.samples) // 10, 1)

    def lengths(self, tokenizer: Tokenizer) -> list[int]:
        """About how many tokens each prompt has with its answer: by its letters, as some are encoded."""
        texts = [sample.prompt + sample.continuation for sample in self.samples]
        some = [text[:LETTERS] for text in texts[:: 1 + len(texts) // ENCODED]]
        share = sum(len(tokenizer.encode(text)) for text in some) / sum(map(len, some))
        return [max(round(share * len(text)), 1) for text in texts]

    def sample(self, tokenizer: Tokenizer, seed: int) -> NeedleSample:
        """The sample number `seed`, from 0. Raises PromptError where the file has none of this number."""
        if not 0 <= seed < len(self.samples):
            raise PromptError(
                f"{self.name} has {len(self.samples)} samples, counted from 0; there is no {seed}"
            )
        return make_written_sample(tokenizer, self.samples[seed])


def make_written_sample(tokenizer: Tokenizer, written: WrittenSample) -> NeedleSample:
    """Its tokens and spans. Raises TokenizerError for a prompt that cannot be encoded."""
    tokens, gold = tokenizer.encode(written.prompt), written.answer.strip()
    spans = []
    for span in written.marked:
        text = written.prompt[span.start : span.stop]
        inside = tokens_between(tokenizer, tokens, span.start, span.stop)
        value = "" if span.kind == "needle" else gold  # of other facts only their place is known
        spans.append(GoldSpan(span.kind, inside.start, inside.stop, text, name_of(text), value))
    subject = next(span.subject for span in spans if span.kind == "question")
    answer = ids_after(tokenizer, written.prompt, written.continuation)
    end = len(tokens) + len(answer)
    spans.append(GoldSpan("answer", len(tokens), end, tokenizer.decode(answer), subject, gold))
    starts = (tokens_between(tokenizer, tokens, at, at + 1).start for at in sentence_starts(written.prompt))
    plain = tuple(at for at in starts if not any(span.start <= at < span.stop for span in spans))
    return NeedleSample(tokens, gold, answer, subject, math.nan, tuple(spans), plain)


def name_of(text: str) -> str:
    """A text's first characters, to call it by."""
    text = " ".join(text.split())
    return text if len(text) <= NAME else text[: NAME - 1] + "…"


MOST_PASSAGES, LONGEST = 100_000, 100_000  # of a file; characters of one passage
MOST_LINES = 2_000_000  # of a file: of each some 60 bytes are taken, several times
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
    if (count := text.count("\n")) > MOST_LINES:
        raise PromptError(f"{name} has {count:,} lines; at most {MOST_LINES:,} are read. Cut it")
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
    if len(line) > 20 * LONGEST:
        raise PromptError(f"{name}, line {place}: {len(line):,} characters are more than any passage has")
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(
            f"{name}, line {place}: no JSON ({error}). The file begins with {{, so must every line"
        ) from error
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise PromptError(f'{name}, line {place}: expected an object with a "text" that is a string')
    return entry["text"].strip()
