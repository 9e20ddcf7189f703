"""How well a model finds blocks: the product's own measurement, for training and the lab."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mta_viz import tracing
from mta_viz.errors import ConfigError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockBatch, BlockTask
from mta_viz.tasks.intervals import wilson_interval

LogitsOf = Callable[[Int[Tensor, "batch position"]], Float[Tensor, "batch position vocab"]]


@dataclass(frozen=True)
class BlocksEvaluation:
    """`error`: share of sequences with any wrong greedy answer letter, with its 95 % Wilson interval.

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
    keep: Callable[[BlocksEvaluation], None] | None = None,
    progress: Callable[[float], None] | None = None,
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
    logits_of = _scorer(model)
    parts = []
    for start in range(0, n, batch):
        samples = task.sample_range(start, min(start + batch, n), seed)
        parts.append(_right_letters(logits_of, samples))
        if keep is not None:
            keep(_summary(torch.cat(parts), seed))
        if progress is not None:
            progress(min(start + batch, n) / n)
    return _summary(torch.cat(parts), seed)


def check_characters(model: HookedMTA) -> None:
    """Raises PromptError for a model whose vocabulary cannot hold the task's characters."""
    if model.kernels_only:
        raise PromptError(tracing.KERNELS_ONLY)
    if model.config.vocab_size != VOCAB_SIZE:
        raise PromptError(
            f"The model has {model.config.vocab_size} tokens; block finding needs the character "
            f"vocabulary of {VOCAB_SIZE}. Choose a model trained on block finding."
        )


def _scorer(model: HookedMTA | LogitsOf) -> LogitsOf:
    if not isinstance(model, HookedMTA):
        return model
    check_characters(model)
    return partial(tracing.score, model)


def _right_letters(logits_of: LogitsOf, samples: BlockBatch) -> Bool[Tensor, "batch letter"]:
    tokens, answer = samples.tokens, samples.answer
    greedy = logits_of(tokens)[:, :-1].argmax(-1).cpu()
    right = greedy == tokens[:, 1:]
    return right[answer[:, 1:]].unflatten(0, (tokens.shape[0], -1))


def _summary(right: Bool[Tensor, "sample letter"], seed: int) -> BlocksEvaluation:
    n = right.shape[0]
    wrong = int((~right.all(1)).sum())
    letters = tuple(count / n for count in right.sum(0).tolist())
    return BlocksEvaluation(n, seed, wrong, wrong / n, wilson_interval(wrong, n), letters)
