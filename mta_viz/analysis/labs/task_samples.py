"""Samples of a named task with their gold answers, in batches: what effects of kernels are measured on.

Owns which task fits a model, and what a sample is in words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Int
from torch import Tensor

from mta_viz.analysis.labs.blocks import check_characters, trained_task
from mta_viz.analysis.labs.needle import check_vocabulary, judge, parts, with_answers
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import tokenize
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockTask
from mta_viz.tasks.needles import DEPTHS, NEEDLES, needle_samples
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tokenizers.char import CharTokenizer

Task = Literal["needle", "blocks"]


@dataclass(frozen=True)
class GoldBatch:
    """Samples with their gold answers in them, of one length.

    The logits of the last `n_last` positions predict the answer's tokens in order (and what comes
    after). `right` says of the likeliest tokens there which samples are answered right.
    """

    ids: Int[Tensor, "sample position"]
    n_last: int
    answers: tuple[tuple[int, ...], ...]
    right: Callable[[Int[Tensor, "sample position"]], list[bool]]


def needle_setting(length: int) -> str:
    """What one needle sample of `length` tokens is."""
    depths = ", ".join(map(str, DEPTHS))
    return f"{NEEDLES} needles in {length} tokens, the asked one at {depths} % in turn"


def needle_batches(
    model: HookedMTA, tokenizer: Tokenizer, samples: int, seed: int, length: int | None = None
) -> list[GoldBatch]:
    """Samples of `length` tokens (default: half the trained length) over the depths in turn.

    Raises PromptError as the task does.
    """
    check_vocabulary(model, tokenizer)
    length = length or model.config.n_ctx // 2
    drawn = needle_samples(tokenizer, samples, seed, length)
    batches = []
    for start, stop in parts(model, samples, length):
        part = drawn[start:stop]
        answers = tuple(sample.answer_ids for sample in part)

        def right(greedy: Tensor, part: list = part) -> list[bool]:
            return judge(greedy, tokenizer, part)

        batches.append(GoldBatch(with_answers(part), max(map(len, answers)) + 1, answers, right))
    return batches


def blocks_batches(model: HookedMTA, task: BlockTask, samples: int, seed: int) -> list[GoldBatch]:
    """Full-length sequences of the evaluation stream `seed`. Raises PromptError for another vocabulary."""
    check_characters(model)
    batches = []
    for start, stop in parts(model, samples, task.n_tokens):
        ids = task.sample_range(start, stop, seed).tokens
        gold = ids[:, -task.n_answer :]

        def right(greedy: Tensor, gold: Tensor = gold) -> list[bool]:
            return (greedy[:, : gold.shape[1]].cpu() == gold).all(1).tolist()

        batches.append(GoldBatch(ids, task.n_answer + 1, tuple(map(tuple, gold.tolist())), right))
    return batches


def task_batches(
    model: HookedMTA, task: Task, samples: int, seed: int, length: int | None = None
) -> tuple[str, list[GoldBatch]]:
    """What a sample of a task is, and all samples, in batches.

    `length`: tokens of a needle prompt, None for half the trained length. Block finding is of the sizes the
    model was trained on. Raises PromptError for a model of another task, TokenizerError for one without a
    tokenizer.
    """
    check_task(model, task)
    if task == "blocks":
        blocks = trained_task(model.folder)
        answer = "the whole block" if blocks.output == "all" else f"its {blocks.output} letter"
        setting = f"{blocks.n_blocks} blocks of {blocks.n_letters} letters, to be answered with {answer}"
        return setting, blocks_batches(model, blocks, samples, seed)
    if model.tokenizer is None:
        raise TokenizerError(
            "needle prompts need the checkpoint's tokenizer: give its file (--tokenizer FILE)"
        )
    setting = needle_setting(length or model.config.n_ctx // 2)
    return setting, needle_batches(model, model.tokenizer, samples, seed, length)


def check_task(model: HookedMTA, task: Task) -> None:
    """Raises PromptError, naming the task that fits, for a model that reads the words of another one."""
    characters = isinstance(model.tokenizer, CharTokenizer)
    if task == "needle" and characters:
        raise PromptError(
            f"this model reads the {model.config.vocab_size} characters of block finding, and needle prompts "
            "are text; the task that fits it is blocks"
        )
    if task == "blocks" and model.tokenizer is not None and not characters:
        raise PromptError(
            f"this model reads text, in {model.config.vocab_size:,} tokens, and block finding is written in "
            f"{VOCAB_SIZE} characters; the task that fits it is needle"
        )


def task_prompts(
    model: HookedMTA, task: Task, samples: int, seed: int = 0, length: int | None = None
) -> tuple[str, list[Tokens]]:
    """What a sample is, and the samples' prompts without their answers. Raises as `task_batches` does."""
    setting, batches = task_batches(model, task, samples, seed, length)
    prompts = [ids for batch in batches for ids in batch.ids[:, : 1 - batch.n_last].tolist()]
    return setting, [tokenize(model, ids) for ids in prompts]
