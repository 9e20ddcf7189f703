"""How well a model predicts a text, token by token: losses, ranks, perplexity; long texts in windows."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.analysis.labs.passages import NOT_FINITE
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.pasted import tokens_from_ids
from mta_viz.tracing import Progress, Prompt, Trace, capture, tokenize

LOGITS_AT_ONCE = 2**23  # numbers in double precision: 64 MB


@dataclass(frozen=True)
class TextLosses:
    """`losses`: -log p of each token after those before it, in nats; NaN where nothing predicts it (the first
    token), or not yet. `ranks`: 1 is the likeliest, 0 where there is none; `expected`: the label of the
    likeliest token there, "" where there is none. `window`: the most tokens read at once.
    """

    tokens: Tokens
    losses: Float[Tensor, " token"]
    ranks: Int[Tensor, " token"]
    expected: tuple[str, ...]
    window: int

    @property
    def n(self) -> int:
        """How many tokens are predicted."""
        return int((self.ranks > 0).sum())

    @property
    def loss(self) -> float:
        """The mean over the predicted tokens, in nats; NaN without any."""
        return float(self.losses[self.ranks > 0].mean())

    @property
    def perplexity(self) -> float:
        """exp of the mean loss; inf where that is beyond a float."""
        return math.exp(self.loss) if not self.loss > 700 else math.inf

    @property
    def windows(self) -> int:
        """How many windows the text is read in."""
        return sum(1 for _ in _windows(len(self.tokens), self.window, 0))


@dataclass(frozen=True)
class _Window:
    """Tokens `start`..`stop`-1 are read (after BOS where `start` is not 0); from `scored` on they count."""

    start: int
    scored: int
    stop: int


def text_losses(
    model: HookedMTA,
    prompt: Prompt,
    *,
    window: int | None = None,
    keep: Callable[[TextLosses], None] | None = None,
    progress: Progress | None = None,
) -> TextLosses:
    """Every token of a text after the first, each after what comes before it.

    At most `window` tokens are read at once (None: the length the model was trained on). A longer text is
    read in windows of that length, each half a window after the one before and begun with BOS where the
    text is; a token counts in the first window that has it, so that after the first window each is
    predicted from at least half a window. `keep(losses so far)` is called after each window. Raises
    PromptError for fewer than two tokens, MtaVizError for logits that are not finite.
    """
    tokens, size = tokenize(model, prompt), window or model.config.n_ctx
    if len(tokens) < 2:
        raise PromptError("the text is one token, which nothing predicts; give a longer text")
    if size < 4:
        raise PromptError(f"a window of {size} tokens is too short; expected at least 4")
    bos = int(model.tokenizer is not None and tokens.ids[0] == model.tokenizer.bos_id)
    found = _nothing(tokens, size)
    parts = list(_windows(len(tokens), size, bos))
    for place, part in enumerate(parts):
        before = tokens.ids[: bos if part.start else 0]
        report = _share(progress, place, len(parts))
        trace = capture(model, (*before, *tokens.ids[part.start : part.stop]), progress=report)
        found = _with(found, trace, part, part.start - len(before))
        if keep is not None:
            keep(found)
    return found


def _windows(n_tokens: int, size: int, bos: int) -> Iterator[_Window]:
    scored, stop = 1, min(size, n_tokens)
    yield _Window(0, scored, stop)
    while stop < n_tokens:
        scored, stop = stop, min(stop + size // 2, n_tokens)
        yield _Window(stop - (size - bos), scored, stop)


def _nothing(tokens: Tokens, size: int) -> TextLosses:
    n = len(tokens)
    losses = torch.full((n,), torch.nan, dtype=torch.float64)
    return TextLosses(tokens, losses, torch.zeros(n).long(), ("",) * n, size)


def _with(found: TextLosses, trace: Trace, part: _Window, offset: int) -> TextLosses:
    """These with a window's tokens; position p of the trace is token p + `offset` of the text."""
    losses, ranks, expected = found.losses.clone(), found.ranks.clone(), list(found.expected)
    step = max(1, LOGITS_AT_ONCE // trace.model.config.vocab_size)
    for start in range(part.scored, part.stop, step):
        stop = min(start + step, part.stop)
        logits = trace.logits(slice(start - 1 - offset, stop - 1 - offset)).double().cpu()
        if not logits.isfinite().all():
            raise MtaVizError(NOT_FINITE)
        wanted = torch.tensor(found.tokens.ids[start:stop])[:, None]
        losses[start:stop] = -logits.log_softmax(-1).gather(-1, wanted)[:, 0]
        ranks[start:stop] = 1 + (logits > logits.gather(-1, wanted)).sum(-1)
        expected[start:stop] = _labels(trace.model, logits.argmax(-1).tolist())
    return TextLosses(found.tokens, losses, ranks, tuple(expected), found.window)


def _labels(model: HookedMTA, ids: Sequence[int]) -> tuple[str, ...]:
    """What ids are called, also where there is no tokenizer."""
    return tokens_from_ids(ids, vocab_size=model.config.vocab_size, tokenizer=model.tokenizer).pieces


def _share(progress: Progress | None, place: int, count: int) -> Progress | None:
    if progress is None:
        return None
    return lambda share: progress((place + share) / count)
