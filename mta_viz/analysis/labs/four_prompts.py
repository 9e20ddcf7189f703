"""The four prompts of a conjunction test: both words asked for, the first alone, the second alone, neither.

Three designs: blocks of letters, the pairs task, and a text of the user's. In each the four prompts are of
one length and differ only in the tokens of the two words; the span whose attention is measured stands before
them, so it is the same in all four. Owns the prompts; running them is `conjunction`'s.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count, permutations
from string import ascii_lowercase

import torch

from mta_viz.analysis.attention.spans import Span, find
from mta_viz.analysis.labs.blocks import BlockSample, block_parts, block_samples
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import tokenize
from mta_viz.tasks.blocks import N_ALPHABET, VOCAB_SIZE, BlockTask, stream_generator
from mta_viz.tasks.needles import QUESTION, PairsTask
from mta_viz.tokenizers.base import Tokenizer, Tokens, tokens_of
from mta_viz.tokenizers.builtin import CharTokenizer

PROMPTS = ("both", "A only", "B only", "neither")
SLOTS = ("{A}", "{B}", "{A?}", "{B?}")
TEXT = (
    "A boy fed the {B} in the yard. {A} saw the {B} by the gate. Then {A} went home with a book. "
    "Where did {A?} see the {B?}?"
)
SPAN = "{A} saw the {B} by the gate"
LINES = (
    "Alice, rabbit, Peter, parrot",
    "Maria, weasel, James, monkey",
    "Helen, donkey, Susan, salmon",
    "Felix, sheep, Alice, mouse",
    "Jacob, goat, Laura, duck",
    "Mark, lamb, Kate, duck",
    "Diana, monkey, Julia, beaver",
    "Emily, goose, Sarah, mouse",
)
LETTERS = ("hjnvt.q{A}gz{B}.aoxsb#{A?}{B?}", "q{A}gz{B}", "d, f, m, p\ne, r, m, p\nu, w, k, y")

_LEAST_FREE = 0.2  # pairs of letters a sequence must have on average: about one in six then has one
_TRIED = 20  # samples of pairs looked at for each that is wanted
_CHUNK = 50  # sequences drawn at once, as the task draws them


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
        _check_lengths([len(prompt) for prompt in self.prompts], self.words)
        _check_factorial(self)

    @property
    def query(self) -> int:
        """The position whose row is measured."""
        return len(self.prompts[0]) - 1


def block_prompts(task: BlockTask, n: int, seed: int = 0) -> tuple[FourPrompts, ...]:
    """`n` sequences of the evaluation stream `seed`: the target block is the span, its two letters the words.

    A letter is replaced by one that the target block lacks, such that no block holds both letters of
    any of the other three prompts: only the two right letters name a block. Sequences without such
    letters are passed over. Raises ConfigError for a task with other than two query letters, for n
    below 1, and for so many or so long blocks that few sequences have such letters.
    """
    problems = [f"n_query is {task.n_query}; expected 2"] if task.n_query != 2 else []
    problems += [f"n is {n}; expected at least 1"] if n < 1 else []
    if _free_pairs(task, task.n_blocks) < _LEAST_FREE:
        most = next((m for m in range(task.n_blocks, 0, -1) if _free_pairs(task, m) >= _LEAST_FREE), 0)
        problems.append(
            f"{task.n_blocks} blocks of {task.n_letters} letters hold nearly every two letters together; "
            + (f"use at most {most} blocks" if most else "use shorter blocks")
        )
    if problems:
        raise ConfigError(problems, subject="The conjunction test")
    prompts: list[FourPrompts] = []
    for start in count(step=_CHUNK):
        samples = block_samples(task, range(start, start + _CHUNK), seed)
        tried = (_block_prompts(sample, number, seed) for number, sample in enumerate(samples, start))
        prompts += [sample for sample in tried if sample is not None]
        if len(prompts) >= n:
            break
    return tuple(prompts[:n])


def _free_pairs(task: BlockTask, n_blocks: int) -> float:
    """How many pairs of other letters a sequence has on average of which no block holds what it must not."""
    spare = N_ALPHABET - task.n_letters
    holds_pair = task.n_letters * (task.n_letters - 1) / (N_ALPHABET * (N_ALPHABET - 1))
    return spare * (spare - 1) * (1 - holds_pair) ** (3 * n_blocks)


def _block_prompts(sample: BlockSample, number: int, seed: int) -> FourPrompts | None:
    blocks = [set(block) for block in sample.blocks]
    a, b = sample.query[0], sample.query[1]
    others = [letter for letter in ascii_lowercase if letter not in blocks[sample.target]]
    pairs = [
        (x, y)
        for x, y in permutations(others, 2)
        if not any({a, y} <= block or {x, b} <= block or {x, y} <= block for block in blocks)
    ]
    if not pairs:
        return None
    generator = stream_generator("conjunction letters", seed, number)
    other_a, other_b = pairs[int(torch.randint(len(pairs), (1,), generator=generator))]
    text, words = (sample.tokens.text or "").removesuffix(sample.query) + "{A?}{B?}", (a, b, other_a, other_b)
    return FourPrompts(_encoded(CharTokenizer(), text, words), block_parts(sample).asked, words)


def pairs_prompts(tokenizer: Tokenizer, task: PairsTask, n: int, seed: int = 0) -> tuple[FourPrompts, ...]:
    """`n` samples of the pairs task from `seed` on: the asked sentence is the span, name and city the words.

    What stands for a word is nowhere in the prompt and has as many tokens; samples for which there is none
    are passed over. Raises ConfigError for n below 1, PromptError and TokenizerError as the task does, and
    PromptError where hardly any sample has such words.
    """
    if n < 1:
        raise ConfigError([f"n is {n}; expected at least 1"], subject="The conjunction test")
    prompts: list[FourPrompts] = []
    for number in range(seed, seed + _TRIED * n):
        sample = _pairs_prompts(tokenizer, task, number)
        prompts += [] if sample is None else [sample]
        if len(prompts) == n:
            return tuple(prompts)
    raise PromptError(
        f"{len(prompts)} of {_TRIED * n} samples have another name and another city of as many tokens; "
        f"{n} are wanted. Ask for fewer"
    )


def _pairs_prompts(tokenizer: Tokenizer, task: PairsTask, seed: int) -> FourPrompts | None:
    sample, rng = task.sample(tokenizer, seed), random.Random(f"pairs conjunction/{seed}")
    text, (name, city) = sample.tokens.text or "", sample.subject.split(" in ", 1)
    length = len(tokenizer.encode(sample.question.text))
    others = []
    for slot, words in (("name", task.names), ("city", task.cities)):
        absent = [word for word in words if word not in text]
        rng.shuffle(absent)
        asked_words = {"name": name, "city": city}
        questions = (QUESTION.format(**asked_words | {slot: word}) for word in absent)
        alike = (len(tokenizer.encode(question)) == length for question in questions)
        others.append(next(compress(absent, alike), None))
    other_name, other_city = others
    if other_name is None or other_city is None:
        return None
    begin = text.removesuffix(sample.question.text)
    words = (name, city, other_name, other_city)
    asked = next(needle for needle in sample.needles if needle.kind == "asked")
    span = Span(asked.text, "A", asked.start, asked.stop)
    try:
        prompts = _encoded(tokenizer, begin + QUESTION.format(name="{A?}", city="{B?}"), words)
        return FourPrompts(prompts, span, words)
    except PromptError:  # the tokenizer cuts the words together with what stands around
        return None


def _encoded(
    tokenizer: Tokenizer, text: str, words: tuple[str, str, str, str]
) -> tuple[Tokens, Tokens, Tokens, Tokens]:
    """The text in the order of `PROMPTS`."""
    a, b, x, y = words
    both, only_a, only_b, neither = (
        tokens_of(tokenizer, _filled(text, (a, b, *asked))) for asked in ((a, b), (a, y), (x, b), (x, y))
    )
    return both, only_a, only_b, neither


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
    if not span.strip():
        raise PromptError("the span is empty; copy the part of the text whose attention is measured")
    if not words:
        raise PromptError("there are no words; write a line such as: Alice, rabbit, Mary, turtle")
    return tuple(_written(tokenizer, text, span, line) for line in words)


def words_of(lines: str) -> tuple[tuple[str, ...], ...]:
    """`Alice, rabbit, Mary, turtle`, a sample a line; empty lines are left out."""
    return tuple(
        tuple(word.strip() for word in line.split(",")) for line in lines.splitlines() if line.strip()
    )


def example(model: HookedMTA) -> tuple[str, str, str]:
    """A text, its span and lines of words to begin with, the words cut into as many tokens by this model."""
    if model.config.vocab_size == VOCAB_SIZE:
        return LETTERS
    lines = []
    for line in LINES:
        lengths = [len(tokenize(model, f"the {word}")) for word in words_of(line)[0]]
        lines += [line] if lengths[:2] == lengths[2:] else []
    return TEXT, SPAN, "\n".join(lines or LINES[:1])


def _written(tokenizer: Tokenizer, text: str, span: str, words: Sequence[str]) -> FourPrompts:
    if len(words) != 4 or not all(words):
        raise PromptError(
            f"the line {', '.join(words)!r} has {len([word for word in words if word])} words; expected "
            "four: A, B, what stands for A, what stands for B"
        )
    a, b, other_a, other_b = words
    if a == other_a or b == other_b:
        raise PromptError(f"{(a if a == other_a else b)!r} stands for itself; give another word for it")
    prompts = _encoded(tokenizer, text, (a, b, other_a, other_b))
    wanted = _filled(span, (a, b, a, b))
    places = find(prompts[0], wanted)
    if not places:
        raise PromptError(f"the span {wanted!r} is not in the text with {a!r} and {b!r}; copy it from there")
    return FourPrompts(prompts, Span(wanted, "A", places[0].start, places[0].stop), (a, b, other_a, other_b))


def _filled(text: str, words: Sequence[str]) -> str:
    for slot, word in zip(SLOTS, words, strict=True):
        text = text.replace(slot, word)
    return text


def _check_lengths(n_tokens: Sequence[int], words: Sequence[str]) -> None:
    if len(set(n_tokens)) == 1:
        return
    differences = []
    for word, prompt in ((1, 1), (0, 2)):
        more = n_tokens[prompt] - n_tokens[0]
        count = f"{abs(more)} {'more' if more > 0 else 'fewer'} token{'s' if abs(more) > 1 else ''}"
        if more:
            differences.append(f"with {words[word + 2]!r} for {words[word]!r} the prompt has {count}")
    raise PromptError(
        f"the four prompts have {', '.join(map(str, n_tokens))} tokens ({', '.join(PROMPTS)}): "
        f"{'; '.join(differences) or 'the words are cut differently together'}. "
        "Choose words of as many tokens"
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
            f"token {first}, and what comes after a changed word changes too; put {{A?}} and {{B?}} after it"
        )
