"""The answer after a prompt's last token, by which interventions are judged, how probable a plan makes it.

Also what a plan does to a run: the edited run beside the original one, and the answer under both; and what
the model's plain twin makes of the same prompt.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.cells import top_tokens
from mta_viz.analysis.attention.spans import asked_span, needle_spans
from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.labs.blocks import asked_block
from mta_viz.checkpoint.relatives import plain_twin
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.editing import Sources, edited
from mta_viz.model.interventions import Intervention
from mta_viz.model.plans import Plan
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import probability_text
from mta_viz.run.scoring import after_layer, last_logits
from mta_viz.run.tracing import Progress, Trace, capture, generate, ignore, load, operated
from mta_viz.tasks.facts import plain_ids
from mta_viz.tokenizers.base import Tokenizer, Tokens, quoted

MAX_TOKENS = 32
MOST_WHITE_SPACE = 3  # tokens of it that are read on from before an answer
AnswerSource = Literal["given", "needle", "block", "likeliest"]
_VALUE = re.compile(r" is (\d{1,6})\.$")


@dataclass(frozen=True)
class Answer:
    """The tokens that follow the prompt, and where they come from.

    `source`: given by the user, the number of the needle or the letters of the block that the prompt asks
    for, or the original model's most probable next token, after the white space it writes first. `text`: as
    it is shown. `place`: of the token that carries it, the first that is not only white space; `piece`: that
    token.
    """

    ids: tuple[int, ...]
    text: str
    source: AnswerSource
    place: int = 0
    piece: str = ""

    def as_data(self) -> dict[str, object]:
        """As JSON-ready values."""
        return vars(self) | {"ids": list(self.ids)}

    @property
    def words(self) -> str:
        """`“753”`, as sentences quote it."""
        return quoted(self.text)

    def explains(self, place: int, piece: str) -> str:
        """Which of its tokens is explained: `token 2 of 3 of the answer: "7"`."""
        return f'token {place + 1} of {len(self.ids)} of the answer: "{piece}"'


def answer_after(trace: Trace, text: str | None = None) -> Answer:
    """The answer of a text; of None the number or block the prompt asks for, else the likeliest token.

    Of a block that is as much as the model was trained to answer. Where the model writes white space first,
    the likeliest token after it, and both are the answer.
    Raises PromptError for a text of no token, of too many, or without a tokenizer.
    """
    tokenizer, last = trace.model.tokenizer, trace.tokens.ids[-1]
    words, source = _asked(trace, text)
    if words:
        ids = _ids_after(trace, words)
        place = carrying(tokenizer, last, ids)
        piece = tokenizer.pieces(ids)[place] if tokenizer else ""
        return Answer(ids, words, source, place, piece)
    after = past_white_space(trace)
    best = top_tokens(after, len(after.tokens) - 1, 1)[0]
    ids = (*after.tokens.ids[len(trace.tokens) :], best.id)
    words = "".join(tokenizer.pieces(ids)) if tokenizer else best.piece
    return Answer(ids, words, "likeliest", len(ids) - 1, best.piece)


def _asked(trace: Trace, text: str | None) -> tuple[str | None, AnswerSource]:
    """The text, else what the prompt asks for; None where it asks for nothing, or without a tokenizer."""
    if text:
        return text, "given"
    if trace.model.tokenizer is None:
        return None, "likeliest"
    value = asked_value(trace.tokens)
    return (asked_block(trace), "block") if value is None else (f" {value}", "needle")


def carrying(tokenizer: Tokenizer | None, before: int, ids: Sequence[int]) -> int:
    """The place of the first token after the token `before` that is not only white space; 0 where all are.

    Some tokenizers have a token of their own for the space before a word. Without a tokenizer it is 0.
    """
    if tokenizer is None:
        return 0
    return next((at for at, id in enumerate(ids) if not is_white_space(tokenizer, before, id)), 0)


def is_white_space(tokenizer: Tokenizer, before: int, id: int) -> bool:
    """Whether a token writes white space alone where it follows another; alone some write nothing."""
    text = tokenizer.decode((before, id)).removeprefix(tokenizer.decode((before,)))
    return bool(text) and text.isspace()


def past_white_space(trace: Trace) -> Trace:
    """The run going on with the white space the model writes first; the same run where it writes none."""
    tokenizer, run = trace.model.tokenizer, trace
    for _ in range(MOST_WHITE_SPACE + 1):
        best = int(run.logits(slice(-1, None))[0].argmax())
        if tokenizer is None or not is_white_space(tokenizer, trace.tokens.ids[-1], best):
            return run
        run = capture(trace.model, (*run.tokens.ids, best))
    return trace  # nothing but white space


def asked_value(tokens: Tokens) -> str | None:
    """The number a needle prompt's text gives what it asks for; None for other prompts."""
    span = asked_span(needle_spans(tokens))
    if span is None or tokens.text is None:
        return None
    value = _VALUE.search(tokens.text[tokens.spans[span.start][0] : tokens.spans[span.stop - 1][1]])
    return value[1] if value else None


