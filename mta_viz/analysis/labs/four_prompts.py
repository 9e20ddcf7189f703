"""The four prompts of a conjunction test: both words asked for, the first alone, the second alone, neither.

Two designs: blocks of letters, and a text of the user's. In both the four prompts are of one length
and differ only in the tokens of the two words; the span whose attention is measured stands before
them, so it is the same in all four. Owns the prompts; running them is `conjunction`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase

import torch

from mta_viz.analysis.labs.blocks import block_parts, block_sample
from mta_viz.analysis.spans import Span, find
from mta_viz.errors import ConfigError, PromptError
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.seeding import stream_generator
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tokenizers.char import CharTokenizer

PROMPTS = ("both", "A only", "B only", "neither")
SLOTS = ("{A}", "{B}", "{A?}", "{B?}")
_TRIED = 20  # sequences looked at for each one wanted


@dataclass(frozen=True)
class FourPrompts:
    """One sample. `prompts` in the order of `PROMPTS`, equally long; the last token is the query.

    `words` are A, B, what stands for A, what stands for B. Raises PromptError unless the four differ
    in the words alone and `span` comes before the first of them.
    """

    prompts: tuple[Tokens, Tokens, Tokens, Tokens]
    span: Span
    words: tuple[str, str, str, str]

    def __post_init__(self) -> None:
        _check_lengths(self)
        _check_factorial(self)

    @property
    def query(self) -> int:
        """The position whose row is measured."""
        return len(self.prompts[0]) - 1


def block_prompts(task: BlockTask, n: int, seed: int = 0) -> tuple[FourPrompts, ...]:
    """`n` sequences of the evaluation stream `seed`; the target block is the span, its two letters the words.

    A letter is replaced by one that the target block lacks, such that no block holds both letters of
    any of the other three prompts: only the two right letters name a block. Sequences without such
    letters are left out, so that sample i may be a later sequence of the stream. Raises ConfigError for a
    task with other than two query letters, for n below 1, and when most sequences have no such letters.
    """
    if task.n_query != 2 or n < 1:
        raise ConfigError(
            [f"n_query is {task.n_query} and n is {n}; expected 2 query letters and n of at least 1"],
            subject="The conjunction test",
        )
    found: list[FourPrompts] = []
    for number in range(_TRIED * n + 50):
        sample = _block_prompts(task, number, seed)
        found += [sample] if sample else []
        if len(found) == n:
            return tuple(found)
    raise ConfigError(
        [
            f"with {task.n_blocks} blocks of {task.n_letters} letters, {len(found)} of "
            f"{_TRIED * n + 50} sequences have two other letters that name no block; {n} are "
            "needed. Use fewer blocks, or shorter ones"
        ],
        subject="The conjunction test",
    )


def _block_prompts(task: BlockTask, number: int, seed: int) -> FourPrompts | None:
    sample = block_sample(task, number, seed)
    blocks = [set(block) for block in sample.blocks]
    a, b = sample.query
    others = [letter for letter in ascii_lowercase if letter not in blocks[sample.target]]
    pairs = [
        (other_a, other_b)
        for other_a, other_b in product(others, repeat=2)
        if other_a != other_b
        and not any({a, other_b} <= one or {other_a, b} <= one or {other_a, other_b} <= one for one in blocks)
    ]
    if not pairs:
        return None
    generator = stream_generator("conjunction letters", seed, number)
    other_a, other_b = pairs[int(torch.randint(len(pairs), (1,), generator=generator))]
    text = (sample.tokens.text or "")[:-2]
    tokenizer = CharTokenizer()
    both, only_a, only_b, neither = (
        tokenizer.encode(text + asked) for asked in (a + b, a + other_b, other_a + b, other_a + other_b)
    )
    return FourPrompts((both, only_a, only_b, neither), block_parts(sample).asked, (a, b, other_a, other_b))


def written_prompts(
    tokenizer: Tokenizer, text: str, span: str, words: Sequence[Sequence[str]]
) -> tuple[FourPrompts, ...]:
    """A sample for each entry of `words`: A, B, what stands for A, what stands for B.

    In `text`, `{A}` and `{B}` are the two words in all four prompts, `{A?}` and `{B?}` the places where
    they are asked for: there the prompts differ. `span` is the part of the text, `{A}` and `{B}`
    filled in, whose attention is measured. Raises PromptError saying what is missing or by how
    many tokens the prompts differ.
    """
    missing = [slot for slot in SLOTS[2:] if slot not in text]
    if missing:
        raise PromptError(f"the text lacks {' and '.join(missing)}, the place where the word is asked for")
    if not words:
        raise PromptError("there are no words; write a line such as: Alice, rabbit, Mary, turtle")
    return tuple(_written(tokenizer, text, span, one) for one in words)


def words_of(lines: str) -> tuple[tuple[str, ...], ...]:
    """`Alice, rabbit, Mary, turtle`, a sample a line; empty lines are left out."""
    return tuple(
        tuple(word.strip() for word in line.split(",")) for line in lines.splitlines() if line.strip()
    )


def _written(tokenizer: Tokenizer, text: str, span: str, words: Sequence[str]) -> FourPrompts:
    if len(words) != 4 or not all(words):
        raise PromptError(
            f"the line {', '.join(words)!r} has {len([one for one in words if one])} words; expected four: "
            "A, B, what stands for A, what stands for B"
        )
    a, b, other_a, other_b = words
    if a == other_a or b == other_b:
        raise PromptError(f"{a if a == other_a else b!r} stands for itself; give another word for it")
    both, only_a, only_b, neither = (
        tokenizer.encode(_filled(text, (a, b, *asked)))
        for asked in ((a, b), (a, other_b), (other_a, b), (other_a, other_b))
    )
    wanted = _filled(span, (a, b, a, b))
    places = find(both, wanted)
    if not places:
        raise PromptError(f"the span {wanted!r} is not in the text with {a!r} and {b!r}; copy it from there")
    place = places[0]
    return FourPrompts(
        (both, only_a, only_b, neither), Span(wanted, "A", place.start, place.stop), (a, b, other_a, other_b)
    )


def _filled(text: str, words: Sequence[str]) -> str:
    for slot, word in zip(SLOTS, words, strict=True):
        text = text.replace(slot, word)
    return text


def _check_lengths(sample: FourPrompts) -> None:
    n_tokens = [len(prompt) for prompt in sample.prompts]
    if len(set(n_tokens)) == 1:
        return
    a, b, other_a, other_b = sample.words
    told = [
        f"with {other!r} for {word!r} the prompt has {abs(difference)} "
        f"{'more' if difference > 0 else 'fewer'} token{'s' if abs(difference) > 1 else ''}"
        for word, other, difference in (
            (b, other_b, n_tokens[1] - n_tokens[0]),
            (a, other_a, n_tokens[2] - n_tokens[0]),
        )
        if difference
    ]
    raise PromptError(
        f"the four prompts have {', '.join(map(str, n_tokens))} tokens ({', '.join(PROMPTS)}): "
        f"{'; '.join(told) or 'the words are cut differently together'}. Choose words of as many tokens"
    )


def _check_factorial(sample: FourPrompts) -> None:
    """Each token is A's, B's or common to all: the fourth prompt is what the first three make it."""
    both, only_a, only_b, neither = (prompt.ids for prompt in sample.prompts)
    places = range(len(both))
    of_b = {at for at in places if only_a[at] != both[at]}
    of_a = {at for at in places if only_b[at] != both[at]}
    expected = tuple(only_b[at] if at in of_a else only_a[at] if at in of_b else both[at] for at in places)
    if not of_a or not of_b or of_a & of_b or neither != expected:
        raise PromptError(
            f"the tokens of {sample.words[0]!r} and {sample.words[1]!r} are not apart: the tokenizer cuts "
            "them together. Put other words between them"
        )
    first = min(of_a | of_b)
    if first < sample.span.stop:
        raise PromptError(
            f"the span {sample.span.name!r} ends at token {sample.span.stop - 1}, a word is asked for at "
            f"token {first}, and what comes after a changed word changes too; put {{A?}} and {{B?}} after the span"
        )
