"""One block sequence: its parts, a model's answer letter by letter, what chance would give."""

import math
from dataclasses import dataclass

import torch

from mta_viz.analysis.from_layer import end_logits
from mta_viz.analysis.labs.answers import gold_log_probabilities
from mta_viz.analysis.labs.block_accuracy import check_characters
from mta_viz.analysis.labs.crops import Region, region
from mta_viz.analysis.labs.finder import Parts
from mta_viz.analysis.spans import QUESTION, Span
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.char import CharTokenizer


@dataclass(frozen=True)
class BlockSample:
    """A sequence in words. `tokens` is the prompt up to the last query letter; `answer` follows it."""

    task: BlockTask
    tokens: Tokens
    blocks: tuple[str, ...]
    target: int
    query: str
    answer: str


@dataclass(frozen=True)
class BlockAnswer:
    """Greedy letters, each after the gold ones before it, and whether each is the gold one.

    `probability`: of the whole gold answer.
    """

    letters: str
    right: tuple[bool, ...]
    probability: float

    @property
    def all_right(self) -> bool:
        """Whether greedy decoding gives the whole answer."""
        return all(self.right)


def block_sample(task: BlockTask, number: int, seed: int = 0) -> BlockSample:
    """Sample `number` of the evaluation stream `seed`: one of those the error is measured on."""
    return block_samples(task, range(number, number + 1), seed)[0]


def block_samples(task: BlockTask, numbers: range, seed: int = 0) -> tuple[BlockSample, ...]:
    """Several samples in a row."""
    batch = task.sample_range(numbers.start, numbers.stop, seed)
    return tuple(
        _in_words(task, *one) for one in zip(batch.tokens.tolist(), batch.target.tolist(), strict=True)
    )


def _in_words(task: BlockTask, ids: list[int], target: int) -> BlockSample:
    tokenizer = CharTokenizer()
    text = tokenizer.decode(tuple(ids))
    prompt, answer = text[: len(text) - task.n_answer], text[len(text) - task.n_answer :]
    blocks, query = prompt.split("#")
    return BlockSample(task, tokenizer.encode(prompt), tuple(blocks.split(".")), target, query, answer)


def block_parts(sample: BlockSample) -> Parts:
    """The target block against all others, seen from the last query letter, which predicts the answer."""
    target = sample.task.block_positions(sample.target)
    others = [sample.task.block_positions(index).start for index in range(len(sample.blocks))]
    asked = Span(f"{sample.blocks[sample.target]} (target)", "A", target.start, target.stop)
    return Parts(asked, (asked,), len(sample.tokens) - 1, tuple(others))


def block_region(sample: BlockSample) -> Region:
    """Query letters x target block, with the block's neighbours and the end of the last block."""
    (target,), n_tokens, n_query = block_parts(sample).all, len(sample.tokens), sample.task.n_query
    asking = Span("query letters", QUESTION, n_tokens - n_query, n_tokens)
    return region(asking, target, n_tokens, above=2, beside=sample.task.n_letters + 1)


def answer_block(model: HookedMTA, sample: BlockSample) -> BlockAnswer:
    """One pass over the sequence with its answer. Raises PromptError for another vocabulary."""
    check_characters(model)
    tokenizer = CharTokenizer()
    gold = tokenizer.encode(sample.answer).ids[1:]
    ids = torch.tensor([(*sample.tokens.ids, *gold)])
    logits = end_logits(model, ids, len(gold) + 1)
    greedy = logits[0, :-1].argmax(-1).tolist()
    letters = "".join(tokenizer.decode((one,)) or "?" for one in greedy)
    right = tuple(one == wanted for one, wanted in zip(greedy, gold, strict=True))
    return BlockAnswer(letters, right, math.exp(gold_log_probabilities(logits, [gold])[0]))


def chance_error(task: BlockTask) -> float:
    """Share of wrong answers of who names a block (of a letter: the letter of a block) at random."""
    return 1 - 1 / task.n_blocks