def _ids_after(trace: Trace, text: str) -> tuple[int, ...]:
    """The ids that continue the prompt with the text, as the tokenizer writes the two together."""
    tokenizer, prompt = trace.model.tokenizer, trace.tokens
    if tokenizer is None:
        raise PromptError("an answer in words needs the model's tokenizer; choose its file first")
    ids = plain_ids(tokenizer, text)
    if prompt.text is not None:
        whole = tokenizer.encode(prompt.text + text).ids
        ids = whole[len(prompt) :] if whole[: len(prompt)] == prompt.ids else ids
    if not 1 <= len(ids) <= MAX_TOKENS:
        raise PromptError(f"the answer {text!r} has {len(ids)} tokens; expected 1 to {MAX_TOKENS}")
    return ids


@dataclass(frozen=True)
class Standing:
    """How an answer stands. `log_probability` of all its tokens in nats, each after the ones before it.

    `rank`: the largest of its tokens' ranks, 1 for the answer that is written when each step takes the
    likeliest token; None where logits are not finite.
    """

    log_probability: float
    rank: int | None

    @property
    def log_odds(self) -> float:
        """log(p / (1 - p)), in nats."""
        return log_odds(self.log_probability)

    @property
    def probability(self) -> float:
        """0..1."""
        return math.exp(self.log_probability)

    def words(self) -> str:
        """`log-odds +9.31, rank 1, probability 1.000`; of one below 0.001 as `2.1e-6`."""
        stands = f"log-odds {self.log_odds:+.2f}, rank {self.rank}"
        return f"{stands}, probability {probability_text(self.probability)}"

    def as_data(self) -> dict[str, float | int | None]:
        """Plain values, what moves most first."""
        return {"log_odds": self.log_odds, **vars(self), "probability": self.probability}


class AnswerMeter:
    """How probable an answer is under a plan. The prompt, with the answer after it, runs once.

    A plan then runs the layers from its first change on. `before`: log-probability of the whole answer
    in the original model, in nats: the sum over its tokens, each after the ones before it. `run`: of the
    prompt with all of the answer but its last token after it.
    """

    def __init__(self, trace: Trace, answer: Answer) -> None:
        self.trace, self.answer = trace, answer
        more = answer.ids[:-1]
        self.run = capture(trace.model, (*trace.tokens.ids, *more)) if more else trace
        self.before = self.log_probability(())

    def log_probability(self, plan: Sequence[Intervention], sources: Sources | None = None) -> float:
        """Of the whole answer under `plan`, in nats; NaN where logits are NaN.

        `sources` and what is raised: as of `operated`.
        """
        return float(self._of_answer(self._log_probabilities(plan, sources)).sum())

    def standing(self, plan: Sequence[Intervention] = ()) -> Standing:
        """The answer under `plan` among all tokens that could stand in its place."""
        every = self._log_probabilities(plan, None)
        own = self._of_answer(every)
        rank = int((1 + (every > own).sum(-1)).max()) if bool(every.isfinite().all()) else None
        return Standing(float(own.sum()), rank)

    def _of_answer(self, every: Float[Tensor, "token vocab"]) -> Float[Tensor, "token 1"]:
        return every.gather(-1, torch.tensor(self.answer.ids)[:, None])

    def _log_probabilities(
        self, plan: Sequence[Intervention], sources: Sources | None
    ) -> Float[Tensor, "token vocab"]:
        """Of every token in the place of each of the answer's, float64."""
        first = first_layer(plan, self.trace.model.config.n_layers)
        model = operated(self.trace.model, plan, len(self.trace.tokens), sources)
        resid = self.run.residuals[first][None].to(model.dtype)
        return last_logits(model, resid, first, len(self.answer.ids))[0].double().log_softmax(-1).cpu()


def first_layer(plan: Sequence[Intervention], n_layers: int) -> int:
    """The first layer a plan changes; `n_layers` for an empty one."""
    return min((intervention.layer for intervention in plan), default=n_layers)


def log_odds(log_probability: float) -> float:
    """log(p / (1 - p)) in nats; infinite at p = 1."""
    rest = -math.expm1(log_probability)
    return log_probability - math.log(rest) if rest > 0 else math.inf


TOP = 5


@dataclass(frozen=True)
class TokenChange:
    """A next token's probability in the original run and in the edited one."""

    id: int
    piece: str
    before: float
    after: float


@dataclass(frozen=True)
class Board:
    """The answer and the likeliest next tokens, in the original run and in the edited one.

    `before`, `after`: log-probability of the answer in nats. `top`: the five likeliest tokens of the
    original run, most probable first, then those of the edited run that are not among them.
    """

    plan: Plan
    answer: Answer
    before: float
    after: float
    top: tuple[TokenChange, ...]

    @property
    def change(self) -> float:
        """What the plan adds to the answer's log-probability, in nats."""
        return self.after - self.before

    @property
    def log_odds_change(self) -> float:
        """What it adds to the answer's log-odds, in nats."""
        return log_odds(self.after) - log_odds(self.before)


