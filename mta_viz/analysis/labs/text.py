"""How well a model predicts a text: the last word of passages, as LAMBADA asks, or every token in windows.

Which word is the last, and files of passages, are `tasks.written`'s.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mta_viz.analysis.labs.needle import NeedleScore, at_once, check_vocabulary, needle_score
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.jobs import OfModel, gathered
from mta_viz.run.scoring import end_logits
from mta_viz.run.tracing import Progress, Prompt, Trace, capture, ignore, progress_within, tokenize
from mta_viz.tables import Row, Table
from mta_viz.tasks.written import last_word
from mta_viz.tokenizers.base import Tokenizer, Tokens

_WORD_COLUMNS = (
    *("passage", "last_word", "tokens", "rank", "greedy", "log_probability", "probability", "perplexity"),
    *("likeliest_first", "tokens_before", "tokens_read", "left_out"),
)
CHUNK = 64  # passages between two partial results; they are sorted by length within it
NOT_FINITE = (
    "the logits hold NaN or inf, so no probability can be told; look at the health card for the weights that "
    "are NaN or infinite, or compute in float32"
)


@dataclass(frozen=True)
class WordScore:
    """What a model makes of the last word of passage `number` (from 1); probabilities in nats.

    `pieces`: the word's tokens. `rank`: of the first of them after the passage (1: the likeliest).
    `greedy`: whether each is the likeliest, after the right ones before it; `instead` is the label of the
    likeliest first token. `log_probability`: of the whole word, the sum over its tokens. `n_read`: tokens
    read before the word, of `n_before` in the passage.
    """

    number: int
    word: str
    pieces: tuple[str, ...]
    rank: int
    greedy: bool
    log_probability: float
    instead: str
    n_read: int
    n_before: int

    @property
    def probability(self) -> float:
        """Of the whole word."""
        return math.exp(self.log_probability)

    @property
    def perplexity(self) -> float:
        """1 / probability of the word; inf where that is beyond a float."""
        return _exp(-self.log_probability)


@dataclass(frozen=True)
class LeftOut:
    """A passage that could not be asked, and why."""

    number: int
    reason: str


@dataclass(frozen=True)
class PassageScores:
    """The results so far of `n` passages, in their order."""

    n: int
    words: tuple[WordScore, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def accuracy(self) -> NeedleScore:
        """Share of words all of whose tokens are greedy, with its 95 % interval."""
        return needle_score(word.greedy for word in self.words)

    @property
    def perplexity(self) -> float:
        """exp of the mean of -log p(word), a word of several tokens counted once; NaN without any."""
        total = math.fsum(word.log_probability for word in self.words)
        return _exp(-total / len(self.words)) if self.words else math.nan

    def table(self) -> Table:
        """One row a passage, those left out with the reason alone; log-probabilities in nats."""
        rows: dict[int, Row] = {
            word.number: (
                *(word.number, word.word, len(word.pieces), word.rank, word.greedy, word.log_probability),
                *(word.probability, word.perplexity, word.instead, word.n_before, word.n_read, None),
            )
            for word in self.words
        }
        nothing = (None,) * (len(_WORD_COLUMNS) - 2)
        rows |= {passage.number: (passage.number, *nothing, passage.reason) for passage in self.left_out}
        return Table.of(_WORD_COLUMNS, (rows[number] for number in sorted(rows)))


@dataclass(frozen=True)
class _LastWord:
    number: int
    word: str
    ids: tuple[int, ...]
    start: int  # of the word's first token
    cut: int  # tokens left out before it


def score_passages(
    model: HookedMTA,
    passages: Sequence[str],
    *,
    window: int | None = None,
    keep: Callable[[PassageScores], None] = lambda result: None,
    progress: Progress = ignore,
    on: str | None = None,
    kept: MutableMapping[int, PassageScores] | None = None,
) -> PassageScores:
    """Every passage once, with the word's tokens read back as they are.

    A passage longer than `window` tokens (None: the length the model was trained on) is read from its end,
    after BOS where the tokenizer has one. After every 64 passages `keep(scores so far)` is called, then
    `progress(share done)`; raise in either to stop. A passage that cannot be asked is left out and says
    why. `on`, `kept`: as of `gathered`, scores of 64 passages each. Raises PromptError without a tokenizer
    or passages, MtaVizError for logits that are not finite.
    """
    tokenizer = check_vocabulary(model, model.tokenizer)
    if not passages:
        raise PromptError("there are no passages; give at least one")
    scoring = _Scoring(model, tokenizer, window or model.config.n_ctx)
    chunks = [(first, passages[first : first + CHUNK]) for first in range(0, len(passages), CHUNK)]
    for parts in gathered(scoring, chunks, on, kept=kept, progress=progress):
        words, left_out = (tuple(each for part in parts for each in vars(part)[name]) for name in _PARTS)
        scores = PassageScores(len(passages), words, left_out)
        keep(scores)
    return scores


_PARTS = ("words", "left_out")


@dataclass(frozen=True)
class _Scoring(OfModel):
    """What is done with a chunk: how many passages come before it, and its own."""

    model: HookedMTA
    tokenizer: Tokenizer
    window: int

    def __call__(self, chunk: tuple[int, Sequence[str]], progress: Progress = ignore, /) -> PassageScores:
        first, passages = chunk
        asked, left_out = list[_LastWord](), list[LeftOut]()
        for number, passage in enumerate(passages, first + 1):
            try:
                asked.append(_asked(self.model, number, passage.strip(), self.window))
            except MtaVizError as error:
                left_out.append(LeftOut(number, str(error)))
        scored = [
            w for batch in _batches(self.model, asked) for w in _score(self.model, self.tokenizer, batch)
        ]
        words = sorted(scored, key=lambda word: word.number)
        return PassageScores(len(passages), tuple(words), tuple(left_out))


def _asked(model: HookedMTA, number: int, passage: str, window: int) -> _LastWord:
    """The passage up to the end of its last word, in ids."""
    start, stop = last_word(passage)
    tokens = tokenize(model, passage[:stop])
    first = next(at for at, span in enumerate(tokens.spans) if span[1] > start)
    while first and tokens.spans[first - 1] == (start, start):
        first -= 1  # a split character's first bytes have no letters of their own: they belong to the word
    bos = _begins_with_bos(model, tokens)
    if first <= bos:
        raise PromptError("its last word shares its first token with all before it. Give a longer passage")
    cut = max(len(tokens) - 1 - window, 0)  # the last token is only predicted
    if cut and bos + cut >= first:
        raise PromptError(f"its last word alone has more tokens than the window of {window}")
    ids = (*tokens.ids[:bos], *tokens.ids[bos + cut :])
    return _LastWord(number, passage[start:stop], ids, first - cut, cut)


def _begins_with_bos(model: HookedMTA, tokens: Tokens) -> int:
    return int(model.tokenizer is not None and tokens.ids[0] == model.tokenizer.bos_id)


def _batches(model: HookedMTA, asked: Sequence[_LastWord]) -> Iterator[list[_LastWord]]:
    """Passages of about equal length together, so that little is filled up."""
    batch: list[_LastWord] = []
    for passage in sorted(asked, key=lambda passage: len(passage.ids)):
        full = len(batch) >= at_once(model, len(passage.ids))
        if batch and (full or len(passage.ids) > 1.25 * len(batch[0].ids) + 4):
            yield batch
            batch = []
        batch.append(passage)
    if batch:
        yield batch


def _score(model: HookedMTA, tokenizer: Tokenizer, batch: Sequence[_LastWord]) -> list[WordScore]:
    """The shorter ones are filled up at the end, which no token before it can see."""
    ids = pad_sequence([torch.tensor(passage.ids[:-1]) for passage in batch], batch_first=True)
    first = min(passage.start for passage in batch) - 1
    logits = end_logits(model, ids, ids.shape[1] - first)
    return [
        _word_score(tokenizer, passage, logits[row, passage.start - 1 - first : len(passage.ids) - 1 - first])
        for row, passage in enumerate(batch)
    ]


def _word_score(tokenizer: Tokenizer, passage: _LastWord, logits: Tensor) -> WordScore:
    """`logits` [token of the word, vocab]: those which predict it."""
    logits = logits.double().cpu()
    if not logits.isfinite().all():
        raise MtaVizError(NOT_FINITE)
    wanted = torch.tensor(passage.ids[passage.start :])
    own = logits.gather(-1, wanted[:, None])
    likeliest = logits.argmax(-1)
    return WordScore(
        passage.number,
        passage.word,
        tokenizer.pieces(tuple(wanted.tolist())),
        1 + int((logits[0] > own[0]).sum()),
        bool((likeliest == wanted).all()),
        float(logits.log_softmax(-1).gather(-1, wanted[:, None]).sum()),
        tokenizer.pieces((int(likeliest[0]),))[0],
        passage.start,
        passage.start + passage.cut,
    )


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)


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
        """exp of the mean loss, which depends on the window; inf where that is beyond a float."""
        return _exp(self.loss)

    @property
    def windows(self) -> int:
        """How many windows the text is read in."""
        return sum(1 for _ in _windows(len(self.tokens), self.window, 0))

    def table(self) -> Table:
        """One row a token; the first, which nothing predicts, has no loss."""
        columns = (self.tokens.ids, self.tokens.pieces, self.losses.tolist(), self.ranks.tolist())
        rows = (
            (place, token, piece, *((loss, math.exp(-loss), rank, expected) if rank else (None,) * 4))
            for place, (token, piece, loss, rank, expected) in enumerate(
                zip(*columns, self.expected, strict=True)
            )
        )
        return Table.of(("position", "id", "token", "loss_nats", "probability", "rank", "likeliest"), rows)


def text_losses(
    model: HookedMTA,
    prompt: Prompt,
    *,
    window: int | None = None,
    keep: Callable[[TextLosses], None] = lambda result: None,
    progress: Progress = ignore,
) -> TextLosses:
    """Every token of a text after the first, each after what comes before it.

    At most `window` tokens are read at once (None: the length the model was trained on). A longer text is
    read in windows of that length, each half a window after the one before and begun with BOS where the
    text is; a token counts in the first window that has it, so that after the first window each is
    predicted from at least half a window. `keep(losses so far)` is called after each window. Raises
    PromptError for fewer than two tokens, MtaVizError for logits that are not finite.
    """
    tokens, size = tokenize(model, prompt, in_windows=True), window or model.config.n_ctx
    if len(tokens) < 2:
        raise PromptError("the text is one token, which nothing predicts; give a longer text")
    if size < 4:
        raise PromptError(f"a window of {size} tokens is too short; expected at least 4")
    n, bos = len(tokens), _begins_with_bos(model, tokens)
    nothing, ranks = torch.full((n,), torch.nan, dtype=torch.float64), torch.zeros(n).long()
    losses = TextLosses(tokens, nothing, ranks, ("",) * n, size)
    parts = list(_windows(n, size, bos))
    for place, (start, scored, stop) in enumerate(parts):
        before = tokens.ids[: bos if start else 0]
        report = progress_within(progress, place / len(parts), 1 / len(parts))
        trace = capture(model, (*before, *tokens.ids[start:stop]), progress=report)
        losses = _with(losses, trace, range(scored, stop), start - len(before))
        keep(losses)
    return losses


def _windows(n_tokens: int, size: int, bos: int) -> Iterator[tuple[int, int, int]]:
    """Start, scored, stop: tokens from start on are read (after BOS if it is not 0), from scored on count."""
    scored, stop = 1, min(size, n_tokens)
    yield 0, scored, stop
    while stop < n_tokens:
        scored, stop = stop, min(stop + size // 2, n_tokens)
        yield stop - (size - bos), scored, stop


def _with(before: TextLosses, trace: Trace, scored: range, offset: int) -> TextLosses:
    """With the tokens `scored` in a window; position p of the trace is token p + `offset` of the text."""
    losses, ranks, expected = before.losses.clone(), before.ranks.clone(), list(before.expected)
    step = max(1, LOGITS_AT_ONCE // trace.model.config.vocab_size)
    for start in scored[::step]:
        stop = min(start + step, scored.stop)
        logits = trace.logits(slice(start - 1 - offset, stop - 1 - offset)).double().cpu()
        if not logits.isfinite().all():
            raise MtaVizError(NOT_FINITE)
        wanted = torch.tensor(before.tokens.ids[start:stop])[:, None]
        losses[start:stop] = -logits.log_softmax(-1).gather(-1, wanted)[:, 0]
        ranks[start:stop] = 1 + (logits > logits.gather(-1, wanted)).sum(-1)
        expected[start:stop] = tokenize(trace.model, logits.argmax(-1).tolist()).pieces
    return replace(before, losses=losses, ranks=ranks, expected=tuple(expected))
