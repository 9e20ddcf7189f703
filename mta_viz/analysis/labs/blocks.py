"""One block sequence: its parts, a model's answer letter by letter, what chance would give.

How well a model finds blocks: the product's own measurement, for training and the lab.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.analysis.labs.finder import Parts, Region, region
from mta_viz.analysis.labs.needle import gold_log_probabilities
from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import from_data
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.run.scoring import end_logits
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockTask
from mta_viz.tasks.intervals import accuracy_interval
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.builtin import CharTokenizer

CARD = "card.json"
_SEQUENCE = re.compile(r"(?P<blocks>[a-z]+(?:\.[a-z]+)+)#(?P<query>[a-z]+)")
LogitsOf = Callable[[Int[Tensor, "batch position"]], Float[Tensor, "batch position vocab"]]


@dataclass(frozen=True)
class BlocksEvaluation:
    """`error`: share of sequences with any wrong greedy answer letter, with its 95 % interval.

    `letter_accuracy[i]`: share of sequences whose i-th answer letter is predicted right after the
    right letters (not after the model's own, which may be wrong already).
    """

    n: int
    seed: int
    wrong: int
    error: float
    interval: tuple[float, float]
    letter_accuracy: tuple[float, ...]


def evaluate_blocks(
    model: HookedMTA | LogitsOf,
    task: BlockTask,
    *,
    n: int = 1000,
    seed: int = 0,
    batch: int = 20,
    keep: Callable[[BlocksEvaluation], None] = ignore,
    progress: Progress = ignore,
) -> BlocksEvaluation:
    """Measure `model` on `n` full-length sequences of the evaluation stream `seed`.

    One pass over each whole sequence gives the greedy answer's verdict: while all letters so far
    are right, the letters greedy decoding feeds back are those of the sequence, so the next
    prediction is the same; and at the first wrong letter both say "wrong". After each batch `keep`
    gets the result so far, then `progress` the share done. Raises `ConfigError` for n or batch
    below 1, `PromptError` for a model whose vocabulary cannot hold the task's characters.
    """
    if n < 1 or batch < 1:
        raise ConfigError([f"n is {n} and batch is {batch}; expected at least 1"], subject="The evaluation")
    logits_of: LogitsOf = model
    if isinstance(model, HookedMTA):
        check_characters(model)
        logits_of = partial(tracing.score, model)
    parts = []
    for start in range(0, n, batch):
        samples = task.sample_range(start, min(start + batch, n), seed)
        right = logits_of(samples.tokens)[:, :-1].argmax(-1).cpu() == samples.tokens[:, 1:]
        parts.append(right[samples.answer[:, 1:]].unflatten(0, (len(right), -1)))
        letters = torch.cat(parts)
        done, wrong = len(letters), int((~letters.all(1)).sum())
        interval, by_letter = accuracy_interval(wrong, done), (letters.sum(0) / done).tolist()
        summary = BlocksEvaluation(done, seed, wrong, wrong / done, interval, tuple(by_letter))
        keep(summary)
        progress(done / n)
    return summary


def trained_task(folder: Path | None) -> BlockTask:
    """The task a checkpoint's card says it was trained on; of the paper's sizes without a card.

    Raises MtaVizError for a card that is none, and for sizes out of range.
    """
    card = None if folder is None or not door.is_there(folder / CARD) else door.read_json(folder / CARD)
    config = card.get("config") if isinstance(card, dict) else None
    if not isinstance(config, dict):
        return BlockTask()
    sizes = {field.name: config[field.name] for field in fields(BlockTask) if field.name in config}
    return from_data(BlockTask, sizes, f"The model card of {folder}")


def check_characters(model: HookedMTA) -> None:
    """Raises PromptError for a model whose vocabulary cannot hold the task's characters."""
    tracing.check_runs(model)
    if model.config.vocab_size != VOCAB_SIZE:
        raise PromptError(
            f"The model has {model.config.vocab_size} tokens; block finding needs the character "
            f"vocabulary of {VOCAB_SIZE}. Choose a model trained on block finding."
        )


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
    tokenizer, samples = CharTokenizer(), []
    batch = task.sample_range(numbers.start, numbers.stop, seed)
    for ids, target in zip(batch.tokens.tolist(), batch.target.tolist(), strict=True):
        text = tokenizer.decode(tuple(ids))
        prompt, answer = text[: len(text) - task.n_answer], text[len(text) - task.n_answer :]
        blocks, query = prompt.split("#")
        tokens, words = tokenizer.encode(prompt), tuple(blocks.split("."))
        samples.append(BlockSample(task, tokens, words, target, query, answer))
    return tuple(samples)


def block_parts(sample: BlockSample) -> Parts:
    """The target block against all others, seen from the last query letter, which predicts the answer."""
    target = sample.task.block_positions(sample.target)
    others = [sample.task.block_positions(index).start for index in range(len(sample.blocks))]
    asked = Span(f"{sample.blocks[sample.target]} (target)", "A", target.start, target.stop)
    return Parts(asked, (asked,), len(sample.tokens) - 1, tuple(others))


def block_spans(tokens: Tokens) -> tuple[Span, ...]:
    """The block of a written sequence that holds all query letters, and the query letters.

    Empty for other texts, for ids without text, and where not one block alone holds them.
    """
    written = _SEQUENCE.fullmatch(tokens.text or "")
    if written is None:
        return ()
    query = set(written["query"])
    holding = [block for block in re.finditer("[a-z]+", written["blocks"]) if query <= set(block[0])]
    if len(holding) != 1:
        return ()
    (block,) = holding
    target, asking = (
        [at for at, span in enumerate(tokens.spans) if start <= span[0] < span[1] <= stop]
        for start, stop in (block.span(), written.span("query"))
    )
    if not target or not asking:  # tokens that hold more than a block
        return ()
    return (
        Span(f"{block[0]} (target)", "A", target[0], target[-1] + 1),
        Span("query letters", QUESTION, asking[0], asking[-1] + 1),
    )


def asked_block(trace: Trace) -> str | None:
    """What a written sequence asks for: its target's letters, those the model's card says are answered.

    None for other prompts.
    """
    spans = block_spans(trace.tokens)
    if not spans:
        return None
    letters, output = spans[0].name.partition(" ")[0], trained_task(trace.model.path).output
    return {"all": letters, "first": letters[:1], "last": letters[-1:]}[output]


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
    letters = "".join(tokenizer.decode((letter,)) or "?" for letter in greedy)
    right = tuple(letter == wanted for letter, wanted in zip(greedy, gold, strict=True))
    return BlockAnswer(letters, right, math.exp(gold_log_probabilities(logits, [gold])[0]))


def chance_error(task: BlockTask) -> float:
    """Share of wrong answers of who names a block (of a letter: the letter of a block) at random."""
    return 1 - 1 / task.n_blocks