def rerun(trace: Trace, plan: Sequence[Intervention], progress: Progress = ignore) -> Trace:
    """The same prompt through the edited model; layers below the first change are not run again.

    Raises ConfigError and PromptError as `operated` does; raise in `progress` to stop.
    """
    n_layers = trace.model.config.n_layers
    first, model = first_layer(plan, n_layers), operated(trace.model, plan, len(trace.tokens))
    rows, resid = list(trace.residuals[: first + 1]), trace.residuals[first][None].to(model.dtype)
    for layer in range(first, n_layers):
        resid = after_layer(model, resid, layer)
        rows.append(resid[0].float())
        progress((layer + 1 - first) / (n_layers - first))
    return Trace(trace.tokens, torch.stack(rows), model)


def answer_board(meter: AnswerMeter, edited_run: Trace, plan: Sequence[Intervention]) -> Board:
    """Both runs' answers. Raises MtaVizError where a run's logits are NaN."""
    after = meter.log_probability(plan)
    top = tuple(TokenChange(*token) for token in likeliest(meter.trace, edited_run))
    return Board(tuple(plan), meter.answer, meter.before, after, top)


def likeliest(a: Trace, b: Trace) -> list[tuple[int, str, float, float]]:
    """A's five likeliest next tokens, then those of B's five that are not among them.

    Id, label, probability in A and in B; the ids mean the same in both. Raises MtaVizError where a run's
    logits are NaN.
    """
    pieces: dict[int, str] = {}
    for run in (a, b):
        tokens = top_tokens(run, len(run.tokens) - 1, TOP)
        pieces |= {token.id: token.piece for token in tokens if token.id not in pieces}
    before, after = (run.logits(slice(-1, None))[0].softmax(0)[list(pieces)].tolist() for run in (a, b))
    return [(*token, *p) for token, *p in zip(pieces.items(), before, after, strict=True)]


def unchanged_without_a_plan(trace: Trace) -> bool:
    """Whether the model made with an empty plan gives this run again, bit by bit."""
    again = capture(edited(trace.model, ()), trace.tokens)
    return torch.equal(*(run.residuals.view(torch.int32) for run in (again, trace)))  # NaN equals itself


@dataclass(frozen=True)
class TwinAnswer:
    """The plain twin on the same prompt.

    `writes`: the likeliest continuation, as long as the model's answer; `own`: how that stands,
    `standing`: how the model's answer does.
    """

    name: str
    writes: str
    own: Standing
    standing: Standing

    def words(self, answer: Answer) -> str:
        """What it writes, and how the model's `answer` stands with it."""
        own = probability_text(self.own.probability)
        writes = f"{self.name} writes {quoted(self.writes)} (probability {own})"
        return f"{writes}; it gives {answer.words} {self.standing.words()}"


def written(model: HookedMTA, ids: tuple[int, ...]) -> str:
    """The text of ids; the ids themselves where there is no tokenizer."""
    return model.tokenizer.decode(ids) if model.tokenizer else " ".join(map(str, ids))


def twin_of_model(model: HookedMTA) -> HookedMTA | Absent:
    """The base of an adapter, else the plain twin beside the model's folder, on its device in its dtype.

    `Absent` says why there is none.
    """
    if not any(model.config.kernels(layer).any for layer in range(model.config.n_layers)):
        return Absent("This model is plain itself.")
    source = model.source
    place = None if source is None else source.base or plain_twin(source.path)
    if place is None:
        return Absent("No plain twin lies beside this model.")
    try:
        return load(place, device=str(model.device), dtype=model.dtype)
    except MtaVizError as error:
        return Absent(f"The plain twin cannot be read: {error}")


def twin_answer(twin: HookedMTA | Absent | None, tokens: Tokens, answer: Answer) -> TwinAnswer | Absent:
    """What the twin makes of the same tokens."""
    if twin is None or isinstance(twin, Absent):
        return twin or Absent("No plain twin was given.")
    if tokens.text is not None and (
        twin.tokenizer is None or twin.tokenizer.encode(tokens.text).ids != tokens.ids
    ):
        return Absent("The plain twin has another vocabulary.")
    try:
        run = capture(twin, tokens)
        ids = generate(twin, tokens, len(answer.ids))
        own = AnswerMeter(run, replace(answer, ids=ids)).standing() if ids else Standing(math.nan, None)
        standing = AnswerMeter(run, answer).standing()
    except MtaVizError as error:
        return Absent(f"The plain twin cannot run this prompt: {error}")
    name = "plain twin" if twin.source is None else twin.source.path.absolute().name
    return TwinAnswer(name, written(twin, ids), own, standing)
