"""Samples of a named task with their gold answers, in batches: what effects of kernels are measured on.

Owns which task fits a model, and what a sample is in words; and all kernels of a model in one call, with what
each does where the tokens of a prompt or of such samples match.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jaxtyping import Int
from torch import Tensor

from mta_viz.analysis.attention.matches import measure_matches, with_matches
from mta_viz.analysis.kernels.table import kernel_frame, kernel_table
from mta_viz.analysis.labs.blocks import block_sample, check_characters, trained_task
from mta_viz.analysis.labs.needle import batched, check_vocabulary, judge, parts, with_answers
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.named_tasks import Series, series_of
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import Prompt, capture, tokenize
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockTask
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tokenizers.builtin import CharTokenizer

if TYPE_CHECKING:
    import pandas

SAMPLES = 20  # of a task, for `kernels`
LENGTHS = {"needle": 160, "pairs": 256}  # tokens of a prompt that is looked at, or run very often
TURNS = 3  # of a task that goes through depths the third sample lies amid its haystack


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


def series_batches(
    model: HookedMTA, tokenizer: Tokenizer, series: Series, samples: int, seed: int
) -> list[GoldBatch]:
    """Samples of a task, those of one length together. Raises PromptError as the task does."""
    check_vocabulary(model, tokenizer)
    batches = []
    for part in batched(model, series.samples(tokenizer, samples, seed)):
        answers = tuple(sample.answer_ids for sample in part)
        right = partial(judge, tokenizer=tokenizer, samples=part)  # which a worker is sent
        batches.append(GoldBatch(with_answers(part), max(map(len, answers)) + 1, answers, right))
    return batches


def blocks_batches(model: HookedMTA, task: BlockTask, samples: int, seed: int) -> list[GoldBatch]:
    """Full-length sequences of the evaluation stream `seed`. Raises PromptError for another vocabulary."""
    check_characters(model)
    batches = []
    for start, stop in parts(model, samples, task.n_tokens):
        ids = task.sample_range(start, stop, seed).tokens
        gold = ids[:, -task.n_answer :]
        answers = tuple(map(tuple, gold.tolist()))
        batches.append(GoldBatch(ids, task.n_answer + 1, answers, partial(_equal, gold)))
    return batches


def _equal(gold: Int[Tensor, "sample token"], greedy: Int[Tensor, "sample position"]) -> list[bool]:
    return (greedy[:, : gold.shape[1]].cpu() == gold).all(1).tolist()


def task_batches(
    model: HookedMTA, task: str, samples: int | None, seed: int, *, usual: int, length: int | None = None
) -> tuple[str, list[GoldBatch]]:
    """What a sample of a task is, and all samples, in batches: `samples`, None for as many as are `usual`.

    `task`: needle, pairs, blocks or the file of one. `length`: tokens of a prompt with needles or pairs, None
    for half the trained length; block finding is of the sizes the model was trained on. Raises PromptError
    for a model of another task and for more samples than a file has, TokenizerError for a model without a
    tokenizer.
    """
    check_task(model, task)
    if task == "blocks":
        blocks = trained_task(model.path)
        answer = "the whole block" if blocks.output == "all" else f"its {blocks.output} letter"
        setting = f"{blocks.n_blocks} blocks of {blocks.n_letters} letters, to be answered with {answer}"
        return setting, blocks_batches(model, blocks, samples or usual, seed)
    if model.tokenizer is None:
        raise TokenizerError(
            "a task's prompts need the checkpoint's tokenizer: give its file (--tokenizer FILE)"
        )
    series = series_of(task, length or model.config.n_ctx // 2)
    n = series.count(samples, usual, seed)
    return series.setting, series_batches(model, model.tokenizer, series, n, seed)


def check_task(model: HookedMTA, task: str) -> None:
    """Raises PromptError, naming the task that fits, for a model that reads the words of another one."""
    characters = isinstance(model.tokenizer, CharTokenizer)
    if task in ("needle", "pairs") and characters:
        raise PromptError(
            f"this model reads the {model.config.vocab_size} characters of block finding, and {task} prompts "
            "are text; the task that fits it is blocks"
        )
    if task == "blocks" and model.tokenizer is not None and not characters:
        raise PromptError(
            f"this model reads text, in {model.config.vocab_size:,} tokens, and block finding is written in "
            f"{VOCAB_SIZE} characters; the tasks that fit it are needle and pairs"
        )


def task_prompts(
    model: HookedMTA, task: str, samples: int | None, seed: int = 0, *, usual: int, length: int | None = None
) -> tuple[str, list[Tokens]]:
    """What a sample is, and the samples' prompts without their answers. Raises as `task_batches` does."""
    setting, batches = task_batches(model, task, samples, seed, usual=usual, length=length)
    prompts = [ids for batch in batches for ids in batch.ids[:, : 1 - batch.n_last].tolist()]
    return setting, [tokenize(model, ids) for ids in prompts]


@dataclass(frozen=True)
class OnePrompt:
    """A sample without its answer; `answer` where the text of the prompt does not tell it.

    `setting`: what a sample is, empty for block finding. `number`: which one it is from the seed on.
    """

    tokens: Tokens
    answer: str | None = None
    setting: str = ""
    number: int = 1


def one_prompt(model: HookedMTA, task: str, seed: int = 0) -> OnePrompt:
    """A sample of a task to look at, from number `seed` on. Raises as `task_batches` does."""
    check_task(model, task)
    tokenizer = check_vocabulary(model, model.tokenizer)
    if task == "blocks":
        return OnePrompt(block_sample(trained_task(model.path), 0, seed).tokens)
    series = series_of(task, min(LENGTHS.get(task, 0), model.config.n_ctx))
    number = TURNS if task in LENGTHS else 1
    drawn = series.samples(tokenizer, number, seed)[-1]
    answer = None if task in LENGTHS else drawn.spans[-1].text
    return OnePrompt(drawn.tokens, answer, series.setting, number)


def kernels(
    model: HookedMTA,
    prompt: Prompt | Trace | None = None,
    *,
    task: str | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> "pandas.DataFrame":
    """One row per kernel with its shape, scores and p: see `kernel_table` for the columns.

    Scores are shares from -1 to 1, p-values from 0 to 1. A model without kernels gives no rows. With a
    prompt (or its trace), or `samples` prompts (20) of a task the model can read (`needle`, `pairs`, `blocks`
    or a file of prompts, *.jsonl), also what each kernel does where tokens match: `match_gap`,
    `effect_at_match` and the rest of `AtMatches`. Raises PromptError for both at once, and as `task_prompts`
    does.

    >>> len(mta_viz.kernels(model))
    8
    """
    rows = kernel_table(model.state_dict(), model.config)
    if task is not None and prompt is not None:
        raise PromptError("give a prompt or a task, not both")
    traces: Iterable[Trace]
    if task is not None:
        _, prompts = task_prompts(model, task, samples, seed, usual=SAMPLES)
        traces = (capture(model, tokens) for tokens in prompts)
    elif prompt is not None:
        traces = [prompt if isinstance(prompt, Trace) else capture(model, prompt)]
    else:
        return kernel_frame(rows)
    return kernel_frame(with_matches(rows, measure_matches(rows, traces)))
